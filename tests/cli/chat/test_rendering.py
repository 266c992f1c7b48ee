"""Answers that are rendered while they arrive: blocks that are finished never change."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from longtalk.cli.chat.rendering import _PARSER, AnswerMarkdown, AnswerView, split_blocks

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
        console.print(view)
    assert "━━━━━━━━━━━━────────────  reading 1,500 of 3,000 tokens" in shown.get()
    view.add("First.\n\nSecond")
    view.report_activity("calling tempo")
    with console.capture() as shown:
        console.print(view)
    assert "First.\n\nSecond\n" in shown.get()
    assert "calling tempo" in shown.get()
