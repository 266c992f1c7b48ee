"""`longtalk profile` as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from longtalk import Archive, Conversation, Memory
from longtalk.cli.output import format_time
from longtalk.cli.service_flags import commands
from longtalk.errors import LongtalkError
from longtalk.memory import Field, Profile, Schema
from longtalk.stores.sqlite.store import SQLite
from tests.cli.helpers import to_iso
from tests.support.card_model import CardModel, make_answer

CARD = '{"+about":["a violinist"]}'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a store in which the model has noted a line about the user."""
    return tmp_path / "talks.db"


def learn(path: Path, *, profile: Profile | None = None, card: str = CARD) -> Any:
    store = SQLite(path)
    policy = Memory(limit=0, recent=0, recall=0, profile=profile or Profile())
    talk = Conversation("lesson", model=CardModel(make_answer(card=card)), store=store, policy=policy)
    talk.send("I am a violinist.")
    [line] = Archive(store).profile().lines()
    store.close()
    return line


def run(path: Path, *arguments: str) -> Result:
    done = CliRunner().invoke(commands, ["profile", *arguments, "--store", str(path)])
    if isinstance(done.exception, LongtalkError):
        raise done.exception
    return done


def test_lines_are_listed_with_the_conversations_they_came_from(path: Path) -> None:
    line = learn(path)
    run(path, "add", "prefers", "short", "answers")
    listed = [each.split("\t") for each in run(path, "list").stdout.splitlines()]
    assert listed[0] == [line.id, "lesson", format_time(line.at), "about_user", "a violinist"]
    assert listed[1][1::3] == ["app", "short answers"]
    objects = [json.loads(each) for each in run(path, "list", "--json").stdout.splitlines()]
    assert objects[0]["sources"] == [
        {"conversation": "lesson", "branch": "main", "entry": line.sources[0].entry, "at": to_iso(line.at)}
    ]


def test_a_line_is_edited_and_revoked(path: Path) -> None:
    line = learn(path)
    assert run(path, "edit", line.id, "a", "cellist").stdout == f"{line.id}\ta cellist\n"
    assert run(path, "revoke", line.id).stdout == f"revoked {line.id}\n"
    done = run(path, "list")
    assert (done.stdout, done.stderr) == ("", "The profile is empty.\n")
    for command in (("edit", line.id, "x"), ("revoke", line.id)):
        with pytest.raises(LongtalkError, match=r"has no line .*`longtalk profile list` prints the ids"):
            run(path, *command)


def test_a_line_is_added_to_a_field_of_the_last_policy(path: Path) -> None:
    learn(path, profile=Profile(schema=Schema((Field("instrument"),))), card='{"+instrument":["violin"]}')
    assert run(path, "add", "instrument", "viola").stdout.endswith("\tviola\n")
    with pytest.raises(LongtalkError, match="its fields are instrument"):
        run(path, "add", "preferences", "x")


def test_a_line_is_added_to_a_new_store(path: Path) -> None:
    assert run(path, "add", "preferences", "short answers").exit_code == 0
    assert run(path, "list").stdout.endswith("preferences\tshort answers\n")


def test_a_conversation_is_made_private_and_listed_again(path: Path) -> None:
    learn(path)
    assert run(path, "private", "lesson").stdout == "not private\n"
    assert run(path, "private", "lesson", "--on").stdout == "private\n"
    assert run(path, "list").stdout == ""
    assert run(path, "private", "lesson", "--off").stdout == "not private\n"
    assert "a violinist" in run(path, "list").stdout
    assert run(path, "private", "diary", "--on").stdout == "private\n"
    with pytest.raises(LongtalkError, match="'other' not found"):
        run(path, "private", "other")
