"""The archive of an owner: finding, reading, exporting and importing. The sync twin of this file is generated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longtalk import AsyncArchive, AsyncConversation, Brief, Conversation, Memory
from longtalk.archive.metrics import Metrics
from longtalk.errors import CorruptStore, Deleted, InputError, RequestRefused
from longtalk.memory import Field, Schema
from longtalk.memory.cards.capture import TOOL_NAME
from longtalk.memory.cards.hidden import NOTED
from longtalk.models.call_cost import FREE, Prices
from longtalk.policies import Compactor, DigestTools, DropOldest, KeepLast, OverExchanges
from longtalk.providers.base import Capabilities
from longtalk.stores.base import Commit, Store
from longtalk.stores.in_memory import InMemory
from longtalk.stores.jsonl.store import JSONL
from longtalk.stores.sqlite.store import SQLite
from longtalk.testing import AsyncScripted, Scripted, says, validate
from longtalk.transcript.transcript import Turn
from longtalk.transfer.json_export import to_jsonl
from longtalk.transfer.read import read
from longtalk.usage import Usage
from longtalk.wires import HTTP_WIRES, WIRES
from tests.support.matrix import STORES
from tests.support.store_proxies import DyingStore, StoreProxy

pytestmark = pytest.mark.anyio

USED = {"prompt_tokens": 50, "completion_tokens": 25}
CALL = says("Let me see.", calls=[("c1", "lookup", {"q": "a secret"})])


def open_kind(kind: str, folder: Path) -> Store:
    if kind == "memory":
        return InMemory()
    return JSONL(folder / "talks") if kind == "jsonl" else SQLite(folder / "talks.db")


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = open_kind(request.param, tmp_path)
    yield made
    made.close()


def on_disk(folder: Path) -> str:
    """Return the content of all files in a folder."""
    return "".join(path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file())


def change_letter(path: Path) -> None:
    data = path.read_bytes()
    assert b"hello" in data
    path.write_bytes(data.replace(b"hello", b"jello"))


def damage(folder: Path) -> None:
    """Change a letter in a file."""
    change_letter(next(folder.rglob("c.jsonl")))


def lookup(q: str) -> str:
    """Look something up."""
    return f"about {q}"


def talk(store: Store, *steps: Any, id: str = "c", owner: str = "", **settings: Any) -> AsyncConversation:  # noqa: A002
    model = AsyncScripted(
        *(steps or [says("a")] * 20), **({"wire": settings.pop("wire")} if "wire" in settings else {})
    )
    return AsyncConversation(id, model=model, store=store, owner=owner, **{"tools": [lookup], **settings})


async def test_conversations_are_listed_page_by_page(store: Store) -> None:
    for i in range(7):
        await talk(store, id=f"c{i}").send("x")
    archive, found, last = AsyncArchive(store), [], None
    while page := await archive.conversations(limit=3, after=last):
        found += page
        last = page[-1]
    assert sorted(each.id for each in found) == [f"c{i}" for i in range(7)]
    assert [each.updated for each in found] == sorted((each.updated for each in found), reverse=True)


async def test_conversations_are_found_by_the_apps_own_data(store: Store) -> None:
    for i in range(4):
        one = talk(store, id=f"c{i}")
        await one.send("x")
        await one.set_metadata({"lesson": i % 2})
    assert {each.id for each in await AsyncArchive(store).conversations(meta={"lesson": 1})} == {"c1", "c3"}


async def test_words_and_phrases_are_found(store: Store) -> None:
    await talk(store, id="one").send("the blue bow of a violin")
    await talk(store, id="two").send("a blue sky")
    await talk(store, id="three").send("the bow is of a blue sort")
    archive = AsyncArchive(store)
    assert {hit.conversation for hit in await archive.search("blue")} == {"one", "two", "three"}
    assert [hit.conversation for hit in await archive.search('"blue bow"')] == ["one"]
    assert [hit.conversation for hit in await archive.search("blue", conversation="two")] == ["two"]
    assert await archive.search("") == [] == await archive.search("nothing")


async def test_a_search_on_a_branch_finds_what_matches_less_than_what_other_branches_have(store: Store) -> None:
    one = talk(store)
    said = await one.send("The bow is mentioned once in this long message about the violin and the strings.")
    side = await one.fork(said.turn_id, name="side")
    for _ in range(5):
        await side.send("bow")
    found = await AsyncArchive(store).search("bow", limit=1, conversation="c", branch="main")
    assert [hit.entry for hit in found] == [(await one.history())[0].id]


async def test_conversations_of_other_owners_are_hidden(store: Store) -> None:
    await talk(store, owner="ada").send("secret")
    archive = AsyncArchive(store, owner="bob")
    assert (await archive.conversations(), await archive.search("secret")) == ([], [])
    assert (await archive.stats()).conversations == 0
    entry = (await AsyncArchive(store, owner="ada").history("c"))[0].id
    for work in (
        lambda: archive.history("c"),
        lambda: archive.branches("c"),
        lambda: archive.stats("c"),
        lambda: archive.metrics("c"),
        lambda: archive.export("c"),
        lambda: archive.meta("c"),
        lambda: archive.verify("c"),
        lambda: archive.talk("c"),
        lambda: archive.delete("c"),
        lambda: archive.redact("c", entry),
        lambda: archive.set_metadata("c", {}),
    ):
        with pytest.raises(InputError, match="not found"):
            await work()
    assert await archive.manifest("c", entry.partition("-")[0]) == ()


async def test_a_conversation_in_numbers(store: Store) -> None:
    one = talk(store, CALL, says("a", usage={"prompt_tokens": 5, "completion_tokens": 2}), says("b"))
    await one.send("x")
    branch, _ = await one.regenerate()
    stats = await AsyncArchive(store).stats("c")
    assert (stats.conversations, stats.branches, stats.entries) == (1, 2, 5)
    assert stats.turns == {"complete": 2}
    assert sum(stats.models.values()) == 2
    assert stats.usage.output >= 2
    assert stats.bytes == sum(len(said.native) for said in await one.history()) + len(
        (await branch.history())[-1].native
    )
    total = await AsyncArchive(store).stats()
    assert total == stats


# Metrics and costs


def priced(store: Store, *steps: Any, prices: Prices | None = Prices(input=1, output=2), **more: Any) -> Any:  # noqa: B008
    """Return a conversation with a model that has these prices; None for unknown prices."""
    one = talk(store, *steps, **more)
    one._engine.provider.capabilities = Capabilities(prices=prices)
    return one


async def test_each_turn_says_what_it_has_sent_and_cost(store: Store) -> None:
    policy = Compactor(OverExchanges(12), (DigestTools(), DropOldest()), OverExchanges(11))
    one = priced(store, *[CALL, says("a", usage=USED)] * 30, policy=policy)
    replies = [await one.send(f"{i}") for i in range(30)]
    found = await one.metrics()
    assert found == await AsyncArchive(store).metrics("c")
    assert [each.turn for each in found] == [reply.turn_id for reply in replies]
    for each, reply in zip(found, replies, strict=True):
        sent = [run.tokens for run in reply.context.manifest if run.verdict == "sent"]
        others = [run.tokens for run in reply.context.manifest if run.verdict != "sent"]
        assert (each.total, each.history, each.left_out) == (reply.context.tokens, sum(sent), sum(others))
        assert (each.calls, each.usage, each.cost) == (2, reply.usage, reply.cost.total)
        assert (each.model, each.status, each.summary) == ("scripted:model", "complete", 0)
    assert found[0].left_out == 0 < found[-1].left_out
    assert [each.at for each in found] == sorted(each.at for each in found)


@pytest.mark.parametrize(("prices", "cost"), [(None, None), (FREE, 0.0)])
async def test_a_cost_that_is_not_known_is_not_nothing(store: Store, prices: Prices | None, cost: float | None) -> None:
    one = priced(store, prices=prices)
    await one.send("x")
    assert [each.cost for each in await one.metrics()] == [cost]
    stats = await AsyncArchive(store).stats("c")
    assert (stats.cost, stats.unpriced) == (cost, int(cost is None))
    # The total of all conversations says the same.
    assert (await AsyncArchive(store).stats()).cost == cost


async def test_the_cost_of_shared_turns_is_counted_once(store: Store) -> None:
    one = priced(store, *[says("a", usage=USED)] * 3)
    first, second = await one.send("x"), await one.send("y")
    branch, other = await one.regenerate()
    assert [each.turn for each in await one.metrics()] == [first.turn_id, second.turn_id]
    # A question belongs to the turn in which it was asked.
    assert [each.turn for each in await branch.metrics()] == [first.turn_id, second.turn_id, other.turn_id]
    stats = await AsyncArchive(store).stats("c")
    assert (stats.cost, stats.unpriced) == (0.0003, 0)
    await priced(store, says("a", usage=USED), id="d").send("x")
    assert (await AsyncArchive(store).stats()).cost == 0.0004


async def test_an_interrupted_turn_has_no_figures_for_its_request(store: Store) -> None:
    one = priced(store, says("a", usage=USED))
    await one.send("x")
    head = store.head("", "c")
    assert head is not None
    cut = Turn("t", "running", "anthropic:claude", 7, usage=(b'{"input_tokens":4,"output_tokens":1}',))
    entry = msgspec.structs.replace(store.read("", "c", "main", 0, 1).entry(0), id="t-0", turn="t", parent=head.entry)
    store.write("", "c", Commit(expect=head.revision, entries=(entry,), turn=cut, at=8))
    assert (await AsyncArchive(store).metrics("c"))[1] == Metrics(
        turn="t", at=7, model="anthropic:claude", status="running", calls=1, usage=Usage(4, 1)
    )
    stats = await AsyncArchive(store).stats("c")
    assert (stats.cost, stats.unpriced) == (0.0001, 1)


async def test_turns_keep_their_cost_in_an_export(store: Store) -> None:
    await priced(store, says("a", usage=USED)).send("x")
    archive = AsyncArchive(store)
    before = await archive.metrics("c")
    data = await archive.export("c", "jsonl")
    await archive.delete("c")
    await archive.load(data)
    assert await archive.metrics("c") == before
    stats = await archive.stats("c")
    assert (stats.cost, stats.unpriced) == (0.0001, 0)


async def test_turns_of_another_tool_have_no_cost(store: Store) -> None:
    archive = AsyncArchive(store)
    await archive.load(b'[{"role": "user", "content": "x"}, {"role": "assistant", "content": "a"}]', id="c")
    stats = await archive.stats("c")
    assert stats.cost is None


async def test_an_empty_conversation_has_no_metrics(store: Store) -> None:
    one = talk(store)
    assert await one.metrics() == []
    await one.send("x")
    with pytest.raises(InputError, match="Branch 'b' of conversation 'c' not found"):
        await AsyncArchive(store).metrics("c", branch="b")


async def test_metrics_are_read_again_if_the_branch_changes_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = priced(store, *[says("a", usage=USED)] * 2)
    await one.send("x")
    read, other = store.turns, Conversation("c", model=Scripted(says("b")), store=store)

    def slow(*arguments: Any) -> Any:
        found = read(*arguments)
        if len(found) == 1:
            monkeypatch.setattr(store, "turns", read)
            other.send("meanwhile")
        return found

    monkeypatch.setattr(store, "turns", slow)
    assert [each.status for each in await AsyncArchive(store).metrics("c")] == ["complete"] * 2


async def test_an_export_can_be_imported_unchanged(store: Store, tmp_path: Path) -> None:
    one = talk(store, CALL, *[says("a")] * 20, policy=KeepLast(4))
    first = await one.send("x", meta={"lesson": 1})
    for i in range(6):
        await one.send(f"{i}")
    await one.note("tuned", source="app")
    await one.pin(first.turn_id)
    await one.set_metadata({"title": "Bows"})
    await one.fork((await one.history())[5].id, name="fork")
    other, _ = await one.edit((await one.history())[6].id, "said otherwise")
    await other.send("more")
    archive = AsyncArchive(store)
    wanted = await archive.talk("c")
    for number, form in enumerate(("json", "jsonl")):
        text = await archive.export("c", form)
        for kind in ("memory", "jsonl", "sqlite"):
            there = open_kind(kind, tmp_path / f"{number}")
            taken = AsyncArchive(there, owner="ada")
            assert await taken.load(text.encode()) == ["c"]
            assert await taken.talk("c") == wanted
            assert await taken.export("c", form) == text
            await taken.verify("c")
            again = talk(there, policy=KeepLast(4), owner="ada")
            assert await again.pins() == [first.entries[0].id]
            await again.send("go on")
            validate(again._engine.provider.requests[-1])  # type: ignore[attr-defined]
            there.close()


async def test_markdown_is_of_one_branch(store: Store) -> None:
    one = talk(store, says("the first answer"), says("the second answer"))
    await one.send("hello")
    branch, _ = await one.regenerate()
    assert "the first answer" in await one.export()
    assert "the second answer" in await branch.export("md")
    assert "the first answer" not in await branch.export("md")
    with pytest.raises(InputError, match="'md', 'json' or 'jsonl', not 'pdf'"):
        await one.export("pdf")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no branch 'nowhere'"):
        await AsyncArchive(store).export("c", branch="nowhere")


async def test_an_import_with_an_existing_id_is_rejected(store: Store) -> None:
    one = talk(store)
    await one.send("x")
    archive = AsyncArchive(store)
    text = (await archive.export("c", "jsonl")).encode()
    await one.send("y")
    before = await archive.talk("c")
    with pytest.raises(InputError, match="The store already has a different conversation with the id 'c'"):
        await archive.load(text)
    with pytest.raises(InputError, match="The store already has a different conversation with the id 'c'"):
        await archive.load(text.replace(b'"id":"c"', b'"id":"d"', 1) + text)
    assert await archive.talk("c") == before
    assert await archive.load(text, id="d") == ["d"]
    assert [said.text for said in await archive.history("d")] == ["x", "a"]
    await archive.set_metadata("d", {"title": "Other"})
    with pytest.raises(InputError, match="The store already has the conversation 'd' with another title"):
        await archive.load(text, id="d")


async def test_the_same_export_again_changes_nothing(store: Store) -> None:
    one = talk(store)
    await one.send("x")
    await one.set_metadata({"title": "Bows"})
    archive = AsyncArchive(store)
    text = (await archive.export("c", "jsonl")).encode()
    before = await archive.talk("c")
    taken = (await archive.import_conversations(text)).conversations
    assert [(each.id, each.how, each.entries) for each in taken] == [("c", "here", 2)]
    assert await archive.talk("c") == before


async def test_an_interrupted_import_starts_again(store: Store) -> None:
    one = talk(store)
    for i in range(3):
        await one.send(f"{i}")
    archive = AsyncArchive(store)
    text = (await archive.export("c", "json")).encode()

    with pytest.raises(KeyboardInterrupt):
        await AsyncArchive(DyingStore(store, 2), owner="ada").load(text)  # type: ignore[arg-type]
    taken = AsyncArchive(store, owner="ada")
    assert len(await taken.history("c")) == 4
    await taken.load(text)
    assert (await taken.history("c"), await taken.meta("c")) == (await archive.history("c"), {})


async def test_a_failed_try_leaves_nothing(store: Store) -> None:
    one = talk(store)
    await one.send("x")
    text = (await AsyncArchive(store).export("c", "json")).encode()

    class Full(StoreProxy):
        def describe(self, *_: Any, **__: Any) -> Any:
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        await AsyncArchive(Full(store), owner="ada").load(text)  # type: ignore[arg-type]
    assert await AsyncArchive(store, owner="ada").conversations() == []


async def test_messages_in_openais_format_can_be_imported_and_continued(store: Store) -> None:
    messages = [{"role": "user", "content": "I'm Ada."}, {"role": "assistant", "content": "Hello Ada."}]
    assert await AsyncArchive(store).load(json.dumps(messages).encode(), id="c") == ["c"]
    one = talk(store)
    await one.send("Who am I?")
    body = json.loads(one._engine.provider.requests[-1])  # type: ignore[attr-defined]
    assert body["messages"][:2] == messages


@pytest.mark.parametrize("wire", sorted(HTTP_WIRES))
async def test_redacted_content_is_gone_and_the_conversation_continues(store: Store, tmp_path: Path, wire: str) -> None:
    call = says("Let me see.", calls=[("c1", "lookup", {"q": "a secret"})], wire=wire)
    answers = [says(text, wire=wire) for text in ("secret said", "b", "c")]
    one = talk(store, call, *answers, wire=WIRES[wire])
    await one.send("my secret", meta={"secret": 1})
    await one.note("secret noted")
    await one.send("more")
    archive = AsyncArchive(store)
    assert await archive.search("secret")
    for said in await one.history():
        await archive.redact("c", said.id)
    assert await archive.search("secret") == []
    assert "secret" not in await archive.export("c", "json")
    assert {said.text for said in await one.history()} == {"[redacted]"}
    await archive.verify("c")
    await one.send("go on")
    body = one._engine.provider.requests[-1]  # type: ignore[attr-defined]
    validate(body, wire=wire)
    assert b"secret" not in body
    store.close()
    assert "secret" not in on_disk(tmp_path)


async def test_redacted_content_is_gone_from_the_errors_that_quote_it(store: Store, tmp_path: Path) -> None:
    problems = [RequestRefused(f"I was asked {text!r}.") for text in ("my secret", "more, after my secret")]
    one = talk(store, *problems, says("b"))
    for message, key in (("my secret", "k1"), ("more", "k2")):
        with pytest.raises(RequestRefused):
            await one.send(message, key=key)
    archive = AsyncArchive(store)
    assert "secret" in await archive.export("c", "md")
    await archive.redact("c", (await one.history())[0].id)
    exports = [await archive.export("c", "md"), await archive.export("c", "json"), await archive.export("c", "jsonl")]
    assert "secret" not in "".join(exports)
    await archive.verify("c")
    store.close()
    files = on_disk(tmp_path)
    assert "secret" not in files
    for message in ("my secret", "more"):
        digest = hashlib.sha256(json.dumps(message).encode()).hexdigest()
        assert (digest in files) == (message == "more" and bool(files))


async def test_a_turn_that_fails_after_a_redaction_does_not_store_the_content_again(
    store: Store, tmp_path: Path
) -> None:
    def look(q: str) -> str:
        """Redact the question while its turn runs."""
        turn = store.turns("", "c", "main", 0, 9)[-1][1]
        assert store.redact("", "c", f"{turn.id}-0", b'{"role":"user","content":"-"}')
        return q

    call = says("", calls=[("c1", "look", {"q": "x"})])
    one = talk(store, call, RequestRefused("I was asked 'my secret'."), tools=[look])
    with pytest.raises(RequestRefused, match="my secret"):
        await one.send("my secret")
    assert store.turns("", "c", "main", 0, 9)[-1][1].error == "[redacted]"
    store.close()
    assert "secret" not in on_disk(tmp_path)


class _BusyStore(StoreProxy):
    """A store on which another process runs a turn between the first reads of a redaction and what it writes."""

    def __init__(self, store: Store, answer: bytes) -> None:
        super().__init__(store)
        self._answers = [answer]

    def redact(self, *arguments: Any) -> bool:
        for answer in self._answers:
            self._answers = []
            model = Scripted(answer)
            Conversation("c", model=model, store=self._store, policy=Memory(recall=0)).send("And then?")
        return self._store.redact(*arguments)


async def test_a_redaction_erases_what_a_turn_quotes_while_it_runs(store: Store) -> None:
    quoting = says('Good.<MEMORY_CARD>{"+facts":["Her bow is made of pernambuco"]}</MEMORY_CARD>')
    one = AsyncConversation("c", model=AsyncScripted(says("Yes.")), store=store, policy=Memory(recall=0))
    await one.send("My bow is made of pernambuco.")
    busy: Any = _BusyStore(store, quoting)
    await AsyncArchive(busy).redact("c", (await one.history())[0].id)
    again = AsyncConversation("c", model=AsyncScripted(), store=store, policy=Memory(recall=0))
    assert [said.text for said in await again.history()] == ["[redacted]", "Yes.", "And then?", "Good."]
    assert "pernambuco" not in await again.export("json")
    assert await again.brief.lines() == ()


async def test_redacting_an_unknown_entry_is_an_error(store: Store) -> None:
    await talk(store).send("x")
    with pytest.raises(InputError, match="Entry 'x-0' of conversation 'c' not found"):
        await AsyncArchive(store).redact("c", "x-0")


async def test_deleting_gives_a_receipt(store: Store) -> None:
    one = talk(store)
    await one.send("x")
    receipt = await AsyncArchive(store).delete("c")
    assert (receipt.conversation, receipt.entries, receipt.turns, receipt.branches) == ("c", 2, 1, 1)
    with pytest.raises(InputError, match="Conversation 'c' not found"):
        await AsyncArchive(store).delete("c")
    assert await one.history() == []


async def test_damage_is_named(tmp_path: Path) -> None:
    store = JSONL(tmp_path)
    one = talk(store)
    await one.send("hello")
    await talk(store, id="other").send("x")
    damage(tmp_path)
    with pytest.raises(CorruptStore, match="damaged"):
        await AsyncArchive(JSONL(tmp_path)).verify("c")


async def test_a_changed_letter_is_noticed_in_a_database_too(tmp_path: Path) -> None:
    store = SQLite(tmp_path / "talks.db")
    await talk(store).send("hello")
    store.close()
    change_letter(tmp_path / "talks.db")
    with pytest.raises(CorruptStore, match="the entry at position 0 has a wrong checksum"):
        await AsyncArchive(SQLite(tmp_path / "talks.db")).verify("c")


async def test_an_import_accepts_text(store: Store) -> None:
    await talk(store).send("x")
    archive = AsyncArchive(store)
    assert await archive.load(await archive.export("c", "json"), id="d") == ["d"]
    with pytest.raises(InputError, match=r"content of a file \(bytes or str\) or its path \(Path\), not int"):
        await archive.load(7)  # type: ignore[arg-type]


async def test_a_damaged_conversation_does_not_hide_the_others(tmp_path: Path) -> None:
    await talk(JSONL(tmp_path)).send("hello")
    damage(tmp_path)
    await talk(JSONL(tmp_path), id="other").send("x")
    store = JSONL(tmp_path)
    archive = AsyncArchive(store)
    assert [each.id for each in await archive.conversations()] == ["other"]
    assert [hit.conversation for hit in await archive.search("hello x")] == ["other"]
    assert [problem.path.name for problem in store.list_damaged_files()] == ["c.jsonl"]


async def test_a_conversation_that_is_deleted_while_it_is_answered_stays_deleted(store: Store) -> None:
    class Deletes(AsyncScripted):
        async def send(self, body: bytes) -> bytes:
            await AsyncArchive(store).delete("c")
            return await super().send(body)

    one = AsyncConversation("c", model=Deletes(says("too late")), store=store)
    with pytest.raises(Deleted, match="'c' was deleted while its turn was running") as caught:
        await one.send("x")
    assert caught.value.partial is not None
    assert caught.value.partial.text == "too late"
    assert await AsyncArchive(store).conversations() == []
    await talk(store).send("anew")


async def test_a_conversation_in_another_wire_can_be_continued(store: Store) -> None:
    await talk(store, says("a", wire="anthropic"), wire=WIRES["anthropic"]).send("x", key="k")
    reply = await talk(store, says("b")).send("y")
    assert [notice.kind for notice in reply.notices] == ["converted"]
    assert [said.text for said in await talk(store).history()] == ["x", "a", "y", "b"]
    # A repeated reply is returned as it was.
    assert (await talk(store).send("x", key="k")).text == "a"


class Beside(StoreProxy):
    """A store in which something happens before a write."""

    def __init__(self, store: Store, happens: Any) -> None:
        super().__init__(store)
        self._happens = happens

    def write(self, owner: str, conversation: str, commit: Any) -> Any:
        happens, self._happens = self._happens, lambda _: None
        happens(conversation)
        return self._store.write(owner, conversation, commit)


async def test_a_conversation_begun_during_an_import_is_not_replaced(store: Store) -> None:
    model = Scripted(says("a"), says("b"))

    def begin(_: str) -> None:
        Conversation("two", model=model, store=store).send("an acknowledged message")

    data = b"\n".join(b'{"messages": [{"role": "user", "content": "%d"}]}' % i for i in range(2))
    talks = [msgspec.structs.replace(talk, id=name) for talk, name in zip(read(data), ("one", "two"), strict=True)]
    with pytest.raises(InputError, match="with the same id"):
        await AsyncArchive(Beside(store, begin)).load(to_jsonl(talks))
    assert [each.id for each in await AsyncArchive(store).conversations()] == ["two"]
    assert (await AsyncArchive(store).history("two"))[0].text == "an acknowledged message"


async def test_an_incomplete_import_that_was_continued_is_kept(store: Store) -> None:
    commit = Commit(expect=0, at=1, meta={"longtalk importing": True})
    store.write("", "c", commit)
    await talk(store).send("an acknowledged message")
    with pytest.raises(InputError, match="already"):
        await AsyncArchive(store).load(b'[{"role": "user", "content": "x"}]', id="c")
    assert (await AsyncArchive(store).history("c"))[0].text == "an acknowledged message"


async def test_a_file_can_not_bring_the_mark_of_an_import(store: Store) -> None:
    archive = AsyncArchive(store)
    (one,) = read(b'[{"role": "user", "content": "x"}]')
    await archive.load(to_jsonl([msgspec.structs.replace(one, id="c", meta={"longtalk importing": True, "a": 1})]))
    assert await archive.meta("c") == {"a": 1}
    with pytest.raises(InputError, match="already"):
        await archive.load(to_jsonl([msgspec.structs.replace(one, id="c")]))


class Between:
    """A store in which something happens before the first call of a method."""

    def __init__(self, store: Store, method: str, happens: Any) -> None:
        self._store, self._method, self._happens = store, method, happens

    def __getattr__(self, name: str) -> Any:
        if name == self._method and self._happens:
            happens, self._happens = self._happens, None
            happens()
        return getattr(self._store, name)


async def test_a_turn_that_ends_during_an_export_is_whole_in_it(store: Store) -> None:
    running = iter(Conversation("c", model=Scripted(says("a")), store=store).stream("x"))
    next(running)
    data = await AsyncArchive(Between(store, "turns", lambda: list(running))).export("c", "jsonl")
    lines = [json.loads(line) for line in data.splitlines()]
    assert [line["role"] for line in lines if line["type"] == "entry"] == ["user", "assistant"]
    assert [line["status"] for line in lines if line["type"] == "turn"] == ["complete"]


async def test_data_is_never_on_another_entry_than_its_own(store: Store) -> None:
    one = Conversation("c", model=Scripted(*[says("a")] * 3), store=store)
    one.send("x")
    first = one.history()[1].id
    one.send("y")

    def happens() -> None:
        one.rewind(first)
        one.send("z", meta={"of": "z"})

    said = await AsyncArchive(Between(store, "metas", happens)).history("c")
    assert [(each.text, each.meta) for each in said if each.meta] == [("z", {"of": "z"})]


async def lose_a_line(store: Store, conversation: str, line: str) -> AsyncConversation[Any]:
    """Make a conversation in whose brief a line of the app had to make room for another one."""
    policy = Memory(brief=Brief(schema=Schema((Field("facts", cap=1),))), recall=0)
    talk = AsyncConversation(conversation, model=AsyncScripted(says("Hello.")), store=store, policy=policy)
    await talk.send("Hi.", brief={"facts": line})
    await talk.brief.add("facts", "Her strings are made of gut")
    return talk


@pytest.mark.parametrize("where", ["c", None])
async def test_a_line_of_the_app_that_fell_out_of_the_brief_is_found(store: Store, where: str | None) -> None:
    archive = AsyncArchive(store)
    talk = await lose_a_line(store, "c", "Her bow is made of pernambuco")
    (hit,) = await archive.search("pernambuco", conversation=where)
    assert (hit.conversation, hit.branch, hit.role, hit.text) == ("c", "main", "brief", "Her bow is made of pernambuco")
    assert hit.entry in [each.id for each in await archive.history("c")]
    assert await archive.search("gut", conversation=where) == []
    (line,) = await talk.brief.archived()
    await talk.brief.revoke(line.id)
    assert await archive.search("pernambuco", conversation=where) == []


async def test_a_fallen_line_that_the_app_states_again_is_not_found(store: Store) -> None:
    talk = await lose_a_line(store, "c", "Her bow is made of pernambuco")
    await talk.brief.set("facts", "Her bow is made of pernambuco")
    assert await AsyncArchive(store).search("pernambuco") == []
    assert [hit.text for hit in await AsyncArchive(store).search("gut")] == ["Her strings are made of gut"]


async def test_fallen_lines_are_gone_after_a_deletion_or_redaction(store: Store) -> None:
    archive = AsyncArchive(store)
    for name in ("a", "b", "c"):
        await lose_a_line(store, name, f"Her bow is made of pernambuco {name}")
    assert {hit.conversation for hit in await archive.search("pernambuco")} == {"a", "b", "c"}
    assert await AsyncArchive(store, owner="eve").search("pernambuco") == []
    await archive.delete("a")
    await archive.redact("b", (await archive.history("b"))[0].id)
    assert [hit.text for hit in await archive.search("pernambuco")] == ["Her bow is made of pernambuco c"]


async def test_a_search_on_a_branch_finds_its_fallen_lines_beside_better_ones_of_other_branches(store: Store) -> None:
    archive = AsyncArchive(store)
    talk = await lose_a_line(store, "c", "pernambuco")
    other = await talk.fork(name="other")
    for text in ("pernambuco pernambuco", "pernambuco pernambuco pernambuco", "silk"):
        await other.brief.set("facts", text)
    (hit,) = await archive.search("pernambuco", conversation="c", branch="main", limit=1)
    assert (hit.branch, hit.text) == ("main", "pernambuco")


async def test_entries_come_before_the_lines_of_briefs_and_the_limit_holds_for_both(store: Store) -> None:
    await lose_a_line(store, "a", "pernambuco pernambuco")
    await AsyncConversation("b", model=AsyncScripted(says("Yes.")), store=store).send("Is pernambuco a wood?")
    archive = AsyncArchive(store)
    assert [hit.role for hit in await archive.search("pernambuco")] == ["user", "brief"]
    assert [hit.role for hit in await archive.search("pernambuco", limit=1)] == ["user"]


async def test_a_turn_has_its_entries_after_notes_too(store: Store) -> None:
    talk = AsyncConversation("c", model=AsyncScripted(says("Yes.")), store=store)
    turn = (await talk.send("Are you there?")).turn_id
    for i in range(3):
        await talk.note(f"Note {i}.")
    found = await AsyncArchive(store).turn("c", turn)
    assert [each.text for each in found.entries] == ["Are you there?", "Yes."]
    assert (await AsyncArchive(store).metrics("c", start=0, stop=1))[0].turn == turn
    assert await AsyncArchive(store).metrics("c", start=1) == []


NOTES = [
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "m", "type": "function", "function": {"name": TOOL_NAME, "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "m", "content": NOTED},
]


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
async def test_pages_have_every_shown_entry_once_even_if_hidden_ones_fill_a_page(limit: int) -> None:
    store = InMemory()
    talk = AsyncConversation("c", model=AsyncScripted(), store=store)
    for number in range(3):
        await talk.append([{"role": "user", "content": f"{number}?"}, {"role": "assistant", "content": f"{number}."}])
        for _ in range(4 * number):
            await talk.append(NOTES)
    archive = AsyncArchive(store)
    whole = await archive.history("c")
    assert [each.text for each in whole] == ["0?", "0.", "1?", "1.", "2?", "2."]
    walked: list[Any] = []
    before = None
    while page := await archive.history("c", limit=limit, before=before):
        assert len(page) >= min(limit, len(whole) - len(walked))
        walked = [*page, *walked]
        before = page[0].position
    assert walked == whole
