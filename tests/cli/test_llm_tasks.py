"""Everyday tasks of users of `llm`, in their own words where `longtalk` takes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longtalk.testing import says
from tests.cli.helpers import longtalk, streamed
from tests.support.loopback import Answer, Loopback, sse

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
User = Callable[..., str]


@pytest.fixture
def user(loopback: Loopback, environment: dict[str, str], tmp_path: Path) -> User:
    """Someone with a key of OpenAI and a default model, who types a command and sees what it prints."""
    (tmp_path / "config" / "longtalk").mkdir(parents=True)
    home = {**environment, "OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": loopback.url}

    def run(*words: str | Path, said: str | bytes = b"", answer: str = "") -> str:
        if answer:
            loopback.say(streamed(answer))
        done = longtalk(*words, said=said, environment=home)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("models", "default", "openai-chat:gpt-5.6")
    return run


def read_request(loopback: Loopback) -> Any:
    return json.loads(loopback.requests[-1])


def test_ask(loopback: Loopback, user: User) -> None:
    assert user("Ten names for a pelican", answer="Percy.") == "Percy.\n"
    assert read_request(loopback)["model"] == "gpt-5.6"
    assert user(said="Another name?", answer="Scoop.") == "Scoop.\n"


def test_ask_about_a_file_with_a_system_prompt(loopback: Loopback, user: User, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("Bows need rosin.")
    for words, said in (
        (["-s", "Summarize"], "Bows need rosin."),
        (["-f", tmp_path / "notes.md", "-s", "Summarize"], ""),
    ):
        user(*words, said=said, answer="Rosin.")
        system, message = (each["content"] for each in read_request(loopback)["messages"])
        assert (system, message.endswith("Bows need rosin.")) == ("Summarize", True)


def test_continue_the_last_conversation(loopback: Loopback, user: User) -> None:
    user("A fugue?", answer="A piece for voices.")
    user("-c", "And a canon?", answer="A strict one.")
    assert [each["content"] for each in read_request(loopback)["messages"]] == [
        "A fugue?",
        "A piece for voices.",
        "And a canon?",
    ]


def test_attach_an_image(loopback: Loopback, user: User, tmp_path: Path) -> None:
    (tmp_path / "photo.png").write_bytes(PNG)
    user("Describe it", "-a", tmp_path / "photo.png", answer="A viola.")
    user("Describe it", "-a", "-", said=PNG, answer="A viola.")
    user("Describe it", "-a", "https://example.org/photo.jpg", answer="A viola.")
    for request in map(json.loads, loopback.requests):
        assert [each["type"] for each in request["messages"][0]["content"]] == ["text", "image_url"]


def test_choose_models_and_options(loopback: Loopback, user: User) -> None:
    assert "openai:gpt-5.6" in user("models", "gpt-5.6")
    assert user("models", "default") == "openai-chat:gpt-5.6\n"
    user("-m", "openai-chat:gpt-5.6-mini", "-o", "temperature", "0.2", "Hi", answer="Hi.")
    assert (read_request(loopback)["model"], read_request(loopback)["temperature"]) == ("gpt-5.6-mini", 0.2)


def test_name_a_model_without_its_provider(loopback: Loopback, user: User) -> None:
    user("models", "default", "gpt-4o-mini")
    assert user("models", "default") == "openai:gpt-4o-mini\n"
    user("aliases", "set", "quick", "claude-haiku-4-5")
    assert user("aliases", "list") == user("config", "alias", "list") == user("config", "alias")
    assert json.loads(user("config", "alias", "--json"))["model"] == "anthropic:claude-haiku-4-5"
    events: Any = says("Salut.", wire="openai-responses").events
    loopback.say(Answer(chunks=sse(*events)))
    assert user("-m", "gpt-5.6", "Hi") == "Salut.\n"
    assert read_request(loopback)["model"] == "gpt-5.6"
    assert json.loads(user("show", "--last", "--json"))["model"] == "openai:gpt-5.6"


def test_keep_options_of_a_model(loopback: Loopback, user: User) -> None:
    user("config", "alias", "exact", "openai-chat:gpt-5.6", "-s", "Be brief.", "-o", "temperature", "0")
    user("config", "alias", "exact", "-o", "seed", "7")
    user("-m", "exact", "Hi", answer="Hi.")
    request = read_request(loopback)
    assert (request["temperature"], request["seed"], request["messages"][0]["content"]) == (0, 7, "Be brief.")
    user("-m", "exact", "-o", "temperature", "1", "Hi", answer="Hi.")
    assert read_request(loopback)["temperature"] == 1
    user("config", "alias", "exact", "-o", "temperature", "")
    assert user("config", "alias") == "exact\topenai-chat:gpt-5.6\t-\tBe brief.\tseed 7\n"


def test_save_a_prompt_and_use_it(loopback: Loopback, user: User) -> None:
    user("config", "alias", "fr", "openai-chat:gpt-5.6", "-s", "Translate to French.")
    assert "fr" in user("config", "alias")
    user("-m", "fr", "Good morning", answer="Bonjour.")
    assert [each["content"] for each in read_request(loopback)["messages"]] == ["Translate to French.", "Good morning"]


def test_ask_in_one_word(loopback: Loopback, user: User, tmp_path: Path) -> None:
    (tmp_path / "photo.png").write_bytes(PNG)
    user("describe", "-a", tmp_path / "photo.png", answer="A viola.")
    assert read_request(loopback)["messages"][0]["content"][0]["text"] == "describe"
    user("summarise", said="Bows need rosin.", answer="Rosin.")
    assert read_request(loopback)["messages"][0]["content"] == "Bows need rosin.\n\nsummarise"


def test_look_back(user: User) -> None:
    user("A fugue?", answer="A piece for voices.")
    user("A canon?", answer="Strict:\n\n```\nround\n```")
    assert user("list").count("\n") == 2
    assert user("list", "-n", "1", "--json").count("\n") == 1
    assert "voices" in user("search", "voices")
    assert "A canon?" in user("show")
    assert user("show", "-r").startswith("Strict:")
    assert user("show", "-x") == "round\n"


def test_get_data_by_a_schema(loopback: Loopback, user: User) -> None:
    body: Any = says('{"name": "Rex", "age": 3}').body
    loopback.say(Answer(body))
    assert json.loads(user("--schema", "name, age int", "Invent a dog")) == {"name": "Rex", "age": 3}


def test_print_only_the_code(loopback: Loopback, user: User) -> None:
    body: Any = says("Here:\n\n```\nprint()\n```\n").body
    loopback.say(Answer(body))
    assert user("-x", "A script") == "print()\n"


def test_let_the_model_call_functions(loopback: Loopback, user: User) -> None:
    call: Any = says("", calls=[("c1", "double", {"a": 21})]).events
    loopback.say(Answer(chunks=sse(*call)))
    code = 'def double(a: int) -> int:\n    "Double a number."\n    return 2 * a'
    assert user("--functions", code, "Twice 21?", answer="42.") == "42.\n"
    assert read_request(loopback)["messages"][-1]["content"] == "42"


def test_chat_and_keep_a_key(loopback: Loopback, user: User, tmp_path: Path) -> None:
    user("keys", "list")
    user("config", "set-key", "openai", said="sk-stored\n")
    loopback.say(streamed("One."), streamed("Two."))
    assert "Two." in user("chat", "--lines", said="a\nb\n")
    assert "Three." in user("chat", "-c", said="c", answer="Three.")
    assert len(read_request(loopback)["messages"]) == 5
    assert {headers["authorization"] for headers in loopback.headers} == {"Bearer sk-stored"}


def test_find_the_system_text_and_the_model_again(user: User) -> None:
    user("Good morning", "-s", "Answer in French.", "-o", "temperature", "0", answer="Bonjour.")
    lines = user("show").splitlines()
    assert lines[:2] == ["options  (of the last turn)", "    temperature 0"]
    assert lines[3:5] == ["system  (of the last turn)", "    Answer in French."]
    assert lines[9].endswith("openai-chat:gpt-5.6")
    first, second = map(json.loads, user("show", "--json").splitlines())
    assert (first["system"], "system" in second) == ("Answer in French.", False)
    assert "\nsystem    4  Answer in French.\n" in user("context")
    assert json.loads(user("context", "--json"))["system"] == "Answer in French."


def test_the_size_of_a_request_is_the_one_that_the_provider_reports(user: User) -> None:
    user("Good morning", answer="Bonjour.")
    sent = json.loads(user("context", "--json"))
    assert sent["usage"]["input"] != sent["total"]
    assert f"\nrequest   {sent['usage']['input']} tokens" in user("context")


def test_all_conversations_as_markdown_need_a_folder(user: User, tmp_path: Path) -> None:
    user("A fugue?", answer="A piece for voices.")
    with pytest.raises(AssertionError, match="name a folder, and not"):
        user("export", "--all", "-o", tmp_path / "talks.md")
    assert not (tmp_path / "talks.md").exists()


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["logs", "-n", "3"], "Use `longtalk show --all -n 3`, with -u"),
        (["logs", "list", "-n5"], "Use `longtalk show --all -n 5`, with -u"),
        (["logs", "path"], "`longtalk doctor` prints the path of the store"),
        (["logs", "backup", "x y.db"], "Use `longtalk backup 'x y.db'`."),
        (["logs", "-q", "pelican"], "Use `longtalk search pelican`."),
        (["logs"], "The last exchanges of all conversations: `longtalk show --all -n 3`"),
    ],
)
def test_habits_of_the_log_are_answered_with_the_right_command(
    environment: dict[str, str], words: list[str], answer: str
) -> None:
    done = longtalk(*words, environment=environment)
    assert (done.returncode, answer in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--temperature", "0", "hi"], "Use -o temperature 0."),
        (["ask", "hi", "--max-tokens=20"], "Use -o max_tokens 20."),
        (["chat", "trip", "--new"], "`longtalk chat trip` starts a conversation with this id"),
    ],
)
def test_an_option_of_another_form_is_answered_with_what_to_type(
    environment: dict[str, str], words: list[str], answer: str
) -> None:
    done = longtalk(*words, environment=environment)
    assert (done.returncode, answer in done.stderr) == (2, True), done.stderr


def test_an_alias_can_be_shown_in_the_words_of_other_tools(environment: dict[str, str]) -> None:
    longtalk("config", "alias", "pir", "ollama:llama3.2", environment=environment)
    shown = longtalk("config", "alias", "show", "pir", environment=environment)
    assert (shown.returncode, shown.stdout.split("\t")[:2]) == (0, ["pir", "ollama:llama3.2"])
    missing = longtalk("config", "alias", "show", "other", environment=environment)
    assert (missing.returncode, "There is no alias 'other'." in missing.stderr) == (1, True)
