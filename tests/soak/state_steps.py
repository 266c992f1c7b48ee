"""Steps on conversations in states that the caller holds: plain, sealed, and with parts that were shed."""

from __future__ import annotations

from typing import Any

from longtalk import ToolOutput, history, join, peek
from longtalk.errors import BadState, InputError, PinRefused
from longtalk.events import Checkpoint
from longtalk.testing import says
from longtalk.wires import WIRES
from tests.soak.checks import check_new_entries, check_reply, check_requests, check_shown, compare, read_held
from tests.soak.settings import Setting, change
from tests.soak.turns import Outcome, Plan, check_outcome, draw_plan, run
from tests.soak.world import MARK, Broken, Held, Known, World


def begin(world: World) -> None:
    rng = world.rng
    setting = change(rng, change(rng, Setting()))
    held = Held(world.next_number(), setting)
    if rng.random() < 0.5:
        held.seal = world.seal.to(owner=rng.choice(["ada", "bob"]), conversation=f"c{held.number}")
    world.held.append(held)
    world.tell(f"begin state {held.number}, sealed: {held.seal is not None}, with {setting}")
    send(world, held)


def send(world: World, held: Held) -> None:
    play(world, held, draw_plan(world, held.setting, world.make_mark(held), stored=False))


def resume(world: World, held: Held) -> None:
    play(world, held, draw_plan(world, held.setting, None, stored=False))


def give_results(world: World, held: Held) -> None:
    outputs = [ToolOutput(call.id, f"paid {world.rng.randrange(99)}") for call in held.waiting]
    play(world, held, draw_plan(world, held.setting, None, outputs or None, stored=False))


def play(world: World, held: Held, plan: Plan) -> None:
    setting = held.setting
    carry = "context" if setting.policy.compactors and world.rng.random() < 0.3 else "all"
    world.tell(f"state {held.number}: {plan} carry={carry}")
    world.servers.faults[setting.provider].extend(plan.faults)
    opened: list[Any] = []

    def open_it(is_async: bool) -> Any:
        chat = world.opener.open_chat(setting, is_async=is_async, carry=carry)
        opened.extend([] if is_async else [chat])
        return chat

    outcome = run(open_it, plan, state=held.state, **({"seal": held.seal} if held.seal else {}))
    for chat in opened:
        chat.close()
    world.servers.clear_faults()
    world.tell(f"  {outcome}")
    requests = check_requests(world, held, find_hidden(held))
    if not (plan.mark is None and isinstance(outcome.problem, InputError)):
        check_outcome(plan, outcome, setting)
    absorb(held, plan, outcome)
    if outcome.finished and plan.mark and requests and plan.mark not in requests[-1].decode(errors="replace"):
        raise Broken(f"The last request of the turn does not have its message {plan.mark}.")


def absorb(held: Held, plan: Plan, outcome: Outcome) -> None:
    reply = outcome.reply
    if reply is None:
        # A failed turn without a reply leaves the state that was passed in.
        state = getattr(outcome.problem, "state", held.state)
        if outcome.problem is not None and not isinstance(outcome.problem, InputError) and state != held.state:
            raise Broken(f"state {held.number}: a turn without a result changed the state.")
        return
    state = reply.state
    parts = [*held.parts, *([reply.shed] if reply.shed else [])]
    found, where = read_held(held, state, parts), f"state {held.number}"
    compare(held.entries, found[: len(held.entries)], where)
    new = found[len(held.entries) :]
    check_new_entries(new, reply, plan.mark, least=1, most=1, where=where)
    if state and held.state and peek(state).revision <= peek(held.state).revision and new:
        raise Broken(f"{where}: the revision does not grow.")
    if outcome.problem is None:
        check_reply(held.setting, reply)
    if outcome.shown:
        old = {entry.id for entry in held.entries}
        told = [each for each in history(join(*parts, state, seal=held.seal), seal=held.seal) if each.id not in old]
        check_shown(outcome.shown, (each.text for each in told if each.role == "assistant"), where)
    held.state, held.parts, held.entries = state, parts, found
    held.waiting = reply.calls if outcome.problem is None else ()


def find_hidden(held: Held) -> set[str]:
    rest = "".join(entry.words for entry in held.entries if entry.id.rpartition("-")[0] not in held.hidden)
    return {word for words in held.hidden.values() for word in words if word not in rest}


def crash(world: World, held: Held) -> None:
    """Lose the process in the middle of a turn, and go on from the last checkpoint."""
    plan = draw_plan(world, held.setting, world.make_mark(held), stored=False)
    stop, latest = world.rng.randrange(20), None
    world.tell(f"state {held.number}: crash at {stop} in {plan}")
    arguments: dict[str, Any] = {**plan.arguments, "state": held.state, "seal": held.seal, "max_rounds": 10}
    with world.opener.open_chat(held.setting) as chat:
        try:
            with chat.stream(plan.message, **arguments) as stream:
                for number, event in enumerate(stream):
                    latest = event.state if isinstance(event, Checkpoint) else latest
                    if number == stop:
                        break
        except Exception as problem:
            check_outcome(Plan(None, None, "", 0, {}), Outcome(problem=problem), held.setting)
    check_requests(world, held, find_hidden(held))
    if latest is None:
        return
    found = read_held(held, latest, held.parts)
    compare(held.entries, found[: len(held.entries)], f"state {held.number}")
    new = found[len(held.entries) :]
    # The first checkpoints may have only the results of calls that an earlier turn has left open.
    least = 1 if any(entry.role != "tool" for entry in new) else 0
    check_new_entries(new, None, plan.mark, least=least, most=1, where=f"state {held.number}")
    held.state, held.entries, held.waiting = latest, found, ()


def note(world: World, held: Held) -> None:
    mark = world.make_mark(held)
    world.tell(f"state {held.number}: note {mark}")
    with world.opener.open_chat(held.setting) as chat:
        take_added(held, chat.note(f"{mark} happened.", state=held.state, seal=held.seal), 1)


def append(world: World, held: Held) -> None:
    mark, wire = world.make_mark(held), WIRES[held.setting.wire]
    answer = wire.parse(says(f"I am a person, {mark}.", wire=held.setting.wire).body).native
    messages: Any = [wire.write_user(f"Is there a person? {mark}"), answer]
    world.tell(f"state {held.number}: append {mark}")
    with world.opener.open_chat(held.setting) as chat:
        try:
            state = chat.append(messages, state=held.state, seal=held.seal)
        except InputError as problem:
            world.tell(f"  refused: {problem}")
            # Calls may wait for the caller, or for the process that made the checkpoint.
            if not held.waiting and "is missing before" not in str(problem):
                raise Broken(f"Messages were refused without a reason: {problem}") from problem
            return
        take_added(held, state, 2)


def take_added(held: Held, state: bytes, number: int) -> None:
    found = read_held(held, state, held.parts)
    compare(held.entries, found[: len(held.entries)], f"state {held.number}")
    new = found[len(held.entries) :]
    if len(new) < number or any(entry.role != "tool" for entry in new[:-number]):
        raise Broken(f"state {held.number}: {number} entries were added, and {new} is there.")
    held.state, held.entries, held.waiting = state, found, ()


def mark_exchange(world: World, held: Held) -> None:
    """Pin, unpin, exclude or include an exchange that is still in the state."""
    said = [entry for entry in held.entries if entry.role == "user"]
    if not said or held.parts or held.state is None:
        return
    entry: Known = world.rng.choice(said)
    method = world.rng.choice(["pin", "unpin", "exclude", "include"])
    turn = entry.id.rpartition("-")[0]
    world.tell(f"state {held.number}: {method} {held.entries.index(entry)}")
    with world.opener.open_chat(held.setting) as chat:
        try:
            held.state = getattr(chat, method)(turn, state=held.state, seal=held.seal)
        except (PinRefused, InputError) as problem:
            # The turn of a checkpoint has not ended.
            if method == "exclude" and turn != held.entries[-1].id.rpartition("-")[0]:
                raise Broken(f"An exclusion was refused: {problem}") from problem
            return
    if method == "exclude":
        held.hidden[turn] = set(MARK.findall(entry.native.decode(errors="replace")))
    elif method == "include":
        held.hidden.clear()


def damage(world: World, held: Held) -> None:
    """Try a damaged state: it is refused with `BadState`, or it is a plain state that still reads as one."""
    if not held.state:
        return
    rng = world.rng
    state = bytearray(held.state)
    match rng.randrange(3):
        case 0:
            state[rng.randrange(len(state))] ^= 1 << rng.randrange(8)
        case 1:
            del state[rng.randrange(len(state)) :]
        case _:
            state[rng.randrange(len(state)) :] = rng.randbytes(9)
    seal = held.seal
    if seal is not None and rng.random() < 0.4:
        state, seal = bytearray(held.state), world.seal.to(owner="eve", conversation=f"c{held.number}")
    world.tell(f"state {held.number}: damage")
    if bytes(state) == held.state and seal is held.seal:
        return
    with world.opener.open_chat(held.setting) as chat:
        try:
            chat.send("Hello?", state=bytes(state), **({"seal": seal} if seal else {}))
        except BadState:
            return
        if bytes(state):
            raise Broken(f"state {held.number}: a damaged state was opened.")
    world.servers.take_requests()
