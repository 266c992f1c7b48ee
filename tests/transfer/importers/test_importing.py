"""Conversations of other tools are imported, imported again and continued."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from longtalk import Archive, Conversation, InputError
from longtalk.policies import Memory as MemoryPolicy
from longtalk.stores.base import Commit, Store
from longtalk.stores.in_memory import InMemory
from longtalk.testing import Scripted, says
from longtalk.testing.wires.validate import validate
from longtalk.transfer.load import How
from longtalk.wires import HTTP_WIRES, WIRES
from tests.support.card_model import CardModel
from tests.support.properties import holds
from tests.support.store_proxies import DyingStore
from tests.transfer.importers.exports import ChatGPT, Claude, as_json, as_zip
from tests.transfer.importers.test_databases import make_database


def chatgpt(turns: int = 2, name: str = "bows") -> ChatGPT:
    talk = ChatGPT(name)
    for number in range(turns):
        talk.say("user", f"Question {number}?")
        talk.say("assistant", f"Answer {number}.")
    return talk


def claude(name: str = "strings") -> Claude:
    talk = Claude(name)
    talk.say("human", "Gut or steel?")
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"for": "gut"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "of sheep"}
    talk.say("assistant", "", call, result, {"type": "text", "text": "Gut, of sheep."})
    return talk


def how(archive: Archive, data: Any) -> list[How]:
    return [each.how for each in archive.import_conversations(data).conversations]


def test_again_adds_nothing(store: Store) -> None:
    archive = Archive(store)
    data = as_json(chatgpt(), chatgpt(name="violins"))
    assert how(archive, data) == ["new", "new"]
    before = [archive.talk(name) for name in ("bows", "violins")]
    assert how(archive, data) == ["here", "here"]
    assert archive.load(data) == ["bows", "violins"]
    assert [archive.talk(name) for name in ("bows", "violins")] == before


def test_another_store_gets_the_same_bytes() -> None:
    talk = chatgpt()
    talk.say("assistant", "Other.", behind="node-1")
    one, other = Archive(InMemory()), Archive(InMemory())
    one.import_conversations(as_json(talk))
    other.import_conversations(as_json(talk))
    assert one.export("bows", "jsonl") == other.export("bows", "jsonl")


def test_what_has_grown_since_is_added(store: Store) -> None:
    archive = Archive(store)
    talk = chatgpt()
    archive.import_conversations(as_json(talk))
    before = [each.id for each in archive.history("bows")]
    talk.say("user", "And then?")
    assert how(archive, as_json(talk)) == ["grown"]
    talk.say("assistant", "Then this.")
    end = talk.current
    talk.say("assistant", "Then that.", behind="node-3")
    talk.current = end
    assert how(archive, as_json(talk)) == ["grown"]
    fresh = Archive(InMemory())
    fresh.import_conversations(as_json(talk))
    assert [each.id for each in archive.history("bows")][:4] == before
    assert archive.talk("bows").branches == fresh.talk("bows").branches
    assert how(archive, as_json(talk)) == ["here"]


def test_a_call_that_waited_has_its_result_when_it_comes(store: Store) -> None:
    archive = Archive(store)
    talk = chatgpt(1)
    talk.say("user", "What is 2 + 2?")
    talk.say("assistant", content={"content_type": "code", "text": "2 + 2"}, recipient="python")
    archive.import_conversations(as_json(talk))
    assert archive.history("bows")[-1].mark == "closed"
    talk.say("tool", "4", name="python")
    talk.say("assistant", "It is 4.")
    assert how(archive, as_json(talk)) == ["grown"]
    assert [each.text for each in archive.history("bows")][-2:] == ["4", "It is 4."]
    archive.verify("bows")
    fresh = Archive(InMemory())
    fresh.import_conversations(as_json(talk))
    assert archive.talk("bows").branches == fresh.talk("bows").branches
    assert how(archive, as_json(talk)) == ["here"]


def test_what_has_gone_on_here_is_left_when_it_has_grown_there(store: Store) -> None:
    archive = Archive(store)
    talk = chatgpt()
    archive.import_conversations(as_json(talk))
    Conversation("bows", model=Scripted(says("Here.")), store=store).send("And here?")
    before = archive.talk("bows")
    assert how(archive, as_json(talk)) == ["here"]
    talk.say("user", "And there?")
    done = archive.import_conversations(as_json(talk))
    assert done.ids == []
    assert (done.left[0].id, "it was continued both in the store" in done.left[0].why) == ("bows", True)
    assert archive.talk("bows") == before


def test_a_conversation_that_differs_is_skipped(store: Store) -> None:
    archive = Archive(store)
    talk = chatgpt()
    archive.import_conversations(as_json(talk))
    before = archive.talk("bows")
    talk.say("assistant", "Something else.", behind="node-3")
    done = archive.import_conversations(as_json(talk))
    assert done.left[0].why.startswith("the store has a different conversation with this id")
    assert "another owner (--owner)" in done.left[0].why
    assert archive.talk("bows") == before


def test_an_interrupted_import_starts_again(store: Store) -> None:
    data = as_json(chatgpt(1, "whole"), chatgpt(3, "half"), chatgpt(1, "none"))
    with pytest.raises(KeyboardInterrupt):
        Archive(DyingStore(store, 3)).import_conversations(data)  # type: ignore[arg-type]
    archive = Archive(store)
    assert len(archive.history("half")) == 2
    assert how(archive, data) == ["here", "new", "new"]
    assert len(archive.history("half")) == 6
    assert archive.meta("half")["title"] == "Bows"


def test_an_archive_holds_parts_with_numbers() -> None:
    parts = {
        "export/conversations-001.json": as_json(chatgpt(name="b")),
        "export/conversations-000.json": as_json(chatgpt(name="a")),
        "__MACOSX/export/conversations-000.json": b"junk",
        "user.json": b"{}",
    }
    assert Archive(InMemory()).load(as_zip(parts)) == ["a", "b"]


def test_an_archive_of_claude(tmp_path: Path) -> None:
    path = tmp_path / "data.zip"
    path.write_bytes(as_zip({"conversations.json": as_json(claude()), "users.json": b"[]"}))
    assert Archive(InMemory()).load(path) == ["strings"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (as_zip({"user.json": b"{}"}), "contains no conversations.json"),
        (as_zip({"conversations.json": b"[7]"}), "contains no conversations.json"),
        (as_zip({"conversations.json": b"[{"}), "Can't read conversations.json in the .zip file"),
        (as_zip({"conversations.json": b"junk"}), "neither a JSON list nor a JSON object"),
        (b"PK\x03\x04 and no more", "The archive is damaged"),
        (b'[{"mapping"', "Can't read a conversation from"),
        (b'[{"mapping": 7}]', "Can't read a conversation from"),
        (b'[7, "mapping"]', "data exports of ChatGPT and Claude"),
        (b"words", "data exports of ChatGPT and Claude, the log of llm, LangGraph"),
    ],
)
def test_an_unknown_file_is_rejected_with_the_supported_ones(data: bytes, why: str) -> None:
    with pytest.raises(InputError, match=why):
        Archive(InMemory()).import_conversations(data)


def test_a_path_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Can't read 'nowhere.json': No such file"):
        Archive(InMemory()).import_conversations(tmp_path / "nowhere.json")


def test_a_path_that_can_be_none_is_told() -> None:
    with pytest.raises(InputError, match="it contains a NUL character"):
        Archive(InMemory()).import_conversations(Path("a\0b"))


def test_a_name_that_is_not_utf_8_can_be_no_id(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"bow\xff")
    path.write_text('[{"role": "user", "content": "Hi"}]')
    with pytest.raises(InputError, match=r"the file name is not valid UTF-8"):
        Archive(InMemory()).import_conversations(path)
    assert Archive(InMemory()).load(path, id="bow") == ["bow"]
    make_database("agents-sdk", tmp_path).replace(path)
    assert Archive(InMemory()).load(path) == ["ada", "bob"]


def test_a_folder_is_told_with_the_file_in_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"This is a folder\. Import a file in it instead"):
        Archive(InMemory()).import_conversations(tmp_path)
    (tmp_path / "conversations-000.json").write_text("[]")
    with pytest.raises(InputError, match=r"This is a folder\. Import conversations-000\.json in it instead"):
        Archive(InMemory()).import_conversations(tmp_path)


def test_conversations_without_a_message_are_told_and_nothing_is_left() -> None:
    seen: list[int] = []
    archive = Archive(InMemory())
    done = archive.import_conversations(as_json(ChatGPT("a"), chatgpt(), ChatGPT("b")), progress=seen.append)
    assert [(each.id, each.how) for each in done.conversations] == [("bows", "new")]
    assert done.notes == {"conversations without messages were skipped": 2}
    assert [each.id for each in archive.conversations()] == ["bows"]
    assert seen == [2]


def test_one_may_be_called_otherwise() -> None:
    archive = Archive(InMemory())
    assert archive.load(as_json(chatgpt()), id="other") == ["other"]
    with pytest.raises(InputError, match="contains 2 conversations, but an id can name only one"):
        archive.load(as_json(chatgpt(), chatgpt(name="b")), id="other")
    assert [each.id for each in archive.conversations()] == ["other"]


def test_progress_reports_the_number_of_imported_conversations() -> None:
    seen: list[int] = []
    Archive(InMemory()).import_conversations(as_json(chatgpt(name="a"), chatgpt(name="b")), progress=seen.append)
    assert seen == [1, 2]


def test_another_owners_conversation_is_not_changed(store: Store) -> None:
    data = as_json(chatgpt())
    Archive(store, owner="ada").import_conversations(data)
    assert how(Archive(store, owner="bob"), data) == ["new"]


def test_a_conversation_created_at_the_same_time_is_skipped() -> None:
    class Hasty(InMemory):
        def write(self, owner: str, conversation: str, commit: Any) -> Any:
            if conversation == "bows" and not self.branches(owner, conversation):
                super().write(owner, conversation, Commit(expect=0, at=1))
            return super().write(owner, conversation, commit)

    done = Archive(Hasty()).import_conversations(as_json(chatgpt(), chatgpt(name="violins")))
    assert [(each.id, each.how, each.why) for each in done.conversations] == [
        ("bows", "left", "another process is writing to it; try again later"),
        ("violins", "new", ""),
    ]


def test_times_that_are_none_are_those_of_the_messages_before() -> None:
    talk = chatgpt(1)
    talk.mapping["node-2"]["message"]["create_time"] = None
    held = talk.value() | {"update_time": "long ago", "create_time": 1e300}
    archive = Archive(InMemory())
    archive.import_conversations(json.dumps([held]))
    asked, answer = archive.history("bows")
    assert asked.at == answer.at == archive.conversations()[0].updated


# Continuing


@pytest.fixture
def full(tmp_path: Path) -> Archive:
    """Return an archive with imports from all tools."""
    archive = Archive(InMemory())
    talk = chatgpt()
    talk.say("assistant", content={"content_type": "code", "text": "print('colophony')"}, recipient="python")
    talk.say("tool", "out", name="python")
    talk.say("tool", "more", name="python")
    other = claude("more strings")
    other.say("assistant", "And more.")
    other.say("assistant", "", {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}})
    for data in (as_json(talk), as_json(claude()), as_json(other)):
        assert not archive.import_conversations(data).left
    for name in ("llm", "llm-old", "langgraph"):
        archive.import_conversations(make_database(name, tmp_path))
    Archive(archive.store, owner="agents").import_conversations(make_database("agents-sdk", tmp_path))
    return archive


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_any_import_goes_on_with_any_model(wire: str, full: Archive) -> None:
    owners = [("", each.id) for each in full.conversations()] + [("agents", "ada"), ("agents", "bob")]
    assert len(owners) == 11
    for owner, name in owners:
        model = Scripted(says("Gladly.", wire=wire), wire=WIRES[wire])
        talk = Conversation(name, model=model, store=full.store, owner=owner)
        assert talk.send("Shall we go on?").text == "Gladly."
        validate(model.requests[0], wire=wire)
        assert talk.history()[-1].text == "Gladly."


def test_imported_text_is_found_by_search(full: Archive) -> None:
    assert {hit.conversation for hit in full.search("sheep")} == {"strings", "more strings"}
    assert [hit.role for hit in full.search("chaconne")].count("user") == 2
    assert {hit.conversation for hit in full.search("amber")} >= {"ada"}


def test_imported_text_is_recalled() -> None:
    talk = ChatGPT("long")
    talk.say("user", "My teacher's name is Leontine Abegg.")
    talk.say("assistant", "A fine name.")
    for number in range(200):
        talk.say("user", f"Tell me about scale {number}. " + "Slowly and with care. " * 20)
        talk.say("assistant", f"Scale {number} goes up and down. " + "Listen closely. " * 20)
    archive = Archive(InMemory())
    archive.import_conversations(as_json(talk))
    provider = CardModel()
    going = Conversation("long", model=provider, store=archive.store, policy=MemoryPolicy())
    for number in range(3):
        going.send(f"More about bow {number}, please.")
    going.send("What is the name of my teacher, Leontine?")
    assert len(provider.requests[-1]) < 40_000
    assert b"Leontine Abegg" in provider.requests[-1]


# Arbitrary trees


@st.composite
def trees(draw: st.DrawFn) -> ChatGPT:
    """Draw a conversation with edits, tools, hidden and empty messages, as a service may have made it."""
    talk = ChatGPT("drawn")
    for _ in range(draw(st.integers(1, 14))):
        behind = draw(st.sampled_from([talk.current, talk.current, *talk.mapping]))
        role = draw(st.sampled_from(["user", "assistant", "assistant", "tool", "system"]))
        content = draw(
            st.sampled_from(
                [
                    {"content_type": "text", "parts": ["words"]},
                    {"content_type": "text", "parts": [""]},
                    {"content_type": "code", "text": '{"a": 1}'},
                    {"content_type": "future_thing", "held": [1]},
                    {"content_type": "thoughts", "thoughts": [{"summary": "s", "content": "c"}]},
                    {"content_type": "multimodal_text", "parts": [{"content_type": "image_asset_pointer"}, "see"]},
                ]
            )
        )
        recipient = draw(st.sampled_from(["all", "all", "python"]))
        hidden = {"is_visually_hidden_from_conversation": draw(st.sampled_from([False, False, False, True]))}
        talk.say(role, content=content, behind=behind, recipient=recipient, metadata=hidden, name="python")
    talk.current = draw(st.sampled_from(list(talk.mapping)))
    return talk


@holds(trees(), few=40, many=800)
def test_any_tree_is_a_conversation_that_can_come_again(talk: ChatGPT) -> None:
    archive = Archive(InMemory())
    taken = archive.import_conversations(as_json(talk))
    if not taken.conversations:
        assert taken.notes["conversations without messages were skipped"] == 1
        return
    (done,) = taken.conversations
    archive.verify("drawn")
    assert how(archive, as_json(talk)) == ["here"]
    assert done.branches == len(archive.branches("drawn"))


@holds(st.data(), few=25, many=400)
def test_what_grows_at_its_end_is_added_to(data: st.DataObject) -> None:
    talk = ChatGPT("drawn")
    archive = Archive(InMemory())
    for step in range(data.draw(st.integers(2, 5))):
        for _ in range(data.draw(st.integers(1, 3))):
            talk.say(data.draw(st.sampled_from(["user", "assistant"])), "words")
        assert how(archive, as_json(talk)) == ["grown" if step else "new"]
    fresh = Archive(InMemory())
    fresh.import_conversations(as_json(talk))
    assert archive.talk("drawn").branches == fresh.talk("drawn").branches


def test_many_conversations_take_time_in_proportion() -> None:
    """Count the work instead of timing it: each conversation is read and written once."""
    calls: list[str] = []

    class Counts(InMemory):
        def write(self, *arguments: Any) -> Any:
            calls.append("write")
            return super().write(*arguments)

        def info(self, *arguments: Any) -> Any:
            calls.append("info")
            return super().info(*arguments)

    data = json.dumps([chatgpt(1, f"talk-{i}").value() for i in range(200)]).encode()
    Archive(Counts()).import_conversations(data)
    assert (calls.count("write"), calls.count("info")) == (400, 200)


def test_a_database_that_grows_is_added_to(tmp_path: Path) -> None:
    path = make_database("agents-sdk", tmp_path)
    archive = Archive(InMemory())
    archive.import_conversations(path)
    with closing(sqlite3.connect(path)) as db, db:
        item = '{"role": "user", "content": "Still here?"}'
        db.execute("INSERT INTO agent_messages (session_id, message_data) VALUES ('bob', ?)", (item,))
    assert how(archive, path) == ["here", "grown"]


def test_contents_without_an_id_get_one_each() -> None:
    archive = Archive(InMemory())
    first, second = (archive.load(json.dumps([{"role": "user", "content": text}])) for text in ("One.", "Two."))
    assert first != second
    assert sorted(first + second) == sorted(each.id for each in archive.conversations())
