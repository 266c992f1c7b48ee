"""Steps on conversations in stores: turns, branches, notes, marks and collisions."""

from __future__ import annotations

from typing import Any

from longtalk import ToolOutput
from longtalk.errors import (
    Busy,
    ContextOverflow,
    InputError,
    KeyReused,
    LongtalkError,
    PinRefused,
    TurnFailed,
)
from longtalk.policies.base import find_brief_keeper
from longtalk.testing import says
from longtalk.wires import WIRES
from tests.soak.checks import (
    check_new_entries,
    check_reply,
    check_requests,
    check_shown,
    compare,
)
from tests.soak.settings import Setting, change
from tests.soak.turns import Outcome, Plan, check_outcome, draw_plan, run
from tests.soak.world import MARK, OWNERS, Broken, Known, Talk, World

NAMES = ("lesson", "diary", "notes 日本", "a/b")


def begin(world: World) -> None:
    """Begin a conversation, perhaps with the name of one that another owner has or that was deleted."""
    rng = world.rng
    place, owner, name = rng.choice("aab"), rng.choice(OWNERS), rng.choice(NAMES)
    if any((each.store, each.owner, each.name) == (place, owner, name) for each in world.talks):
        name = f"{name} {world.next_number()}"
    setting = Setting()
    for _ in range(3):
        setting = change(rng, setting)
    talk = Talk(world.next_number(), owner, name, place, setting)
    world.talks.append(talk)
    world.tell(f"begin {talk.label} in {place} with {setting}")
    send(world, talk, "main")


def send(world: World, talk: Talk, branch: str) -> None:
    """Run a turn with a new message."""
    plan = draw_plan(world, talk.setting, world.make_mark(talk), stored=True)
    if world.rng.random() < 0.2:
        plan.arguments["key"] = f"key {world.next_number()}"
    play(world, talk, branch, plan)


def resume(world: World, talk: Talk, branch: str) -> None:
    play(world, talk, branch, draw_plan(world, talk.setting, None, stored=True))


def give_results(world: World, talk: Talk, branch: str) -> None:
    """Send the results of calls that wait."""
    outputs = [
        ToolOutput(call.id, f"paid {world.rng.randrange(99)}", error=world.rng.random() < 0.2)
        for call in talk.waiting.get(branch, ())
    ]
    play(world, talk, branch, draw_plan(world, talk.setting, None, outputs or None, stored=True))


def play(world: World, talk: Talk, branch: str, plan: Plan) -> None:
    """Run a turn, and take what it has left as acknowledged if it is as it must be."""
    setting = talk.setting
    world.tell(f"{talk.label} {branch}: {plan}")
    world.servers.faults[setting.provider].extend(plan.faults)

    def open_it(is_async: bool) -> Any:
        if is_async:
            return world.opener.open_talk(setting, world.get_store(talk), talk.owner, talk.name, branch, is_async=True)
        return world.open(talk, branch, again=world.rng.random() < 0.7)

    outcome = run(open_it, plan)
    world.servers.clear_faults()
    world.tell(f"  {outcome}")
    requests = check_requests(world, talk, find_hidden(talk, branch))
    if not may_refuse(plan, outcome):
        check_outcome(plan, outcome, setting)
    absorb(world, talk, branch, plan, outcome)
    if outcome.finished and plan.mark and requests and plan.mark not in requests[-1].decode(errors="replace"):
        raise Broken(f"The last request of the turn does not have its message {plan.mark}.")
    remember_key(talk, branch, plan, outcome)


def may_refuse(plan: Plan, outcome: Outcome) -> bool:
    """Return whether a turn without a message may be refused: nothing to go on with, or only on another wire."""
    return plan.mark is None and isinstance(outcome.problem, InputError)


def absorb(world: World, talk: Talk, branch: str, plan: Plan, outcome: Outcome) -> None:
    found, known = world.read(talk, branch), talk.paths.get(branch, [])
    where = f"{talk.label} on {branch!r}"
    compare(known, found[: len(known)], where)
    reply = outcome.reply
    refused = isinstance(outcome.problem, InputError)
    begun = reply is not None and (outcome.problem is None or reply.entries)
    failed = isinstance(outcome.problem, TurnFailed) and not isinstance(outcome.problem, ContextOverflow)
    least = 1 if begun or failed else 0
    if outcome.problem is None and reply is None:
        least = 0
    new = found[len(known) :]
    check_new_entries(new, reply, plan.mark, least=least, most=0 if refused else 1, where=where)
    if found or branch in talk.paths:
        talk.paths[branch] = found
    talk.waiting.pop(branch, None)
    if reply is None:
        return
    if outcome.shown and found:
        old = {entry.id for entry in known}
        told = [each for each in world.get_archive(talk).history(talk.name, branch=branch) if each.id not in old]
        check_shown(outcome.shown, (each.text for each in told if each.role == "assistant"), where)
    if outcome.problem is None:
        check_reply(talk.setting, reply)
        if reply.calls:
            talk.waiting[branch] = reply.calls


def remember_key(talk: Talk, branch: str, plan: Plan, outcome: Outcome) -> None:
    if "key" in plan.arguments and outcome.finished and not outcome.reply.calls:
        talk.keys[plan.arguments["key"]] = (branch, plan.message, outcome.reply.turn_id)


def find_hidden(talk: Talk, branch: str) -> set[str]:
    """Return the words that no request on a branch may contain, unless an entry that is sent has them too."""
    excluded = talk.excluded.get(branch, {})
    rest = "".join(entry.words for entry in talk.paths.get(branch, ()) if entry.id.rpartition("-")[0] not in excluded)
    return {word for word in talk.get_hidden(branch) if word not in rest}


def repeat_key(world: World, talk: Talk, branch: str) -> None:
    """Send a request again whose turn is complete: nothing happens, and the same reply comes."""
    if not talk.keys:
        return
    key = world.rng.choice(sorted(talk.keys))
    branch, message, turn = talk.keys[key]
    world.tell(f"{talk.label}: repeat {key!r}")
    opened = world.open(talk, branch if branch in talk.paths else "main")
    reply = opened.send(message, key=key)
    if reply.turn_id != turn or world.servers.take_requests():
        raise Broken(f"A repeated request made another turn: {reply.turn_id} in place of {turn}.")
    try:
        other = opened.send("Something else.", key=key)
    except KeyReused:
        return
    if other.turn_id != turn:
        raise Broken("A key was used for two requests.")


# Without a model


def note(world: World, talk: Talk, branch: str) -> None:
    mark = world.make_mark(talk)
    world.tell(f"{talk.label} {branch}: note {mark}")
    added = world.open(talk, branch).note(f"{mark} happened. {'Again. ' * world.rng.randrange(40)}", source="app")
    take_added(world, talk, branch, [added])


def append(world: World, talk: Talk, branch: str) -> None:
    mark, wire = world.make_mark(talk), WIRES[talk.setting.wire]
    answer = wire.parse(says(f"I am a person, {mark}.", wire=talk.setting.wire).body).native
    world.tell(f"{talk.label} {branch}: append {mark}")
    try:
        added = world.open(talk, branch).append([wire.write_user(f"Is there a person? {mark}"), answer])
    except InputError as problem:
        world.tell(f"  refused: {problem}")
        # Calls may wait for the caller, or for a process that was killed.
        if not talk.waiting.get(branch) and "is missing before" not in str(problem):
            raise Broken(f"Messages were refused without a reason: {problem}") from problem
        return
    take_added(world, talk, branch, added)


def take_added(world: World, talk: Talk, branch: str, ids: list[str]) -> None:
    """Take entries without a turn as acknowledged. Results that close open calls may come before them."""
    known, found = talk.paths.get(branch, []), world.read(talk, branch)
    compare(known, found[: len(known)], f"{talk.label} on {branch!r}")
    new = found[len(known) :]
    if [entry.id for entry in new[-len(ids) :]] != ids or any(entry.role != "tool" for entry in new[: -len(ids)]):
        raise Broken(f"{talk.label}: {ids} were added, and {new} is there.")
    talk.paths[branch] = found
    talk.waiting.pop(branch, None)


def pick_entry(world: World, talk: Talk, branch: str, role: str | None = None) -> tuple[int, Known] | None:
    """Return the position of an entry and the entry, or None."""
    entries = [(i, each) for i, each in enumerate(talk.paths[branch]) if role is None or each.role == role]
    return world.rng.choice(entries) if entries else None


def get_turn(entry: Known) -> str:
    return entry.id.rpartition("-")[0]


def mark_exchange(world: World, talk: Talk, branch: str) -> None:
    """Pin, unpin, exclude or include an exchange."""
    picked = pick_entry(world, talk, branch, "user")
    if picked is None:
        return
    turn = get_turn(picked[1])
    opened, hidden = world.open(talk, branch), talk.excluded.setdefault(branch, {})
    method = world.rng.choice(["pin", "unpin", "exclude", "exclude", "include"])
    target = world.rng.choice([turn, picked[1].id])
    world.tell(f"{talk.label} {branch}: {method} {picked[0]}")
    try:
        getattr(opened, method)(target)
    except (PinRefused, InputError) as problem:
        # What is not marked can't be unmarked, and what is too long can't be pinned.
        # The turn of a process that was killed has not ended.
        if method == "exclude" and turn != get_turn(talk.paths[branch][-1]):
            raise Broken(f"An exclusion was refused: {problem}") from problem
        return
    if method == "exclude":
        hidden[turn] = set(MARK.findall(picked[1].native.decode(errors="replace")))
    elif method == "include":
        # An exchange of several turns comes back as a whole.
        hidden.clear()


def change_brief(world: World, talk: Talk, branch: str) -> None:
    if not find_brief_keeper(talk.setting.policy):
        return
    brief, number = world.open(talk, branch).brief, world.rng.randrange(9)
    world.tell(f"{talk.label} {branch}: brief {number}")
    brief.add("facts", f"Fact number {number}.")
    if number < 3:
        brief.clear("facts")
    elif number < 5:
        for line in brief.lines()[:1]:
            brief.revoke(line.id)


# Branches


def fork(world: World, talk: Talk, branch: str) -> None:
    position, entry = pick_entry(world, talk, branch) or (0, None)
    if entry is None or len(talk.paths) > 6:
        return
    at = world.rng.choice([None, entry.id])
    world.tell(f"{talk.label} {branch}: fork at {position if at else 'the end'}")
    made = world.open(talk, branch).fork(at=at, name=world.rng.choice([None, f"aside {world.next_number()}"]))
    take_branch(world, talk, branch, made.branch, len(talk.paths[branch]) if at is None else position + 1)
    if at is None:
        talk.excluded[made.branch] = dict(talk.excluded.get(branch, {}))
        if branch in talk.waiting:
            talk.waiting[made.branch] = talk.waiting[branch]


def take_branch(world: World, talk: Talk, branch: str, name: str, size: int) -> None:
    """Take a new branch as acknowledged. Results that close open calls may end it."""
    found = world.read(talk, name)
    compare(talk.paths[branch][:size], found[:size], f"{talk.label} on {name!r}")
    if any(entry.role != "tool" for entry in found[size:]):
        raise Broken(f"{talk.label} on {name!r} has {found[size:]} too.")
    talk.paths[name] = found


def rewind(world: World, talk: Talk, branch: str) -> None:
    picked = pick_entry(world, talk, branch)
    if picked is None or len(talk.paths) > 6:
        return
    position, entry = picked
    world.tell(f"{talk.label} {branch}: rewind to {position}")
    before = talk.paths[branch]
    kept = world.open(talk, branch).rewind(entry.id)
    talk.paths[kept] = before
    take_branch(world, talk, kept, branch, position + 1)
    talk.excluded[kept] = talk.excluded.pop(branch, {})
    talk.waiting.pop(branch, None)


def answer_again(world: World, talk: Talk, branch: str) -> None:
    """Edit a message, or have one answered again: both make a branch."""
    picked = pick_entry(world, talk, branch, "user")
    if picked is None or len(talk.paths) > 6:
        return
    position, entry = picked
    mark = world.make_mark(talk) if world.rng.random() < 0.5 else None
    plan = draw_plan(world, talk.setting, mark, stored=True)
    plan.arguments.pop("brief", None)
    world.tell(f"{talk.label} {branch}: {'edit' if mark else 'regenerate'} {position}: {plan}")
    opened = world.open(talk, branch)
    world.servers.faults[talk.setting.provider].extend(plan.faults)
    made, outcome = "", Outcome()
    try:
        if mark:
            other, outcome.reply = opened.edit(entry.id, plan.message, **plan.arguments)
        else:
            plan.arguments.pop("meta", None)
            other, outcome.reply = opened.regenerate(get_turn(entry), **plan.arguments)
        made, outcome.finished = other.branch, True
    except LongtalkError as problem:
        outcome.problem, outcome.reply = problem, getattr(problem, "partial", None)
    world.servers.clear_faults()
    world.tell(f"  {outcome} on {made!r}")
    check_requests(world, talk, talk.gone)
    if not may_refuse(plan, outcome):
        check_outcome(plan, outcome, talk.setting)
    for name in world.list_branches(talk) - set(talk.paths):
        found = world.read(talk, name)
        pairs = list(zip(found, talk.paths[branch], strict=False))
        same = next((i for i, (one, other) in enumerate(pairs) if one != other), len(pairs))
        if same > position + 1 or (mark and same > position):
            raise Broken(f"{talk.label}: the branch {name!r} shares {same} entries, and {position} was replaced.")
        check_new_entries(found[same:], outcome.reply, mark, least=0, most=1, where=f"{talk.label} on {name!r}")
        talk.paths[name] = found
        if outcome.problem is None and outcome.reply.calls:
            talk.waiting[name] = outcome.reply.calls
    if outcome.finished and made not in talk.paths:
        raise Broken(f"The branch {made!r} of an answer does not exist.")


def collide(world: World, talk: Talk, branch: str) -> None:
    """Run a turn while another one runs on the branch; perhaps the first one's lease has ended."""
    rng, setting = world.rng, talk.setting
    first = draw_plan(world, setting, world.make_mark(talk), stored=True)
    first.faults = []
    second = world.make_mark(talk)
    taken_over, on_busy = rng.random() < 0.3, rng.choice(["reject", "fork"])
    world.tell(f"{talk.label} {branch}: collide {first.mark} {second} {on_busy}, taken over: {taken_over}")
    # Not the world's own objects, which it closes when there are too many.
    where = (setting, world.get_store(talk), talk.owner, talk.name, branch)
    one, other = world.opener.open_talk(*where), world.opener.open_talk(*where)
    stream = one.stream(first.message, system=setting.system)
    stop = rng.randrange(6)
    for number, _ in enumerate(stream):
        if number == stop:
            break
    else:
        taken_over = False
    if taken_over:
        world.clock.at += 40_000
    running = number == stop
    made = None
    try:
        made = other.send(f"{second} now", system=setting.system, on_busy=on_busy)
    except Busy:
        # The lease may have been renewed after the clock has jumped.
        if not running or on_busy == "fork":
            raise
    except ContextOverflow as problem:
        if setting.window is None:
            raise Broken(f"A turn failed without a reason: {problem}") from problem
    try:
        for _ in stream:
            pass
    except TurnFailed as problem:
        if not isinstance(problem, ContextOverflow) and not taken_over:
            raise Broken(f"A turn failed without a reason: {problem}") from problem
    finally:
        stream.close()
        one.close()
        other.close()
    world.servers.take_requests()
    found = {name: world.read(talk, name) for name in world.list_branches(talk)}
    compare(talk.paths.get(branch, []), found[branch][: len(talk.paths.get(branch, []))], f"{talk.label} on {branch!r}")
    for mark, needed in ((first.mark, True), (second, made is not None)):
        holders = [
            name for name, entries in found.items() if any(mark and mark.encode() in each.native for each in entries)
        ]
        if needed and not holders:
            raise Broken(f"{talk.label}: {mark} was acknowledged and is on no branch.")
    talk.paths = found
    talk.waiting.clear()
