"""Tables fit the terminal, and are plain in a pipe."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk import Archive, Conversation
from longtalk.cli.tables import Column, cut, fit_table, measure, wrap_line
from longtalk.models.call_cost import Prices
from longtalk.providers.base import Capabilities
from longtalk.testing import Scripted, says
from tests.cli.helpers import Terminal, longtalk, store_at

COLUMNS = (
    Column("name", shortest=8),
    Column("made", rank=1),
    Column("count", rank=2, is_number=True),
    Column("text", shortest=10),
)
ROW = ("a-rather-long-name", "2026-11-16 14:52", "1,234", "word " * 20)


@pytest.fixture
def filled(tmp_path: Path) -> str:
    """A store in which everything is long."""
    path = str(tmp_path / "talks.db")
    held = store_at(path)
    model = Scripted(says("Lightly. " * 30), says("Well. " * 30))
    model.label = "scripted:a-model-with-quite-a-long-name-2026-11-16"
    model.capabilities = Capabilities(prices=Prices(input=3_000_000, output=15_000_000))
    made = Conversation("a-conversation-with-quite-a-long-id-about-bows-and-strings", model=model, store=held)
    made.send("How do I hold the bow? " * 20)
    made.edit(made.history()[0].id, "How do I hold the 🎻 弓? " * 20)
    held.close()
    return path


def shown(arguments: list[str], environment: dict[str, str], columns: int) -> list[str]:
    """The lines that a terminal of this width shows."""
    person = Terminal(arguments, environment | {"COLUMNS": str(columns)})
    lines = person.rest().splitlines()
    assert person.exit_code() == 0
    person.close()
    return lines


def test_a_table_that_fits_is_shown_whole() -> None:
    head, line = fit_table(COLUMNS, [("x", "today", "7", "word")], 60)
    assert head == "name  made   count  text"
    assert line == "x     today      7  word"


def test_cells_are_cut_before_columns_are_left_out() -> None:
    head, line = fit_table(COLUMNS, [ROW], 60)
    assert head.split() == ["name", "made", "count", "text"]
    assert len(line) == 60
    assert line.endswith("…")
    assert "a-rather-long-name" in line or "…  2026" in line


@pytest.mark.parametrize(
    ("room", "names"), [(45, ["name", "made", "count", "text"]), (40, ["name", "made", "text"]), (30, ["name", "text"])]
)
def test_the_least_important_columns_are_left_out_first(room: int, names: list[str]) -> None:
    lines = fit_table(COLUMNS, [ROW], room)
    assert lines[0].split() == names
    assert max(map(len, lines)) <= room


def test_if_nothing_else_helps_every_column_is_cut() -> None:
    lines = fit_table((Column("first"), Column("second")), [("x" * 30, "y" * 30)], 20)
    assert lines == ["first      second", "xxxxxxxx…  yyyyyyyy…"]


def test_wide_characters_count_twice_and_accents_not_at_all() -> None:
    assert [measure(text) for text in ("abc", "弓", "🎻", "e\u0301")] == [3, 2, 2, 1]
    assert [cut("弓弓弓", width) for width in (6, 5, 4, 2, 1)] == ["弓弓弓", "弓弓…", "弓…", "…", "…"]
    _, *lines = fit_table((Column("name"), Column("text")), [("弓", "a"), ("bows", "b")], 60)
    assert lines == ["弓    a", "bows  b"]


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize(
    "command",
    [
        ["list"],
        ["stats", "ID", "--turns"],
        ["stats"],
        ["branches"],
        ["search", "bow"],
        ["context"],
        ["show", "--topics"],
        ["show"],
    ],
)
def test_no_line_is_wider_than_the_terminal(
    filled: str, environment: dict[str, str], command: list[str], columns: int
) -> None:
    name = "a-conversation-with-quite-a-long-id-about-bows-and-strings"
    arguments = [name if word == "ID" else word for word in command]
    lines = shown([*arguments, "--store", filled], environment | {"NO_COLOR": "1"}, columns)
    assert len(lines) > 1
    assert [line for line in lines if measure(line) > columns and not line.startswith("(Other branches")] == []


def test_names_that_one_copies_are_whole_on_a_narrow_terminal(filled: str, environment: dict[str, str]) -> None:
    with closing(store_at(filled)) as store:
        (other,) = (each for each in Archive(store).conversations()[0].branches if each != "main")
    found = shown(["search", "Well", "--store", filled], environment | {"NO_COLOR": "1"}, 60)
    assert {"a-conversation-with-quite-a-long-id-about-bows-and-strings", other} <= set(" ".join(found).split())
    headings = shown(["show", "--store", filled], environment | {"NO_COLOR": "1"}, 60)
    assert "scripted:a-model-with-quite-a-long-name-2026-11-16" in " ".join(headings).split()


@pytest.mark.parametrize("columns", [60, 80])
def test_models_and_simulations_fit_too(filled: str, environment: dict[str, str], tmp_path: Path, columns: int) -> None:
    lines = shown(["models", "claude"], environment, columns)
    assert [line for line in lines if measure(line) > columns] == []
    table = shown(
        ["simulate", "-m", "anthropic:claude-sonnet-5", "-p", "KeepAll()", "-p", "KeepLast(6)", "--store", filled],
        environment,
        columns,
    )
    rows = [line for line in table if line.startswith(("policy", "Keep", "optimum"))]
    assert len(rows) == 7
    assert [line for line in rows if measure(line) > columns] == []


def test_findings_of_the_doctor_are_never_cut(environment: dict[str, str], tmp_path: Path) -> None:
    where = ["doctor", "--store", str(tmp_path / "talks-that-are-not-there-yet.db")]
    lines = shown(where, environment, 60)
    assert max(map(len, lines)) <= max(60, len(str(tmp_path)) + 60)
    piped = longtalk(*where, environment=environment).stdout
    assert "".join("".join(lines).split()).startswith("".join(piped.split()))


def test_numbers_are_plain_in_a_pipe(filled: str) -> None:
    name = "a-conversation-with-quite-a-long-id-about-bows-and-strings"
    row = longtalk("stats", name, "--turns", "--store", filled, environment=dict(os.environ)).stdout
    *_, sent, cached, received, cost = row.rstrip("\n").split("\t")
    assert [float(cell) for cell in (sent, cached, received)] == [10, 0, 5]
    assert float(cost) == 105


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (["list"], "id\tchanged\tentries\ttitle"),
        (["branches"], "branch\tentries\tforked from\tshared\tchanged\tbegins"),
        (["search", "bow"], "conversation\tentry\trole\ttime\ttext"),
        (["simulate"], "model\tpolicy\ttokens\tmost\tcached\tepochs\tsummaries\tcost\ta turn\tratio"),
    ],
)
def test_a_pipe_gets_the_header_on_request(
    filled: str, environment: dict[str, str], command: list[str], names: str
) -> None:
    plain = longtalk(*command, "--store", filled, environment=environment).stdout.splitlines()
    headed = longtalk(*command, "--store", filled, "--header", environment=environment).stdout.splitlines()
    assert headed == [names, *plain]


@given(st.text("ab ,你🎻\u0301", max_size=60), st.integers(1, 20))
def test_a_wrapped_line_fits_and_loses_nothing_but_spaces(text: str, width: int) -> None:
    parts = wrap_line(text, width)
    assert all(measure(part) <= max(width, 2) for part in parts)
    assert "".join(parts).replace(" ", "") == text.replace(" ", "")


def test_a_line_is_wrapped_between_words() -> None:
    assert wrap_line("one two three", 8) == ["one two", "three"]
    assert wrap_line("onetwothree", 8) == ["onetwoth", "ree"]
    assert wrap_line("        x = 1", 9) == ["        x", "= 1"]
