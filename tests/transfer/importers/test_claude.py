"""Data exports of Claude become conversations."""

from __future__ import annotations

import json
from typing import Any

from longtalk import Archive
from longtalk.stores.in_memory import InMemory
from longtalk.transfer.importers import open_tool_file
from longtalk.transfer.load import ImportResult
from tests.transfer.importers.exports import Claude, as_json


def import_talks(*talks: Claude) -> tuple[Archive, ImportResult]:
    archive = Archive(InMemory())
    return archive, archive.import_conversations(as_json(*talks))


def natives(talk: Claude) -> list[Any]:
    archive, done = import_talks(talk)
    archive.verify(done.ids[0])
    return [json.loads(each.native) for each in archive.history(done.ids[0])]


def call(id: str | None, name: str = "view", **given: Any) -> dict[str, Any]:  # noqa: A002
    return {"type": "tool_use", "id": id, "name": name, "input": given, "flags": None, "message": "Looking"}


def result(id: str | None, text: str, **more: Any) -> dict[str, Any]:  # noqa: A002
    return {"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": text, "uuid": "x"}], **more}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said, "citations": [], "start_timestamp": "2026-11-16T10:00:00Z"}


def test_the_format_is_recognized_by_its_content() -> None:
    talk = Claude()
    talk.say("human", "Hi")
    found = open_tool_file(as_json(talk))
    assert found is not None
    assert (found.tool, found.count) == ("claude.ai", 1)


def test_messages_are_imported_in_anthropics_format() -> None:
    talk = Claude()
    talk.say("human", "How do I hold the bow?")
    talk.say("assistant", "Lightly.")
    archive, done = import_talks(talk)
    (id,) = done.ids  # noqa: A001
    asked, answer = archive.history(id)
    assert (id, asked.wire) == ("019d18cb-47a0-7e53-8bd6-1278557eae3b", "anthropic")
    assert json.loads(asked.native) == {"role": "user", "content": [{"type": "text", "text": "How do I hold the bow?"}]}
    assert json.loads(answer.native) == {"role": "assistant", "content": [{"type": "text", "text": "Lightly."}]}
    assert answer.at - asked.at == 60_000
    assert archive.meta(id) == {"title": "Bows", "imported": {"from": "claude.ai"}}
    assert archive.talk(id).branches[0].turns[0].model == "claude.ai"
    assert done.notes == {}


def test_an_older_export_has_texts_alone_and_no_parents() -> None:
    talk = Claude()
    talk.say("human", "One.")
    talk.say("assistant", "Two.")
    talk.say("human", "Three.")
    for message in talk.messages:
        message["content"] = []
        del message["parent_message_uuid"]
    assert [each["content"][0]["text"] for each in natives(talk)] == ["One.", "Two.", "Three."]


def test_rounds_of_tools_in_one_message_are_messages_of_their_own() -> None:
    talk = Claude()
    talk.say("human", "Compare them.")
    blocks = [
        {"type": "thinking", "thinking": "Let me see.", "signature": None},
        text("First this."),
        call("toolu_1", path="/a"),
        result("toolu_1", "aaa"),
        call(None, "web_search", query="b"),
        text("And that."),
        result(None, "bbb", is_error=True),
        text("They differ."),
        {"type": "token_budget"},
    ]
    talk.say("assistant", "", *blocks)
    archive, done = import_talks(talk)
    entries = archive.history(done.ids[0])
    assert [(each.role, each.mark) for each in entries] == [
        ("user", ""),
        ("assistant", ""),
        ("tool", ""),
        ("assistant", ""),
        ("tool", "error"),
        ("assistant", ""),
    ]
    said = [json.loads(each.native)["content"] for each in entries]
    assert said[1] == [
        text_of("First this."),
        {"type": "tool_use", "id": "toolu_1", "name": "view", "input": {"path": "/a"}},
    ]
    assert said[2] == [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "aaa"}]
    assert [block["type"] for block in said[3]] == ["text", "tool_use"]
    assert said[4][0]["tool_use_id"] == said[3][1]["id"]
    assert said[5] == [text_of("They differ.")]
    assert entries[1].meta["imported"]["beside"] == [blocks[0]]
    assert entries[5].meta["imported"]["beside"] == [blocks[-1]]
    assert done.notes == {
        "thinking blocks were kept as metadata of their answers and are not sent": 1,
        "content blocks of other types were kept as metadata of their messages and are not sent": 1,
    }
    archive.verify(done.ids[0])


def text_of(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


def test_the_text_of_attachments_is_imported() -> None:
    talk = Claude()
    talk.say(
        "human",
        "Read this.",
        attachments=[
            {"file_name": "bow.txt", "file_size": 9, "file_type": "txt", "extracted_content": "Of pernambuco."},
            {"file_name": "bow.bin", "file_size": 9, "file_type": "bin", "extracted_content": ""},
        ],
        files=[{"file_name": "bow.png"}],
    )
    archive, done = import_talks(talk)
    parts = [block["text"] for block in json.loads(archive.history(done.ids[0])[0].native)["content"]]
    assert parts == [
        "Read this.",
        "[bow.txt]\nOf pernambuco.",
        "[bow.bin, not in the export]",
        "[bow.png, not in the export]",
    ]
    assert done.notes == {"files are missing: the export has only their names": 2}
    assert [hit.role for hit in archive.search("pernambuco")] == ["user"]


def test_a_regenerated_answer_becomes_a_branch() -> None:
    talk = Claude()
    talk.say("human", "Which bow?")
    talk.say("assistant", "The old one.")
    talk.say("assistant", "The new one.", parent="message-0")
    talk.say("human", "Thanks.")
    archive, done = import_talks(talk)
    (id,) = done.ids  # noqa: A001
    assert [each.text for each in archive.history(id)] == ["Which bow?", "The new one.", "Thanks."]
    (branch,) = set(archive.branches(id)) - {"main"}
    assert [each.text for each in archive.history(id, branch=branch)] == ["Which bow?", "The old one."]


def test_calls_without_results_and_results_without_calls() -> None:
    talk = Claude()
    talk.say("human", "Look.")
    talk.say("assistant", "", text("Looking."), call("toolu_1"), call("toolu_2"), result("toolu_2", "two"))
    talk.say("human", "And?")
    talk.say("assistant", "", result("toolu_9", "nine"), text("Done."))
    archive, done = import_talks(talk)
    roles = [(each.role, each.mark) for each in archive.history(done.ids[0])]
    assert roles[1:4] == [("assistant", ""), ("tool", ""), ("tool", "closed")]
    assert roles[5:] == [("event", ""), ("assistant", "")]
    assert list(done.notes.values()) == [1, 1]
    archive.verify(done.ids[0])


def test_empty_messages_are_left_out() -> None:
    talk = Claude()
    talk.say("human", "Hi")
    talk.say("assistant", "")
    talk.say("human", "")
    talk.say("assistant", "Hello.")
    archive, done = import_talks(talk)
    assert [each.text for each in archive.history(done.ids[0])] == ["Hi", "Hello."]
    assert done.notes == {"empty messages were left out": 2}


def test_blocks_of_unknown_kinds_alone_keep_their_place() -> None:
    talk = Claude()
    one, other = {"type": "future_thing", "held": [1]}, {"type": "later_thing"}
    thought = {"type": "thinking", "thinking": "Hm."}
    talk.say("human", "", one)
    talk.say("assistant", "", one, one, other)
    talk.say("human", "And?")
    talk.say("assistant", "", thought)
    archive, done = import_talks(talk)
    entries = archive.history(done.ids[0])
    assert [(each.role, each.text) for each in entries] == [
        ("user", "[future_thing]"),
        ("assistant", "[future_thing] [later_thing]"),
        ("user", "And?"),
        ("assistant", "[thinking]"),
    ]
    beside = [each.meta["imported"].get("beside") for each in entries]
    assert beside == [[one], [one, one, other], None, [thought]]
    assert done.notes == {
        "messages of the unknown type future_thing became placeholders, with their content kept as metadata": 2,
        "messages of the unknown type later_thing became placeholders, with their content kept as metadata": 1,
        "thinking blocks were kept as metadata of their answers and are not sent": 1,
    }
    archive.verify(done.ids[0])


def test_a_message_of_an_unknown_author_is_noted() -> None:
    talk = Claude()
    talk.say("critic", "Well held.")
    archive, done = import_talks(talk)
    (entry,) = archive.history(done.ids[0])
    assert (entry.role, entry.text, entry.meta["imported"]["sender"]) == ("user", "Well held.", "critic")
    assert list(done.notes.values()) == [1]


def test_a_tool_result_in_any_format_becomes_text() -> None:
    talk = Claude()
    talk.say("human", "Look.")
    plain = {"type": "tool_result", "tool_use_id": "a", "content": "plain"}
    odd = {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "knowledge", "title": "Bows"}]}
    none = {"type": "tool_result", "tool_use_id": "c", "content": None}
    talk.say("assistant", "", call("a"), call("b"), call("c"), plain, odd, none, text("So."))
    results = [each["content"][0].get("content") for each in natives(talk)[2:5]]
    assert results == ["plain", '[{"type":"knowledge","title":"Bows"}]', None]


def test_a_malformed_conversation_is_skipped() -> None:
    talk = Claude()
    talk.say("human", "Hi")
    talk.messages[0]["attachments"] = [7]
    _, done = import_talks(talk)
    assert done.conversations[0].how == "left"
    assert "format is not supported" in done.conversations[0].why
