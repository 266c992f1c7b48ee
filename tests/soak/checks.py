"""The promises: what must hold after every step, whatever the step was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from longtalk import join
from longtalk.errors import InputError, LongtalkError
from longtalk.state.codec import decode
from longtalk.wires import NAMES
from tests.soak.settings import IDEMPOTENT, list_budgets
from tests.soak.world import MARK, SECRET, Broken, Held, Known, Talk, World


def check_nothing_refused(world: World) -> None:
    """No strict server has refused a request."""
    refusals = world.servers.list_refusals()
    if refusals:
        raise Broken(f"A server refused a request: {refusals[0]}")


def check_requests(world: World, talk: Talk | Held, hidden: Iterable[str]) -> list[bytes]:
    """The requests since the last check have nothing of another conversation, and nothing that is hidden."""
    requests = world.servers.take_requests()
    for request in requests:
        text = request.decode(errors="replace")
        strangers = set(MARK.findall(text)) - talk.marks
        if strangers:
            raise Broken(f"A request has {sorted(strangers)[:3]} of another conversation.")
        for word in hidden:
            if word in text:
                raise Broken(f"A request has {word}, which was excluded or redacted.")
    return requests


def check_talk(world: World, talk: Talk) -> None:
    """The store has each branch of a conversation as it was acknowledged, and finds nothing damaged."""
    branches = world.list_branches(talk)
    if branches != set(talk.paths):
        raise Broken(f"{talk.label} has the branches {sorted(branches)} in place of {sorted(talk.paths)}.")
    for branch, known in talk.paths.items():
        compare(known, world.read(talk, branch), f"{talk.label} on {branch!r}")
    if talk.paths:
        archive = world.get_archive(talk)
        archive.verify(talk.name)
        branch = next(iter(talk.paths))
        # Calls of the memory's own tool are not told.
        told = iter(talk.paths[branch])
        for each in archive.history(talk.name, branch=branch):
            if (each.id, each.role, each.native) not in told:
                raise Broken(f"The history of {talk.label} on {branch!r} has {each.id}, which is not there.")


def check_all(world: World) -> None:
    """Every conversation is as acknowledged, and each owner sees exactly their own."""
    for talk in world.talks:
        check_talk(world, talk)
    for place, store in world.stores.items():
        for owner in {talk.owner for talk in world.talks} | {"eve"}:
            seen = {info.id for info in store.conversations(owner, limit=1_000)}
            own = {talk.name for talk in world.talks if (talk.store, talk.owner) == (place, owner) and talk.paths}
            if seen != own:
                raise Broken(f"{owner!r} sees {sorted(seen)} in place of {sorted(own)}.")


def compare(known: Sequence[Known], found: Sequence[Known], where: str) -> None:
    if list(known) == list(found):
        return
    for i, (one, other) in enumerate(zip(known, found, strict=False)):
        if one != other:
            raise Broken(f"Entry {i} of {where} was {one} and is {other}.")
    raise Broken(f"{where} had {len(known)} entries and has {len(found)}: {found[len(known) :] or known[len(found) :]}")


def check_held(world: World, held: Held) -> None:
    """A state, with what it has shed, has exactly what was acknowledged."""
    if held.state is None:
        return
    compare(held.entries, read_held(held, held.state, held.parts), f"state {held.number}")


def read_held(held: Held, state: bytes, parts: Sequence[bytes]) -> list[Known]:
    """Return the entries of a state. Its history would lack the calls of the memory's own tool."""
    whole = join(*parts, state, seal=held.seal)
    plain = held.seal.open(whole) if held.seal else whole
    return [Known(each.id, each.role, bytes(each.native)) for each in decode(plain, wires=NAMES)]


def check_tool_runs(world: World) -> None:
    """No call has run twice, unless its tool is idempotent."""
    if not world.tool_log.exists():
        return
    runs = Counter(world.tool_log.read_text().splitlines())
    for line, times in runs.items():
        if times > 1 and line.split("\t")[0] not in IDEMPOTENT:
            raise Broken(f"A tool ran {times} times: {line}")


def check_reply(setting: Any, reply: Any) -> None:
    """A request keeps the limits of its policy and of the model's window, or a notice says why not."""
    context = reply.context
    if context is None:
        return
    kinds = {notice.kind for notice in reply.notices}
    for limit in list_budgets(setting.policy):
        if context.tokens > limit and "over_limit" not in kinds:
            raise Broken(f"A request has {context.tokens} tokens, and the policy allows {limit}: {sorted(kinds)}.")
    if setting.window is not None and context.tokens > setting.window and "over_limit" not in kinds:
        raise Broken(f"A request has {context.tokens} tokens, and the window {setting.window}.")


def check_new_entries(
    new: Sequence[Known], reply: Any, mark: str | None, *, least: int, most: int, shown: str = "", where: str
) -> None:
    """What a turn has added is its message (between `least` and `most` times), and what its reply says it is."""
    said = [entry for entry in new if entry.role == "user"]
    times = sum(mark in entry.native.decode(errors="replace") for entry in said) if mark else 0
    if mark and not least <= times <= most:
        raise Broken(f"{where}: the message {mark} is there {times} times.")
    if len(said) != times:
        raise Broken(f"{where}: {len(said)} messages in place of {times}: {said}")
    if reply is not None:
        own = [Known(entry.id, entry.role, bytes(entry.native)) for entry in reply.entries]
        if own and list(new[-len(own) :]) != own:
            raise Broken(f"{where}: the reply has the entries {own}, and the store ends with {new}.")
        for entry in new[: len(new) - len(own)]:
            if entry.role != "tool":
                raise Broken(f"{where}: {entry} comes from no turn.")


def check_shown(shown: str, texts: Iterable[str], where: str) -> None:
    """What a stream has shown is in what was kept."""
    kept = "".join(texts)
    if shown not in kept:
        raise Broken(f"{where}: the stream has shown {shown!r}, and {kept!r} was kept.")


def check_is_strange(archive: Any, name: str, own: set[str]) -> None:
    """Another owner can do nothing with a conversation, and does not learn that it exists."""
    for method in ("history", "branches", "meta", "verify", "export", "stats", "talk", "delete", "metrics", "receipts"):
        try:
            result = getattr(archive, method)(name)
        except InputError:
            continue
        raise Broken(f"{method} of another owner's {name!r} gave {str(result)[:200]}.")
    found = {hit.conversation for hit in archive.search("k0c0 You said")}
    if not found <= own:
        raise Broken(f"A search found {sorted(found - own)} of another owner.")


def list_secrets(text: str) -> set[str]:
    return set(SECRET.findall(text))


def is_typed(problem: BaseException) -> bool:
    return isinstance(problem, LongtalkError)
