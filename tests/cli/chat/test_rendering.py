"""Answers that are rendered while they arrive: blocks that are finished never change."""

from __future__ import annotations

import io
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.segment import Segment, Segments

from longtalk.cli.chat import rendering
from longtalk.cli.chat.rendering import (
    _PARSER,
    AnswerMarkdown,
    AnswerView,
    Drawing,
    cut_code,
    render_markdown,
    split_blocks,
)
from longtalk.cli.output import LineEnds

KINDS = """\
text
*a* `b`
# head
===
---
- item
  - sub
1. one

```py
```
> quote
    code
<b>x</b>
[a]: http://x
~~~
* * *
#
-
+
| a | b |
|---|---|
| 1 | 2 |"""
LINES = st.sampled_from([*KINDS.splitlines(), "\ttab", "\x0bv", "a\u2028b", ""])


def list_blocks(text: str) -> list[tuple[str, str, str]]:
    """Return what the parser makes of a text, without positions."""
    return [(token.type, token.tag, token.content) for token in _PARSER.parse(text)]


@given(st.lists(LINES, max_size=12), st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_an_answer_in_pieces_has_the_same_blocks_as_the_whole(lines: list[str], sizes: list[int]) -> None:
    text, pending, blocks, position, number = "\n".join(lines), "", [], 0, 0
    while position < len(text):
        size = sizes[number % len(sizes)]
        found, pending = split_blocks(pending + text[position : position + size])
        blocks += found
        position, number = position + size, number + 1
    assert [block for each in (*blocks, pending) for block in list_blocks(each)] == list_blocks(text)


def print_pieces(pieces: list[str]) -> str:
    """Return what stays on a terminal of an answer that arrives in pieces."""
    console = Console(file=io.StringIO(), width=60, force_terminal=False)
    with AnswerView(console) as view:
        for piece in pieces:
            view.add(piece)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@given(st.lists(LINES, max_size=8), st.sampled_from(["\n", "\r\n"]), st.lists(st.integers(1, 9), min_size=1))
def test_however_an_answer_is_split_it_is_printed_alike(lines: list[str], end: str, sizes: list[int]) -> None:
    text, pieces = end.join(lines), []
    whole, number = print_pieces([text]), 0
    while text:
        pieces.append(text[: sizes[number % len(sizes)]])
        text, number = text[len(pieces[-1]) :], number + 1
    assert print_pieces(pieces) == whole
    assert "u000d" not in whole


@given(st.text("a\r\n"), st.lists(st.integers(1, 3), min_size=1))
def test_line_ends_are_joined_wherever_a_text_is_split(text: str, sizes: list[int]) -> None:
    ends, made, rest, number = LineEnds(), "", text, 0
    while rest:
        piece = rest[: sizes[number % len(sizes)]]
        made += ends.add(piece)
        rest, number = rest[len(piece) :], number + 1
    assert made + ends.end() == text.replace("\r\n", "\n")


@given(st.integers(0, 30), st.integers(1, 12), st.sampled_from(["```", "~~~py", "  ````text"]), st.booleans())
def test_of_a_long_code_block_only_the_lines_that_are_seen_are_rendered(
    length: int, room: int, fence: str, is_closed: bool
) -> None:
    lines = [f"line {number} " + "x" * (number % 7) * 20 for number in range(length)]
    end = [fence.strip().removesuffix("py").removesuffix("text"), ""] if is_closed else [""]
    text = "\n".join([fence, *lines, *end])
    cut = cut_code(text, room + 2)
    console = Console(file=io.StringIO(), width=60, force_terminal=True)
    rendered = [render_markdown(console, each) for each in (text, cut)]
    whole, seen = (["".join(part.text for part in line) for line in lines] for lines in rendered)
    assert seen[-room:] == whole[-room:]
    assert len(cut.splitlines()) <= max(room + 4, 4)


def test_what_follows_a_code_block_is_not_rendered_as_code() -> None:
    text = "```\na\n```\n" + "b\n" * 20
    assert cut_code(text, 5) == text


def test_a_long_block_is_parsed_seldom_and_drawn_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []

    def count(text: str) -> tuple[list[str], str]:
        parsed.append(len(text))
        return split_blocks(text)

    monkeypatch.setattr(rendering, "split_blocks", count)
    lines = [f"x = {number}\n" for number in range(4_000)]
    shown = print_pieces(["```\n", *lines, "```\n", "Done.\n"])
    assert shown.split("\n")[:3] == ["```", "x = 0", "x = 1"]
    assert shown.endswith("x = 3999\n```\n\nDone.\n")
    # By the line, the text would have been parsed four thousand times.
    assert sum(parsed) < 60 * len("".join(lines))


def test_a_slow_drawing_is_followed_by_a_pause_ten_times_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    view = AnswerView(Console(file=io.StringIO()))
    clock, waits = iter([0.0, 0.3, 1.0, 1.001]), []

    class Ended:
        def wait(self, seconds: float) -> bool:
            waits.append(seconds)
            return len(waits) == 3

    monkeypatch.setattr(view, "_ended", Ended())
    monkeypatch.setattr(view, "_draw", Mock())
    monkeypatch.setattr(rendering, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    view._tick()
    assert waits == pytest.approx([1 / 12, 3.0, 1 / 12])


def test_everything_in_an_answer_is_shown() -> None:
    console = Console(file=io.StringIO(), width=60, force_terminal=False)
    console.print(AnswerMarkdown("A <b>tag</b>\nand `List<String>`.\n\n<div>x</div>\n\n[a]: http://x"))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().split() == [
        "A",
        "<b>tag</b>",
        "and",
        "List<String>.",
        "<div>x</div>",
        "[a]:",
        "http://x",
    ]


def test_a_long_prompt_shows_how_much_of_it_is_read_and_a_tool_its_name() -> None:
    console = Console(file=io.StringIO(), width=80, height=20, force_terminal=True)
    view = AnswerView(console)
    view.report_progress(1_500, 3_000)
    with console.capture() as shown:
        view._draw()
    assert "━━━━━━━━━━━━────────────  reading 1,500 of 3,000 tokens" in shown.get()
    view.add("First.\n\nSecond")
    view.report_activity("calling tempo")
    with console.capture() as shown:
        view._draw()
    assert "First.\n\nSecond\n" in shown.get()
    assert "calling tempo" in shown.get()


@pytest.mark.parametrize(
    ("width", "rows", "variables"),
    [
        (60, 3, {}),
        (30, 4, {}),
        (20, 6, {}),
        (80, 3, {}),
        (20, 3, {"XTERM_VERSION": "XTerm(390)"}),
        (20, 3, {"TERM": "linux"}),
        (20, 6, {"XTERM_VERSION": "XTerm(390)", "TMUX": "/tmp/tmux-0/default,1,0"}),
    ],
)
def test_lines_that_a_narrower_terminal_has_broken_are_erased(
    width: int, rows: int, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TERM": "xterm", "XTERM_VERSION": "", "TMUX": "", **variables}.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
    console = Console(file=io.StringIO(), width=60, force_terminal=True)
    drawing = Drawing(console)
    drawing.show([[Segment("x" * cells)] for cells in (0, 50, 30)])
    console.width = width
    with console.capture() as shown:
        drawing.show([[Segment("next")]])
    assert shown.get() == "\x1b[1A\x1b[2K" * rows + "next\n"


def test_what_is_printed_stays_above_what_is_drawn() -> None:
    console = Console(file=io.StringIO(), width=60, force_terminal=True)
    drawing = Drawing(console)
    drawing.show([[Segment("one")], [Segment("two")]])
    with console.capture() as shown:
        drawing.show([[Segment("two")]], Segments([Segment("one"), Segment.line()]))
    assert shown.get() == "\x1b[1A\x1b[2K" * 2 + "one\ntwo\n"
