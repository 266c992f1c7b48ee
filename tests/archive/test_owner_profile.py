"""The profile of an owner: what the model and the app write into it, where it is sent, and what removes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from longtalk import AsyncArchive, AsyncChat, AsyncConversation, InputError, Memory, Recall
from longtalk._util.checks import PROFILE_ID
from longtalk.archive.profile_reading import change_privacy
from longtalk.errors import CorruptStore, NotFound
from longtalk.memory import Field, Profile, Schema
from longtalk.memory.profile.lines import HEADING
from longtalk.policies import KeepAll
from longtalk.policies.base import fingerprint_policy
from longtalk.policies.encoding import decode_policy, encode_policy
from longtalk.policies.notation import format_policy, parse_policy
from longtalk.stores.base import BranchHead, Store
from longtalk.stores.in_memory import InMemory
from longtalk.testing import AsyncScripted, says
from tests.support.card_model import AsyncCardModel, asks_for_card, list_texts, make_answer

pytestmark = pytest.mark.anyio

POLICY = Memory(limit=300, recent=20, recall=0, profile=Profile())
LONG = "I am Ada, I am a violinist, and I have more to say."


def talk(store: Store, name: str = "a", *, card: str = "{}", **more: Any) -> AsyncConversation:
    model = AsyncCardModel(make_answer(card=card))
    return AsyncConversation(name, **{"model": model, "owner": "ada", "store": store, "policy": POLICY, **more})


async def learn(store: Store, name: str = "a", *, card: str = '{"+about":["a violinist"]}', **more: Any) -> Any:
    """Return a conversation in which the model has noted a card."""
    return await talk_until_asked(talk(store, name, card=card, **more), LONG)


async def talk_until_asked(said: AsyncConversation, text: str) -> AsyncConversation:
    """Send a message again and again until the model has been asked for a card."""
    provider: Any = said._engine.provider
    while not provider.requests or not asks_for_card(provider.requests[-1].decode()):
        assert len(provider.requests) < 30
        await said.send(text)
    return said


def last_texts(said: AsyncConversation) -> list[str]:
    provider: Any = said._engine.provider
    return [text for text in list_texts(provider.requests[-1]) if text not in ("user", "assistant")]


def last_lines(said: AsyncConversation) -> list[str]:
    """Return the lines of the profile in the last request of a conversation."""
    return [line for text in last_texts(said) if HEADING in text for line in text.splitlines()[2:-1]]


async def test_what_a_card_says_about_the_user_is_sent_in_the_next_conversation(store: Store) -> None:
    first = await learn(store, card='{"+about":["a violinist"],"+fact":["the bow is old"]}')
    assert [line.text for line in await first.brief.lines()] == ["the bow is old"]
    [line] = await AsyncArchive(store, owner="ada").profile().lines()
    entries = {entry.id: entry.text for entry in await first.history()}
    assert (line.field, line.text) == ("about_user", "a violinist")
    assert [entries[source.entry] for source in line.sources] == [LONG]
    second = talk(store, "b")
    await second.send("Hello")
    assert last_lines(second) == ["about: a violinist"]
    assert HEADING in last_texts(second)[0]
    await second.send("And now?")
    assert last_texts(second)[0].count("a violinist") == 1


async def test_the_head_stays_while_newer_lines_go_at_the_tail(store: Store) -> None:
    await learn(store)
    second = talk(store, "b")
    await second.send("Hello")
    before = last_texts(second)[0]
    await second.profile.add("preferences", "short answers")
    await second.send("And now?")
    texts = last_texts(second)
    assert texts[0] == before
    assert "prefers: short answers" in texts[-1]
    await second.send("Go on.")
    assert [("short answers" in text) for text in last_texts(second)].count(True) == 1


@pytest.mark.parametrize("how", ["delete", "redact", "private", "revoke", "expire"])
async def test_a_line_leaves_all_requests_with_its_source(store: Store, how: str) -> None:
    archive, first = AsyncArchive(store, owner="ada"), await learn(store)
    second = talk(store, "b")
    await second.send("Hello")
    assert last_lines(second) == ["about: a violinist"]
    [line] = await archive.profile().lines()
    if how == "delete":
        await archive.delete("a")
    elif how == "expire":
        await archive.expire("a", before=2**60)
    elif how == "redact":
        await archive.redact("a", (await first.history())[0].id)
    elif how == "private":
        await first.set_private()
    else:
        await archive.profile().revoke(line.id)
    assert await archive.profile().lines() == []
    await second.send("And now?")
    assert not any("violinist" in text for text in last_texts(second))
    stored = await second.export("json")
    assert "violinist" not in stored


async def test_a_revoked_line_does_not_come_back_from_a_card(store: Store) -> None:
    first = await learn(store)
    [line] = await first.profile.lines()
    await first.profile.revoke(line.id)
    await learn(store, "c")
    assert await first.profile.lines() == []
    await first.profile.add("about", "A violinist.")
    assert [each.text for each in await first.profile.lines()] == ["A violinist."]


async def test_a_line_can_be_edited_and_is_gone_with_its_source(store: Store) -> None:
    first = await learn(store)
    [line] = await first.profile.lines()
    edited = await first.profile.replace(line.id, "a cellist")
    assert (edited.id, edited.sources, edited.is_edited) == (line.id, line.sources, True)
    second = talk(store, "b")
    await second.send("Hello")
    assert last_lines(second) == ["about: a cellist"]
    archive = AsyncArchive(store, owner="ada")
    await archive.delete("a")
    assert await second.profile.lines() == []
    info: Any = store.info("ada", PROFILE_ID)
    assert "cellist" not in json.dumps(info.meta)


async def test_an_edit_is_gone_when_its_sources_were_redacted_without_a_trace_in_their_times(store: Store) -> None:
    first = await learn(store)
    await learn(store, "c")
    [line] = await first.profile.lines()
    await first.profile.replace(line.id, "a cellist")
    await talk(store, "b").send("Hello")
    for entry in await first.history():
        assert store.redact("ada", "a", entry.id, b'{"role":"user","content":"[redacted]"}')
    await AsyncArchive(store, owner="ada").delete("c")
    info: Any = store.info("ada", PROFILE_ID)
    assert "cellist" not in json.dumps(info.meta)


async def test_an_edited_line_is_returned_as_it_is_stored(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = AsyncArchive(store, owner="ada").profile()
    line = await profile.add("prefers", "short answers")
    monkeypatch.setattr(f"{type(profile).__module__}.now", lambda: line.at + 1)
    edited = await profile.replace(line.id, "long answers")
    assert (edited.seen, [edited]) == (line.at + 1, await profile.lines())


async def test_the_app_writes_edits_and_revokes_lines_of_its_own(store: Store) -> None:
    profile = AsyncArchive(store, owner="ada").profile()
    line = await profile.add("prefers", "short  answers")
    assert (line.text, line.sources, (await profile.lines())[0]) == ("short answers", (), line)
    await profile.replace(line.id, "long answers")
    assert [(each.id, each.text) for each in await profile.lines()] == [(line.id, "long answers")]
    await profile.revoke(line.id)
    assert await profile.lines() == []
    with pytest.raises(InputError, match="no line with the id"):
        await profile.revoke(line.id)
    with pytest.raises(InputError, match="no line with the id"):
        await profile.replace("x", "y")
    with pytest.raises(InputError, match="its fields are about_user, preferences"):
        await profile.add("goal", "x")
    with pytest.raises(InputError, match="non-empty string"):
        await profile.add("about", "  ")
    with pytest.raises(InputError, match="at most 1,000 characters"):
        await profile.add("about", "x" * 1_001)


async def test_a_field_with_one_text_keeps_the_newest(store: Store) -> None:
    config = Profile(schema=Schema((Field("name", "text"),)))
    profile = AsyncArchive(store, owner="ada").profile(config)
    await profile.add("name", "Ada")
    await profile.add("name", "Ada L.")
    assert [line.text for line in await profile.lines()] == ["Ada L."]


async def test_a_line_is_sent_however_many_conversations_follow(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longtalk.archive.profile_reading.MAX_CONVERSATIONS", 3)
    archive, first = AsyncArchive(store, owner="ada"), await learn(store)
    for number in range(6):
        later = talk(store, f"later {number}")
        await later.send("Hello")
        assert last_lines(later) == ["about: a violinist"]
    # The oldest conversation states another line, and others hide that it has changed.
    await first.profile.replace((await first.profile.lines())[0].id, "a cellist")
    await learn(store, card='{"+prefers":["short answers"]}')
    for number in range(6, 10):
        await talk(store, f"later {number}", policy=KeepAll()).send("Hello")
    last = talk(store, "last")
    await last.send("Hello")
    assert last_lines(last) == ["about: a cellist", "prefers: short answers"]
    await archive.delete("later 0")
    assert [line.text for line in await archive.profile().lines()] == ["a cellist", "short answers"]
    await archive.delete("a")
    await last.send("And now?")
    assert last_lines(last) == []
    assert '"a"' not in json.dumps(store.info("ada", PROFILE_ID).meta)  # type: ignore[union-attr]


async def test_a_private_conversation_neither_contributes_nor_draws(store: Store) -> None:
    await learn(store)
    private = await learn(store, "b", card='{"+about":["lives in Rome"]}', private=True)
    assert await private.private()
    assert last_lines(private) == []
    assert [line.text for line in await private.profile.lines()] == ["a violinist"]
    branch = await private.fork((await private.history())[0].turn)
    assert await branch.private()
    again = talk(store, "b", private=False)
    await again.send("Hello")
    assert not await again.private()
    assert [line.text for line in await again.profile.lines()] == ["a violinist", "lives in Rome"]
    assert last_lines(again) == ["about: a violinist", "about: lives in Rome"]


async def test_a_conversation_without_messages_can_be_private(store: Store) -> None:
    said = talk(store, "b")
    assert not await said.private()
    await said.set_private()
    assert await AsyncArchive(store, owner="ada").private("b")
    await learn(store, "b")
    assert await said.profile.lines() == []
    with pytest.raises(InputError, match="True or False"):
        await said.set_private("no")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="True or False"):
        talk(store, "c", private="no")


async def test_a_turn_goes_on_when_its_conversation_is_made_private(store: Store) -> None:
    said = talk(store, card='{"+about":["a violinist"]}')
    archive, provider = AsyncArchive(store, owner="ada"), said._engine.provider

    def respond(text: str, asked: bool) -> str:
        # Another process makes the conversation private while the model writes its card.
        if asked:
            change_privacy(store, "ada", "a", private=True)
        return make_answer(card='{"+about":["a violinist"]}')(text, asked)

    provider.respond = respond  # type: ignore[attr-defined]
    await talk_until_asked(said, LONG)
    assert (await archive.history("a"))[-1].role == "assistant"
    assert await archive.branches("a") == ["main"]
    assert await said.private()
    assert await said.profile.lines() == []
    await said.set_private(False)
    assert [line.text for line in await said.profile.lines()] == ["a violinist"]


async def test_a_card_that_repeats_the_profile_makes_no_second_source(store: Store) -> None:
    await learn(store)
    second = talk(store, "b", card='{"+about":["a violinist"],"+fact":["A violinist."]}')
    await talk_until_asked(second, "Let us speak of something else now.")
    [line] = await second.profile.lines()
    assert [source.conversation for source in line.sources] == ["a"]
    assert await second.brief.lines() == ()
    # What the user says in this conversation too has two sources.
    third = await learn(store, "c")
    [line] = await third.profile.lines()
    assert {source.conversation for source in line.sources} == {"a", "c"}


async def test_a_card_can_replace_a_line_of_another_conversation(store: Store) -> None:
    await learn(store, card='{"+about":["lives in Paris"]}')
    second = talk(store, "b", card='{"-about":["lives in Paris"],"+about":["lives in Rome"]}')
    await talk_until_asked(second, "I have moved to Rome, and I live there now.")
    assert [line.text for line in await second.profile.lines()] == ["lives in Rome"]
    await AsyncArchive(store, owner="ada").delete("b")
    assert [line.text for line in await second.profile.lines()] == ["lives in Paris"]


async def test_text_of_other_conversations_is_not_stored_after_a_turn_with_tools(store: Store) -> None:
    def look(what: str) -> str:
        """Look it up."""
        return what

    model = AsyncScripted(says("One."), says("", calls=[("c1", "look", {"what": "x"})]), says("Two."), says("Three."))
    said = talk(store, "b", model=model, tools=[look])
    await said.send("Hello")
    line = await said.profile.add("prefers", "short answers")
    await said.send("Look it up")
    # Both calls of the turn see the line.
    assert [b"short answers" in body for body in model.requests] == [False, True, True]
    await said.profile.revoke(line.id)
    await said.send("Thanks")
    assert b"short answers" not in model.requests[-1]
    assert "short answers" not in await said.export("json")
    found = [request for each in await said.history() for request in await said.request(each.turn)]
    assert any("other conversations" in request.problem for request in found)
    assert any(request.body is not None for request in found)


async def test_a_past_request_is_shown_while_the_lines_that_it_had_are_as_they_were(store: Store) -> None:
    await learn(store)
    said = talk(store, "b")
    sent: Any = said._engine.provider.requests  # type: ignore[attr-defined]
    await said.send("Hello")
    line = await said.profile.add("prefers", "short answers")
    await said.send("And now?")

    async def rebuild() -> list[bytes | None]:
        turns = dict.fromkeys(entry.turn for entry in await said.history())
        return [request.body for turn in turns for request in await said.request(turn)]

    assert await rebuild() == sent
    assert b"short answers" in sent[1]
    # A line that comes later does not appear in what was sent before.
    await said.profile.add("prefers", "no jargon")
    assert (await rebuild())[0] == sent[0]
    await said.profile.replace(line.id, "long answers")
    assert await rebuild() == [sent[0], None]
    await AsyncArchive(store, owner="ada").delete("a")
    assert await rebuild() == [None, None]


async def test_a_policy_without_a_profile_ignores_it(store: Store) -> None:
    await learn(store)
    said = talk(store, "b", policy=Memory(limit=300, recent=20))
    await said.send("Hello")
    assert last_texts(said) == ["Hello"]
    with pytest.raises(InputError, match="keeps no profile"):
        _ = said.profile
    with pytest.raises(InputError, match="taken by the owner's profile"):
        talk(store, PROFILE_ID)


async def test_a_chat_has_no_owner_and_so_no_profile() -> None:
    model = AsyncCardModel(make_answer(card='{"+about":["a violinist"]}'))
    chat, state = AsyncChat(model, policy=POLICY), None
    for _ in range(12):
        state = (await chat.send(LONG, state=state)).state
    assert not any(HEADING in text for text in list_texts(model.requests[-1]))


async def test_lists_leave_out_the_conversation_that_keeps_the_lines_of_the_app(store: Store) -> None:
    archive = AsyncArchive(store, owner="ada")
    await learn(store)
    await archive.profile().add("about", "Ada")
    assert [info.id for info in await archive.conversations(limit=1)] == ["a"]
    assert [info.id for info in await archive.every()] == ["a"]
    assert await archive.conversations(limit=0) == []
    assert (await archive.delete(PROFILE_ID)).entries == 0
    assert [line.text for line in await archive.profile().lines()] == ["a violinist"]


async def test_changes_of_the_app_that_cannot_be_read_are_not_taken_for_none(store: Store) -> None:
    archive, said = AsyncArchive(store, owner="ada"), await learn(store)
    await archive.profile().revoke((await archive.profile().lines())[0].id)
    with pytest.raises(NotFound):
        await archive.set_metadata(PROFILE_ID, {})
    assert store.describe("ada", PROFILE_ID, {"profile": {"revoked": 1}})
    for read in (archive.profile().lines, lambda: archive.profile().add("about", "Ada"), lambda: said.send("Hello")):
        with pytest.raises(CorruptStore, match="delete the conversation 'longtalk:profile'"):
            await read()
    await archive.delete(PROFILE_ID)
    assert [line.text for line in await archive.profile().lines()] == ["a violinist"]


async def test_a_copy_of_all_conversations_has_the_same_profile(store: Store, tmp_path: Any) -> None:
    from longtalk.stores.sqlite.store import SQLite

    archive, first = AsyncArchive(store, owner="ada"), await learn(store)
    await first.profile.add("about", "Ada")
    await learn(store, "p", card='{"+about":["lives in Rome"]}', private=True)
    copy = SQLite(tmp_path / "copy.db")
    await archive.copy_to(copy)
    lines = await AsyncArchive(copy, owner="ada").profile().lines()
    assert lines == await archive.profile().lines()
    copy.close()


def test_the_policy_says_what_it_keeps_and_nothing_else() -> None:
    assert repr(Memory()) == repr(Memory(profile=None))
    assert "profile" not in repr(Memory())
    assert fingerprint_policy(Memory()) != fingerprint_policy(Memory(profile=Profile()))
    assert decode_policy(encode_policy(POLICY)) == POLICY
    assert parse_policy(format_policy(POLICY)) == POLICY
    assert parse_policy("Memory(profile=Profile(budget=80))") == Memory(profile=Profile(budget=80))
    assert KeepAll() != POLICY
    with pytest.raises(InputError, match="must be a Profile"):
        Memory(profile=Recall())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="share the name or key 'goal'"):
        Memory(profile=Profile(schema=Schema((Field("goal"),))))
    with pytest.raises(InputError, match="budget"):
        Profile(budget=0)
    with pytest.raises(InputError, match="schema"):
        Profile(schema="x")  # type: ignore[arg-type]


async def test_a_copy_undoes_no_revocation_in_the_target_store(store: Store) -> None:
    target = InMemory()
    source, copied = AsyncArchive(store, owner="ada"), AsyncArchive(target, owner="ada")
    line = await source.profile().add("preferences", "short answers")
    await source.copy_to(target)
    await copied.profile().revoke(line.id)
    [outcome] = (await source.copy_to(target)).conversations
    assert outcome.how == "left"
    assert "make them in both stores" in outcome.why
    assert await copied.profile().lines() == []
    await source.profile().revoke(line.id)
    await source.profile().add("preferences", "long answers")
    [outcome] = (await source.copy_to(target)).conversations
    assert outcome.how == "grown"
    assert [each.text for each in await copied.profile().lines()] == ["long answers"]


class CountingStore(InMemory):
    """A store that notes the conversations whose heads are read together."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[str]] = []

    def heads(self, owner: str, conversations: Sequence[str], most: int) -> dict[str, list[BranchHead]]:
        self.asked.append(list(conversations))
        return super().heads(owner, conversations, most)


async def test_reading_the_profile_writes_nothing() -> None:
    store = InMemory()
    first = await learn(store)
    assert await first.profile.lines()
    assert store.info("ada", PROFILE_ID) is None


async def test_the_first_turn_reads_all_conversations_at_once() -> None:
    store = CountingStore()
    for name in ("a", "b", "c"):
        await talk(store, name, policy=KeepAll()).send("Hello")
    await talk(store, "d").send("Hello")
    assert sorted(store.asked[0]) == ["a", "b", "c"]
    before = len(store.asked)
    await talk(store, "e").send("Hello")
    assert {name for names in store.asked[before:] for name in names} <= {"d", "e"}


async def test_a_deletion_after_an_edit_reads_no_conversation_that_has_not_changed() -> None:
    store = CountingStore()
    first = await learn(store)
    for name in ("b", "c"):
        await talk(store, name).send("Hello")
    [line] = await first.profile.lines()
    await first.profile.replace(line.id, "a cellist")
    await talk(store, "c").send("And now?")
    store.asked.clear()
    await AsyncArchive(store, owner="ada").delete("b")
    assert {name for names in store.asked for name in names} <= {"b", "c"}
    await AsyncArchive(store, owner="ada").delete("a")
    assert "cellist" not in json.dumps(getattr(store.info("ada", PROFILE_ID), "meta", {}))
