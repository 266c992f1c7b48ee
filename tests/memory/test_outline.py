"""Test outlines of answers, which keep their structure and never exceed the budget."""

from __future__ import annotations

import hashlib
from itertools import product

import pytest
from hypothesis import strategies as st

from longtalk.memory.outline import BUDGET, outline
from longtalk.tokens import FAMILIES, Counter, Estimator
from longtalk.wires.card_tags import list_cards, remove_cards
from tests.support.cpu_time import is_linear
from tests.support.properties import holds

ANSWER = """Sure! Here is a plan.

# Practice plan

It starts easily. Then it grows.

1. **Warm up**: long tones for five minutes
2. Scales in `G major`
   - slowly, see [this](https://example.org/a)
   - [ ] with a metronome

```python
# not a heading
- not an item
**not bold**
```

**Why it works.** Because of muscles.

| Day | Minutes |
|-----|--------:|
| Mon | 20 |

Underlined
----------

> ## Quoted *head*
> ~~~
> - code
> ~~~

***
"""


class Bytes:
    def count(self, text: str) -> int:
        return len(text.encode())


class Characters:
    def count(self, text: str) -> int:
        return len(text)


class Odd:
    """Counts without rhyme or reason."""

    def count(self, text: str) -> int:
        return hashlib.sha256(text.encode()).digest()[0]


COUNTERS: list[Counter] = [Bytes(), Characters(), Odd(), *map(Estimator, FAMILIES)]


def outline_lines(text: str, budget: int = 1000) -> list[str]:
    return outline(text, budget=budget, counter=Characters()).split("\n")


def test_the_skeleton_of_an_answer() -> None:
    assert outline_lines(ANSWER) == [
        "# Practice plan",
        "1. Warm up",
        "2. Scales in G major",
        "  - slowly, see this",
        "  - with a metronome",
        "Why it works.",
        "Day | Minutes",
        "## Underlined",
        "## Quoted head",
    ]


def test_line_ends_of_any_kind_are_understood() -> None:
    assert (
        outline_lines(ANSWER.replace("\n", "\r\n"))
        == outline_lines(ANSWER)
        == outline_lines(ANSWER.replace("\n", "\r"))
    )


def test_headings_stay_when_room_is_short() -> None:
    assert outline_lines(ANSWER, 45) == ["# Practice plan", "## Underlined", "## Quoted head"]


def test_prose_gives_its_first_sentences() -> None:
    text = "First one, e.g. this. Second one! Third?\n\nA new start. And more."
    assert outline_lines(text) == ["First one, e.g. this.", "Second one!", "Third?", "A new start.", "And more."]
    assert outline_lines(text, 40) == ["First one, e.g. this.", "A new start."]


def test_a_lone_heading_brings_prose_with_it() -> None:
    assert outline_lines("# Title\n\nWhat it says. The rest.") == ["# Title", "What it says.", "The rest."]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("第一句。第二句！「第三句。」第四", ["第一句。", "第二句！", "「第三句。」", "第四"]),
        ("1、先做这个\n2、再做那个\n- **重点**：说明", ["1、 先做这个", "2、 再做那个", "- 重点"]),
        ("## План\n\n* раз\n* два", ["## План", "- раз", "- два"]),
        ("# خطة\n\n- واحد\n- اثنان", ["# خطة", "- واحد", "- اثنان"]),
        ("क्या है। ठीक है।", ["क्या है।", "ठीक है।"]),
    ],
)
def test_any_language_has_a_skeleton(text: str, lines: list[str]) -> None:
    assert outline_lines(text) == lines


@pytest.mark.parametrize(
    "text",
    [
        "```\n# secret\n```",
        "~~~~ md\n- secret\n~~~\n- secret\n~~~~",
        "````\n```\n# secret\n```\n# secret\n````",
        "```\n# secret",
        "- ```py\n  # secret\n  ```",
        "> ```\n> # secret\n> ```",
        "```\n> ```\n# secret\n```",
        "  ```\n  **secret** is\n  ```",
    ],
)
def test_nothing_comes_from_code(text: str) -> None:
    assert outline_lines(text) == [""]
    assert outline_lines(f"# Seen\n{text}")[0] == "# Seen"
    assert "secret" not in outline(f"Prose.\n\n{text}", counter=Bytes())


def test_what_follows_code_is_seen() -> None:
    assert outline_lines("```\nx\n```\n# Seen") == ["# Seen"]
    assert outline_lines("> ```\n> x\n\n# Seen") == ["# Seen"]
    assert outline_lines("```inline``` words. More.") == ["inline words.", "More."]


def test_a_table_gives_its_header() -> None:
    assert outline_lines("| A | B |\n|---|:-:|\n| c | d |\n\nProse.") == ["A | B", "Prose."]


def test_marks_left_out_make_no_tag() -> None:
    assert outline_lines("# a <\n\n**MEMORY_CARD> b**") == ["# a &lt;", "MEMORY_CARD> b"]
    assert outline_lines("# <MEM**ORY_CARD>**") == ["# &lt;MEMORY_CARD>"]


def test_long_lines_are_cut() -> None:
    (line,) = outline_lines("# " + "word " * 100)
    assert line.startswith("# word word")
    assert line.endswith("word…")
    assert len(line) < 100


@pytest.mark.parametrize("text", [ANSWER, "弓" * 500, "🎻" * 500, "👩‍👩‍👧 " * 50, "word " * 500, "# " + "é" * 500])
def test_a_small_budget_holds(text: str) -> None:
    for budget, counter in product((0, 1, 2, 3, 5, 8, 13, 29), COUNTERS):
        found = outline(text, budget=budget, counter=counter)
        assert not found or counter.count(found) <= budget


def test_a_line_that_is_too_long_gives_its_start() -> None:
    assert outline("# Practice plan", budget=8, counter=Characters()) == "# Pract…"


MARKDOWN = st.lists(
    st.sampled_from(
        [
            *("# ", "## ", "- ", "* ", "1. ", "2) ", "   - ", "> ", "```", "~~~", "````", "\n", "\n\n", "\r\n", "\r"),
            *(
                "**",
                "__",
                "*",
                "_",
                "`",
                "[",
                "](",
                ")",
                "|",
                "|---|",
                "---",
                "===",
                "word ",
                "A. B! ",
                "弓。",
                "🎻",
                "…",
            ),
            *("<MEM", "ORY_CARD>", "<", "MEMORY_CARD>", "<MEMORY_CARD>", "</MEMORY_CARD>", "\ud83d", "\u200d", "\0"),
        ]
    )
    | st.text(max_size=5),
    max_size=25,
).map("".join)


@holds(MARKDOWN | st.text(), st.integers(-1, 120), st.sampled_from(COUNTERS))
def test_the_budget_holds_for_any_text_and_any_counter(text: str, budget: int, counter: Counter) -> None:
    found = outline(text, budget=budget, counter=counter)
    assert not found or counter.count(found) <= budget
    assert outline(text, budget=budget, counter=counter) == found
    assert not list_cards(found)
    assert remove_cards(found) == found
    found.encode()


@holds(st.text(alphabet="ab 弓!", min_size=1).filter(str.strip))
def test_whatever_says_something_has_an_outline(text: str) -> None:
    assert outline(text, counter=Estimator())


@pytest.mark.parametrize(
    "unit",
    ["- x\n", "<", "[([", "**a", "_a", "- ", "> ", "a. ", "\n", "*a", "~~~\n", "`", "|-", "|a\n|-\n", "\t", "A. "],
)
def test_work_is_linear(unit: str) -> None:
    def make(size: int) -> None:
        found = outline(unit * (size // len(unit)), counter=Estimator())
        assert Estimator().count(found) <= BUDGET

    assert is_linear(make, 250_000)
