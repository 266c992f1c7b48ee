"""`longtalk copy`, and `import` of what other tools have, as a person uses them."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from longtalk import Archive, Conversation, InputError
from longtalk.cli.output import ProgressCounter, reword_error
from longtalk.cli.service_flags import commands
from longtalk.testing import Scripted, says
from tests.cli.helpers import Terminal, make_app, store_at
from tests.transfer.importers.exports import ChatGPT, as_json


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(commands, list(map(str, arguments)))


def send(path: str | Path, name: str, text: str) -> None:
    store = store_at(path)
    Conversation(name, model=Scripted(says("Lightly.")), store=store).send(text)
    store.close()


def ids(path: str | Path) -> list[str]:
    store = store_at(path)
    found = sorted(each.id for each in Archive(store).conversations(limit=1000))
    store.close()
    return found


def chatgpt(name: str = "bows") -> ChatGPT:
    talk = ChatGPT(name)
    talk.say("user", "How do I hold the bow?")
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_1"}
    talk.say("assistant", content={"content_type": "multimodal_text", "parts": ["So:", picture]})
    talk.say("assistant", "Lightly.", behind="node-1")
    talk.current = "node-2"
    return talk


# copy


def test_a_store_goes_to_another_kind_and_back(tmp_path: Path) -> None:
    send(tmp_path / "a.db", "one", "x")
    send(tmp_path / "a.db", "two", "y")
    done = run("copy", tmp_path / "a.db", f"{tmp_path}/b/")
    assert (done.exit_code, done.stdout) == (0, "2 conversations copied; 4 entries verified\n")
    assert run("copy", f"{tmp_path}/b/", tmp_path / "c.db").exit_code == 0
    assert ids(tmp_path / "c.db") == ["one", "two"]
    send(tmp_path / "a.db", "two", "z")
    done = run("copy", tmp_path / "a.db", f"{tmp_path}/b/")
    assert done.stdout == ("0 conversations copied, 1 updated, 1 unchanged; 4 entries verified\n")


def test_skipped_conversations_are_reported(tmp_path: Path) -> None:
    send(tmp_path / "a.db", "one", "x")
    run("copy", tmp_path / "a.db", tmp_path / "b.db")
    send(tmp_path / "a.db", "one", "here")
    send(tmp_path / "b.db", "one", "there")
    done = run("copy", tmp_path / "a.db", tmp_path / "b.db")
    assert done.exit_code == 1
    assert done.stdout == "0 conversations copied, 1 skipped; 0 entries verified\n"
    assert "longtalk: skipped one: the target store has data that the source store lacks" in done.stderr


def test_some_of_them(tmp_path: Path) -> None:
    for name in ("one", "two"):
        send(tmp_path / "a.db", name, "x")
    assert run("copy", tmp_path / "a.db", tmp_path / "b.db", "two").exit_code == 0
    assert ids(tmp_path / "b.db") == ["two"]
    assert run("copy", tmp_path / "a.db", tmp_path / "c.db", "--since", "2100-01-01").exit_code == 0
    assert ids(tmp_path / "c.db") == []
    assert run("copy", tmp_path / "a.db", tmp_path / "c.db", "--since", "two").exit_code == 0
    assert ids(tmp_path / "c.db") == ["two"]
    assert run("copy", tmp_path / "a.db", tmp_path / "d.db", "--since", "2020-01-01").exit_code == 0
    assert ids(tmp_path / "d.db") == ["one", "two"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--since", "soon"], "--since must be a date such as 2026-11-16, today or 3d or the id"),
        (["nowhere"], "'nowhere' not found"),
    ],
)
def test_what_is_not_there_is_told(more: list[str], why: str, tmp_path: Path) -> None:
    send(tmp_path / "a.db", "one", "x")
    done = run("copy", tmp_path / "a.db", tmp_path / "b.db", *more)
    assert isinstance(done.exception, InputError)
    assert why in str(done.exception)


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert isinstance(run("copy", tmp_path / "a.db", tmp_path / "b.db").exception, InputError)
    assert list(tmp_path.iterdir()) == []


# import


def test_an_import_prints_notes_about_what_was_left_out(tmp_path: Path) -> None:
    path, store = tmp_path / "conversations.json", tmp_path / "a.db"
    path.write_bytes(as_json(chatgpt(), chatgpt("violins")))
    done = run("import", path, "--store", store)
    assert done.exit_code == 0
    assert done.stdout == "bows\t3 entries\nviolins\t3 entries\n"
    assert done.stderr.splitlines() == [
        f"{path}: 2 conversations, 6 entries on 2 more branches",
        "  2 images are missing: the export has only pointers to them",
    ]
    done = run("import", path, "--store", store)
    assert done.stdout == "bows\t3 entries\talready in the store\nviolins\t3 entries\talready in the store\n"
    assert done.stderr == f"{path}: 0 conversations, 0 entries; 2 were already in the store\n"
    assert run("search", "bow", "--store", store).stdout.count("hold the bow") == 2


def test_an_import_that_leaves_something_says_so(tmp_path: Path) -> None:
    path, store = tmp_path / "conversations.json", tmp_path / "a.db"
    path.write_bytes(as_json(chatgpt(), ChatGPT("empty")))
    done = run("import", path, "--store", store)
    assert (done.exit_code, done.stdout) == (0, "bows\t3 entries\n")
    assert "  1 conversation without messages was skipped" in done.stderr.splitlines()
    other = ChatGPT("bows")
    other.say("user", "Something else.")
    path.write_bytes(as_json(other))
    done = run("import", path, "--store", store)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith("  skipped bows: ")
    assert "--owner" in done.stderr
    grown = chatgpt()
    grown.say("user", "And the thumb?")
    path.write_bytes(as_json(grown))
    assert run("import", path, "--store", store).stdout == "bows\t4 entries\tnew entries added\n"


def test_files_of_both_kinds_come_together(tmp_path: Path) -> None:
    ours, theirs, store = tmp_path / "ours.json", tmp_path / "conversations.json", tmp_path / "a.db"
    ours.write_bytes(b'[{"role": "user", "content": "Hi"}]')
    theirs.write_bytes(as_json(chatgpt()))
    assert run("import", theirs, ours, "--store", store).stdout == "ours\t1 entry\nbows\t3 entries\n"
    assert run("import", theirs, "--id", "other", "--store", store).stdout == "other\t3 entries\n"


def test_a_file_that_is_no_conversation_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(b"PK\x03\x04 and no more")
    done = run("import", path, "--store", tmp_path / "a.db")
    assert str(done.exception).startswith(f"{path}: The archive is damaged")
    done = run("import", tmp_path / "nowhere.json", "--store", tmp_path / "a.db")
    assert str(done.exception) == f"Can't read {tmp_path / 'nowhere.json'}: No such file or directory."


def test_simulate_reads_them_too(tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    path.write_bytes(as_json(chatgpt()))
    done = run("simulate", path, "-m", "anthropic:claude-sonnet-5", "-p", "KeepAll()", "--json")
    assert done.exit_code == 0, done.output


def test_a_terminal_shows_a_count_while_copying(tmp_path: Path, environment: dict[str, str]) -> None:
    path = tmp_path / "conversations.json"
    path.write_bytes(as_json(*[chatgpt(f"talk-{i}") for i in range(30)]))
    terminal = Terminal(["import", str(path), "--store", str(tmp_path / "a.db")], environment | {"TERM": "xterm"})
    terminal.wait_for(r"1 of 30 conversations")
    terminal.rest()
    assert terminal.exit_code() == 0
    terminal.close()
    assert "30 conversations, 90 entries" in terminal.screen
    terminal = Terminal(["copy", str(tmp_path / "a.db"), str(tmp_path / "b.db")], environment | {"TERM": "xterm"})
    terminal.wait_for(r"\d+ of 30 conversations")
    terminal.rest()
    assert terminal.exit_code() == 0
    terminal.close()


def test_the_count_has_its_rate_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    counter, unknown = ProgressCounter(90, "conversation"), ProgressCounter(None, "conversation")
    for each in (counter, unknown):
        monkeypatch.setattr(each, "_started", time.monotonic() - 10)
    assert re.fullmatch(r"30 of 90 conversations, 3\.0 a second, 0:(19|20|21) left", counter._describe(30))
    assert re.fullmatch(r"2,0\d\d conversations, 20\d a second", unknown._describe(2_050))


# Owners


def owners(path: str | Path) -> list[str]:
    store = store_at(path)
    found = store.owners()
    store.close()
    return found


def test_tables_of_an_app_are_imported_for_all_owners_and_copied(tmp_path: Path) -> None:
    app, mapping = make_app(tmp_path)
    store = tmp_path / "talks.db"
    done = run("import", app, "--mapping", mapping, "--all-owners", "--dry-run", "--store", store)
    assert (done.exit_code, store.exists()) == (0, False)
    assert "Nothing was written" in done.stderr
    done = run("import", app, "--mapping", mapping, "--all-owners", "--store", store)
    assert (done.exit_code, done.stdout) == (0, "ada\t1\t2 entries\nbob\t2\t1 entry\n")
    assert owners(store) == ["ada", "bob"]
    again = run("import", app, "--mapping", mapping, "--all-owners", "--store", store)
    assert again.stdout.count("already in the store") == 2
    done = run("copy", store, tmp_path / "b.db", "--all-owners")
    assert (done.exit_code, done.stdout) == (0, "2 conversations copied; 3 entries verified\n")
    assert owners(tmp_path / "b.db") == ["ada", "bob"]


def test_an_owner_map_renames_owners(tmp_path: Path) -> None:
    app, mapping = make_app(tmp_path)
    store, names = tmp_path / "talks.db", tmp_path / "owners.csv"
    run("import", app, "--mapping", mapping, "--all-owners", "--store", store)
    names.write_text("ada,countess\n")
    failed = run("copy", store, tmp_path / "b.db", "--owner-map", names)
    assert isinstance(failed.exception, InputError)
    assert "lacks these owners of the source store: 'bob'" in str(failed.exception)
    names.write_text("ada,countess\nbob,robert\n")
    assert run("copy", store, tmp_path / "b.db", "--owner-map", names).exit_code == 0
    assert owners(tmp_path / "b.db") == ["countess", "robert"]
    done = run("import", app, "--mapping", mapping, "--owner-map", names, "--store", tmp_path / "c.db")
    assert done.stdout == "countess\t1\t2 entries\nrobert\t2\t1 entry\n"


def test_owners_are_chosen_in_one_way(tmp_path: Path) -> None:
    app, mapping = make_app(tmp_path)
    refused = run("import", app, "--mapping", mapping, "--store", tmp_path / "a.db")
    assert isinstance(refused.exception, InputError)
    assert "choose --all-owners, --owner-map FILE, or one owner with --owner" in reword_error(refused.exception)
    done = run("import", app, "--mapping", mapping, "--owner", "ada", "--store", tmp_path / "a.db")
    assert (done.exit_code, done.stdout) == (0, "1\t2 entries\n")
    assert "1 conversation of another owner was not imported" in done.stderr
    twice = run("copy", "a.db", "b.db", "--owner", "ada", "--all-owners")
    assert "Use one of --owner, --all-owners and --owner-map." in twice.stderr
    named = run("copy", tmp_path / "a.db", tmp_path / "b.db", "1", "--all-owners")
    assert isinstance(named.exception, InputError)


def test_without_from_the_users_own_store_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTALK_STORE", f"{tmp_path}/own.db")
    send(tmp_path / "own.db", "one", "x")
    done = run("copy", tmp_path / "b.db")
    assert (done.exit_code, done.stdout) == (0, "1 conversation copied; 2 entries verified\n")
    assert f"From your store, {tmp_path}/own.db" in done.stderr
    assert ids(tmp_path / "b.db") == ["one"]


def test_ids_after_to_alone_are_answered_with_the_whole_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONGTALK_STORE", f"{tmp_path}/own.db")
    send(tmp_path / "own.db", "one", "x")
    problem = run("copy", tmp_path / "b.db", "one").exception
    assert f"longtalk copy {tmp_path}/own.db {tmp_path}/b.db one" in str(problem)
    assert not (tmp_path / "one").exists()
