"""Data exports of ChatGPT become conversations."""

from __future__ import annotations

import json
from typing import Any

from longtalk import Archive
from longtalk.archive.history import HistoryEntry
from longtalk.stores.in_memory import InMemory
from longtalk.transfer.importers import open_tool_file
from longtalk.transfer.load import ImportResult
from tests.transfer.importers.exports import ChatGPT, as_json


def import_talks(*talks: ChatGPT) -> tuple[Archive, ImportResult]:
    archive = Archive(InMemory())
    return archive, archive.import_conversations(as_json(*talks))


def read_history(talk: ChatGPT, branch: str = "main") -> list[HistoryEntry]:
    archive, done = import_talks(talk)
    archive.verify(done.ids[0])
    return archive.history(done.ids[0], branch=branch)


def texts(talk: ChatGPT) -> list[tuple[str, str]]:
    return [(each.role, each.text) for each in read_history(talk)]


def simple() -> ChatGPT:
    talk = ChatGPT()
    talk.say("system", "", metadata={"is_visually_hidden_from_conversation": True})
    talk.say("user", "How do I hold the bow?")
    talk.say("assistant", "Lightly.")
    return talk


def test_the_format_is_recognized_by_its_content() -> None:
    found = open_tool_file(as_json(simple(), ChatGPT("other")))
    assert found is not None
    assert (found.tool, found.count) == ("chatgpt", 2)
    assert open_tool_file(json.dumps(simple().value()).encode()) is not None


def test_messages_are_imported_with_their_times_and_ids() -> None:
    archive, done = import_talks(simple())
    (id,) = done.ids  # noqa: A001
    assert id == "6995e870-eafc-83a6-ab22-d89ad9e2b447"
    asked, answer = archive.history(id)
    assert (asked.role, asked.text, asked.at) == ("user", "How do I hold the bow?", 1_790_000_002_250)
    assert json.loads(answer.native) == {"role": "assistant", "content": "Lightly."}
    assert answer.meta == {"imported": {"id": "node-3"}}
    assert archive.meta(id) == {"title": "Bows", "imported": {"from": "chatgpt"}}
    summary = archive.conversations()[0]
    assert (summary.created, summary.updated) == (1_790_000_000_250, 1_790_000_004_250)
    turn = archive.talk(id).branches[0].turns[0]
    assert (turn.status, turn.model, turn.started) == ("complete", "chatgpt:gpt-5-2", asked.at)
    assert done.notes == {}


def test_edits_and_regenerated_answers_become_branches() -> None:
    talk = simple()
    first = talk.current
    other = talk.say("assistant", "Like a bird.", behind="node-2")
    talk.say("user", "Which bird?")
    talk.say("assistant", "A small one.")
    talk.say("user", "And the violin?", behind=first)
    end = talk.say("assistant", "Under the chin.")
    talk.current = "node-6"
    archive, done = import_talks(talk)
    (id,) = done.ids  # noqa: A001
    assert [each.text for each in archive.history(id)][1:] == ["Like a bird.", "Which bird?", "A small one."]
    assert (done.conversations[0].entries, done.conversations[0].branches) == (7, 2)
    (branch,) = set(archive.branches(id)) - {"main"}
    beside = archive.history(id, branch=branch)
    assert [each.text for each in beside][1:] == ["Lightly.", "And the violin?", "Under the chin."]
    assert beside[-1].meta["imported"]["id"] == end
    assert beside[0].id == archive.history(id)[0].id
    assert other == archive.history(id)[1].meta["imported"]["id"]
    archive.verify(id)


def test_without_a_current_node_the_newest_path_is_the_main_branch() -> None:
    talk = simple()
    talk.say("assistant", "Like a bird.", behind="node-2")
    talk.current = "nowhere"
    assert [each.text for each in read_history(talk)] == ["How do I hold the bow?", "Like a bird."]


def test_a_current_node_in_the_middle_is_where_main_ends() -> None:
    talk = simple()
    talk.say("user", "And then?")
    talk.current = "node-3"
    archive, done = import_talks(talk)
    assert len(archive.history(done.ids[0])) == 2
    assert done.conversations[0].branches == 2


def test_a_tool_is_called_and_gives_its_result() -> None:
    talk = simple()
    talk.say("user", "What is 2+2?")
    code = {"content_type": "code", "language": "unknown", "text": "print(2 + 2)"}
    talk.say("assistant", content=code, recipient="python")
    talk.say("tool", content={"content_type": "execution_output", "text": "4"}, name="python")
    talk.say("assistant", content={"content_type": "code", "text": '{"query": "four"}'}, recipient="web.search")
    talk.say("tool", content={"content_type": "tether_browsing_display", "result": "IV", "summary": ""}, name="web")
    talk.say("assistant", "It is 4.")
    entries = read_history(talk)[3:]
    called = json.loads(entries[0].native)["tool_calls"][0]
    assert called["function"] == {"name": "python", "arguments": '{"input":"print(2 + 2)"}'}
    assert json.loads(entries[1].native) == {"role": "tool", "tool_call_id": called["id"], "content": "4"}
    assert json.loads(entries[2].native)["tool_calls"][0]["function"] == {
        "name": "web_search",
        "arguments": '{"query": "four"}',
    }
    assert [(each.role, each.text) for each in entries[3:]] == [("tool", "IV"), ("assistant", "It is 4.")]
    assert entries[0].meta["imported"]["content_type"] == "code"


def test_text_right_before_a_call_is_merged_with_it() -> None:
    talk = simple()
    talk.say("assistant", "Let me compute.")
    talk.say("assistant", content={"content_type": "code", "text": "2 + 2"}, recipient="python")
    talk.say("tool", "4", name="python")
    answer = read_history(talk)[1]
    message = json.loads(answer.native)
    assert message["content"] == "Lightly.\n\nLet me compute."
    assert message["tool_calls"][0]["function"]["name"] == "python"
    assert answer.meta["imported"]["ids"] == ["node-3", "node-4", "node-5"]


def test_unpaired_calls_and_results_are_closed_and_noted() -> None:
    talk = simple()
    talk.say("user", "Look.")
    talk.say("assistant", content={"content_type": "code", "text": "a"}, recipient="python")
    talk.say("assistant", "Never mind.")
    talk.say("tool", "Model set context updated.", name="bio")
    talk.say("assistant", content={"content_type": "code", "text": "b"}, recipient="python")
    archive, done = import_talks(talk)
    entries = archive.history(done.ids[0])[3:]
    assert [(each.role, each.mark) for each in entries] == [
        ("assistant", ""),
        ("tool", "closed"),
        ("assistant", ""),
        ("event", ""),
        ("assistant", ""),
        ("tool", "closed"),
    ]
    assert json.loads(entries[3].native) == {"source": "bio", "text": "Model set context updated."}
    assert done.notes == {
        "tool calls had no result and were closed": 2,
        "tool results belonged to no call and became events": 1,
    }
    archive.verify(done.ids[0])


def test_pictures_and_recordings_are_pointers() -> None:
    talk = simple()
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_1", "width": 10}
    voice = {"content_type": "audio_asset_pointer", "asset_pointer": "sediment://file_2"}
    heard = {"content_type": "audio_transcription", "text": "My bow!"}
    parts = {"content_type": "multimodal_text", "parts": [picture, voice, heard, "What is it?"]}
    talk.say("user", content=parts, metadata={"attachments": [{"name": "bow.png", "id": "file_1"}]})
    archive, done = import_talks(talk)
    entry = archive.history(done.ids[0])[-1]
    told = "[image, not in the export]\n[audio asset pointer, not in the export]\nMy bow!\nWhat is it?"
    assert entry.text == told
    assert entry.meta["imported"]["pointers"] == [picture, voice]
    assert entry.meta["imported"]["attachments"] == ["bow.png"]
    assert done.notes == {
        "images are missing: the export has only pointers to them": 1,
        "recordings or files are missing: the export has only pointers to them": 1,
    }


def test_thoughts_and_instructions_stay_beside() -> None:
    talk = ChatGPT()
    about = {"content_type": "user_editable_context", "user_profile": "I'm Ada.", "user_instructions": ""}
    talk.say("user", content=about, metadata={"is_visually_hidden_from_conversation": True})
    talk.say("user", "Which bow?")
    talk.say("assistant", content={"content_type": "thoughts", "thoughts": [{"summary": "Bows", "content": "hm"}]})
    talk.say("assistant", content={"content_type": "reasoning_recap", "content": "Thought for 8s"})
    talk.say("assistant", "The light one.")
    talk.say("user", "hidden words", metadata={"is_visually_hidden_from_conversation": True})
    talk.say("assistant", "")
    archive, done = import_talks(talk)
    (id,) = done.ids  # noqa: A001
    assert [(each.role, each.text) for each in archive.history(id)] == [
        ("user", "Which bow?"),
        ("assistant", "The light one."),
    ]
    thoughts = archive.history(id)[1].meta["imported"]["thoughts"]
    assert thoughts == [[{"summary": "Bows", "content": "hm"}], "Thought for 8s"]
    assert archive.meta(id)["imported"]["context"] == [{"user_profile": "I'm Ada."}]
    assert list(done.notes.values()) == [1, 2, 1, 1]


def test_a_visible_system_message_stays_one() -> None:
    talk = ChatGPT()
    talk.say("system", "Answer in verse.")
    talk.say("user", "Hi")
    assert texts(talk) == [("system", "Answer in verse."), ("user", "Hi")]


def test_quotes_of_pages_are_read() -> None:
    talk = simple()
    quote = {"content_type": "tether_quote", "title": "Bows", "url": "https://example.com", "text": "Of wood."}
    talk.say("user", content=quote)
    assert texts(talk)[-1] == ("user", "Bows\nhttps://example.com\nOf wood.")


def test_a_message_of_an_unknown_kind_keeps_its_place() -> None:
    talk = simple()
    held = {"content_type": "future_thing", "held": {"deep": [1, 2]}}
    talk.say("assistant", content=held)
    told = {"content_type": "later_thing", "text": "Words.", "more": 7}
    talk.say("user", content=told)
    talk.say("user", content=held, metadata={"is_visually_hidden_from_conversation": True})
    archive, done = import_talks(talk)
    unknown, known = archive.history(done.ids[0])[2:]
    assert (unknown.role, unknown.text) == ("assistant", "[future_thing]")
    assert unknown.meta["imported"]["content"] == held
    assert (known.text, known.meta["imported"]["content"]) == ("Words.", told)
    assert done.notes == {
        "messages of the unknown type future_thing became placeholders, with their content kept as metadata": 1,
        "hidden messages were left out": 1,
    }


def test_a_message_of_an_unknown_author_is_noted() -> None:
    talk = simple()
    talk.say("critic", "Well held.")
    archive, done = import_talks(talk)
    entry = archive.history(done.ids[0])[-1]
    assert (entry.role, entry.text, entry.meta["imported"]["role"]) == ("user", "Well held.", "critic")
    assert list(done.notes.values()) == [1]


def test_a_malformed_conversation_is_skipped_and_the_others_are_imported() -> None:
    broken: Any = simple().value()
    broken["id"] = broken["conversation_id"] = "broken"
    broken["mapping"]["node-2"]["message"]["content"] = 7
    empty = ChatGPT("empty").value()
    archive = Archive(InMemory())
    done = archive.import_conversations(json.dumps([broken, empty, simple().value()]).encode())
    assert [(each.id, each.how) for each in done.conversations[:1]] == [("broken", "left")]
    why = "its format is not supported (one of its values has an unexpected type)"
    assert done.left[0].why == why
    assert done.notes == {"conversations without messages were skipped": 1}
    assert len(done.ids) == 1


def test_a_tree_that_bites_its_tail_ends() -> None:
    talk = simple()
    talk.mapping["node-2"]["parent"] = "node-3"
    talk.mapping["node-3"]["children"] = ["node-2"]
    archive, done = import_talks(talk)
    assert archive.history(done.ids[0])
    archive.verify(done.ids[0])
