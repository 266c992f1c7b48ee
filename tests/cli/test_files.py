"""`longtalk export`, `import`, `delete` and `redact` as a person uses them, on real stores."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from longtalk import Archive, Chat, Conversation, InputError, Seal
from longtalk.cli import files
from longtalk.cli.service_flags import commands
from longtalk.testing import Scripted, says
from tests.cli.helpers import Terminal, longtalk, store_at
from tests.transfer.importers.exports import ChatGPT, as_json

MESSAGES = [{"role": "user", "content": "How do I hold the bow?"}, {"role": "assistant", "content": "Lightly."}]


def run(*arguments: str | Path, said: bytes = b"") -> str:
    done = CliRunner().invoke(commands, list(map(str, arguments)), input=said, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(*arguments: str | Path, said: bytes = b"") -> str:
    """What is said about a command that is refused."""
    done = CliRunner().invoke(commands, list(map(str, arguments)), input=said)
    assert done.exit_code
    assert done.stdout == ""
    assert done.exception is not None
    assert isinstance(done.exception, (InputError, SystemExit)), done.exception
    return done.stderr or str(done.exception)


def ids(store: str) -> list[str]:
    held = store_at(store)
    found = sorted(each.id for each in Archive(held).conversations(limit=1000))
    held.close()
    return found


@pytest.fixture
def filled(store: str) -> str:
    """One conversation with two branches, and one with a name that no file should have."""
    held = store_at(store)
    made = Conversation("lesson-7", model=Scripted(says("Lightly."), says("Well."), says("So.")), store=held)
    made.send("How do I hold the bow?")
    made.send("Thank you.")
    made.edit(made.history()[0].id, "And the violin?")
    made.set_metadata({"topic": "bows"})
    Conversation("../../Etc/passwd\n\x1b", model=Scripted(says("No.")), store=held).send("Hello!")
    held.close()
    return store


# export


def test_a_conversation_goes_from_store_to_store_byte_for_byte(filled: str, tmp_path: Path) -> None:
    def lines(store: str) -> list[str]:
        # Of records that a newer one has replaced, a store may keep the newer one alone.
        exported = run("export", "lesson-7", "-f", "jsonl", "--store", store)
        return [line for line in exported.splitlines() if '"type":"record"' not in line]

    for number, (form, other) in enumerate([("json", "b.db"), ("jsonl", "c/"), ("json", "d/"), ("jsonl", "e.db")]):
        path = tmp_path / f"export-{number}"
        run("export", "lesson-7", "-f", form, "-o", path, "--store", filled)
        assert run("import", path, "--store", f"{tmp_path}/{other}") == "lesson-7\t6 entries\n"
        assert lines(f"{tmp_path}/{other}") == lines(filled)


def test_markdown_is_of_one_branch(filled: str) -> None:
    held = store_at(filled)
    (other,) = set(Archive(held).branches("lesson-7")) - {"main"}
    held.close()
    assert "How do I hold the bow?" in run("export", "lesson-7", "-b", "main", "--store", filled)
    assert "How do I hold the bow?\n" in run("export", "lesson-7", "-b", "main", "-f", "markdown", "--store", filled)
    # The conversation goes on there.
    assert "And the violin?" in run("export", "lesson-7", "--store", filled)
    shown = run("export", "lesson-7", "--store", filled, "--branch", other)
    assert "And the violin?" in shown
    assert "How do I hold" not in shown


def test_a_file_is_written_whole_and_none_is_overwritten(filled: str, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    assert run("export", "lesson-7", "-o", path, "--store", filled) == ""
    written = path.read_bytes()
    assert json.loads(written)["conversations"][0]["id"] == "lesson-7"
    assert "--force" in refused("export", "lesson-7", "-o", path, "--store", filled)
    assert path.read_bytes() == written
    path.chmod(0o600)
    run("export", "lesson-7", "-f", "md", "-o", path, "--store", filled, "--force")
    assert path.read_bytes().startswith(b"# ")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(("out", ".out"))] == ["out.json"]


def test_a_failed_export_keeps_the_old_file(filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.md"
    path.write_text("before")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    assert "No space left" in refused("export", "lesson-7", "-o", path, "--force", "--store", filled)
    assert path.read_text() == "before"
    assert "No such file" in refused("export", "lesson-7", "-o", tmp_path / "none" / "x.md", "--store", filled)
    assert not [each for each in tmp_path.iterdir() if each.name.endswith(".new")]


def test_a_link_to_a_file_stays_a_link(filled: str, tmp_path: Path) -> None:
    (tmp_path / "link.md").symlink_to(tmp_path / "real.md")
    assert "--force" in refused("export", "lesson-7", "-o", tmp_path / "link.md", "--store", filled)
    run("export", "lesson-7", "-o", tmp_path / "link.md", "--store", filled, "--force")
    assert (tmp_path / "link.md").is_symlink()
    assert (tmp_path / "real.md").read_text().startswith("# ")


@pytest.mark.parametrize("name", ["all.json", "all.jsonl"])
def test_all_conversations_are_one_document(filled: str, tmp_path: Path, name: str) -> None:
    run("export", "--all", "-o", tmp_path / name, "--store", filled)
    told = run("import", tmp_path / name, "--store", f"{tmp_path}/other.db")
    assert sorted(told.splitlines()) == ["../../Etc/passwd\\u000a\\u001b\t2 entries", "lesson-7\t6 entries"]
    assert ids(f"{tmp_path}/other.db") == ids(filled)


def test_all_as_markdown_are_files_with_safe_names(filled: str, tmp_path: Path) -> None:
    folder = tmp_path / "pages" / "today"
    run("export", "--all", "-o", folder, "--store", filled)
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["%2e%2e%2f%2e%2e%2f%45tc%2fpasswd%0a%1b.md", "lesson-7.md"]
    (folder / "lesson-7.md").write_text("mine")
    (folder / names[0]).unlink()
    assert "lesson-7.md already exists" in refused("export", "--all", "-o", folder, "--store", filled)
    assert [path.name for path in folder.iterdir()] == ["lesson-7.md"]
    run("export", "--all", "-o", folder, "--store", filled, "--force")
    assert sorted(path.name for path in folder.iterdir()) == names


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--all"], "folder with -o"),
        (["lesson-7", "--all"], "not both"),
        (["lesson-7", "--branch", "main", "-f", "json"], "json contains all branches"),
        (["lesson-7", "--branch", "main", "-o", "x.jsonl"], "jsonl contains all branches"),
        (["--all", "--branch", "main"], "--branch"),
        (["lesson-7", "--branch", "none"], "no branch 'none'"),
        (["lesson-7", "-f", "pdf"], "pdf"),
        (["lesson-7", "-o", "/"], "--force"),
        (["lesson-7", "-o", "/", "--force"], "Can't write /"),
        (["--all", "-o", "/dev/null/x"], "Can't create the folder"),
    ],
)
def test_an_export_that_makes_no_sense_is_refused(filled: str, arguments: list[str], said: str) -> None:
    assert said in refused("export", *arguments, "--store", filled)


@pytest.mark.parametrize("name", ["all.json", "all.jsonl", "pages"])
def test_an_export_of_nothing_is_refused_and_makes_no_file(filled: str, tmp_path: Path, name: str) -> None:
    said = refused("export", "--all", "--owner", "x", "-o", tmp_path / name, "--store", filled)
    assert said == "This store has no conversations of owner 'x' to export: check --store and --owner."
    assert not (tmp_path / name).exists()


# import


def test_a_state_is_called_as_its_file_is(tmp_path: Path, store: str) -> None:
    chat = Chat(Scripted(says("One."), says("Two.")))
    path = tmp_path / "ada.talk"
    path.write_bytes(chat.send("a").state)
    assert run("import", path, "--store", store) == "ada\t2 entries\n"
    assert run("import", path, "--store", store, "--id", "lesson-8") == "lesson-8\t2 entries\n"
    assert run("import", "-", "--store", store, said=path.read_bytes()) == "import\t2 entries\n"
    assert ids(store) == ["ada", "import", "lesson-8"]


def test_imported_messages_can_be_continued(tmp_path: Path, store: str) -> None:
    path = tmp_path / "old.chat.json"
    path.write_text(json.dumps(MESSAGES))
    lines = tmp_path / "tuning.jsonl"
    lines.write_text("".join(json.dumps({"messages": MESSAGES}) + "\n" for _ in range(2)))
    assert run("import", path, lines, "--store", store).splitlines() == [
        "old.chat\t2 entries",
        "tuning-1\t2 entries",
        "tuning-2\t2 entries",
    ]
    held = store_at(store)
    talk = Conversation("old.chat", model=Scripted(says("Well.")), store=held)
    assert talk.send("And now?").text == "Well."
    assert [said.text for said in talk.history()][:2] == ["How do I hold the bow?", "Lightly."]
    held.close()


def test_an_import_with_an_existing_id_changes_nothing(filled: str, tmp_path: Path) -> None:
    (tmp_path / "new.json").write_text(json.dumps(MESSAGES))
    (tmp_path / "lesson-7.json").write_text(json.dumps(MESSAGES))
    before = ids(filled)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "new.json").write_text(json.dumps(MESSAGES))
    for given, said in (
        (["new.json", "lesson-7.json"], "already"),
        (["new.json", "other/new.json"], "other/new.json both contain a conversation 'new'"),
        (["new.json", "new.json"], "both contain"),
        (["new.json", "nowhere.json"], "No such file"),
    ):
        assert said in refused("import", *[tmp_path / name for name in given], "--store", filled)
        assert ids(filled) == before


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"   \n",
        b"Hello!",
        b"\xff\xfe\x00garbage",
        b"{}",
        b"[]x",
        b"[1, 2]",
        b"{" * 100_000,
        b'{"longtalk": 99, "conversations": []}',
        b'{"longtalk": 1, "conversations": [{"id": 7}]}',
        b'{"type": "conversation", "longtalk": 1, "id": "x"}\n{"type": "entry"}',
        b'[{"role": "tool", "tool_call_id": "c", "content": "x"}]',
        b"\x89TLK\x02 damaged",
        b"\x89TLS sealed",
    ],
)
def test_garbage_is_reported_in_one_line_and_changes_nothing(
    content: bytes, tmp_path: Path, environment: dict[str, str], store: str
) -> None:
    path = tmp_path / "garbage.bin"
    path.write_bytes(content)
    done = longtalk("import", path, "--store", store, environment=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("longtalk: ")
    assert "garbage.bin" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert len(done.stderr) < 1000
    assert not os.path.exists(store)


def test_an_import_that_makes_no_sense_is_refused(tmp_path: Path, filled: str) -> None:
    run("export", "--all", "-o", tmp_path / "all.json", "--store", filled)
    (tmp_path / "x.json").write_text(json.dumps(MESSAGES))
    assert "contains 2 conversations" in refused("import", tmp_path / "all.json", "--id", "x", "--store", filled)
    assert "one file" in refused("import", tmp_path / "x.json", tmp_path / "x.json", "--id", "x", "--store", filled)
    assert "This is a folder. Import a file in it instead" in refused("import", tmp_path, "--store", filled)
    assert "not a valid path" in refused("import", "a\0b", "--store", filled)
    seal = Seal({"k": Seal.new_key()})
    (tmp_path / "s.talk").write_bytes(Chat(Scripted(says("Hi."))).send("Hi!", seal=seal.to(owner="ada")).state)
    assert "sealed" in refused("import", tmp_path / "s.talk", "--store", filled)


def test_counts_of_one_are_printed_in_the_singular(tmp_path: Path, store: str) -> None:
    def told(*contents: dict[str, object]) -> list[str]:
        talk = ChatGPT("bows")
        for content in contents:
            talk.say("user", content=content)
        path = tmp_path / "conversations.json"
        path.write_bytes(as_json(talk, ChatGPT("empty")))
        done = CliRunner().invoke(commands, ["import", str(path), "--store", store], catch_exceptions=False)
        assert done.exit_code == 0
        return done.stderr.splitlines()[-4:]

    image = {"content_type": "multimodal_text", "parts": [{"content_type": "image_asset_pointer"}]}
    assert [line.strip() for line in told({"content_type": "future_thing", "held": 1}, image)][1:] == [
        "1 conversation without messages was skipped",
        "1 image is missing: the export has only a pointer to it",
        "1 message of the unknown type future_thing became a placeholder, with its content kept as metadata",
    ]
    assert told({"content_type": "future_thing", "held": 1}, image)[-2].endswith("; 1 was already in the store")


# delete, redact


def test_deleting_prints_a_receipt(filled: str) -> None:
    shown = run("delete", "lesson-7", "lesson-7", "--yes", "--store", filled)
    assert shown.startswith("deleted lesson-7: 6 entries, 3 turns, ")
    assert shown.endswith(", 2 branches\n")
    assert "lesson-7" not in ids(filled)


def test_an_unknown_id_prevents_deletion_of_the_others(filled: str) -> None:
    before = ids(filled)
    assert "Conversation 'nope' not found" in refused("delete", "lesson-7", "nope", "--yes", "--store", filled)
    assert ids(filled) == before


@pytest.mark.parametrize("command", [["delete", "lesson-7"], ["redact", "lesson-7", "ENTRY"]])
def test_without_a_terminal_nothing_is_removed(command: list[str], filled: str, environment: dict[str, str]) -> None:
    held = store_at(filled)
    entry = Archive(held).history("lesson-7")[0].id
    held.close()
    words = [entry if word == "ENTRY" else word for word in command]
    done = longtalk(*words, "--store", filled, said="y\n", environment=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert "--yes" in done.stderr
    assert "How do I hold the bow?" in run("show", "lesson-7", "-b", "main", "--store", filled)


def test_a_person_is_asked_first(filled: str, environment: dict[str, str]) -> None:
    for answer, status, told in (("n", 1, "Nothing was removed."), ("\x03", 130, ""), ("y", 0, "deleted lesson-7")):
        person = Terminal(["delete", "lesson-7", "--store", filled], environment)
        person.wait_for(r"lesson-7: 6 entries, 'How do I hold the bow\?'")
        person.wait_for(r"Delete permanently\? \[y/N\]")
        assert "lesson-7" in ids(filled)
        person.type(f"{answer}\n")
        assert told in person.rest()
        assert person.exit_code() == status
        person.close()
    assert "lesson-7" not in ids(filled)


def test_an_entry_is_redacted_for_good(filled: str, tmp_path: Path, environment: dict[str, str]) -> None:
    held = store_at(filled)
    (other,) = set(Archive(held).branches("lesson-7")) - {"main"}
    entry = Archive(held).history("lesson-7", branch=other)[0].id
    held.close()
    person = Terminal(["redact", "lesson-7", entry, "--store", filled], environment)
    person.wait_for(r"user: And the violin\?")
    person.type("y\n")
    assert f"redacted {entry} in lesson-7" in person.rest()
    assert person.exit_code() == 0
    person.close()
    assert "[redacted]" in run("show", "lesson-7", "--branch", other, "--store", filled)
    assert CliRunner().invoke(commands, ["search", "violin", "--store", filled]).exit_code == 1
    path = Path(filled)
    kept = [path] if path.is_file() else list(path.glob("*/*"))
    assert kept
    assert not any(b"violin" in each.read_bytes() for each in kept)


def test_a_damaged_conversation_can_be_deleted(tmp_path: Path) -> None:
    store = f"{tmp_path}/talks/"
    held = store_at(store)
    Conversation("x", model=Scripted(says("Hi.")), store=held).send("Hello!")
    held.close()
    (path,) = Path(store).glob("*/*.jsonl")
    path.write_bytes(path.read_bytes().replace(b"Hello!", b"Hallo!"))
    assert run("delete", "x", "--yes", "--store", store).startswith("deleted x: ")
    assert not path.exists()
