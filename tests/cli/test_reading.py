"""`longtalk list`, `show`, `search` and `stats` as a person uses them, on real stores."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from longtalk import Archive, Chat, Conversation, Memory, Seal
from longtalk.cli.command_flags import commands
from longtalk.cli.output import escape, escape_line, format_time
from longtalk.events import Text
from longtalk.models.call_cost import FREE, Prices
from longtalk.providers.base import Capabilities
from longtalk.stores.base import Store
from longtalk.testing import Scripted, says
from longtalk.wires import WIRES
from tests.cli.helpers import LONGTALK, Terminal, longtalk, store_at, to_iso
from tests.support import forked_program
from tests.support.card_model import CardModel, make_answer

DIRECTIONS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""All characters that change the direction of text (Bidi_Control in Unicode)."""
HOSTILE = f"\x1b]0;owned\x07 \x1b[31m red \x9b2J \x00\x7f {DIRECTIONS}gnp"


def plan(days: int) -> str:
    """A plan for practising."""
    return "Slowly."


def run(*arguments: str | Path, said: bytes = b"") -> Result:
    done = CliRunner().invoke(commands, list(map(str, arguments)), input=said)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def lines(*arguments: str | Path) -> list[list[str]]:
    done = run(*arguments)
    assert (done.exit_code, done.stderr) == (0, "")
    return [line.split("\t") for line in done.stdout.splitlines()]


def objects(*arguments: str | Path) -> list[Any]:
    return [json.loads(line) for line in run(*arguments, "--json").stdout.split("\n") if line]


def talk(store: Store, name: str, *pairs: tuple[str, str], **more: Any) -> Conversation:
    """A conversation in which this was asked and answered."""
    held = Conversation(name, model=Scripted(*[says(answer) for _, answer in pairs]), store=store, **more)
    for asked, _ in pairs:
        held.send(asked)
    # The next one is newer.
    time.sleep(0.002)
    return held


@pytest.fixture
def filled(store: str) -> str:
    held = store_at(store)
    talk(held, "bows", ("How do I hold the bow?", "With a round thumb, and as lightly as you can."))
    talk(held, "titled", ("Hello!", "Hi.")).set_metadata({"title": "Strings, and more", "topic": "strings", "n": 7})
    talk(held, "long", ("word " * 100 + "\n\tend", "Well."))
    talk(held, "theirs", ("Hello, I am Ada.", "Hi."), owner="ada")
    held.close()
    return store


# list


def test_the_list_has_id_time_entries_and_title_the_newest_first(filled: str) -> None:
    found = lines("list", "--store", filled)
    assert [row[0] for row in found] == ["long", "titled", "bows"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", row[1]) for row in found)
    assert [row[2] for row in found] == ["2", "2", "2"]
    assert [row[3] for row in found[1:]] == ["Strings, and more", "How do I hold the bow?"]
    assert found[0][3].startswith("word word")
    assert len(found[0][3]) == 80


def test_an_owner_sees_their_own(filled: str) -> None:
    assert [row[0] for row in lines("list", "--store", filled, "--owner", "ada")] == ["theirs"]
    assert run("list", "--store", filled, "--owner", "bob").stdout == ""


@pytest.mark.parametrize(
    ("pairs", "names"),
    [
        (["topic=strings"], ["titled"]),
        (["n=7"], ["titled"]),
        (['n="7"'], []),
        (["topic=strings", "n=8"], []),
        (["none=null"], []),
    ],
)
def test_conversations_can_be_listed_by_metadata(filled: str, pairs: list[str], names: list[str]) -> None:
    given = [word for pair in pairs for word in ("--meta", pair)]
    assert [each["id"] for each in objects("list", "--store", filled, *given)] == names


def test_as_json_a_line_has_all_of_it(filled: str) -> None:
    (found,) = objects("list", "--store", filled, "--meta", "n=7")
    assert set(found) == {"id", "created", "updated", "entries", "branches", "meta", "title"}
    assert found["title"] == "Strings, and more"
    assert objects("list", "--store", filled)[2]["title"] == "How do I hold the bow?"
    assert found["meta"] == {"title": "Strings, and more", "topic": "strings", "n": 7}


@pytest.mark.parametrize("limit", [1, 3, 4, 6, 7, 8, 0])
def test_all_pages_are_listed(store: str, limit: int) -> None:
    held = store_at(store)
    for number in range(7):
        talk(held, f"c{number}", ("a", "b"))
    wanted = [each.id for each in Archive(held).conversations(limit=100)]
    held.close()
    assert sorted(wanted) == [f"c{number}" for number in range(7)]
    done = run("list", "--store", store, "--limit", str(limit))
    names = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert names == wanted[: limit or 7]
    assert ("--limit 0" in done.stderr) == (0 < limit < 7)
    assert len(objects("list", "--store", store, "--limit", str(limit))) == len(names)


def test_an_empty_store_is_said_to_be(environment: dict[str, str]) -> None:
    done = longtalk("list", environment=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "No conversations yet.\n")


@pytest.mark.parametrize("command", [["list"], ["list", "--json"], ["stats"], ["export", "--all", "-f", "json"]])
def test_a_damaged_file_is_reported_and_does_not_hide_the_others(
    command: list[str], tmp_path: Path, environment: dict[str, str]
) -> None:
    store = f"{tmp_path}/talks/"
    held = store_at(store)
    talk(held, "x", ("Hello!", "Hi."))
    held.close()
    (path,) = Path(store).glob("*/*.jsonl")
    path.write_bytes(path.read_bytes().replace(b"Hello!", b"Hallo!"))
    alone = longtalk(*command, "--store", store, environment=environment)
    assert alone.returncode == 1
    assert "is damaged" in alone.stderr
    assert "yet" not in alone.stderr
    held = store_at(store)
    talk(held, "other", ("Hello!", "Hi."))
    held.close()
    both = longtalk(*command, "--store", store, environment=environment)
    assert both.returncode == 1
    assert both.stderr.count("is damaged") == 1
    assert "other" in both.stdout or command == ["stats"]


def test_unreadable_files_are_not_reported_as_an_empty_store(tmp_path: Path, environment: dict[str, str]) -> None:
    store = f"{tmp_path}/talks/"
    held = store_at(store)
    talk(held, "x", ("Hello!", "Hi."))
    held.close()
    (path,) = Path(store).glob("*/*.jsonl")
    path.write_bytes(path.read_bytes().replace(b"Hello!", b"Hallo!"))
    done = longtalk("show", "--store", store, environment=environment)
    assert done.returncode == 1
    assert "is damaged" in done.stderr
    assert "This store has no readable conversations" in done.stderr


def test_an_unknown_time_is_printed_as_a_dash() -> None:
    assert [format_time(at) for at in (0, -1, 2**62, 2**80)] == ["-"] * 4


# show


def test_entries_are_shown_with_roles_and_times(store: str) -> None:
    held = store_at(store)
    made = Conversation(
        "x",
        model=Scripted(says("First a plan.", calls=[("c1", "plan", '{"days": 3}')]), says("Well.")),
        tools=[plan],
        store=held,
    )
    made.note("The violin\nwas tuned.", source="tuner app")
    made.send("Plan it!\n\nSoon.")
    held.close()
    shown = run("show", "x", "--store", store).stdout
    assert re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", re.sub(r"\w{12}-(\d+)", r"E\1", shown)) == (
        "TIME  event from tuner app  E0\n    The violin\n    was tuned.\n"
        "\nTIME  user  E0\n    Plan it!\n\n    Soon.\n"
        '\nTIME  assistant  E1  scripted:model\n    First a plan.\n    → plan({"days": 3})\n'
        "\nTIME  result of plan  E2\n    Slowly.\n"
        "\nTIME  assistant  E3  scripted:model\n    Well.\n"
    )


def test_calls_over_the_other_wire_are_shown_too(store: str) -> None:
    held = store_at(store)
    steps = (says(calls=[("c1", "plan", '{"days": 3}')], wire="anthropic"), says("Well.", wire="anthropic"))
    Conversation("x", model=Scripted(*steps, wire=WIRES["anthropic"]), tools=[plan], store=held).send("Plan it!")
    held.close()
    shown = run("show", "--store", store).stdout
    assert re.search(r'→ plan\(\{"days": ?3\}\)', shown)
    assert re.search(r"result of plan  \S+\n    Slowly\.\n", shown)


def test_parts_that_are_no_text_are_named(store: str) -> None:
    held = store_at(store)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    Conversation("x", model=Scripted(says("A bow.")), store=held).send(["What is it?", image])
    held.close()
    shown = run("show", "--store", store).stdout
    assert "    What is it?\n    [image]\n" in shown
    assert "AAAA" not in shown


def test_without_an_id_it_is_the_one_changed_last(filled: str) -> None:
    assert "Well." in run("show", "--store", filled).stdout


def test_a_branch_can_be_shown(store: str) -> None:
    held = store_at(store)
    made = Conversation("x", model=Scripted(says("One."), says("Two.")), store=held)
    made.send("a")
    branch, _ = made.edit(made.history()[0].id, "b")
    held.close()
    assert "Two." in run("show", "x", "--branch", branch.branch, "--store", store).stdout
    main = run("show", "x", "-b", "main", "--store", store)
    assert "Two." not in main.stdout
    assert main.stderr == f"(Other branches: {branch.branch}. To use one: -b NAME.)\n"
    assert "branches: main." in run("show", "x", "--branch", branch.branch, "--store", store).stderr


def test_a_find_on_another_branch_names_it(store: str, environment: dict[str, str]) -> None:
    held = store_at(store)
    made = talk(held, "x", ("bow", "One."))
    branch, _ = Conversation("x", model=Scripted(says("Two.")), store=held).edit(made.history()[0].id, "bow and string")
    held.close()
    found = {row[4]: row[5:] for row in lines("search", "bow", "--store", store)}
    assert found == {"bow": [], "bow and string": [f"branch {branch.branch}"]}
    person = Terminal(["search", "string", "--store", store], environment)
    assert f"  branch {branch.branch}\r\n" in person.rest()
    person.exit_code()
    person.close()


def test_as_json_a_line_has_the_exact_message(store: str) -> None:
    held = store_at(store)
    talk(held, "x", ("How?\n😀 é", "So."))
    held.close()
    done = longtalk("show", "x", "--store", store, "--json", environment=dict(os.environ))
    user, answer = map(json.loads, done.stdout.splitlines())
    assert user["text"] == "How?\n😀 é"
    assert user["native"] == {"role": "user", "content": "How?\n😀 é"}
    assert (answer["role"], answer["text"]) == ("assistant", "So.")
    assert set(user) == {"id", "turn", "role", "at", "mark", "meta", "wire", "text", "native"}


def test_half_a_character_can_be_shown_and_stays_json(tmp_path: Path, environment: dict[str, str]) -> None:
    path = tmp_path / "x.json"
    path.write_text('[{"role":"user","content":"half \\ud83d"},\n{"role":"assistant",\n"content":"ok"}]')
    store = tmp_path / "x.db"
    assert longtalk("import", path, "--store", store, environment=environment).returncode == 0
    shown = longtalk("show", "--store", store, environment=environment)
    assert (shown.returncode, "    half " in shown.stdout) == (0, True)
    user, answer = longtalk("show", "--store", store, "--json", environment=environment).stdout.splitlines()
    assert json.loads(user)["native"]["content"] == "half \ud83d"
    assert json.loads(answer)["native"] == {"role": "assistant", "content": "ok"}
    for command in ("list", "stats", "export"):
        arguments = ["x"] if command == "export" else []
        assert longtalk(command, *arguments, "--store", store, environment=environment).returncode == 0


def test_a_state_is_shown_in_the_same_form(tmp_path: Path) -> None:
    chat = Chat(Scripted(says("With a round thumb.")))
    path = tmp_path / "x.talk"
    path.write_bytes(chat.send("How do I hold the bow?").state)
    shown = run("show", "--state", path).stdout
    assert "    How do I hold the bow?\n" in shown
    assert run("show", "--state", "-", said=path.read_bytes()).stdout == shown
    assert [each["role"] for each in objects("show", "--state", path)] == ["user", "assistant"]
    assert "used with an ID or --branch" in run("show", "x", "--state", path).stderr


# search


def test_matches_are_shown_with_the_text_around_them(store: str) -> None:
    held = store_at(store)
    talk(held, "x", ("so " * 50 + "hold the BOW lightly" + " and on" * 50, "Well."), ("Nothing.", "No."))
    held.close()
    ((name, entry, role, _, text),) = lines("search", "--store", store, "bow", "violin")
    assert (name, role) == ("x", "user")
    assert entry.endswith("-0")
    assert re.fullmatch(r"….{38,40}BOW .+…", text)
    assert len(text) < 160
    (found,) = objects("search", "--store", store, "bow")
    assert set(found) == {"conversation", "branch", "place", "entry", "role", "at", "text"}


def test_the_search_can_be_bounded(filled: str) -> None:
    held = store_at(filled)
    talk(held, "more", ("bow", "bow"), ("bow", "bow"))
    held.close()
    assert len(lines("search", "--store", filled, "bow", "--limit", "2")) == 2
    assert len(lines("search", "--store", filled, "bow", "--limit", "0")) == 5
    assert [row[0] for row in lines("search", "--store", filled, "bow", "-c", "bows")] == ["bows"]
    assert [row[0] for row in lines("search", "--store", filled, "--owner", "ada", "ada")] == ["theirs"]


@pytest.mark.parametrize(
    "words", [['"hold the bow"'], ["thumb"], ["THUMB", "nowhere"], ["thu*"], ['"as lightly'], ["hold\tthe"]]
)
def test_words_and_phrases_are_found(filled: str, words: list[str]) -> None:
    assert {row[0] for row in lines("search", "--store", filled, *words)} == {"bows"}


@pytest.mark.parametrize(
    "words", [['"bow the hold"'], ['"'], ["'"], ["*"], ["!!!"], ["(OR"], [""], ["\x1b["], ["text:", "-"]]
)
def test_where_nothing_is_found_the_status_is_1(filled: str, words: list[str]) -> None:
    done = run("search", "--store", filled, "--", *words)
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", "No matches.\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere", "thum"], "No matches. Only whole words match; 'thum*' also finds longer ones.\n"),
        (["nowhere", "humb"], "No matches.\n"),
        (["thum", "-c", "paid"], "No matches.\n"),
        (["thum", "--since", "2100-01-01"], "No matches.\n"),
    ],
)
def test_the_search_by_a_beginning_is_shown_where_it_finds_more(filled: str, words: list[str], said: str) -> None:
    priced(filled, FREE)
    done = run("search", "--store", filled, *words)
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", said)


# stats


def test_the_numbers_are_shown(filled: str) -> None:
    shown = run("stats", "--store", filled).stdout
    rows = dict(line.split(None, 1) for line in shown.splitlines() if not line.startswith("tokens"))
    assert (rows["conversations"], rows["turns"]) == ("3", "3 (complete 3)")
    assert rows["entries"].startswith("6, ")
    assert "tokens sent      30, 0 of them cached" in shown
    (found,) = objects("stats", "bows", "--store", filled)
    assert (found["conversations"], found["entries"], found["usage"]["input"]) == (1, 2, 10)


def priced(store: str, *prices: Prices | None) -> str:
    """A store with a conversation `paid`, in which each answer had one of these prices."""
    held = store_at(store)
    for each in prices:
        model = Scripted(says("Well."))
        model.capabilities = Capabilities(prices=each)
        Conversation("paid", model=model, store=held).send("Hello")
    held.close()
    return store


@pytest.mark.parametrize(
    ("prices", "shown"),
    [
        ((FREE,), "free"),
        ((Prices(input=1_000, output=0),), "$0.0100"),
        ((Prices(input=1, output=0.1),), "$0.0000105"),
        ((Prices(input=1_000_000, output=1_000_000),) * 100, "$1,500.0000"),
        ((Prices(input=1_000, output=0), None), "$0.0100, and unknown for 1 turn"),
        ((None, None), "unknown for 2 turns"),
    ],
)
def test_the_cost_is_shown(store: str, prices: tuple[Prices | None, ...], shown: str) -> None:
    assert f"cost             {shown}\n" in run("stats", "--store", priced(store, *prices)).stdout


def test_the_turns_are_shown_line_by_line(store: str) -> None:
    priced(store, Prices(input=1_000, output=0), None)
    found = lines("stats", "paid", "--turns", "--store", store)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", row[0]) for row in found)
    assert [[*row[1:3], *row[4:]] for row in found] == [
        ["scripted:model", "1", "10", "0", "5", "0.0100"],
        ["scripted:model", "1", "10", "0", "5", "-"],
    ]
    told = objects("stats", "paid", "--turns", "--store", store)
    assert [f"{each['usage']['input']:,}" for each in told] == [row[3] for row in found]
    assert [each["cost"] for each in told] == [0.01, None]
    assert told[0]["usage"]["output"] == 5


@pytest.mark.parametrize("report", [{}, {"usage": {"prompt_tokens": 0, "completion_tokens": 0}}])
def test_tokens_that_no_provider_reported_are_unknown(store: str, report: dict[str, Any]) -> None:
    step = says("Well.")
    body = {key: value for key, value in json.loads(step.body).items() if key != "usage"}
    held = store_at(store)
    silent = Scripted(msgspec.structs.replace(step, body=json.dumps(body | report).encode()))
    Conversation("free", model=silent, store=held).send("Hello")
    held.close()
    (row,) = lines("stats", "free", "--turns", "--store", store)
    assert row[4:] == ["-", "-", "-", "-"]
    shown = run("stats", "free", "--store", store).stdout
    assert "tokens sent      unknown\ntokens received  unknown\ncost             unknown for 1 turn" in shown


def test_a_stopped_answer_counts_by_estimate(store: str) -> None:
    held = store_at(store)
    with Conversation("cut", model=Scripted(says("Once upon a time.")), store=held).stream("Hello") as stream:
        next(event for event in stream if isinstance(event, Text))
    held.close()
    (turn,) = objects("stats", "cut", "--turns", "--store", store)
    sent, received = turn["usage"]["input"], turn["usage"]["output"]
    assert (turn["estimated"], sent) == (True, turn["total"])
    shown = run("stats", "cut", "--store", store).stdout
    assert f"tokens sent      about {sent}, 0 of them cached\ntokens received  about {received}\n" in shown
    (row,) = lines("stats", "cut", "--turns", "--store", store)
    assert row[4:] == [str(sent), "0", str(received), "-"]
    assert f"[about {sent} tokens sent, " in run("show", "cut", "-u", "--store", store).stdout


def test_turns_are_those_of_one_conversation(filled: str) -> None:
    latest = str(run("list", "--limit", "1", "--store", filled).stdout).split("\t")[0]
    turns = run("stats", latest, "--turns", "--store", filled).stdout
    assert run("stats", "--turns", "--store", filled).stdout == turns
    done = run("stats", "--turns", "--since", "today", "--store", filled)
    assert (done.exit_code, "--turns shows one conversation" in done.stderr) == (2, True)


# What all have in common


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "nope"], "Conversation 'nope' not found"),
        (["show", "bows", "--branch", "b"], "no branch 'b'. Its branches are 'main'"),
        (["show", "theirs"], "Conversation 'theirs' not found"),
        (["show", "", "--owner", "bob"], "Conversation '' of owner 'bob' not found"),
        (["show", "--owner", "bob"], "no conversations of owner 'bob'"),
        (["show", "a\nb\x1b[31m"], r"Conversation 'a\nb\x1b[31m' not found"),
        (["show", "../../etc/passwd"], "Conversation '../../etc/passwd' not found"),
        (["show", "--state", "/nowhere"], "Can't read /nowhere"),
        (["show", "--state", "/"], "Can't read /"),
        (["show", "--state", "GARBAGE"], "can't be read"),
        (["show", "--state", "SEALED"], "sealed"),
        (["show", b"caf\xe9"], "no"),
        (["list", "--owner", b"caf\xe9"], ""),
        (["search", "x", "-c", "nope"], "Conversation 'nope' not found"),
        (["stats", "nope"], "Conversation 'nope' not found"),
        (["stats", "nope", "--turns"], "Conversation 'nope' not found"),
        (["list", "--meta", "n"], "KEY=VALUE"),
        (["export", "nope"], "Conversation 'nope' not found"),
        (["delete", "nope", "--yes"], "Conversation 'nope' not found"),
        (["redact", "nope", "x", "--yes"], "Conversation 'nope' not found"),
        (["redact", "bows", "x", "--yes"], "Entry 'x' not found"),
    ],
)
def test_unknown_ids_are_reported_in_one_line(
    filled: str, arguments: list[Any], said: str, environment: dict[str, str], tmp_path: Path
) -> None:
    files = {"GARBAGE": tmp_path / "garbage", "SEALED": tmp_path / "sealed"}
    files["GARBAGE"].write_bytes(b"\x89TLK\x02 damaged")
    seal = Seal({"k": Seal.new_key()})
    files["SEALED"].write_bytes(Chat(Scripted(says("Hi."))).send("Hello!", seal=seal.to(owner="ada")).state)
    words = [os.fsdecode(files.get(word, word)) for word in arguments]
    done = forked_program.run([*words, "--store", filled], said=b"", environment=environment)
    told = done.stderr.decode()
    assert done.stdout == b""
    if said:
        assert done.returncode == 1
        assert told.startswith("longtalk: ")
    assert said in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize("command", [["list"], ["show"], ["search", "x"], ["stats"], ["export", "x"], ["delete", "x"]])
def test_a_store_that_is_not_there_is_not_made(
    command: list[str], store: str, environment: dict[str, str], tmp_path: Path
) -> None:
    done = longtalk(*command, "--store", store, environment=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"longtalk: The store {store!r} doesn't exist: check the path.\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", [":memory:", "file:x.db?mode=memory"])
def test_no_path_is_special(path: str, environment: dict[str, str]) -> None:
    assert longtalk("list", "--store", path, environment=environment).returncode == 1


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_not_a_store_is_reported(content: bytes, environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(content)
    done = longtalk("list", "--store", path, environment=environment)
    assert done.returncode == 1
    assert str(path) in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "command", [["list", "--limit", "0"], ["show", "c0"], ["show", "c0", "--json"], ["export", "c0"]]
)
def test_a_reader_that_leaves_early_makes_no_noise(
    command: list[str], tmp_path: Path, environment: dict[str, str]
) -> None:
    path = tmp_path / "x.db"
    held = store_at(path)
    for number in range(20):
        talk(held, f"c{number}", ("word " * (50_000 if not number else 5), "Well."))
    held.close()
    line = f"{LONGTALK[0]} {' '.join(command)} --store {path} | head -c 10"
    done = subprocess.run(["sh", "-c", line], env=environment, capture_output=True, timeout=60)
    assert len(done.stdout) == 10
    assert done.stderr == b""


@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["list", "--json"],
        ["show"],
        ["show", "--json"],
        ["search", "red"],
        ["search", "red", "--json"],
        ["stats"],
        ["export", "x"],
        ["export", "--all", "-f", "jsonl"],
        ["delete", HOSTILE.replace("\0", ""), "--yes"],
    ],
    ids=" ".join,
)
def test_stored_texts_can_do_nothing_to_a_terminal(
    arguments: list[str], store: str, environment: dict[str, str]
) -> None:
    held = store_at(store)
    talk(held, HOSTILE.replace("\0", ""), (HOSTILE, HOSTILE)).set_metadata({"title": HOSTILE, "x": HOSTILE})
    talk(held, "x", (HOSTILE, HOSTILE)).note(HOSTILE, source=HOSTILE)
    held.close()
    person = Terminal([*arguments, "--store", store], environment | {"TERM": "xterm", "NO_COLOR": "1"})
    # The program's own progress, which has numbers alone. No stored text begins like it.
    screen = re.sub(r"\r\x1b\[K(\d[\w,:. ]*(?=\r\x1b\[K))?", "", person.rest())
    assert person.exit_code() == 0
    person.close()
    assert not set(screen) & {*"\x1b\x07\x9b\x00\x7f", *DIRECTIONS}, screen
    if arguments != ["stats"]:
        assert "\\u001b]0;owned\\u0007" in screen


def test_names_that_differ_in_invisible_characters_look_different() -> None:
    names = ["a\u200bb", "a\u00adb", "a\u2060b", "a\ufeffb", "a\u200eb", "a\u061cb", "ab"]
    shown = [escape_line(name) for name in names]
    assert len(set(shown)) == len(names)
    assert all(text.isascii() for text in shown)
    # Emoji and scripts need joiners.
    assert escape_line("\U0001f469\u200d\U0001f52c") == "\U0001f469\u200d\U0001f52c"


def test_words_that_were_found_are_marked_on_a_terminal(filled: str, environment: dict[str, str]) -> None:
    person = Terminal(["search", "BOW", "--store", filled], environment | {"TERM": "xterm"})
    assert "hold the \x1b[1mbow\x1b[0m?" in person.rest()
    person.exit_code()
    person.close()


def test_on_a_terminal_columns_are_aligned_and_cut(filled: str, environment: dict[str, str]) -> None:
    person = Terminal(["list", "--store", filled], environment | {"COLUMNS": "60"})
    rows = person.rest().splitlines()
    person.exit_code()
    person.close()
    assert [len(row) <= 60 for row in rows] == [True] * 4
    assert rows[0].split() == ["id", "changed", "entries", "title"]
    assert rows[1].startswith("long    20")
    assert rows[1].endswith("…")


def test_an_id_with_anything_in_it_stays_in_its_line(store: str) -> None:
    held = store_at(store)
    name = "a\tb\nc\u2028" + "x" * 300
    talk(held, name, ("a\tb\nc", "Well.\n2026-01-01 00:00:00  user  spoof-0"))
    held.close()
    ((shown, *_),) = lines("list", "--store", store)
    assert shown == escape(name, keep="")
    assert objects("list", "--store", store)[0]["id"] == name
    heads = [line for line in run("show", name, "--store", store).stdout.splitlines() if line[:1].isdigit()]
    assert len(heads) == 2


# The brief


@pytest.mark.parametrize("path", ["talks.db", "talks/"])
def test_a_brief_is_shown_with_where_each_line_came_from(tmp_path: Path, path: str) -> None:
    where = tmp_path / path
    where.parent.mkdir(exist_ok=True)
    store = store_at(where)
    model = CardModel(make_answer(card='{"+facts":["Ada is 12"]}'))
    held = Conversation("lesson", model=model, store=store, policy=Memory(limit=0, recent=0, recall=0))
    held.send("Ada is 12.", brief={"goal": "Play Bach"})
    (held.fork(name="aside")).brief.set("goal", f"Play{HOSTILE}")
    first = held.history()[0].id
    goal, fact = held.brief.lines()
    store.close()
    shown = run("show", "lesson", "--brief", "-b", "main", "--store", where)
    assert [line.split("\t") for line in shown.stdout.splitlines()] == [
        [goal.id, "app", format_time(goal.at), "goal", "Play Bach"],
        [fact.id, first, format_time(fact.at), "facts", "Ada is 12"],
    ]
    assert objects("show", "lesson", "--brief", "-b", "main", "--store", where)[1] == {
        "id": fact.id,
        "field": "facts",
        "text": "Ada is 12",
        "entry": first,
        "at": to_iso(fact.at),
        "seen": to_iso(fact.seen),
    }
    aside = run("show", "lesson", "--brief", "--branch", "aside", "--store", where).stdout
    assert "Play ]0;owned" in aside
    assert "\x1b" not in aside


def test_the_brief_of_a_state_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "ada.talk"
    path.write_bytes(Chat(Scripted(), policy=Memory()).brief.set("goal", "Play Bach", state=None))
    done = run("show", "--state", path, "--brief")
    assert done.stdout.split("\t")[1::2] == ["app", "goal"]
    path.write_bytes(Chat(Scripted(says("Hi."))).send("Hello!").state)
    done = run("show", "--state", path, "--brief")
    assert (done.stdout, done.stderr) == ("", "This conversation has no brief.\n")


def test_on_a_terminal_no_line_of_a_text_begins_without_its_indentation(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    where = str(tmp_path / "talks.db")
    held = store_at(where)
    talk(held, "long", ("How? " * 30, "    x = 1  # " + "code " * 20))
    held.close()
    person = Terminal(["show", "--store", where], environment | {"COLUMNS": "60"})
    shown = [line for line in person.rest().replace("\r", "").split("\n") if line and not line.startswith("20")]
    person.close()
    assert all(line.startswith("    ") and len(line) <= 60 for line in shown)
    assert "".join(shown).count("How?") == 30


# topics


def test_topics_are_printed_with_typical_words(store: str) -> None:
    held = store_at(store)
    asked = (
        "How warm must sourdough bread dough be while it rises?",
        "The chain of my bicycle slips when gears change",
    )
    talk(held, "both", (asked[0], "Sourdough likes it warm."), (asked[1], "Bicycle gears wear out, and so do chains."))
    held.close()
    rows = lines("show", "both", "--topics", "--store", store)
    assert [row[1] for row in rows] == ["2", "2"]
    assert "sourdough" in rows[0][2].split()
    assert {"bicycle", "gears"} <= set(rows[1][2].split())
    told = objects("show", "both", "--topics", "--store", store)
    entries = objects("show", "both", "--store", store)
    assert [each["first"] for each in told] == [entries[0]["id"], entries[2]["id"]]
    assert [each["count"] for each in told] == [2, 2]
    assert told[1]["words"] == rows[1][2].split()
    assert told[0]["at"] <= told[0]["until"] <= told[1]["at"]
    done = run("show", "both", "--topics", "--brief", "--store", store)
    assert (done.exit_code, "Use only one of --brief, --topics" in done.stderr) == (2, True)
