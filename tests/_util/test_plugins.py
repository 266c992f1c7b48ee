"""Test wires and providers that an installed package brings along. The package is in tests/support/acme_package."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longtalk import AsyncChat, Chat, history
from longtalk.errors import BadState, InputError
from longtalk.providers import registry
from longtalk.testing import Scripted, Step, WireViolation, says, validate
from longtalk.testing.providers import check_provider, over_http
from longtalk.testing.wires.suite import CASES, Case, check_wire
from longtalk.wires import HTTP_WIRES, WIRES
from tests.support.http_server import HttpHandler, HttpServer

PACKAGE = Path(__file__).parent.parent / "support" / "acme_package"


@pytest.fixture
def acme(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Install the package, and uninstall it."""
    tables: tuple[Any, ...] = (WIRES, registry._OFFERED)

    def forget() -> None:
        for table in tables:
            table.__dict__.pop("_offers", None)
            for name in [name for name in table if name.startswith("acme")]:
                del table[name]

    monkeypatch.syspath_prepend(PACKAGE)
    forget()
    yield importlib.import_module("acme_longtalk")
    sys.modules.pop("acme_longtalk")
    monkeypatch.undo()
    forget()


# Wires


@pytest.mark.parametrize("wire", sorted(HTTP_WIRES))
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_wires_of_the_library_pass_the_suite(case: Case, wire: str) -> None:
    calls = says("Let me see.", calls=[("call_1", "look", {"q": "bows"})], wire=wire)
    case.run(WIRES[wire], [says("Hello, Ada.", wire=wire), calls])


def test_a_wire_that_is_derived_from_another_passes_the_suite(acme: Any) -> None:
    check_wire(acme.ACME, [says("Hello, Ada.")]).raise_for_failures()


def test_a_wire_with_a_grammar_of_its_own_passes_the_suite(acme: Any) -> None:
    check_wire(acme.PLAIN, [acme.SAMPLE]).raise_for_failures()


def test_the_suite_finds_what_a_wire_does_wrong(acme: Any) -> None:
    class Wrong(acme.Plain):  # type: ignore[misc]
        def write_user(self, content: Any) -> bytes:
            return b'{"who":"user","says":"%s"}' % content.upper().encode()

    failed = {failure.name for failure in check_wire(Wrong(), [acme.SAMPLE]).failed}
    assert {"it_is_the_wire_of_its_name", "what_a_user_says_is_read_back"} <= failed
    with pytest.raises(InputError, match="at least one Step"):
        check_wire(acme.PLAIN, [])


def test_a_conversation_goes_to_a_wire_of_a_package_and_back(acme: Any) -> None:
    calls = [says(None, calls=[("call_1", "look", {"q": "bows"})]), says("I am Bob.")]

    def look(q: str) -> str:
        """Look something up."""
        return f"about {q}"

    state = Chat(Scripted(*calls), tools=[look]).send("Hello.", state=None).state
    plain = Scripted(acme.SAMPLE, wire=acme.PLAIN)
    state = Chat(plain, tools=[look]).send("And now?", state=state).state
    said = [(each["who"], each.get("says")) for each in json.loads(plain.requests[0])["talk"]]
    assert said == [
        ("user", "Hello."),
        ("model", ""),
        ("tool", "about bows"),
        ("model", "I am Bob."),
        ("user", "And now?"),
    ]
    back = Scripted(says("Yes."))
    Chat(back, tools=[look]).send("Still there?", state=state)
    validate(back.requests[0])
    assert b"Hello, Ada." in back.requests[0]
    assert [entry.text for entry in history(state)][-1] == "Hello, Ada."


def test_a_wire_of_a_package_has_its_own_validator(acme: Any) -> None:
    validate(b'{"talk":[{"who":"user"}]}', wire="acme-plain")
    with pytest.raises(WireViolation, match="an unknown speaker"):
        validate(b'{"talk":[{"who":"stranger"}]}', wire=acme.PLAIN.name)
    with pytest.raises(KeyError, match=r"Unknown wire 'nowhere'.*openai-chat.*acme-plain"):
        validate(b"{}", wire="nowhere")


def test_a_state_of_a_wire_that_is_not_installed_can_t_be_read(acme: Any) -> None:
    state = Chat(Scripted(acme.SAMPLE, wire=acme.PLAIN)).send("Hello.").state
    code = f"from longtalk import history; print(len(history({state!r})))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert BadState.__name__ in run.stderr
    assert "acme-plain" in run.stderr


@pytest.mark.parametrize(
    ("name", "says_what"),
    [("acme-broken", "can't be loaded from 'acme_longtalk:NOTHING'"), ("acme-renamed", "an object with this `name`")],
)
def test_a_wire_that_can_t_be_used_is_named(acme: Any, name: str, says_what: str) -> None:
    assert name in WIRES
    with pytest.raises(InputError, match=says_what):
        WIRES[name]
    assert acme.ACME


def test_a_name_that_two_packages_offer_is_refused(acme: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[longtalk.wires]\nacme = acme_longtalk:PLAIN\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="as acme_longtalk:ACME and acme_longtalk:PLAIN"):
        WIRES[acme.ACME.name]


# Providers


class Server(HttpHandler):
    def do_POST(self) -> None:
        self.read_body()
        text = f"{self.path} with {self.headers['x-acme-key']}"
        self.send_whole(200, says(text).body, {"content-type": "application/json"})


@pytest.mark.usefixtures("acme")
def test_a_package_brings_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with HttpServer(Server) as server:
        monkeypatch.setenv("ACME_BASE_URL", server.url)
        monkeypatch.setenv("ACME_API_KEY", "k")
        chat = Chat("acme:small")
        assert (chat.provider.label, chat.send("Hello.").text) == ("acme:small", "/talk with k")


@pytest.mark.usefixtures("acme")
def test_a_provider_of_a_package_passes_the_suite() -> None:
    serve = over_http(lambda url, key: Chat("acme:small", base_url=url, api_key=key).provider)
    report = check_provider(serve=serve)
    report.raise_for_failures()
    assert len(report.passed) > 20


def test_the_suite_skips_what_a_script_can_t_say_in_the_wire_of_a_package(acme: Any) -> None:
    def make() -> Any:
        return Scripted(*[Step(acme.SAMPLE.body, acme.SAMPLE.events)] * 30, wire=acme.PLAIN)

    report = check_provider(make, serve=over_http(lambda _url, _key: make()))
    assert "a_provider_describes_itself" in report.passed
    assert report.skipped


@pytest.mark.usefixtures("acme")
@pytest.mark.anyio
async def test_a_package_makes_providers_for_both_kinds_of_chats() -> None:
    given = {"model": "big", "base_url": "http://here", "api_key": "k", "client": None}
    assert json.loads(Chat("acme-echo:big", base_url="http://here", api_key="k").send("x").text) == given
    reply = await AsyncChat("acme-echo:big", base_url="http://here", api_key="k").send("x")
    assert json.loads(reply.text) == given


@pytest.mark.usefixtures("acme")
def test_a_name_of_the_library_can_t_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert Chat("openai:gpt-5").provider.wire.name == "openai-responses"


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize(
    ("name", "says_what"),
    [
        ("acne:small", "Unknown provider 'acne'. Did you mean 'acme'.*Known: openai, .*acme, acme-echo"),
        ("acme-lost:x", "speaks the unknown wire 'nowhere'. Known: openai-chat, .*acme-plain"),
        ("acme-none:x", "'acme-none' must be offered as an Address or a function"),
        ("acme:", "No model is named for acme"),
        ("acme:small", "acme needs a key: pass api_key=, or set ACME_API_KEY"),
    ],
)
def test_what_is_wrong_with_a_name_is_told(name: str, says_what: str) -> None:
    with pytest.raises(InputError, match=says_what):
        Chat(name)


def test_entry_points_are_not_read_while_all_names_are_known() -> None:
    code = (
        "import sys; from longtalk import Chat; from longtalk.testing import Scripted, says; "
        "Chat(Scripted(says('a'))).send('x'); Chat('ollama:llama3.2'); print('importlib.metadata' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
