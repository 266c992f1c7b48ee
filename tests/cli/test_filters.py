"""Filters by time, model and metadata on `longtalk list`, `search`, `stats` and `export`."""

from __future__ import annotations

import datetime as dt
import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from longtalk import Archive, Conversation
from longtalk.cli.command_flags import commands
from longtalk.cli.filters import Filter, parse_filter, parse_time
from longtalk.errors import InputError
from longtalk.testing import Scripted, says
from tests.cli.helpers import store_at


def run(*arguments: str | Path) -> Result:
    done = CliRunner().invoke(commands, list(map(str, arguments)))
    assert done.exception is None or isinstance(done.exception, SystemExit | InputError), done.exception
    return done


@pytest.fixture
def filled(store: str) -> str:
    """Three conversations about bows: `first` with the model tiny, `second` with metadata, `third` with both."""
    held = store_at(store)
    for name in ("first", "second", "third"):
        model = Scripted(says("Lightly."))
        model.label = "scripted:Tiny-1" if name != "second" else "scripted:large"
        Conversation(name, model=model, store=held).send("How do I hold the bow?")
        if name != "first":
            Archive(held).set_metadata(name, {"topic": "bows"})
        time.sleep(0.002)
    held.close()
    return store


def changed(store: str, name: str) -> str:
    """When a conversation was changed last, as a person would write it."""
    held = store_at(store)
    found = {each.id: each.updated for each in Archive(held).every()}[name]
    held.close()
    return dt.datetime.fromtimestamp(found / 1000).isoformat(timespec="milliseconds")


def listed(store: str, *options: str) -> list[str]:
    one = run("list", "--store", store, "--limit", "2", "--json", *options).stdout.splitlines()
    found = [json.loads(line)["id"] for line in run("list", "--store", store, "--json", *options).stdout.splitlines()]
    every = run("list", "--store", store, "--limit", "0", "--json", *options).stdout.splitlines()
    assert [json.loads(line)["id"] for line in every] == found
    assert [json.loads(line)["id"] for line in one] == found[:2]
    return found


def test_since_and_until_include_the_moment_itself(filled: str) -> None:
    assert listed(filled, "--since", changed(filled, "second")) == ["third", "second"]
    assert listed(filled, "--until", changed(filled, "second")) == ["second", "first"]
    both = ("--since", changed(filled, "second"), "--until", changed(filled, "second"))
    assert listed(filled, *both) == ["second"]


def test_until_a_date_includes_the_whole_day() -> None:
    found = parse_filter(since="2026-11-15", until="2026-11-15", model=None, meta=())
    noon = round(dt.datetime(2026, 11, 15, 12).timestamp() * 1000)
    midnight = round(dt.datetime(2026, 11, 16).timestamp() * 1000)
    assert found.covers(noon)
    assert found.covers(midnight - 1)
    assert not found.covers(midnight)
    assert not found.covers(round(dt.datetime(2026, 11, 15).timestamp() * 1000) - 1)


def test_conversations_can_be_listed_by_a_part_of_the_name_of_their_model(filled: str) -> None:
    assert listed(filled, "--model", "tiny") == ["third", "first"]
    assert listed(filled, "-m", "scripted:large") == ["second"]
    assert listed(filled, "-m", "tiny", "--meta", "topic=bows") == ["third"]
    assert listed(filled, "-m", "gpt") == []


def test_a_list_without_a_match_says_so(filled: str) -> None:
    assert run("list", "--store", filled, "-m", "gpt").stderr == "No matching conversations.\n"


def test_a_list_that_is_cut_by_its_limit_counts_matches_only(filled: str) -> None:
    done = run("list", "--store", filled, "--limit", "1", "-m", "tiny")
    assert done.stdout.startswith("third\t")
    assert "There are more" in done.stderr
    assert "There are more" not in run("list", "--store", filled, "--limit", "2", "-m", "tiny").stderr


def found_in(store: str, *options: str) -> list[str]:
    lines = run("search", "bow", "--store", store, "--json", *options).stdout.splitlines()
    return sorted(json.loads(line)["conversation"] for line in lines)


def test_a_search_can_be_restricted_by_model_and_metadata(filled: str) -> None:
    assert found_in(filled) == ["first", "second", "third"]
    assert found_in(filled, "-m", "tiny") == ["first", "third"]
    assert found_in(filled, "--meta", "topic=bows") == ["second", "third"]
    assert len(found_in(filled, "-m", "tiny", "--limit", "1")) == 1
    assert found_in(filled, "-m", "tiny", "--limit", "0") == ["first", "third"]


def test_a_search_can_be_restricted_to_the_time_of_entries(filled: str) -> None:
    late = found_in(filled, "--since", changed(filled, "second"))
    assert ("first" in late, "third" in late) == (False, True)
    assert found_in(filled, "--until", changed(filled, "first")) == ["first"]
    assert found_in(filled, "--until", "1999-12-31") == []


def test_statistics_can_cover_some_conversations(filled: str) -> None:
    found = json.loads(run("stats", "--store", filled, "--json", "--model", "tiny").stdout)
    assert (found["conversations"], found["models"]) == (2, {"scripted:Tiny-1": 2})
    assert json.loads(run("stats", "--store", filled, "--json", "-m", "gpt").stdout)["conversations"] == 0


@pytest.mark.parametrize("suffix", [".jsonl", ""])
def test_an_export_can_have_some_conversations(filled: str, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"some{suffix}"
    assert run("export", "--all", "--store", filled, "--meta", "topic=bows", "-o", path).exit_code == 0
    if suffix:
        target = tmp_path / "other.db"
        assert run("import", path, "--store", target).exit_code == 0
        assert sorted(listed(str(target))) == ["second", "third"]
    else:
        assert sorted(each.name for each in path.iterdir()) == ["second.md", "third.md"]


def test_an_export_without_a_match_writes_nothing(filled: str, tmp_path: Path) -> None:
    done = run("export", "--all", "--store", filled, "-m", "gpt", "-o", tmp_path / "none.json")
    assert "nothing is exported" in str(done.exception)
    assert not (tmp_path / "none.json").exists()


@pytest.mark.parametrize("command", [["stats", "first"], ["export", "first"]])
def test_a_filter_and_an_id_together_are_wrong_usage(filled: str, command: list[str]) -> None:
    done = run(*command, "--store", filled, "--since", "2026-11-01")
    assert done.exit_code == 2
    assert "choose conversations" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"since": "soon"}, "--since must be a date such as 2026-11-16, today or 3d, not 'soon'."),
        ({"until": "soon"}, "--until must be a date such as 2026-11-16, today or 3d, not 'soon'."),
        ({"until": "9999-12-31"}, "--until 9999-12-31 is outside the range of dates"),
        ({"since": "2026-11-02", "until": "2026-11-01"}, "--since 2026-11-02 is after --until 2026-11-01"),
        ({"meta": ["topic"]}, "--meta must be KEY=VALUE, not 'topic'."),
    ],
)
def test_a_wrong_value_is_explained(options: dict[str, str], message: str) -> None:
    given: dict[str, object] = {"since": None, "until": None, "model": None, "meta": (), **options}
    with pytest.raises(InputError, match="^" + message.replace(".", r"\.")):
        parse_filter(**given)  # type: ignore[arg-type]


def test_a_filter_without_conditions_is_empty() -> None:
    assert parse_filter(since=None, until=None, model=None, meta=()) == Filter()
    assert Filter().is_empty


def test_times_can_be_said_as_the_distance_from_now() -> None:
    now = dt.datetime.now().timestamp() * 1000
    day = 24 * 3_600_000
    for text, distance in (("3d", 3 * day), ("2h", 2 * 3_600_000), ("1 week ago", 7 * day)):
        assert abs(parse_time(text, "--since") - (now - distance)) < day / 12
    start = parse_filter(since="yesterday", until="yesterday", model=None, meta=())
    assert start.start is not None
    assert start.end is not None
    assert 22 * 3_600_000 < start.end - start.start <= 26 * 3_600_000
    assert start.end == parse_time("today", "--since")
