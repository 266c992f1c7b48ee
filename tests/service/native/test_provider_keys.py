"""API keys of providers: the user of this machine stores them, and none of them comes out again."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

from longtalk.service.access import AccessKeys
from longtalk.service.settings import Credentials, ModelSettings, Settings, store_credential
from longtalk.testing import AsyncScripted
from tests.cli.helpers import streamed
from tests.service.conftest import Serve
from tests.service.native.conftest import Api
from tests.support.loopback import Loopback

SECRET = "sk-very-secret"


@pytest.fixture
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the settings of the test in a folder of its own, and return where its keys are stored."""
    monkeypatch.setenv("LONGTALK_SETTINGS", str(tmp_path / "config" / "settings.toml"))
    for variable in ("GROQ_API_KEY", "MISTRAL_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path / "config" / "credentials.toml"


def test_a_key_is_stored_for_the_user_alone_and_not_shown_again(
    serve: Serve, credentials: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MISTRAL_API_KEY", "sk-of-the-environment")
    caplog.set_level(logging.DEBUG)
    call = Api(serve(m=AsyncScripted()))
    with call.http:
        assert call("GET", "/health")["is_single_user"]
        stored = call("PUT", "/provider-keys/groq", json={"key": f" {SECRET}\n"})
        listed = call("GET", "/provider-keys")
        assert stored == listed
        by_name = {each["provider"]: each for each in listed["providers"]}
        assert (by_name["groq"]["is_stored"], by_name["groq"]["variable"]) == (True, None)
        assert (by_name["mistral"]["is_stored"], by_name["mistral"]["variable"]) == (False, "MISTRAL_API_KEY")
        assert all(name.startswith("groq:") for name in by_name["groq"]["models"])
        assert by_name["groq"]["models"]
        assert by_name["xai"]["models"] == []
        assert stat.S_IMODE(credentials.stat().st_mode) == 0o600
        assert credentials.read_text() == f'"groq" = "{SECRET}"\n'
        assert "sk-" not in str(listed)
        assert SECRET not in caplog.text
        removed = call("DELETE", "/provider-keys/groq")
        assert not any(each["is_stored"] for each in removed["providers"])
        assert credentials.read_text() == ""


def test_a_new_key_counts_from_the_next_turn_on(serve: Serve, credentials: Path, loopback: Loopback) -> None:
    loopback.say(*[streamed("Yes.")] * 3)
    models = {"tutor": ModelSettings("groq:m", base_url=loopback.url)}
    call = Api(serve(settings=Settings(default_model="tutor", models=models)))
    with call.http:
        assert call("POST", "/turns", 503, json={"model": "xai:m", "message": "Hi."})["error"]["code"] == (
            "provider_key_missing"
        )
        for key in ("sk-1", "sk-2"):
            call("PUT", "/provider-keys/groq", json={"key": key})
            call("POST", "/turns", json={"message": "Hi."})
        # By another process, such as `longtalk config set-key`.
        store_credential("groq", "sk-three")
        call("POST", "/turns", json={"message": "Hi."})
    assert [each["authorization"] for each in loopback.headers] == ["Bearer sk-1", "Bearer sk-2", "Bearer sk-three"]


def test_without_a_key_the_next_request_is_estimated_and_the_memory_can_be_changed(
    serve: Serve, credentials: Path
) -> None:
    call = Api(serve(settings=Settings(default_model="tutor", models={"tutor": ModelSettings("groq:m")})))
    with call.http:
        talk = call.new()
        message = {"message": "Hi.", "policy": "Memory()"}
        found = call("POST", f"{talk}/estimate", json=message)
        assert (found["model"], found["lacks_key"], found["policy"]) == ("groq:m", "groq", "Memory()")
        assert found["tokens"] > 0
        shown = call("POST", f"{talk}/preview", json=message)
        assert (shown["manifest"]["lacks_key"], shown["requests"][0]["model"]) == ("groq", "groq:m")
        assert call("GET", f"{talk}/marks") == {"pinned": [], "excluded": []}
        assert call("POST", f"{talk}/turns", 503, json=message)["error"]["code"] == "provider_key_missing"
        call("PUT", "/provider-keys/groq", json={"key": "sk-1"})
        assert call("POST", f"{talk}/estimate", json=message)["lacks_key"] == ""


def test_a_service_with_access_keys_refuses(serve: Serve, credentials: Path) -> None:
    service = serve(m=AsyncScripted())
    secret, _ = AccessKeys(service.service.storage).add("laptop", owner="")
    call = Api(service, secret)
    with call.http:
        assert not call("GET", "/health")["is_single_user"]
        for method, path, body in (
            ("GET", "/provider-keys", None),
            ("PUT", "/provider-keys/groq", {"key": SECRET}),
            ("DELETE", "/provider-keys/groq", None),
        ):
            error = call(method, path, 403, json=body)["error"]
            assert error["code"] == "single_user_only"
            assert "longtalk config set-key" in error["message"]
    assert not credentials.exists()


@pytest.mark.parametrize(
    ("provider", "key", "words"),
    [
        ("nothing", SECRET, "Unknown provider 'nothing'"),
        ("groq", f"{SECRET} more", "check that you copied only the key"),
        ("groq", f"{SECRET}\u2026", "check that you copied only the key"),
        ("groq", "  ", "The API key is empty"),
    ],
)
def test_what_is_no_key_is_refused_without_repeating_it(
    serve: Serve, credentials: Path, provider: str, key: str, words: str
) -> None:
    call = Api(serve(m=AsyncScripted()))
    with call.http:
        message = call("PUT", f"/provider-keys/{provider}", 400, json={"key": key})["error"]["message"]
    assert words in message
    assert SECRET not in message
    assert not credentials.exists()


def test_a_file_that_cannot_be_changed_is_named_as_the_problem(serve: Serve, credentials: Path) -> None:
    credentials.parent.write_text("a file where the folder should be")
    call = Api(serve(m=AsyncScripted()))
    with call.http:
        error = call("PUT", "/provider-keys/groq", 500, json={"key": SECRET})["error"]
    assert error["code"] == "settings_not_writable"
    assert SECRET not in error["message"]


def test_a_page_of_another_site_can_store_none(serve: Serve, credentials: Path) -> None:
    call = Api(serve(m=AsyncScripted()))
    with call.http:
        for headers in ({"origin": "https://example.com"}, {"host": "example.com"}, {"sec-fetch-site": "cross-site"}):
            call("PUT", "/provider-keys/groq", 403, json={"key": SECRET}, headers=headers)
    assert not credentials.exists()


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via"])
def test_a_request_through_a_proxy_is_refused(serve: Serve, credentials: Path, header: str) -> None:
    service = serve(m=AsyncScripted())
    with Api(service).http as http:
        answer = http.put("/provider-keys/groq", json={"key": SECRET}, headers={header: "203.0.113.9"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "single_user_only")
    assert not credentials.exists()


def test_a_damaged_file_leaves_the_keys_that_were_read_before(
    credentials: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store_credential("groq", SECRET)
    found = Credentials()
    assert found.get("groq") == SECRET
    credentials.write_text('"groq" = "sk-half')
    assert found.get("groq") == SECRET
    assert found.get("groq") == SECRET
    assert caplog.text.count("can't be read") == 1
    assert SECRET not in caplog.text
