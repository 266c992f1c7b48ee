"""`longtalk rename`, `branches`, `fork`, `rewind`, `brief` and `context` as a person uses them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from longtalk import Archive, Conversation, InputError, Memory
from longtalk._sync.branches.branch import Branch
from longtalk._sync.branches.rewind import rewind_before
from longtalk.cli.service_flags import commands
from longtalk.errors import NotFound
from longtalk.models.call_cost import FREE, Prices
from longtalk.policies import KeepAll
from longtalk.providers.base import Capabilities
from longtalk.testing import Scripted, says
from tests.cli.helpers import Terminal, store_at


def plan(days: int) -> str:
    """A plan for practising."""
    return "Slowly."


def run(*arguments: str | Path) -> Result:
    done = CliRunner().invoke(commands, list(map(str, arguments)))
    assert done.exception is None or isinstance(done.exception, SystemExit | InputError | NotFound), done.exception
    return done


def objects(*arguments: str | Path) -> list[Any]:
    return [json.loads(line) for line in run(*arguments, "--json").stdout.splitlines()]


@pytest.fixture
def filled(store: str) -> str:
    held = store_at(store)
    provider = Scripted(says("Slowly."), says("Faster."))
    provider.label = "openai-chat:gpt-5.4"
    talk = Conversation("lesson-7", model=provider, store=held)
    talk.send("How?")
    talk.send("And then?")
    held.close()
    return store


def entry(store: str, position: int) -> str:
    held = store_at(store)
    found = Archive(held).history("lesson-7")[position].id
    held.close()
    return found


def test_a_title_is_listed_and_other_metadata_stays(filled: str) -> None:
    held = store_at(filled)
    Archive(held).set_metadata("lesson-7", {"topic": "bows"})
    held.close()
    assert run("rename", "lesson-7", "Bows,", "held", "--store", filled).exit_code == 0
    (found,) = objects("list", "--store", filled)
    assert (found["title"], found["meta"]["topic"]) == ("Bows, held", "bows")
    assert isinstance(run("rename", "lesson-7", " ", "--store", filled).exception, InputError)


def test_a_conversation_whose_messages_were_all_taken_back_keeps_its_title(filled: str) -> None:
    (before,) = objects("list", "--store", filled)
    held = store_at(filled)
    rewind_before(Branch(held, "", "lesson-7", "main", KeepAll(), create=False), entry(filled, 0))
    held.close()
    (after,) = objects("list", "--store", filled)
    assert after["title"] == before["title"] != ""


def test_a_fork_is_listed_with_its_source(filled: str) -> None:
    made = run("fork", "lesson-7", entry(filled, 1), "--name", "aside", "--store", filled)
    assert made.stdout == "aside\n"
    rows = [line.split("\t")[:4] for line in run("branches", "--store", filled).stdout.splitlines()]
    assert rows == [["main", "4", "-", "0"], ["aside", "2", "main", "2"]]
    assert [(each["branch"], each["shared"]) for each in objects("branches", "lesson-7", "--store", filled)] == [
        ("main", 0),
        ("aside", 2),
    ]


def test_a_rewind_prints_the_branch_that_keeps_the_rest(filled: str) -> None:
    kept = run("rewind", "lesson-7", entry(filled, 1), "--store", filled).stdout.strip()
    assert {each["branch"]: each["entries"] for each in objects("branches", "--store", filled)} == {"main": 2, kept: 4}


def test_a_conversation_goes_on_on_the_branch_that_changed_last(filled: str) -> None:
    where = ("--store", filled)
    forked = run("fork", "lesson-7", entry(filled, 1), "--name", "aside", *where)
    assert "The conversation goes on there: longtalk chat lesson-7." in forked.stderr
    assert len(objects("show", *where)) == 2
    noted = run("show", *where).stderr
    assert "(This is branch aside.)" in noted
    assert "(Other branches: main." in noted
    assert len(objects("stats", "--turns", *where)) == 1
    assert [len(objects(name, "-b", "main", *where)) for name in ("show", "context")] == [4, 1]
    kept = run("rewind", "lesson-7", entry(filled, 1), "-b", "main", *where).stdout.strip()
    assert f"Other branches: aside, {kept}" in run("show", *where).stderr
    assert "This is" not in run("show", *where).stderr


def test_a_branch_of_all_totals_is_refused(filled: str) -> None:
    assert "--branch is for --turns" in run("stats", "-b", "main", "--store", filled).stderr


@pytest.mark.parametrize("command", ["fork", "rewind"])
def test_an_unknown_entry_is_reported_with_where_to_find_ids(filled: str, command: str) -> None:
    problem = str(run(command, "lesson-7", "none", "--store", filled).exception)
    assert "no entry or turn 'none'. An id looks like q3vft5cmxl2a-0; `longtalk show` prints the ids" in problem


def test_a_mistyped_id_is_suggested(filled: str) -> None:
    assert "Did you mean 'lesson-7'?" in str(run("show", "leson-7", "--store", filled).exception)
    assert "Did you mean" not in str(run("show", "zzz", "--store", filled).exception)


def test_new_lines_of_a_brief_are_not_taken_from_the_summary(tmp_path: Path) -> None:
    path = str(tmp_path / "talks.db")
    held = store_at(path)
    talk = Conversation("bows", model=Scripted(*[says("Lightly.")] * 2), store=held, policy=Memory())
    talk.send("How?")
    talk.brief.add("facts", "Ada plays the violin.")
    talk.send("And then?")
    held.close()
    shown = dict(line.split(maxsplit=1) for line in run("context", "--store", path).stdout.splitlines()[:8])
    assert shown["summary"] == "0"
    assert int(shown["brief"]) > 0


def test_the_context_has_the_request_and_each_run_of_entries(filled: str) -> None:
    (found,) = objects("context", "--store", filled)
    assert found["total"] > 0
    assert found["window"] > 100_000
    assert [each["verdict"] for each in found["runs"]] == ["sent"]
    shown = run("context", "lesson-7", "--store", filled).stdout
    assert f"request   {found['usage']['input']} tokens  0.0% of {found['window']}" in shown
    assert "\tsent\t" in shown
    first = run("context", "--turn", found["turn"][:-1], "--store", filled)
    assert "has no turn" in str(first.exception)


def test_a_terminal_shows_a_gauge_and_a_header(filled: str, environment: dict[str, str]) -> None:
    terminal = Terminal(["context", "--store", filled], {**environment, "COLUMNS": "80"})
    shown = terminal.rest()
    terminal.close()
    assert terminal.exit_code() == 0
    assert "░░░" in shown
    assert "verdict" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_on_a_terminal_numbers_are_aligned_to_the_right(filled: str, environment: dict[str, str]) -> None:
    terminal = Terminal(["branches", "--store", filled], {**environment, "COLUMNS": "80"})
    shown = terminal.rest().splitlines()
    terminal.close()
    assert terminal.exit_code() == 0
    assert shown[0].index("entries") + len("entries") == shown[1].index("4") + 1


def test_lines_of_a_brief_are_added_edited_and_revoked(filled: str) -> None:
    where = ("--store", filled)
    added = run("brief", "add", "lesson-7", "facts", "Ada", "plays.", *where).stdout.split("\t")
    assert added[1] == "Ada plays.\n"
    edited = run("brief", "edit", "lesson-7", added[0], "Ada sings.", *where).stdout.split("\t")
    assert [each["text"] for each in objects("brief", "show", "lesson-7", *where)] == ["Ada sings."]
    assert run("brief", "revoke", "lesson-7", edited[0], *where).stdout == f"revoked {edited[0]}\n"
    assert objects("brief", "show", *where) == []


def test_an_unknown_field_or_line_of_a_brief_is_reported(filled: str) -> None:
    where = ("--store", filled)
    assert "Did you mean 'facts'?" in str(run("brief", "add", "lesson-7", "fcts", "x", *where).exception)
    for command in (["edit", "lesson-7", "none", "x"], ["revoke", "lesson-7", "none"]):
        assert "has no line 'none'. An id looks like" in str(run("brief", *command, *where).exception)


def test_a_brief_has_the_fields_of_its_policy(store: str) -> None:
    held = store_at(store)
    Conversation("lesson-7", model=Scripted(says("Hi.")), store=held, policy=Memory()).send("Hello!")
    held.close()
    assert run("brief", "add", "lesson-7", "decisions", "Bow first.", "--store", store).exit_code == 0


def test_the_parts_of_a_request_add_up(filled: str) -> None:
    parts = dict(line.split(maxsplit=1) for line in run("context", "--store", filled).stdout.splitlines()[2:10])
    numbers = {name: int(value.split()[0]) for name, value in parts.items() if re.match(r"-?\d+( |$)", value)}
    assert numbers.pop("request") == sum(numbers.values())


def test_a_conversation_is_shown_with_what_its_turns_used(filled: str) -> None:
    shown = run("show", "-n", "1", "--usage", "--store", filled).stdout
    last = shown.splitlines()[-1]
    assert re.fullmatch(
        r"  \[10 tokens sent, 0 of them cached, 5 received; (\$\d+\.\d{4}|price unknown|free \(local\))\]", last
    )
    assert "--usage shows a conversation" in run("show", "--usage", "--last", "--store", filled).stderr


@pytest.mark.parametrize(
    ("prices", "said"), [(FREE, "free"), (None, "price unknown"), (Prices(input=1e6, output=1e6), "$15.0000")]
)
def test_a_turn_without_a_cost_says_why(store: str, prices: Prices | None, said: str) -> None:
    held = store_at(store)
    model = Scripted(says("Hi."))
    model.capabilities = Capabilities(prices=prices)
    Conversation("lesson-7", model=model, store=held).send("Hello!")
    held.close()
    last = run("show", "--usage", "--store", store).stdout.splitlines()[-1]
    assert last == f"  [10 tokens sent, 0 of them cached, 5 received; {said}]"


def test_a_message_with_its_answer_counts_as_one(store: str) -> None:
    held = store_at(store)
    model = Scripted(says("Plan.", calls=[("c1", "plan", {"days": 1})]), says("one"))
    talk = Conversation("a", model=model, store=held, tools=[plan])
    talk.note("It rains.")
    talk.send("first")
    Conversation("b", model=Scripted(says("two"), says("three")), store=held).send("second")
    Conversation("b", model=Scripted(says("three")), store=held).send("third")
    held.close()

    def read(*options: str) -> list[str]:
        return [each["text"] for each in objects("show", *options, "--store", store)]

    assert read("b", "-n", "1") == ["third", "three"]
    assert read("b", "-n", "9") == ["second", "two", "third", "three"]
    assert read("a", "-n", "1") == read("a")
    assert read("--all", "-n", "2") == ["second", "two", "third", "three"]
    assert read("--all") == [*read("a"), *read("b")]
    shown = run("show", "--all", "--usage", "--store", store).stdout
    assert [line for line in shown.splitlines() if line in ("a", "b")] == ["a", "b", "b"]
    assert shown.count(" tokens sent") == 3
    assert "--all shows all conversations" in run("show", "b", "--all", "--store", store).stderr


def test_branches_show_the_first_words_that_they_have_alone(filled: str) -> None:
    run("fork", "lesson-7", entry(filled, 1), "--name", "aside", "--store", filled)
    held = store_at(filled)
    Conversation("lesson-7", branch="aside", model=Scripted(says("Up.")), store=held).send("Which\nfinger?")
    held.close()
    rows = [line.split("\t") for line in run("branches", "--store", filled).stdout.splitlines()]
    assert {row[0]: row[5] for row in rows} == {"main": "How?", "aside": "Which finger?"}
    run("fork", "--name", "same", "--store", filled)
    assert {each["branch"]: each["begins"] for each in objects("branches", "--store", filled)}["same"] == ""


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_branches_fit_the_terminal(filled: str, environment: dict[str, str], columns: int) -> None:
    run("fork", "lesson-7", entry(filled, 1), "--name", "aside", "--store", filled)
    held = store_at(filled)
    Conversation("lesson-7", branch="aside", model=Scripted(says("Up.")), store=held).send("Which finger? " * 20)
    held.close()
    terminal = Terminal(["branches", "--store", filled], {**environment, "COLUMNS": str(columns)})
    shown = terminal.rest().splitlines()
    terminal.close()
    assert all(len(line) <= columns for line in shown)
    assert any("Which finger?" in line and "aside" in line for line in shown)


def test_without_an_id_the_last_conversation_is_forked(filled: str) -> None:
    assert run("fork", "--name", "aside", "--store", filled).stdout == "aside\n"
    assert objects("fork", "--store", filled)[0]["conversation"] == "lesson-7"


def test_commands_that_change_nothing_accept_the_beginning_of_an_id(filled: str) -> None:
    shown = run("show", "less", "--last", "--store", filled)
    assert (shown.stdout, shown.stderr) == ("Faster.\n", "(This is conversation lesson-7.)\n")
    held = store_at(filled)
    Conversation("lesson-8", model=Scripted(says("Hi.")), store=held).send("Hello!")
    held.close()
    assert "several begin so: 'lesson-8', 'lesson-7'." in str(run("show", "less", "--store", filled).exception)
    assert "Did you mean 'lesson-" in str(run("fork", "lesson", "--store", filled).exception)
    assert "looks like the id of an entry" in str(run("show", entry(filled, 0), "--store", filled).exception)


def test_one_branch_is_deleted_after_a_confirmation(filled: str) -> None:
    where = ("--store", filled)
    run("fork", "lesson-7", entry(filled, 1), "--name", "aside", *where)
    problem = str(run("delete", "lesson-7", "-b", "aside", "--yes", *where).exception)
    assert "goes on on the branch 'aside'" in problem
    assert "(longtalk chat lesson-7, and there /branches main)" in problem
    held = store_at(filled)
    Conversation("lesson-7", model=Scripted(says("Up.")), store=held).send("And now?")
    held.close()
    assert "use --yes" in str(run("delete", "lesson-7", "-b", "aside", *where).exception)
    done = run("delete", "lesson-7", "-b", "aside", "--yes", *where).stdout
    assert done == "deleted branch aside of lesson-7: 0 entries, 0 turns, 0 records\n"
    assert [each["branch"] for each in objects("branches", *where)] == ["main"]
    assert "name only one" in run("delete", "a", "b", "-b", "aside", *where).stderr


def test_the_exact_requests_of_a_turn_are_printed(filled: str) -> None:
    done = run("context", "lesson-7", "--request", "--store", filled)
    assert [each["content"] for each in json.loads(done.stdout)["messages"]] == ["How?", "Slowly.", "And then?"]
    assert "leave out --json" in run("context", "--request", "--json", "--store", filled).stderr


def test_a_title_in_place_of_an_id_leads_to_the_id(filled: str) -> None:
    run("rename", "lesson-7", "Holding the bow", "--store", filled)
    problem = str(run("show", "Holding the bow", "--store", filled).exception)
    assert "That is the title of 'lesson-7': use this id." in problem
