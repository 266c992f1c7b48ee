"""Keys are removed from every text that leaves a provider, in whatever form a server quotes them."""

from __future__ import annotations

import base64
import html
import json
import string
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk.errors import ProviderError, RequestRefused
from longtalk.providers.redaction import Redactor, find_in_client, find_in_url
from longtalk.providers.registry import resolve

KEY = "bq7/x+Zk9-long\"key'with&odd=Marks_30"
secrets = st.text(string.ascii_letters + string.digits + "-_./+=&\"'<>~é ", min_size=8, max_size=60).filter(
    lambda text: len("".join(text.split())) >= 7
)
SPELLINGS = {
    "as it is": lambda key: key,
    "in JSON": lambda key: json.dumps(key)[1:-1],
    "in JSON with slashes escaped": lambda key: json.dumps(key)[1:-1].replace("/", "\\/"),
    "in JSON inside JSON": lambda key: json.dumps(json.dumps(key))[1:-1],
    "with every character escaped in JSON": lambda key: "".join(f"\\u{ord(each):04X}" for each in key),
    "in a URL": lambda key: quote(key, safe=""),
    "twice in a URL": lambda key: quote(quote(key, safe=""), safe=""),
    "in HTML": html.escape,
    "in a bytes literal": lambda key: repr(key.encode())[2:-1],
    "over two lines": lambda key: f"{key[:4]}\n    {key[4:]}",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@given(key=secrets, around=st.tuples(st.text(max_size=30), st.text(max_size=30)))
def test_a_secret_is_found_in_every_spelling(spelling: str, key: str, around: tuple[str, str]) -> None:
    if spelling == "in a bytes literal" and not key.isascii():
        return
    before, after = (json.dumps(each)[1:-1] for each in around)
    redacted = Redactor(lambda: [key]).redact(f'{before}"{SPELLINGS[spelling](key)}"{after}')
    assert "[redacted]" in redacted
    assert key not in redacted
    assert SPELLINGS[spelling](key) not in redacted


@given(key=secrets, user=st.text(string.ascii_letters, max_size=9), urlsafe=st.booleans())
def test_a_secret_is_found_in_base64_whatever_stands_before_it(key: str, user: str, urlsafe: bool) -> None:
    encode = base64.urlsafe_b64encode if urlsafe else base64.b64encode
    token = encode(f"{user}:{key}".encode()).decode()
    redacted = Redactor(lambda: [key]).redact(json.dumps({"header": f"Basic {token}"}))
    assert token not in redacted
    assert "[redacted]" in redacted


@given(key=secrets, other=st.text(max_size=200))
def test_a_text_without_the_secret_stays_as_it_is(key: str, other: str) -> None:
    redactor = Redactor(lambda: [key])
    redacted = redactor.redact(other)
    assert redacted == other or "[redacted]" in redacted
    assert Redactor(lambda: ["none", "ollama", ""]).redact("ollama has none") == "ollama has none"
    data = other.encode("utf-8", "surrogatepass") + b"\xff\xfe"
    assert Redactor().redact_bytes(data) in (data, redactor.redact_bytes(data)) or b"[redacted]" in redacted.encode()


@given(key=st.text(string.ascii_letters + string.digits, min_size=24, max_size=80), data=st.data())
def test_more_than_half_of_a_secret_that_was_cut_off_is_removed(key: str, data: st.DataObject) -> None:
    size = data.draw(st.integers(len(key) // 2 + 1, len(key)))
    assert Redactor(lambda: [key]).redact(f"key: {key[:size]}") == "key: [redacted]"


def test_json_stays_json_where_a_key_is_removed() -> None:
    body = json.dumps({"error": {"message": f"Wrong key {KEY}.", KEY: [KEY]}}).encode()
    assert json.loads(Redactor(lambda: [KEY]).redact_bytes(body)) == {
        "error": {"message": "Wrong key [redacted].", "[redacted]": ["[redacted]"]}
    }


@pytest.mark.parametrize(
    "text",
    [
        "Incorrect API key provided: sk-proj-abcDEF0123456789abcdef.",
        "x-api-key: sk-ant-api03-abcDEF0123456789abcdef",
        "https://host/v1?key=AIzaSyA0123456789abcdefghijklmnopqrstuv",
        "Authorization: Bearer abcdef0123456789abcdef",
        "Authorization: Basic dXNlcjpwYXNzd29yZDEyMw==",
        "https://user:hunter22@host/v1",
        "token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "credential AKIAIOSFODNN7EXAMPLE",
    ],
)
def test_what_plainly_looks_like_a_key_is_removed_although_it_is_unknown(text: str) -> None:
    redacted = Redactor().redact(text)
    assert "[redacted]" in redacted
    assert not any(part in redacted for part in ("0123456789", "hunter22", "dXNl", "eyJz", "IOSF"))


@pytest.mark.parametrize(
    "text",
    [
        "Item 'rs_68af1b2c3d4e5f60718293a4b5c6d7e8' of type 'reasoning' was not found.",
        "No tool call found for call_abcdef0123456789abcdef; resp_0123456789abcdef0123 is unknown.",
        "The risk-management-system-2024 model does not exist. Check the key (api_key= or its environment variable).",
        "Can't reach compatible:model at http://127.0.0.1:9/v1: Connection refused.",
    ],
)
def test_ids_and_names_stay(text: str) -> None:
    assert Redactor().redact(text) == text


def test_the_secrets_of_an_address_are_known() -> None:
    found = list(
        find_in_url("https://me:pass%2Fword@host/v1?api-version=2024-05-01&subscription-key=abc%2Bdef#token=xyz")
    )
    assert set(filter(None, found)) == {"pass%2Fword", "abc+def", "xyz"}
    assert list(filter(None, find_in_url("https://only-a-token@host/v1"))) == ["only-a-token"]
    assert list(filter(None, find_in_url("http://[broken"))) == []


def test_the_secrets_of_a_client_are_known() -> None:
    import anthropic
    import httpx2
    import openai

    http = httpx2.Client(headers={"x-gateway-key": "gate-secret"}, auth=("me", "basic-secret"), verify=False)
    with (
        http,
        openai.OpenAI(api_key="the-key", default_headers={"cf-access-token": "cf-secret"}, http_client=http) as ai,
    ):
        found = " ".join(find_in_client(ai))
    for secret in ("the-key", "gate-secret", "cf-secret", "basic-secret"):
        assert secret in found
    bedrock = anthropic.AnthropicBedrock(
        aws_region="eu", aws_access_key="aws-id", aws_secret_key="aws-secret", aws_session_token="aws-t"
    )
    assert {"aws-secret", "aws-t"} <= set(find_in_client(bedrock))


def test_an_error_carries_no_secret_and_no_cause() -> None:
    error = RequestRefused(f"No: {KEY}", body=json.dumps({"key": KEY}).encode())
    with pytest.raises(RequestRefused) as caught, Redactor(lambda: [KEY]):
        try:
            raise ValueError(KEY)
        except ValueError as problem:
            raise error from problem
    assert caught.value is error
    assert str(error) == "No: [redacted]"
    assert json.loads(error.body) == {"key": "[redacted]"}
    assert (error.__cause__, error.__context__) == (None, None)


def test_an_exception_that_keeps_its_text_elsewhere_is_replaced() -> None:
    with pytest.raises(ProviderError, match="UnicodeEncodeError") as caught, Redactor(lambda: ["schlüsselbund"]):
        "schlüsselbund".encode("ascii")
    assert "schl" not in f"{caught.value!r} {vars(caught.value)}"
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


def test_a_resolved_model_does_not_show_its_key_or_address() -> None:
    shown = repr(resolve("openai:gpt-5", base_url="https://me:hunter22@host/v1", api_key=KEY))
    assert shown == "ResolvedModel('openai:gpt-5')"
