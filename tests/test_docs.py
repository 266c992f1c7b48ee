"""The code in README, docs and examples runs: `local` is the real model, and other models are a server on loopback.

The answers of the real model are cut short.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longtalk.testing import says, validate
from tests.support import postgres_server, redis_server
from tests.support.fake_agents import Agents
from tests.support.http_server import HttpHandler, HttpServer

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHORT_ANSWERS = ROOT / "tests" / "support" / "short_answers.py"
TEXTS = [*PAGES, *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"))]
PATTERN = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Run a server that answers any valid request, whole or streamed."""

    class Handler(HttpHandler):
        def do_POST(self) -> None:
            request = self.read_body()
            wires = {"messages": "anthropic", "responses": "openai-responses"}
            wire = wires.get(self.path.split("/")[-1], "openai-chat")
            validate(request, wire=wire)
            body = json.loads(request)
            step, stream = says(_make_answer(body), wire=wire), body.get("stream")
            events: Any = step.events
            sent = b"".join(b"data: " + event + b"\n\n" for event in events) if stream else step.body
            self.send_whole(200, sent, {"content-type": "text/event-stream" if stream else "application/json"})

    with HttpServer(Handler) as http:
        yield f"{http.url}/v1"


def _make_answer(request: dict[str, Any]) -> str:
    """Return a text, with a code block if the request is about a regex, or JSON if it has a schema."""
    if "regex" in json.dumps(request):
        return f"Here it is:\n\n```\n{PATTERN}\n```\n"
    if "response_format" not in request:
        return "With pleasure."
    values: dict[str, Any] = {"string": "With pleasure.", "integer": 1, "array": []}
    schema = request["response_format"]["json_schema"]["schema"]
    return json.dumps({name: values[part["type"]] for name, part in schema["properties"].items()})


@pytest.fixture
def environment(server: str, tmp_path: Path) -> dict[str, str]:
    agents = Agents(tmp_path / "agents")
    return {
        **os.environ,
        "OPENAI_BASE_URL": server,
        "OPENAI_API_KEY": "k",
        "ANTHROPIC_BASE_URL": server.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": "k",
        "OLLAMA_HOST": server,
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "HOME": str(agents.home),
        "CLAUDE_SAYS": "With pleasure.",
        "PATH": os.pathsep.join([str(agents.bin), str(Path(sys.executable).parent), os.environ["PATH"]]),
    }


def run(command: list[str], environment: dict[str, str], where: Path, typed: str = "") -> str:
    result = subprocess.run(
        command, env=environment, cwd=where, input=typed, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def read_blocks(page: Path, language: str) -> list[str]:
    return [code for tag, code in BLOCK.findall(page.read_text()) if tag == language]


@pytest.mark.parametrize(
    "page",
    # Slow, because each page starts its own model.
    [
        pytest.param(page, id=page.name, marks=[] if page.name == "README.md" else [pytest.mark.slow])
        for page in PAGES
        if read_blocks(page, "python")
    ],
)
def test_the_python_on_a_page_runs_from_top_to_bottom(page: Path, environment: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text("\n".join(read_blocks(page, "python")))
    database = postgres_server.server().database() if page.name == "stores.md" else ""
    if database:
        environment["DATABASE_URL"] = postgres_server.server().url(database=database)
    if "REDIS_URL" in script.read_text():
        environment["REDIS_URL"] = redis_server.single().url
    run([sys.executable, "-W", "error::SyntaxWarning", str(SHORT_ANSWERS), str(script)], environment, tmp_path)
    if database:
        answers = [_query(database, sql) for sql in read_blocks(page, "sql")]
        # The setting, the days, the longest conversations, the lines of a brief, the owner's conversations, the grants.
        assert [len(rows) for rows in answers] == [1, 1, 1, 1, 1, 0]
        assert answers[2][0][-1] == "How do I hold the bow?"
        assert answers[3] == [("goal", "Play the first Bach suite")]


def _query(database: str, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of the last statement."""
    with postgres_server.server().asking(database=database) as connection:
        found = connection.execute(sql)
        while found.nextset():
            pass
        return found.fetchall() if found.description else []


def read_commands(code: str) -> list[str]:
    """Return the commands of Longtalk in a block, without comments."""
    lines = [line.split("#")[0].strip() for line in code.splitlines()]
    # Docker may be missing; the tests of the container files run its command.
    return [
        line for line in lines if "longtalk " in line and "/path/to/" not in line and not line.startswith("docker ")
    ]


BLOCKS = [read_commands(code) for page in PAGES for code in read_blocks(page, "sh")]
SETTINGS = [command for block in BLOCKS if any("longtalk config" in each for each in block) for command in block]
QUESTIONS = [command for block in BLOCKS if any("longtalk ask" in each for each in block) for command in block]
SERVICE = [command for block in BLOCKS for command in block if command.split()[1] in ("serve", "keys")]
UPKEEP = [command for block in BLOCKS for command in block if command.split()[1] in ("doctor", "migrate", "backup")]
ABOUT_STORED = (
    *("branches", "brief", "completion", "context", "delete", "edit", "export", "fork", "list", "profile", "rename"),
    *("rewind", "search", "stats"),
)
STORED = [command for block in BLOCKS for command in block if command.split()[1] in ABOUT_STORED]
IMPORTS = [command for block in BLOCKS for command in block if command.split()[1] == "import"]
OTHERS = {*SETTINGS, *QUESTIONS, *SERVICE, *UPKEEP, *STORED, *IMPORTS}
CHATS = [command for block in BLOCKS for command in block if command not in OTHERS]


@pytest.mark.parametrize("command", CHATS)
def test_a_command_on_a_page_runs(command: str, environment: dict[str, str], tmp_path: Path) -> None:
    words = [word for word in shlex.split(command) if "=" not in word or word.startswith("-")]
    assert run(words, environment, tmp_path, typed="Hello!\n").strip() == "With pleasure."


def test_the_commands_about_stored_conversations_run(environment: dict[str, str], tmp_path: Path) -> None:
    (Path(environment["HOME"]) / ".config/fish/completions").mkdir(parents=True)
    talk = ["longtalk", "chat", "lesson-7", "-m", "ollama:llama3.2", "-p", "Memory()"]
    run([*talk, "--lines"], environment, tmp_path, typed="How do I hold the bow?\nAnd the violin?\n")
    entries = [json.loads(line)["id"] for line in _read_json("show lesson-7", environment, tmp_path)]
    assert {command.split()[1] for command in STORED} == {*ABOUT_STORED}
    for command in STORED:
        filled = command.replace("q3vft5cmxl2a-0", entries[0]).replace("q3vft5cmxl2a-1", entries[1])
        if "LINE" in filled:
            listed = "profile list" if "profile" in filled else "brief show lesson-7"
            filled = filled.replace("LINE", json.loads(_read_json(listed, environment, tmp_path)[0])["id"])
        if "--since" in filled:
            # The dates of the page are over, so that nothing matches them.
            filled = filled.replace("2026-11-01", "2020-01-01").replace("2026-11-15", "2999-01-01")
        if "search" in filled:
            filled = filled.replace("rosin", "violin")
        # Without a terminal, `edit` reads the new text from standard input in place of an editor.
        typed = "And the chin?\n" if command.split()[1] == "edit" else ""
        run(["sh", "-c", filled], environment, tmp_path, typed=typed)


@pytest.mark.slow
def test_the_mapping_on_the_page_of_imports_reads_the_tables_of_an_app(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "chats.toml").write_text("".join(read_blocks(ROOT / "docs" / "imports.md", "toml")))
    server = postgres_server.server()
    database = server.database()
    with server.asking("app", database) as connection:
        connection.execute("CREATE TABLE chats (chat_id uuid DEFAULT gen_random_uuid(), user_id int)")
        connection.execute(
            "CREATE TABLE messages (chat_id uuid, role text, content jsonb, outline text, response_id text, "
            "lesson_context jsonb, created_at timestamptz DEFAULT now())"
        )
        connection.execute("CREATE TABLE conversation_briefs (chat_id uuid, brief text)")
        connection.execute("INSERT INTO chats (user_id) VALUES (1), (2)")
        connection.execute("INSERT INTO messages SELECT chat_id, 'teacher', '\"Lightly.\"' FROM chats")
        connection.execute("INSERT INTO conversation_briefs SELECT chat_id, 'Plays the violin.' FROM chats")
    for command in IMPORTS:
        address = server.url(database=database)
        words = shlex.split(command.replace("postgresql://reader@host/app", shlex.quote(address)))
        assert run(words, environment, tmp_path).count("\t1 entry\n") == 2, command
    lines = run([*words, "--store", "again.db"], environment, tmp_path).splitlines()
    # The database makes the ids, so the owners come in any order.
    assert sorted(line.partition("\t")[0] for line in lines) == ["1", "2"]


def _read_json(command: str, environment: dict[str, str], where: Path) -> list[str]:
    return run(["longtalk", *command.split(), "--json"], environment, where).splitlines()


@pytest.mark.slow
def test_the_settings_and_then_the_questions_on_a_page_run(environment: dict[str, str], tmp_path: Path) -> None:
    environment = {**environment, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "bows.md").write_text("Hold them lightly.")
    assert len(SETTINGS) >= 5
    assert len(QUESTIONS) >= 5
    for command in SETTINGS:
        run(["sh", "-c", command], environment, tmp_path, typed="k\n")
    for command in QUESTIONS:
        answer = PATTERN if "--extract" in command else "With pleasure."
        if "--schema" in command:
            answer = '{"name": "With pleasure.", "age": 1}'
        assert run(["sh", "-c", command], environment, tmp_path).strip() == answer


def test_the_commands_of_the_service_run(environment: dict[str, str], tmp_path: Path) -> None:
    environment = {**environment, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert SERVICE
    key = ""
    for command in SERVICE:
        words = shlex.split(command)
        if words[1] == "serve":
            # A server runs until it is stopped; a check goes as far as serving.
            run([*words, *(["--check"] if "--check" not in words else [])], environment, tmp_path)
        elif words[2] == "revoke":
            run([*words[:-1], key], environment, tmp_path)
        elif words[2] == "list":
            key = run(words, environment, tmp_path).splitlines()[1].split()[0]
        else:
            assert run(words, environment, tmp_path).startswith("lt_")


def test_the_commands_that_check_and_back_up_a_store_run(environment: dict[str, str], tmp_path: Path) -> None:
    environment = {**environment, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    run(shlex.split(CHATS[0]), environment, tmp_path, typed="Hello!\n")
    assert len({command.split()[1] for command in UPKEEP}) == 3
    for command in dict.fromkeys(UPKEEP):
        run(shlex.split(command), environment, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_runs_twice(example: Path, environment: dict[str, str], tmp_path: Path) -> None:
    for _ in range(2):
        assert run([sys.executable, str(SHORT_ANSWERS), str(example)], environment, tmp_path).strip()


def test_the_violin_teacher_fills_its_brief_from_scripted_answers(environment: dict[str, str], tmp_path: Path) -> None:
    said = run([sys.executable, str(ROOT / "examples" / "violin_teacher.py"), "--scripted"], environment, tmp_path)
    for line in (
        "goal: Bach double, first movement, by June",
        "constraints: practise before eight in the evening",
        "techniques: semiquavers at the balance point",
        "decisions: the first movement comes first",
        "lesson_context: first lesson; plays for six years; violin from 1890  (the app)",
    ):
        assert line in said


def test_the_second_of_two_conversations_knows_what_was_said_in_the_first(
    environment: dict[str, str], tmp_path: Path
) -> None:
    said = run([sys.executable, str(ROOT / "examples" / "two_conversations.py"), "--scripted"], environment, tmp_path)
    monday, friday = said.split("=== friday ===")
    assert "recalled" not in monday
    assert re.search(r"\([1-9]\d+ tokens sent, [1-9]\d* of them recalled\)", friday)
    assert "about_user: lives in Bergen" in friday


def read_prose(page: Path) -> str:
    """Return a page without its code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def list_anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", read_prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.name)
def test_every_link_on_a_page_has_a_target(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", read_prose(page)):
        if re.match(r"\w+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), f"{page.name} links to {link}"
        assert not anchor or anchor in list_anchors(target), f"{page.name} links to {link}"


def test_every_page_is_in_the_index_and_in_the_readme() -> None:
    for page in PAGES:
        if page.name not in ("README.md", "index.md"):
            assert f"]({page.name})" in (ROOT / "docs" / "index.md").read_text()
            assert f"](docs/{page.name})" in (ROOT / "README.md").read_text()


def test_every_figure_names_a_program_that_prints_goals() -> None:
    programs = set(re.findall(r"python -m bench\.(\w+)", (ROOT / "docs" / "figures.md").read_text()))
    assert programs == {path.stem for path in (ROOT / "bench").glob("*.py") if '"goals"' in path.read_text()}


def test_the_files_that_contributing_names_exist() -> None:
    named = re.findall(r"`((?:src|tests|tools|bench|docs)/[\w./-]+)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert named
    assert [name for name in named if "NAME" not in name and not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", ["invariants.md", "security.md"])
def test_the_tests_that_a_page_names_exist(page: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / page).read_text()))
    sources = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    defined = {name for source in sources for name in re.findall(r"def (test_\w+)", source)}
    assert named
    assert named <= defined
