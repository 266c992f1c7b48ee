"""Answers as Markdown on a terminal, while they arrive.

Blocks that are finished are printed once and stay in the scrollback. Only the last block, which may still grow, is
drawn again and again, at the bottom of the terminal.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable
from itertools import pairwise
from types import TracebackType
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.control import Control
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.segment import ControlType, Segment, Segments
from rich.spinner import Spinner
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text

from longtalk.cli.output import LineEnds, escape

_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable("reference")
"""Shows everything that an answer has: HTML and definitions of links are text."""
_REFRESH = 12
"""How often the last block is drawn in a second."""
_PAUSE = 10
"""How many times as long as the last drawing took to wait before the next one."""
_LONG = 4_000
"""The number of characters from which on a block is not parsed with every line."""
_FENCE = re.compile(r" {0,3}(?:`{3,}|~{3,})[^\n]*\n")
"""The first line of a code block."""
_FENCE_END = re.compile(r"^ {0,3}(?:`{3,}|~{3,})[ \t]*$", re.MULTILINE)
_BAR = 24


class _LeftHeading(Heading):
    """A heading on the left, at every level."""

    LEVEL_ALIGN: ClassVar = dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6"), "left")


class _Code(CodeBlock):
    """A code block between its fences, without padding and background, so that it can be copied."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        dim = console.get_style("dim")
        name = "" if self.lexer_name == "text" else self.lexer_name
        yield Text(f"```{name}", dim)
        yield Syntax(
            str(self.text).rstrip("\n"), self.lexer_name, theme="ansi_dark", background_color="default", word_wrap=True
        )
        yield Text("```", dim)


class AnswerMarkdown(Markdown):
    """Markdown in which line breaks and HTML stay as they were written."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _Code,
        "code_block": _Code,
    }

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False)
        self.markup = text
        self.parsed = list(_keep_line_breaks(_PARSER.parse(text)))


def _keep_line_breaks(tokens: Iterable[Token]) -> Iterable[Token]:
    for token in tokens:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"
        yield token


def render_markdown(console: Console, text: str) -> list[list[Segment]]:
    """Return the lines of a text in Markdown, without empty ones at both ends.

    Spaces at the ends of lines are left out: they would wrap when the terminal becomes narrower.
    """
    lines = console.render_lines(AnswerMarkdown(text), console.options.update(height=None), pad=False)
    for line in lines:
        while line and not line[-1].text.strip(" "):
            line.pop()
        if line and line[-1].text.endswith(" "):
            line[-1] = line[-1]._replace(text=line[-1].text.rstrip(" "))
    filled = [number for number, line in enumerate(lines) if line]
    return lines[filled[0] : filled[-1] + 1] if filled else []


def join_lines(lines: Iterable[list[Segment]]) -> list[Segment]:
    """Return lines as the segments that a console prints."""
    return [part for line in lines for part in (*line, Segment.line())]


def split_blocks(text: str) -> tuple[list[str], str]:
    """Return the finished blocks at the beginning of a text that still grows, and the rest.

    A block is finished when a whole line of the next one is there: no later line can change it.
    """
    whole = text[: text.rfind("\n") + 1]
    # Only these two characters end a line for the parser, which also replaces other ones.
    starts = [token.map[0] for token in _PARSER.parse(whole) if token.level == 0 and token.nesting >= 0 and token.map]
    if len(starts) < 2:
        return [], text
    lines = whole.split("\n")
    bounds = [0, *starts[1:]]
    blocks = ["\n".join(lines[start:stop]) for start, stop in pairwise(bounds)]
    done = sum(len(line) + 1 for line in lines[: starts[-1]])
    return blocks, text[done:]


def cut_code(text: str, most: int) -> str:
    """Return a code block that still grows with only its first line and its last ones, if it has more than `most`.

    Other text is returned whole. Each line takes at least one on the terminal, so what is left out would not be seen.
    """
    fence = _FENCE.match(text)
    if fence is None:
        return text
    start = len(text)
    for _ in range(most):
        start = text.rfind("\n", fence.end(), start)
        if start < 0:
            return text
    if _FENCE_END.search(text, fence.end(), start):
        # What is left may be another block.
        return text
    return fence[0] + text[start + 1 :]


class Drawing:
    """Lines at the bottom of a terminal that are drawn again and again. What is printed in between stays above them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._widths: list[int] = []
        """The cells of each line that is drawn."""

    def show(self, lines: list[list[Segment]], *above: RenderableType) -> None:
        """Replace what is drawn by other lines, below what is printed for good."""
        if not self._console.is_terminal:
            lines = []
        rest = (Segments(join_lines(lines)),) if lines else ()
        if parts := (*self._erase(), *above, *rest):
            self._console.print(*parts)
        self._widths = [sum(part.cell_length for part in line) for line in lines]

    def _erase(self) -> Iterable[Control]:
        """Yield what erases the drawn lines. A terminal that has become narrower has broken the longer ones."""
        room = max(1, self._console.width)
        rows = [max(1, -(-width // room)) if _breaks_lines() else 1 for width in self._widths]
        for _ in range(sum(rows)):
            yield Control((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2))


def _breaks_lines() -> bool:
    """Return True if the terminal breaks lines that no longer fit, as most do, and False if it cuts them."""
    cuts = "XTERM_VERSION" in os.environ or os.environ.get("TERM", "").startswith(("linux", "rxvt", "screen"))
    return "TMUX" in os.environ or not cuts


class AnswerView:
    """An answer on a terminal, used as a context manager while it arrives."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pending = ""
        self._ends = LineEnds()
        self._next_split = 0
        self._has_printed = False
        self._started = time.monotonic()
        self._spinner = Spinner("dots")
        self._progress: tuple[int, int] | None = None
        self._activity = ""
        self._drawing = Drawing(console)
        # All output is under one lock, since two threads print.
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> AnswerView:
        self._console.show_cursor(False)
        self._ticker.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        """Print the rest of the answer, also of one that was stopped."""
        self._ended.set()
        self._ticker.join()
        self._drawing.show([])
        self._console.show_cursor()
        blocks, rest = split_blocks(self._pending + escape(self._ends.end()))
        self._pending = ""
        self._print([block for block in (*blocks, rest) if block.strip()])

    def _tick(self) -> None:
        """Draw again and again, and spend at most a tenth of the time with it, however long the block has become."""
        wait = 1 / _REFRESH
        while not self._ended.wait(wait):
            with self._lock:
                started = time.monotonic()
                self._draw()
                wait = max(1 / _REFRESH, _PAUSE * (time.monotonic() - started))

    def add(self, text: str) -> None:
        """Add the next piece of the answer's text."""
        text = self._ends.add(text)
        pending = self._pending + escape(text)
        blocks: list[str] = []
        if "\n" in text and len(pending) >= self._next_split:
            blocks, pending = split_blocks(pending)
            # A long block is parsed whenever it has grown by an eighth, not with every line.
            self._next_split = len(pending) + len(pending) // 8 if len(pending) > _LONG else 0
        with self._lock:
            self._activity, self._progress, self._pending = "", None, pending
            if blocks:
                self._print(blocks)

    def note(self, text: str) -> None:
        """Print a line about the turn above the part of the answer that still grows."""
        with self._lock:
            self._draw(Text(escape(text), "dim"))

    def report_activity(self, text: str) -> None:
        """Show what the model is doing, until more text arrives."""
        self._activity = escape(text, keep="")

    def report_progress(self, done: int, total: int) -> None:
        """Show how much of the prompt the model has read."""
        self._progress = (done, total)

    def _print(self, blocks: Iterable[str]) -> None:
        """Print finished blocks, with an empty line between them."""
        lines: list[list[Segment]] = []
        for block in blocks:
            lines += [*([[]] if self._has_printed else []), *render_markdown(self._console, block)]
            self._has_printed = True
        self._draw(Segments(join_lines(lines)))

    def _draw(self, *above: RenderableType) -> None:
        self._drawing.show(self._render_pending() if not self._ended.is_set() else [], *above)

    def _render_pending(self) -> list[list[Segment]]:
        """Return what may still change: the last lines of the block that grows, or a spinner with a clock."""
        # The cursor is in the line below.
        pending, room = self._pending, max(1, self._console.height - 3)
        lines: list[list[Segment]] = []
        if pending.strip():
            # The closing fence may have arrived: it takes a line, and may be followed by an incomplete one.
            lines = render_markdown(self._console, cut_code(pending, room + 2))
            lines = ([[], *lines] if self._has_printed else lines)[-room:]
        if self._activity or not lines:
            lines += self._console.render_lines(self._describe_wait(), pad=False)
        return lines

    def _describe_wait(self) -> Text:
        frame = self._spinner.render(time.monotonic())
        wait = Text("", "dim").append_text(frame if isinstance(frame, Text) else Text(""))
        wait.append(f" {time.monotonic() - self._started:.0f} s")
        if self._activity:
            wait.append(f"  {self._activity}")
        elif self._progress is not None:
            done, total = self._progress
            filled = round(_BAR * done / max(1, total))
            wait.append(f"  {'━' * filled}{'─' * (_BAR - filled)}  reading {done:,} of {total:,} tokens")
        wait.stylize(Style(dim=True))
        return wait
