"""`longtalk ask`: one question, with what is piped in and attached."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from longtalk import Archive, Chat, Conversation
from longtalk.cli.ask_inputs import read_schema
from longtalk.cli.store import suggest_id
from longtalk.stores.in_memory import InMemory
from longtalk.testing import Scripted, says
from tests.cli.helpers import LONGTALK, Terminal, cut_off, longtalk, store_at, streamed
from tests.support.loopback import Answer, Loopback, sse

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


@pytest.fixture
def talks(tmp_path: Path) -> str:
    return f"{tmp_path}/talks.db"


def at(loopback: Loopback, talks: str, *more: str | Path) -> list[str]:
    return ["ask", "-m", "compatible:m", "--base-url", loopback.url, "--store", talks, *map(str, more)]


def read_messages(loopback: Loopback, request: int = -1) -> list[Any]:
    messages: list[Any] = json.loads(loopback.requests[request])["messages"]
    return messages


def list_ids(talks: str) -> list[str]:
    with store_at(talks) as store:
        return [each.id for each in Archive(store).conversations()]


def test_the_answer_alone_is_printed(loopback: Loopback, environment: dict[str, str], talks: str) -> None:
    loopback.say(streamed("A piece for voices."))
    done = longtalk(*at(loopback, talks, "What", "is a fugue?", "-s", "Be brief."), environment=environment)
    assert (done.stdout, done.stderr, done.returncode) == ("A piece for voices.\n", "", 0)
    assert [each["content"] for each in read_messages(loopback)] == ["Be brief.", "What is a fugue?"]


def test_each_question_is_a_conversation_unless_it_continues_the_last_one(
    loopback: Loopback, environment: dict[str, str], talks: str
) -> None:
    loopback.say(streamed("One."), streamed("Two."), streamed("Three."))
    longtalk(*at(loopback, talks, "First?"), environment=environment)
    longtalk(*at(loopback, talks, "-c", "Second?"), environment=environment)
    assert [each["content"] for each in read_messages(loopback)] == ["First?", "One.", "Second?"]
    longtalk(*at(loopback, talks, "-c", "--id", "named", "Third?"), environment=environment)
    assert len(read_messages(loopback)) == 1
    named, first = list_ids(talks)
    assert (named, first.startswith("ask-")) == ("named", True)


def test_files_and_piped_text_come_before_the_question(
    loopback: Loopback, environment: dict[str, str], talks: str, tmp_path: Path
) -> None:
    loopback.say(streamed("Fine."))
    (tmp_path / "a.py").write_text("x = 1\n")
    arguments = at(loopback, talks, "-f", tmp_path / "a.py", "Is it right?")
    longtalk(*arguments, said="piped\nlines\n", environment=environment)
    assert read_messages(loopback)[0]["content"] == "a.py:\n\nx = 1\n\npiped\nlines\n\nIs it right?"


def test_an_image_is_sent_in_the_form_of_the_provider(
    loopback: Loopback, environment: dict[str, str], talks: str, tmp_path: Path
) -> None:
    loopback.say(streamed("A cat."))
    (tmp_path / "cat.png").write_bytes(PNG)
    longtalk(*at(loopback, talks, "-a", tmp_path / "cat.png", "What is it?"), environment=environment)
    text, image = read_messages(loopback)[0]["content"]
    assert text == {"type": "text", "text": "What is it?"}
    assert image["image_url"]["url"] == "data:image/png;base64," + base64.b64encode(PNG).decode()


def test_options_go_to_the_provider_as_json_or_as_text(
    loopback: Loopback, environment: dict[str, str], talks: str
) -> None:
    loopback.say(streamed("Ok."))
    arguments = ["-o", "temperature", "0.5", "-o", "user", "ada", "Hi."]
    longtalk(*at(loopback, talks, *arguments), environment=environment)
    sent = json.loads(loopback.requests[-1])
    assert (sent["temperature"], sent["user"]) == (0.5, "ada")


def test_options_of_the_last_turn_are_named_and_can_be_taken_back(
    loopback: Loopback, environment: dict[str, str], talks: str
) -> None:
    loopback.say(*[streamed("Ok.")] * 4)
    longtalk(*at(loopback, talks, "-o", "max_tokens", "5", "Hi."), environment=environment)
    done = longtalk(*at(loopback, talks, "-c", "More."), environment=environment)
    assert done.stderr == "(As before: max_tokens 5. To take it back: -o max_tokens '')\n"
    assert json.loads(loopback.requests[-1])["max_tokens"] == 5
    first = longtalk("show", "--store", talks, "--json", environment=environment).stdout.splitlines()[0]
    assert json.loads(first)["options"] == {"max_tokens": 5}
    for arguments in (["-o", "max_tokens", ""], []):
        done = longtalk(*at(loopback, talks, "-c", *arguments, "More."), environment=environment)
        assert "max_tokens" not in json.loads(loopback.requests[-1])
        assert done.stderr == ""


def test_tools_that_are_not_passed_any_more_are_named(
    loopback: Loopback, environment: dict[str, str], talks: str
) -> None:
    loopback.say(*[streamed("Ok.")] * 3)
    tools = ["-T", "def add(a: int) -> int:\n    'Add.'\n    return a"]
    longtalk(*at(loopback, talks, *tools, "Hi."), environment=environment)
    assert longtalk(*at(loopback, talks, "-c", *tools, "More."), environment=environment).stderr == ""
    done = longtalk(*at(loopback, talks, "-c", "More."), environment=environment)
    assert "(add is not passed any more: add -T with the file that has the functions.)" in done.stderr
    assert "tools have changed, so the model reads the whole conversation again.)" in done.stderr


def test_the_model_can_call_the_functions_of_a_file(
    loopback: Loopback, environment: dict[str, str], talks: str, tmp_path: Path
) -> None:
    events: Any = says("", calls=[("c1", "add", {"a": 2, "b": 3})]).events
    loopback.say(Answer(chunks=sse(*events)), streamed("Five."))
    source = (
        'import os\n\ndef add(a: int, b: int) -> int:\n    """Add."""\n    return a + b\n\ndef _other() -> None: ...\n'
    )
    (tmp_path / "tools.py").write_text(source)
    done = longtalk(*at(loopback, talks, "-t", tmp_path / "tools.py", "2 + 3?"), environment=environment)
    assert done.stdout == "Five.\n"
    first, second = (json.loads(each) for each in loopback.requests)
    assert [tool["function"]["name"] for tool in first["tools"]] == ["add"]
    assert second["messages"][-1] == {"role": "tool", "tool_call_id": "c1", "content": "5"}


def test_an_answer_by_a_schema_is_printed_as_json(
    loopback: Loopback, environment: dict[str, str], talks: str, tmp_path: Path
) -> None:
    answer: Any = says('{"name": "Ada"}').body
    loopback.say(Answer(answer))
    schema = {"title": "Person", "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    done = longtalk(*at(loopback, talks, "--output", tmp_path / "schema.json", "Who?"), environment=environment)
    assert json.loads(done.stdout) == {"name": "Ada"}


def test_an_answer_that_does_not_match_its_schema_is_kept_and_can_be_shown(
    loopback: Loopback, environment: dict[str, str], talks: str, tmp_path: Path
) -> None:
    answer: Any = says("I am Ada.").body
    loopback.say(*[Answer(answer)] * 3)
    (tmp_path / "schema.json").write_text(json.dumps({"title": "Person", "type": "object"}))
    done = longtalk(*at(loopback, talks, "--output", tmp_path / "schema.json", "Who?"), environment=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert "does not match Person" in done.stderr
    assert "`longtalk show` prints it." in done.stderr
    with closing(store_at(talks)) as store:
        assert Archive(store).history(list_ids(talks)[0])[-1].text == "I am Ada."


def test_an_answer_by_a_schema_that_is_cut_off_says_which_limit_to_raise(
    loopback: Loopback, environment: dict[str, str], talks: str
) -> None:
    answer: Any = says('{"name": "A', finish="length").body
    loopback.say(Answer(answer))
    done = longtalk(*at(loopback, talks, "--schema", "name str", "Who?"), environment=environment)
    assert "does not match the schema: it was cut off by the length limit. Raise the limit, such as -o" in done.stderr


def test_a_key_that_is_refused_is_named(loopback: Loopback, environment: dict[str, str], talks: str) -> None:
    loopback.say(Answer(b'{"error":{"message":"wrong key"}}', status=401))
    arguments = ["ask", "-m", "openai-chat:m", "--base-url", loopback.url, "--store", talks, "Hi."]
    done = longtalk(*arguments, environment=environment | {"OPENAI_API_KEY": "sk-wrong"})
    assert "Check the key (OPENAI_API_KEY; `longtalk config set-key openai-chat` stores another one)." in done.stderr


def test_an_answer_that_is_stopped_says_how_to_go_on(
    loopback: Loopback, environment: dict[str, str], talks: str, release: threading.Event
) -> None:
    loopback.say(cut_off("Once upon a time", then=lambda: release.wait(60)), streamed("there was a bow."))
    person = Terminal(at(loopback, talks, "A story?"), environment)
    person.wait_for("Once upo")
    person.type("\x03")
    person.wait_for(r'\(stopped; what has arrived is kept\. To go on: longtalk -c "Go on\."\)')
    assert person.exit_code() == 130
    person.close()
    done = longtalk(*at(loopback, talks, "-c", "Go on."), environment=environment)
    assert done.stdout == "there was a bow.\n"
    assert [each["content"] for each in read_messages(loopback)][0::2] == ["A story?", "Go on."]


def test_a_code_block_is_extracted(loopback: Loopback, environment: dict[str, str], talks: str) -> None:
    answer: Any = says("Use this:\n\n```python\nprint(1)\n\nprint(2)\n```\n\nOr ```inline```.").body
    loopback.say(Answer(answer))
    done = longtalk(*at(loopback, talks, "--extract", "How?"), environment=environment)
    assert done.stdout == "print(1)\n\nprint(2)\n"


def test_an_answer_without_code_is_an_error_that_keeps_the_answer(
    loopback: Loopback, environment: dict[str, str], talks: str
) -> None:
    answer: Any = says("No code.").body
    loopback.say(Answer(answer))
    done = longtalk(*at(loopback, talks, "--extract", "How?"), environment=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no code block" in done.stderr
    with store_at(talks) as store:
        assert [each.text for each in Archive(store).history(list_ids(talks)[0])] == ["How?", "No code."]


def test_a_question_that_failed_leaves_no_conversation(environment: dict[str, str], talks: str) -> None:
    arguments = ["ask", "-m", "compatible:m", "--base-url", "http://127.0.0.1:9/v1", "--store", talks, "Hi."]
    done = longtalk(*arguments, environment=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert list_ids(talks) == []


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 1, "No question was given"),
        (["-o", "temperature=0", "Hi."], 1, "as two words: -o temperature 0"),
        (["-o", "temperature", "hot", "Hi."], 1, "The option 'temperature' is a number, and not 'hot'"),
        (["-f", "missing.txt", "Hi."], 1, "Can't read missing.txt"),
        (["-f", "binary", "Hi."], 1, "is not text, so it can't be sent."),
        (["-a", "binary", "Hi."], 1, "WebP image.\n"),
        (["-f", "cat.png", "Hi."], 1, "is not text, but an image: attach it with -a."),
        (["-f", "latin1.txt", "Hi."], 1, "latin1.txt is not text in UTF-8. If it is Latin-1: iconv -f latin1"),
        (["-a", "text.txt", "Hi."], 1, "is not a PNG, JPEG, GIF or WebP image"),
        (["-a", "text.txt", "Hi."], 1, "Add a text file with -f"),
        (["-f", "http://127.0.0.1:9/x", "Hi."], 1, "curl -s http://127.0.0.1:9/x | longtalk ask"),
        (["-t", "text.txt", "Hi."], 1, "can't be run"),
        (["-t", "french", "Hi."], 1, "For a model saved with a system text, use -m NAME"),
        (["-T", "def broken(:", "Hi."], 1, "The code can't be run: SyntaxError"),
        (["--schema", "name, age many", "Hi."], 1, "'age many' is not a field of a schema. Write NAME"),
        (["--schema", "name, age integr", "Hi."], 1, "Did you mean 'age int'?"),
        (["--schema", "int age", "Hi."], 1, "Did you mean 'age int'?"),
        (["--schema", "name, age: int", "Hi."], 1, "Did you mean 'age int'?"),
        (["-n", "-c", "Hi."], 2, "-n asks without a conversation: it stores nothing"),
        (["-f", "none/*.md", "Hi."], 1, "The pattern matches no text file: none/*.md"),
        (["--schema", "name", "Hi."], 1, "write --schema 'name str'"),
        (["--schema", "nowhere.json", "Hi."], 1, "Can't read nowhere.json"),
        (["-m", "local:135m", "-a", "cat.png", "Hi."], 1, "local:135m does not accept images. Choose a model"),
        (["-t", "empty.py", "Hi."], 1, "has no functions"),
        (["--output", "text.txt", "Hi."], 1, "is not valid JSON"),
        (["--output", "list.json", "Hi."], 1, "is not a JSON Schema"),
        (["--extract", "--output", "list.json", "Hi."], 2, "only one of --extract, --output"),
        (["-m", "claude-cli:sonnet", "-a", "cat.png", "Hi."], 1, "does not accept images"),
    ],
)
def test_what_can_not_be_asked_is_said(
    environment: dict[str, str], tmp_path: Path, arguments: list[str], status: int, message: str
) -> None:
    files = {
        "binary": b"\xff\xfe\x00",
        "text.txt": b"plain text (",
        "latin1.txt": b"caf\xe9",
        "empty.py": b"",
        "list.json": b"[]",
        "cat.png": PNG,
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    given = [str(tmp_path / each) if each in files else each for each in arguments]
    done = longtalk("ask", "--store", tmp_path / "talks.db", *given, environment=environment)
    assert (done.returncode, done.stdout) == (status, "")
    assert message in " ".join(done.stderr.split()) + "\n"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["logs"], "Use `longtalk list`, `longtalk show`, `longtalk show --last` or `longtalk search WORDS`"),
        (["embed", "-c", "text"], "`longtalk search WORDS` finds messages"),
        (["--cid", "lesson", "Hi"], "Use --id"),
        (["-s", "Translate.", "--save", "fr"], "`longtalk config alias NAME -s TEXT` saves a system text"),
        (["models", "-q", "4o"], "`longtalk models WORDS` finds models"),
        (["fork", "talk", "--at", "entry"], "No such option '--at'."),
        (["config", "set", "defualt_model", "x"], "Did you mean 'default_model'?"),
        (["config", "set", "default_model", "nosuch"], "No known provider has a model 'nosuch'"),
        (["ask", "-m", "openai:gpt-5.6", "Hi"], "set OPENAI_API_KEY, or run `longtalk config set-key openai`."),
        (["hi"], "To ask a question: longtalk ask hi"),
        (["--store", "talks.db", "--json", "list"], "after the command: longtalk list --store talks.db --json"),
        (["compare", "talk"], "Use diff <(longtalk show ID --branch A)"),
        (["diff"], "Use diff <(longtalk show ID --branch A)"),
        (["undo"], "Use `longtalk rewind ID ENTRY`, or /undo in a chat"),
        (["template", "x"], "Use `longtalk config alias NAME -s TEXT`"),
        (["config", "set", "model", "ollama:x"], "The setting is called 'default_model'"),
        (["models", "default", "x"], "write it as provider:model."),
        (["export", "-o", "out.html"], "There is no export as .html"),
        (["templates"], "Use `longtalk config alias NAME -s TEXT`"),
        (["cost"], "Use `longtalk stats`"),
        (["config", "set-key", "openai", "sk-1"], "run `longtalk config set-key openai`, which asks for it"),
        (["config", "set-key", "openai"], "No key was given"),
        (["keys", "list"], "`longtalk config show` names the providers whose API keys are stored"),
        (["show", "-x", "--json"], "For the last answer as JSON, use --last --json"),
        (["config", "path"], "`longtalk config show` prints the path"),
        (["config", "keys"], "names the providers whose keys are stored"),
        (["keys", "path"], "`longtalk config show` prints the path"),
        (["models", "options", "set", "local", "seed", "1"], "Use `longtalk config alias NAME MODEL -o OPTION VALUE`"),
        (["config", "alias", "tiny", "local", "-o", "foo", "1"], "The local model has no option 'foo'."),
        (["ask", "--fragment", "a.txt", "Hi"], "Use -f FILE"),
        (["chat", "--cid", "trip"], "Use `longtalk chat ID`"),
        (["chat", "--id", "trip"], "Use `longtalk chat ID`"),
        (["export", "--json"], "Use -f json"),
        (["show", "--markdown"], "`longtalk export` writes Markdown"),
        (["show", "-3"], "Use -n 3"),
        (["models", "default", "--unset"], "Use `longtalk config unset default_model`"),
        (["aliases", "remove", "tutor"], "To remove an alias: longtalk config unset tutor"),
        (["config", "unset", "nosuch"], "There is no setting, alias or stored API key 'nosuch'"),
        (["config", "unset", "openai"], "There is no stored API key of openai"),
        (["config", "unset", "port"], "The setting 'port' is not set in "),
        (["ask", "-m", "sonnet", "Hi"], "Did you mean 'anthropic:claude-sonnet-5-5'? `longtalk models WORDS`"),
        (["models", "default", "haiku"], "Did you mean 'anthropic:claude-haiku-5-5'?"),
        (["ask", "-b", "aside", "Hi"], "add -c, or --id"),
        (["delete", "--last"], "`longtalk list -n 1` prints the id"),
        (["list", "--search", "bow"], "Use `longtalk search WORDS`"),
        (["keys", "set", "openai"], "`longtalk config set-key` stores the key of a provider"),
        (["ask", "-m", "llama3.2", "Hi"], "Did you mean 'ollama:llama3.2'?"),
        (["ask", "-m", "openai/gpt-oss-120b", "Hi"], "write 'openrouter:openai/gpt-oss-120b' or 'groq:openai"),
    ],
)
def test_what_another_tool_takes_is_named_in_the_words_of_this_one(
    arguments: list[str], hint: str, environment: dict[str, str]
) -> None:
    done = longtalk(*arguments, environment=environment)
    assert done.returncode == 0 if arguments == ["keys", "list"] else done.returncode in (1, 2)
    assert hint in " ".join(done.stderr.split())


def test_a_question_in_place_of_a_command_is_asked(loopback: Loopback, environment: dict[str, str], talks: str) -> None:
    loopback.say(streamed("A piece for voices."))
    done = longtalk("What is a fugue?", *at(loopback, talks)[1:], environment=environment)
    assert (done.stdout, done.returncode) == ("A piece for voices.\n", 0)
    assert read_messages(loopback)[0]["content"] == "What is a fugue?"


@pytest.mark.parametrize("arguments", [("-a", "-"), ()])
def test_an_image_can_be_piped_in(
    loopback: Loopback, environment: dict[str, str], talks: str, arguments: tuple[str, ...]
) -> None:
    loopback.say(streamed("A cat."))
    longtalk(*at(loopback, talks, "What is it?", *arguments), said=PNG, environment=environment)
    text, image = read_messages(loopback)[0]["content"]
    assert (text["text"], image["type"]) == ("What is it?", "image_url")


def test_an_image_is_sent_by_its_address(loopback: Loopback, environment: dict[str, str], talks: str) -> None:
    loopback.say(streamed("A cat."))
    longtalk(*at(loopback, talks, "What is it?", "-a", "https://example.org/cat.webp"), environment=environment)
    assert read_messages(loopback)[0]["content"][1]["image_url"]["url"] == "https://example.org/cat.webp"


def test_data_that_is_no_text_is_not_sent(environment: dict[str, str], talks: str) -> None:
    done = longtalk("ask", "--store", talks, "What is it?", said=b"\x7fELF\0\1", environment=environment)
    assert (done.returncode, "neither text nor" in done.stderr) == (1, True)


def test_piped_text_that_is_not_utf8_is_pointed_out(
    loopback: Loopback, environment: dict[str, str], talks: str
) -> None:
    loopback.say(streamed("Yes."))
    done = longtalk(*at(loopback, talks, "Good?"), said=b"caf\xe9\n", environment=environment)
    assert "iconv -f latin1 -t utf-8 | longtalk" in done.stderr
    assert (done.stdout, read_messages(loopback)[0]["content"]) == ("Yes.\n", "caf�\n\nGood?")


def test_a_schema_is_given_as_fields_or_as_json(loopback: Loopback, environment: dict[str, str], talks: str) -> None:
    answer: Any = says('{"name": "Rex", "age": 3}').body
    whole = '{"type": "object", "properties": {"name": {"type": "string"}}}'
    for given in ("name: what it answers to, age int", whole, "\nname: a name, or two\nage int\n"):
        loopback.say(Answer(answer))
        done = longtalk(*at(loopback, talks, "A dog", "--schema", given), environment=environment)
        assert done.stdout == '{"name": "Rex", "age": 3}\n'
    first, second, third = (json.loads(each)["response_format"]["json_schema"]["schema"] for each in loopback.requests)
    assert first["properties"]["age"]["type"] == "integer"
    assert (first["properties"]["name"]["description"], first["required"]) == ("what it answers to", ["name", "age"])
    assert list(second["properties"]) == ["name"]
    assert third["properties"]["name"]["description"] == "a name, or two"


def test_types_of_a_schema_may_have_their_long_names() -> None:
    fields = read_schema("name string, age integer, size number, alive Boolean, phone: number")["properties"]
    assert [each["type"] for each in fields.values()] == ["string", "integer", "number", "boolean", "string"]


def test_the_files_of_a_pattern_are_sent_each_under_its_name(
    loopback: Loopback, environment: dict[str, str], talks: str, tmp_path: Path
) -> None:
    loopback.say(streamed("Fine."))
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text(f"Text {name[0]}\n")
    done = longtalk(*at(loopback, talks, "-f", f"{tmp_path}/*.md", "What?"), environment=environment)
    assert re.fullmatch(r"\(\S+/\*\.md: 2 files with 14 bytes\.\)\n", done.stderr)
    assert read_messages(loopback)[-1]["content"] == "a.md:\n\nText a\n\nb.md:\n\nText b\n\nWhat?"


def test_words_that_are_files_or_conversations_are_not_asked(
    loopback: Loopback, environment: dict[str, str], talks: str, tmp_path: Path
) -> None:
    loopback.say(streamed("Rome."), streamed("Fine."))
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("pass")
    done = longtalk(*at(loopback, talks, "-f", tmp_path / "a.py", tmp_path / "b.py", "What?"), environment=environment)
    assert (done.returncode, "for each file, write -f" in done.stderr) == (1, True)
    assert "or quote a pattern: -f '*.py'" in done.stderr
    done = longtalk(*at(loopback, talks, tmp_path / "a.py", tmp_path / "b.py"), environment=environment)
    assert (done.returncode, "for each file, write -f" in done.stderr) == (1, True)
    started = longtalk(*at(loopback, talks, "--id", "trip", "Where?"), environment=environment)
    assert started.stderr == "(Starting conversation trip.)\n"
    done = longtalk(*at(loopback, talks, "-c", "trip", "And Milan?"), environment=environment)
    assert (done.returncode, "write --id trip without -c" in done.stderr) == (1, True)
    assert longtalk(*at(loopback, talks, "-c", "trip and Milan?"), environment=environment).returncode == 0
    assert len(loopback.requests) == 2


@pytest.mark.parametrize(("typed", "hint"), [("tirp", " Did you mean 'trip'?"), ("tram", "")])
def test_letters_in_the_wrong_order_are_pointed_out(typed: str, hint: str) -> None:
    with closing(InMemory()) as store:
        Conversation("trip", model=Scripted(says("Hi.")), store=store).send("Hello!")
        assert suggest_id(Archive(store), typed) == hint


def test_a_mistyped_id_is_pointed_out(loopback: Loopback, environment: dict[str, str], talks: str) -> None:
    loopback.say(*[streamed("Fine.")] * 3)
    longtalk(*at(loopback, talks, "--id", "trip-1", "Hi."), environment=environment)
    done = longtalk(*at(loopback, talks, "--id", "tripp-1", "Hi."), environment=environment)
    assert done.stderr == "(Starting conversation tripp-1. Did you mean 'trip-1'?)\n"
    done = longtalk(*at(loopback, talks, "--id", "trip-2", "Hi."), environment=environment)
    assert done.stderr == "(Starting conversation trip-2.)\n"


@pytest.mark.parametrize(("typed", "status", "started"), [("n", 1, []), ("y", 0, ["tripp"])])
def test_at_a_terminal_a_person_is_asked_about_a_mistyped_id(
    loopback: Loopback, environment: dict[str, str], talks: str, typed: str, status: int, started: list[str]
) -> None:
    loopback.say(*[streamed("Fine.")] * 2)
    longtalk(*at(loopback, talks, "--id", "trip", "Hi."), environment=environment)
    person = Terminal(at(loopback, talks, "--id", "tripp", "Hi."), environment)
    person.wait_for("Did you mean 'trip'")
    person.wait_for("Start tripp")
    person.type(f"{typed}\n")
    person.rest()
    assert person.exit_code() == status
    person.close()
    assert list_ids(talks) == [*started, "trip"]


def test_an_answer_is_stored_whole_when_its_reader_goes_away(
    loopback: Loopback, environment: dict[str, str], talks: str
) -> None:
    loopback.say(streamed("One. " * 20_000))
    arguments = [*LONGTALK, *at(loopback, talks, "Count.")]
    program = subprocess.Popen(arguments, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert program.stdout is not None
    program.stdout.read(5)
    program.stdout.close()
    assert program.wait(60) == 141
    with closing(store_at(talks)) as store:
        archive = Archive(store)
        (turn,) = archive.metrics(archive.conversations()[0].id)
    assert (turn.status, turn.calls, turn.usage.input) == ("complete", 1, 10)


def test_at_a_terminal_each_tool_call_is_a_line(loopback: Loopback, environment: dict[str, str], talks: str) -> None:
    events: Any = says("", calls=[("c1", "add", {"a": 17, "b": 25})]).events
    loopback.say(Answer(chunks=sse(*events)), streamed("It is 42."))
    code = "def add(a: int, b: int) -> int:\n    'Add.'\n    return a + b"
    person = Terminal(at(loopback, talks, "-T", code, "Sum?"), {**environment, "TERM": "xterm"})
    shown = person.rest()
    assert person.exit_code() == 0
    person.close()
    assert "\x1b[2m→ add(a=17, b=25)\x1b[0m" in shown
    assert "\x1b[2m  = 42\x1b[0m" in shown


def test_tools_are_given_as_code(loopback: Loopback, environment: dict[str, str], talks: str) -> None:
    loopback.say(streamed("Fine."))
    code = 'def double(a: int) -> int:\n    "Double a number."\n    return 2 * a'
    longtalk(*at(loopback, talks, "Twice 2?", "-T", code), environment=environment)
    assert [each["function"]["name"] for each in json.loads(loopback.requests[0])["tools"]] == ["double"]


def test_an_option_that_the_local_model_does_not_have_is_an_error(environment: dict[str, str], talks: str) -> None:
    for words, message in (
        (["-o", "foo", "1"], "The local model has no option 'foo'. It has max_tokens, min_p, repeat_penalty"),
        (["-o", "tempertaure", "0"], "The local model has no option 'tempertaure'. Did you mean 'temperature'?"),
    ):
        done = longtalk("ask", "-m", "local:135m", "--store", talks, "Hi", *words, environment=environment)
        assert (done.returncode, message in done.stderr) == (1, True), done.stderr
        done = longtalk("chat", "-m", "local:135m", "--store", talks, *words, said="Hi", environment=environment)
        assert (done.returncode, message in done.stderr) == (1, True), done.stderr
    assert longtalk("list", "--store", talks, environment=environment).stdout == ""


def test_an_option_that_a_provider_is_not_known_to_have_is_pointed_out(
    loopback: Loopback, environment: dict[str, str], talks: str
) -> None:
    loopback.say(streamed("Hi."), streamed("Hi."))
    done = longtalk(*at(loopback, talks, "Hi", "-o", "foo", "1", "-o", "top_k", "5"), environment=environment)
    assert done.stderr == "(The option 'foo' is not known for compatible. It is sent as it is.)\n"
    assert json.loads(loopback.requests[-1])["foo"] == 1
    done = longtalk(*at(loopback, talks, "-c", "More", "-o", "foo", ""), environment=environment)
    assert "not known" not in done.stderr


def test_an_option_that_gemini_takes_elsewhere_is_shown_there(environment: dict[str, str], talks: str) -> None:
    key = environment | {"GEMINI_API_KEY": "k"}
    words = ["-m", "gemini-2.5-flash", "--store", talks, "-o", "max_tokens", "9", "Hi"]
    done = longtalk("ask", *words, environment=key)
    assert done.returncode == 1
    assert "-o generationConfig '{\"maxOutputTokens\": 9}'" in done.stderr


@pytest.mark.parametrize("name", ["temprature", "temp"])
def test_a_misspelled_option_is_pointed_out(
    loopback: Loopback, environment: dict[str, str], talks: str, name: str
) -> None:
    loopback.say(streamed("Hi."))
    done = longtalk(*at(loopback, talks, "Hi", "-o", name, "0"), environment=environment)
    assert "Did you mean 'temperature'?" in done.stderr


def test_the_last_answer_is_printed_again_whole_or_its_code(
    loopback: Loopback, environment: dict[str, str], talks: str
) -> None:
    loopback.say(streamed("So."), streamed("Use:\n\n```py\nprint(1)\n```"))
    longtalk(*at(loopback, talks, "Why?"), environment=environment)
    longtalk(*at(loopback, talks, "-c", "How?"), environment=environment)
    whole, code, exchange = (
        longtalk("show", "--store", talks, *more, environment=environment).stdout
        for more in (["--last"], ["-x"], ["-n", "1"])
    )
    assert (whole, code) == ("Use:\n\n```py\nprint(1)\n```\n", "print(1)\n")
    assert ("How?" in exchange, "Why?" in exchange) == (True, False)
    printed = json.loads(longtalk("show", "--store", talks, "--last", "--json", environment=environment).stdout)
    assert (printed["role"], printed["text"]) == ("assistant", whole.rstrip("\n"))


def test_another_model_says_that_it_takes_the_place_of_the_one_so_far(
    loopback: Loopback, environment: dict[str, str], talks: str, tmp_path: Path
) -> None:
    (tmp_path / "old.talk").write_bytes(Chat(Scripted(says("Ho."))).send("Hi.").state)
    longtalk("import", "--store", talks, tmp_path / "old.talk", environment=environment)
    loopback.say(streamed("Ho."))
    environment = {**environment, "LONGTALK_DEFAULT_MODEL": "ollama:m", "OLLAMA_HOST": loopback.url}
    done = longtalk("ask", "-c", "--store", talks, "Again", environment=environment)
    assert "answered so far; now ollama:m does" in " ".join(done.stderr.split())


def test_options_may_come_before_the_question(loopback: Loopback, environment: dict[str, str], talks: str) -> None:
    loopback.say(streamed("One."), streamed("Two."))
    given = at(loopback, talks)[1:]
    assert longtalk(*given, "-s", "Be brief.", "First?", environment=environment).stdout == "One.\n"
    assert longtalk("-c", "Second?", *given, environment=environment).stdout == "Two.\n"
    assert len(read_messages(loopback)) == 4
    assert "No such option '--verison'" in longtalk("--verison", environment=environment).stderr


def test_an_answer_is_printed_as_json(loopback: Loopback, environment: dict[str, str], talks: str) -> None:
    answer: Any = says("Hi.").body
    loopback.say(Answer(answer))
    done = json.loads(longtalk(*at(loopback, talks, "Hello", "--json"), environment=environment).stdout)
    assert (done["text"], done["model"], done["finish_reason"]) == ("Hi.", "compatible:m", "stop")
    assert done["conversation"] == list_ids(talks)[0]


def test_a_question_can_leave_no_trace(loopback: Loopback, environment: dict[str, str], tmp_path: Path) -> None:
    loopback.say(streamed("Hi."))
    path = tmp_path / "none.db"
    done = longtalk(*at(loopback, str(path), "-n", "Secret?"), environment=environment)
    assert (done.stdout, path.exists()) == ("Hi.\n", False)
    assert longtalk("ask", "-n", "-c", "Hi", environment=environment).returncode == 2


def test_a_chat_takes_options_and_tools_for_each_turn(
    loopback: Loopback, environment: dict[str, str], talks: str, tmp_path: Path
) -> None:
    loopback.say(streamed("One."), streamed("Two."))
    (tmp_path / "tools.py").write_text('def double(a: int) -> int:\n    "Double."\n    return 2 * a\n')
    more = ["--lines", "-o", "temperature", "0", "-T", tmp_path / "tools.py"]
    longtalk("chat", *at(loopback, talks, *more)[1:], said="a\nb\n", environment=environment)
    for request in map(json.loads, loopback.requests):
        assert (request["temperature"], request["tools"][0]["function"]["name"]) == (0, "double")
