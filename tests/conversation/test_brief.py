"""The brief of a stored conversation on several branches. The sync twin of this file is generated."""

from __future__ import annotations

from typing import Any

import pytest

from longtalk import AsyncConversation, InputError, Memory
from longtalk.stores.base import Commit
from longtalk.stores.in_memory import InMemory
from longtalk.testing import AsyncScripted, says
from tests.support.store_proxies import StoreProxy

pytestmark = pytest.mark.anyio

NOTES = says("", calls=[("c1", "update_memory", {"changes": {"fact": ["The strings cost 62 euros"]}})])
POLICY = Memory(recall=0, capture="tool")


async def note(store: Any, *answers: Any) -> AsyncConversation:
    """Return a conversation whose first answer notes a line."""
    model = AsyncScripted(NOTES, says("Good."), *(says(each) for each in answers or ("Fine.",) * 9))
    talk = AsyncConversation("c", model=model, store=store, policy=POLICY)
    await talk.send("What do they cost?")
    return talk


async def read(talk: AsyncConversation) -> list[tuple[str, str, int]]:
    return [(line.text, line.entry, line.at) for line in await talk.brief.lines()]


async def last_request(talk: AsyncConversation) -> str:
    provider: Any = talk._engine.provider
    return str(provider.requests[-1].decode())


async def test_a_forgotten_line_is_put_back_on_all_branches_with_its_source_and_date() -> None:
    talk = await note(InMemory())
    other = await talk.fork()
    before = await read(talk)
    (line,) = await talk.brief.lines()
    await talk.brief.revoke(line.id, everywhere=True)
    assert (await read(talk), await read(other)) == ([], [])
    await talk.brief.restore(line.id, everywhere=True)
    assert (await read(talk), await read(other)) == (before, before)
    assert (await talk.brief.archived(), await other.brief.archived()) == ((), ())


async def test_a_line_stays_forgotten_on_the_other_branches_unless_it_is_put_back_everywhere() -> None:
    talk = await note(InMemory())
    other = await talk.fork()
    (line,) = await talk.brief.lines()
    await talk.brief.revoke(line.id, everywhere=True)
    await talk.brief.restore(line.id)
    assert (len(await read(talk)), await read(other)) == (1, [])


async def test_a_line_is_not_put_back_on_a_branch_from_which_the_model_removed_it() -> None:
    talk = await note(InMemory())
    other = await talk.fork()
    (line,) = await talk.brief.lines()
    await other.brief.remove("facts", line.id)
    await talk.brief.revoke(line.id, everywhere=True)
    await talk.brief.restore(line.id, everywhere=True)
    assert (len(await read(talk)), await read(other)) == (1, [])


async def test_the_next_request_has_a_line_that_was_put_back_and_the_model_may_state_it_again() -> None:
    talk = await note(InMemory())
    (line,) = await talk.brief.lines()
    await talk.brief.revoke(line.id)
    await talk.send("And now?")
    assert "62 euros" not in await last_request(talk)
    await talk.brief.restore(line.id)
    await talk.send("And now?")
    assert "fact: The strings cost 62 euros" in await last_request(talk)
    assert not any(change.revoked for change in (await talk.brief.changes())[2:])


async def test_a_line_that_was_not_removed_can_not_be_put_back() -> None:
    talk = await note(InMemory())
    (line,) = await talk.brief.lines()
    with pytest.raises(InputError, match="`archived`"):
        await talk.brief.restore(line.id)


async def test_a_line_that_was_corrected_everywhere_is_forgotten_everywhere() -> None:
    talk = await note(InMemory())
    other = await talk.fork()
    (line,) = await talk.brief.lines()
    await talk.brief.replace(line.id, "The strings cost 68 euros", everywhere=True)
    (line,) = await talk.brief.lines()
    await talk.brief.revoke(line.id, everywhere=True)
    assert (await read(talk), await read(other)) == ([], [])


async def test_the_messages_that_still_say_what_was_forgotten_are_named_with_its_date() -> None:
    talk = await note(InMemory())
    await talk.send("Do 62 euros buy good strings?")
    (line,) = await talk.brief.lines()
    (said,) = await talk.brief.statements()
    assert (said.line, said.outdated, said.changed) == (line.id, (), 0)
    await talk.brief.revoke(line.id)
    (said,) = await talk.brief.statements()
    asked = next(each.position for each in await talk.history() if "62" in each.text)
    assert (said.line, said.says, said.forgotten) == (line.id, (), True)
    assert asked in said.outdated
    assert said.changed == (await talk.brief.changes())[-1].at


class _FailingStore(StoreProxy):
    """A store that fails when a branch is written for the first time."""

    def __init__(self, store: InMemory, branch: str) -> None:
        super().__init__(store)
        self.fails_on = branch

    def write(self, owner: str, conversation: str, commit: Commit) -> Any:
        if commit.branch == self.fails_on:
            self.fails_on = ""
            raise OSError("disk full")
        return self._store.write(owner, conversation, commit)


@pytest.mark.parametrize("how", ["replace", "revoke", "restore"])
@pytest.mark.parametrize("branch", ["main", "other"])
async def test_a_change_of_all_branches_that_failed_on_one_is_completed_when_it_is_repeated(
    how: str, branch: str
) -> None:
    store = InMemory()
    talk = await note(store)
    other = await talk.fork(name="other")
    (line,) = await talk.brief.lines()
    if how == "restore":
        await talk.brief.revoke(line.id, everywhere=True)
    failing: Any = _FailingStore(store, branch)
    brief = AsyncConversation("c", model=AsyncScripted(), store=failing, policy=POLICY).brief

    async def change() -> None:
        if how == "replace":
            await brief.replace(line.id, "The strings cost 68 euros", everywhere=True)
        elif how == "revoke":
            await brief.revoke(line.id, everywhere=True)
        else:
            await brief.restore(line.id, everywhere=True)

    with pytest.raises(OSError, match="disk full"):
        await change()
    await change()
    expected = {"replace": ["The strings cost 68 euros"], "revoke": [], "restore": ["The strings cost 62 euros"]}[how]
    for each in (talk, other):
        fresh = AsyncConversation("c", model=AsyncScripted(), store=store, policy=POLICY, branch=each.branch)
        assert [text for text, *_ in await read(fresh)] == expected
