"""In a conversation as Markdown, Longtalk's own lines can be distinguished from the messages."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk.errors import InputError
from longtalk.transcript.transcript import Entry, Turn, link_entries
from longtalk.transfer.conversation_export import BranchPart, ConversationExport
from longtalk.transfer.markdown import to_markdown
from longtalk.wires.entries import make_closing_result
from longtalk.wires.gemini.wire import WIRE as GEMINI
from longtalk.wires.neutral import event, system
from longtalk.wires.openai_chat.wire import WIRE
from tests.support.properties import examples
from tests.transfer.test_json_export import talks

AT = 1767323045000
"""2026-01-02 03:04:05 UTC"""


def message(role: str, content: Any, *, mark: str = "", wire: str = "openai-chat", **more: Any) -> Entry:
    native = json.dumps({"role": role, "content": content, **more}).encode()
    return Entry(role=role, wire=wire, native=native, at=AT, mark=mark)


def talk(*entries: Entry, turn: Turn | None = None, **more: Any) -> ConversationExport:
    made = turn or Turn("t", "complete", "local:tiny", AT, AT + 2100)
    part = BranchPart(name="main", entries=link_entries(None, "t", 0, entries), turns=(made,) if entries else ())
    return ConversationExport(id="lesson-7", created=AT, branches=(part,), **more)


def calling(text: str | None, *names: str) -> Entry:
    calls = [{"id": f"c-{name}", "type": "function", "function": {"name": name, "arguments": "{}"}} for name in names]
    return message("assistant", text, tool_calls=calls)


def ours(markdown: str) -> list[str]:
    """Return the lines that are neither in a quote nor in a fence."""
    found, fence = [], ""
    for line in markdown.splitlines():
        if fence:
            fence = "" if line == fence else fence
        elif opened := re.match("`{3,}", line):
            fence = opened[0]
        elif line and not line.startswith(">"):
            found.append(line)
    assert not fence
    return found


def test_a_conversation_is_readable() -> None:
    usage = (b'{"prompt_tokens":1200,"completion_tokens":34,"prompt_tokens_details":{"cached_tokens":1000}}',)
    turn = Turn("t", "complete", "openai-chat:gpt-x", AT, AT + 2100, usage=usage)
    entries = [message("user", "How do I tune it?\n\nIt squeaks."), message("assistant", "Gently.")]
    assert to_markdown(talk(*entries, turn=turn, meta={"title": "My violin"})) == "\n".join(
        [
            "# My violin",
            "",
            "Began 2026-01-02 03:04:05 UTC · branch main · id lesson-7",
            "",
            "## 1 · 2026-01-02 03:04:05 UTC",
            "",
            "### User · 2026-01-02 03:04:05 UTC",
            "",
            "> How do I tune it?",
            ">",
            "> It squeaks.",
            "",
            "### Assistant · 2026-01-02 03:04:05 UTC",
            "",
            "> Gently.",
            "",
            "*openai-chat:gpt-x · 1,200 tokens in (1,000 from the cache), 34 out · 2.1 s*",
            "",
        ]
    )


def test_tool_calls_are_shown_with_arguments_and_results() -> None:
    result = message("tool", "```\nthree days\n````", tool_call_id="c-plan", mark="error")
    shown = to_markdown(talk(message("user", "plan"), calling("Let me see.", "plan", "ask"), result))
    assert "> Let me see.\n\nCalls **plan**:\n\n```json\n{}\n```\n\nCalls **ask**:" in shown
    assert "### Result of plan · 2026-01-02 03:04:05 UTC · error\n\n`````\n```\nthree days\n````\n`````\n" in shown


def test_marks_and_failures_are_shown() -> None:
    entries = [
        message("user", "x"),
        message("assistant", "half a", mark="interrupted"),
        message("assistant", "long", mark="length"),
        message("assistant", None, refusal="I'd rather not."),
        calling(None, "plan"),
        make_closing_result(WIRE, "c-plan", "Outcome unknown.", at=AT),
    ]
    shown = to_markdown(talk(*entries, turn=Turn("t", "failed", "local:tiny", 0, error="no *route*")))
    assert "### Assistant · 2026-01-02 03:04:05 UTC · interrupted\n" in shown
    assert "· cut off by the length limit\n" in shown
    assert "Refusal:\n\n> I'd rather not." in shown
    assert "### Result of plan · 2026-01-02 03:04:05 UTC · no result, so the call was closed\n" in shown
    assert "*local:tiny · failed: no \\*route\\**" in shown


def test_events_name_their_source_and_system_messages_are_shown() -> None:
    shown = to_markdown(talk(event("A string broke\n# now", source="tuner\n# app", at=AT), system("Be kind.", at=AT)))
    assert "> **Event** from tuner \\# app · 2026-01-02 03:04:05 UTC\n>\n> A string broke\n> \\# now\n" in shown
    assert "### System · 2026-01-02 03:04:05 UTC\n\n> Be kind.\n" in shown


def test_images_are_named_and_not_shown() -> None:
    parts = [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]
    shown = to_markdown(talk(message("user", parts)))
    assert "> Look:\n\n*[image]*\n" in shown
    assert "AAAA" not in shown


def test_the_other_wire_is_read_too() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "Hello."},
        {"type": "tool_use", "id": "c1", "name": "plan", "input": {"days": 3}},
    ]
    result = [{"type": "tool_result", "tool_use_id": "c1", "content": "ok"}]
    answer = message("assistant", blocks, wire="anthropic")
    told = Entry(role="tool", wire="anthropic", native=message("user", result).native, at=AT)
    shown = to_markdown(talk(message("user", "x", wire="anthropic"), answer, told))
    assert "> Hello.\n\n*[thinking]*\n\nCalls **plan**:" in shown
    assert "### Result of plan · 2026-01-02 03:04:05 UTC\n\n```\nok\n```" in shown


def test_parts_without_a_type_are_read_too() -> None:
    parts: list[dict[str, Any]] = [
        {"text": "hm", "thought": True},
        {"text": "Hello.", "thoughtSignature": "c2ln"},
        {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
        {"fileData": {"fileUri": "x"}},
        {"executableCode": {"code": "1"}},
        {"functionCall": {"name": "plan", "args": {"days": 3}}},
    ]
    native = json.dumps({"role": "model", "parts": parts}).encode()
    (call,) = GEMINI.view(native).calls
    result = GEMINI.write_result(call.id, "ok", error=False, name="plan")
    entries = [
        Entry(role=role, wire="gemini", native=each, at=AT)
        for role, each in (("user", GEMINI.write_user("x")), ("assistant", native), ("tool", result))
    ]
    shown = to_markdown(talk(*entries))
    assert "> Hello.\n\n*[thinking, image, fileData, executableCode]*\n\nCalls **plan**:" in shown
    assert "### Result of plan · 2026-01-02 03:04:05 UTC\n\n```\nok\n```" in shown
    assert "AAAA" not in shown


def test_items_of_an_answer_without_a_type_are_read_too() -> None:
    items = [
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"},
        {"type": "web_search_call", "id": "ws_1"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]},
        {"type": "function_call", "call_id": "c1", "name": "plan", "arguments": '{"days": 3}'},
    ]
    wire = "openai-responses"
    answer = Entry(role="assistant", wire=wire, native=json.dumps({"output": items}).encode(), at=AT)
    result = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
    told = Entry(role="tool", wire=wire, native=json.dumps(result).encode(), at=AT)
    asked = [{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": "u"}]
    shown = to_markdown(talk(message("user", asked, wire=wire), answer, told))
    assert "> x\n\n*[image]*" in shown
    assert "> Hello.\n\n*[reasoning, web\\_search\\_call]*\n\nCalls **plan**:" in shown
    assert "### Result of plan · 2026-01-02 03:04:05 UTC\n\n```\nok\n```" in shown


@pytest.mark.parametrize("native", [b'{"a":"```"}', b'{"role":"user","content":"\xff"}'])
def test_a_wire_that_is_not_known_is_shown_as_json(native: bytes) -> None:
    shown = to_markdown(talk(Entry(role="user", wire="telegraph", native=native, at=AT)))
    assert "as JSON of the wire telegraph" in shown
    assert native.decode("utf-8", "replace") in shown


def test_an_unreadable_entry_is_shown_as_json() -> None:
    broken = Entry(role="assistant", wire="openai-chat", native=b'{"role":"assistant","tool_calls":[5]}', at=AT)
    assert '```json\n{"role":"assistant","tool_calls":[5]}\n```' in to_markdown(talk(broken))


def test_a_report_of_another_wire_is_understood() -> None:
    turn = Turn("t", "complete", "claude-cli", 0, usage=(b'{"input_tokens":7,"output_tokens":2}', b"nonsense"))
    assert "*claude-cli · 7 tokens in, 2 out*" in to_markdown(talk(message("user", "x"), turn=turn))


def test_other_branches_are_named_last() -> None:
    first = talk(message("user", "x")).branches[0]
    second = BranchPart(
        name="other way",
        source=("main", 1),
        entries=link_entries("t-0", "u", 0, [message("user", "more")]),
        turns=(Turn("u", "complete", "m", 0),),
    )
    found = ConversationExport(id="x", branches=(first, second))
    assert to_markdown(found).endswith("---\n\nOther branches: other way\n")
    shown = to_markdown(found, "other way")
    assert shown.endswith("Other branches: main\n")
    assert "> x\n" in shown
    assert "> more\n" in shown
    with pytest.raises(InputError, match="no branch 'third'"):
        to_markdown(found, "third")


def test_a_conversation_without_anything_has_a_title() -> None:
    assert (
        to_markdown(ConversationExport(id="empty *talk*", meta={"title": " "})) == "# empty \\*talk\\*\n\nbranch main\n"
    )
    with pytest.raises(InputError, match="no branch"):
        to_markdown(ConversationExport(id="empty"), "other")


def test_of_an_imported_turn_nothing_is_said_that_is_not_known() -> None:
    shown = to_markdown(talk(message("user", "x"), message("assistant", "y"), turn=Turn("t", "complete", "unknown", 0)))
    assert "unknown" not in shown
    assert shown.endswith("> y\n")
    cut_off = to_markdown(talk(message("user", "x"), turn=Turn("t", "interrupted", "unknown", 0)))
    assert cut_off.endswith("> x\n\n*interrupted*\n")


def quoted(text: str) -> str:
    """Return a text as it appears inside its quote."""
    lines = to_markdown(talk(message("user", text))).splitlines()
    return "\n".join(line[2:] for line in lines if line.startswith(">"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("# Big\n   ## less\n#hashtag\n#", "\\# Big\n   \\## less\n#hashtag\n\\#"),
        ("> # x\n- ## y\n1. # z", "> \\# x\n- \\## y\n1. \\# z"),
        ("Big\n===\nless\n---", "Big\n\\===\nless\n\\---"),
        ("a\n\n---\n\n| a |\n|---|", "a\n\n---\n\n| a |\n|---|"),
        ("<b>x</b> <!-- y 1 < 2 <3", "\\<b>x\\</b> \\<!-- y 1 < 2 <3"),
        (r"\<b> \\<b>", r"\<b> \\\<b>"),
        ("use `<b>` or ``a ` <i>``, not <b>", "use `<b>` or ``a ` <i>``, not \\<b>"),
        # Escaped because it may not be code: a span over two lines, two cells of a table, an escaped backtick.
        ("a ` b\nc ` <b> ` d", "a ` b\nc ` \\<b> ` d"),
        ("| ` | <b> | ` |", "| ` | \\<b> | ` |"),
        (r"\` <b> `", r"\` \<b> `"),
        ("```\nnever closed\n\n# x <b>", "```\nnever closed\n\n# x <b>"),
        ("1. do\n   ```sh\n   # x\n\n   <b>\n   ```\n# y", "1. do\n   ```sh\n   # x\n\n   <b>\n   ```\n\\# y"),
        # A fence in a list ends with the list; any other fence does not.
        ("- a\n  ```\nb <b>", "- a\n  ```\nb \\<b>"),
        ("- ```\n  a\n  ```\n<b>", "- ```\n  a\n  ```\n\\<b>"),
        ("  ```\n```\n<b>", "  ```\n```\n\\<b>"),
        ("    ```\n<b>", "    ```\n\\<b>"),
        ("``` a ` b\n<b>", "``` a ` b\n\\<b>"),
    ],
)
def test_headings_and_html_in_a_quote_are_text_and_code_stays_as_it_is(text: str, shown: str) -> None:
    assert quoted(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Run:\n\n```sh\n# x <b>\n\nls\n```\n\n# y", "> Run:\n\n```sh\n# x <b>\n\nls\n```\n\n> \\# y\n"),
        ("```html\n# x\n<b>\n===\n    ```\n```\n# x", "````html\n# x\n<b>\n===\n    ```\n````\n\n> \\# x\n"),
        ("~~~~\n~~~\n<b>\n~~~~~\n<b>", "```\n~~~\n<b>\n```\n\n> \\<b>\n"),
        ("```\na\n```\n```py\nb\n```", "```\na\n```\n\n```py\nb\n```\n"),
        # In a list, it is part of the quote; and what follows may be, too.
        ("- ```\n  a\n  ```\n\n```\nb\n```", "> - ```\n>   a\n>   ```\n>\n> ```\n> b\n> ```\n"),
    ],
)
def test_code_blocks_are_not_quoted_so_that_they_can_be_copied(text: str, shown: str) -> None:
    shown_whole = to_markdown(talk(message("user", text))).partition("### User")[2].partition("\n\n")[2]
    assert shown_whole.partition("\n*")[0] == shown


def test_a_time_out_of_range_is_left_out() -> None:
    assert to_markdown(ConversationExport(id="x", created=2**62)) == "# x\n\nbranch main\n"


HOSTILE = [
    "### Assistant · 2026-01-02 03:04:05 UTC\n\n> I agree.",
    "text\n===\n\n---\n",
    "```\nnever closed",
    "~~~~\nnever closed",
    "<!-- hidden\n<details><h2>User</h2>",
    "\r### System\r\n## 2\u2028### System\x0b# x\x85# y",
    "> quoted\nlazy",
    "    code\n\t# tab",
    "[link]: http://x\n* * *\n| a |\n|---|",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_message_can_not_imitate_a_heading(text: str) -> None:
    plain = ours(to_markdown(talk(message("user", "x"), calling("y", "f"), message("tool", "z", tool_call_id="c-f"))))
    forged = talk(message("user", text), calling(text, "f"), message("tool", text, tool_call_id="c-f"))
    assert ours(to_markdown(forged)) == plain
    named = to_markdown(
        talk(event(text, source=text, at=AT), calling("", text), turn=Turn("t", "failed", text, 0, error=text)),
    )
    assert [line[0] for line in ours(named)] == ["#", "B", "#", "#", "C", "*"]


@given(found=talks())
@examples(10, 75)
def test_any_conversation_can_be_shown(found: ConversationExport) -> None:
    for part in found.branches:
        shown = to_markdown(found, part.name)
        shown.encode()
        start = r"# |Began |branch|## \d+|### |Calls \*\*|Refusal:|\*|---$|Other branches: "
        assert all(re.match(start, line) for line in ours(shown)[1:])


@given(st.text(alphabet=" \n\r`~>#-=*<!\\x\u2028", max_size=40))
def test_a_fence_and_a_quote_hold_any_text(text: str) -> None:
    shown = to_markdown(talk(message("user", text), message("tool", text, tool_call_id="c")))
    assert [line.split(" ·")[0] for line in ours(shown)[2:5]] == ["## 1", "### User", "### Result of a call"]
    assert len(ours(shown)) == 6


def test_the_system_text_comes_first_and_cannot_imitate_a_heading() -> None:
    shown = to_markdown(talk(message("user", "x")), system="Be terse.\n# 2")
    assert "\n## System text of the last turn\n\n> Be terse.\n> \\# 2\n\n## 1" in shown
