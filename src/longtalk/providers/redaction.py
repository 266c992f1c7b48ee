"""Remove keys from everything that a provider says about a failure: messages, response bodies, output of programs.

Servers, gateways and programs quote the key of a request in their errors, and an error is shown, logged and stored with
its turn. Each provider has a `Redactor` that knows the provider's secrets. It finds a secret that is written plainly,
escaped as in JSON, URLs or HTML, broken over lines, encoded in Base64, or cut off after more than half of its length.
It also removes any text that plainly looks like a key. A provider does its work inside `with self.redactor:`, so that
no error leaves it unredacted.

Values of fewer than seven characters are not redacted: such a key ("none", "ollama") is not secret, and its letters
occur in ordinary words.
"""

from __future__ import annotations

import base64
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from longtalk.errors import ProviderError

REDACTED = "[redacted]"
_MIN_SECRET = 7
_MIN_CUT = 24
"""The length from which a secret is also found if the text was cut off inside it, after more than half of it."""
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS|AUTH|CREDENTIAL|COOKIE|SIGNATURE|^SIG$", re.IGNORECASE)
_CLIENT = ("_client", "_auth", "_headers", "_params", "_custom_headers", "_custom_query")
"""Attributes of SDK clients and HTTP clients that contain secrets although their names don't say so."""
# These two are compiled at first use: `re` caches them, and most programs never need them.
_LIKELY_KEY = (
    r"(?<![A-Za-z0-9])(?:sk|rk|gsk|xai|hf|pplx|nvapi|ghp|github_pat|glpat)[-_](?=[\w-]{0,300}\d)[\w-]{16,}"
    r"|AIza[\w-]{30,}|(?:AKIA|ASIA)[A-Z0-9]{16}|ya29\.[\w.-]{16,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}"
    r"|(?<=://)[^/\s@\"'<>\\]{1,300}(?=@)"
    r"|(?i:(?<=bearer )|(?<=basic )|(?<=api-key: )|(?<=api_key=)|(?<=[?&]key=))(?=[\w.~+/-]{0,300}\d)[\w.~+/-]{16,}=*"
)
_ESCAPE = (
    r"\s+|\\+(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[nrt\"'/]|)"
    r"|(?:%(?:25)*[89a-fA-F][0-9a-fA-F])+|%(?:25)*[0-7][0-9a-fA-F]"
    r"|&(?:amp;){0,3}(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|amp|lt|gt|quot|apos);"
)


class Redactor:
    """An object that removes the secrets of one provider from texts and, as a context manager, from raised errors.

    `find_secrets` is called for each text, because tokens expire and are replaced.
    """

    def __init__(self, find_secrets: Callable[[], Iterable[str]] = tuple) -> None:
        self._find_secrets = find_secrets

    def redact(self, text: str) -> str:
        """Return a text with each secret replaced by `[redacted]`."""
        plain = _PlainText(text)
        spans: list[tuple[int, int]] = []
        for secret in self._find_secrets():
            spans += plain.find(secret)
        return re.sub(_LIKELY_KEY, REDACTED, _replace(text, spans))

    def redact_bytes(self, data: bytes) -> bytes:
        """Return bytes, such as a response body, with each secret replaced by `[redacted]`."""
        return self.redact(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if not isinstance(error, Exception):
            return
        # The causes belong to HTTP clients and SDKs. They hold the request, and with it the key.
        error.__cause__ = error.__context__ = None
        error.args = tuple(self._redact_value(each) for each in error.args)
        for name, value in list(vars(error).items()):
            with suppress(AttributeError):
                setattr(error, name, self._redact_value(value))
        text = str(error)
        if isinstance(error, UnicodeError) or self.redact(text) != text:
            # The exception keeps its text neither in `args` nor in an attribute.
            self._raise_alone(ProviderError(f"The request failed: {type(error).__name__}: {self.redact(text)}"))

    def _redact_value(self, value: Any) -> Any:
        if isinstance(value, bytes):
            return self.redact_bytes(value)
        if isinstance(value, list | tuple):
            return type(value)(map(self._redact_value, value)) if type(value) in (list, tuple) else value
        return self.redact(value) if isinstance(value, str) else value

    def _raise_alone(self, error: Exception) -> None:
        try:
            raise error
        finally:
            error.__context__ = None


class _PlainText:
    """A text with escapes decoded and blanks removed, which maps its characters to their places in the original."""

    def __init__(self, text: str) -> None:
        parts: list[str] = []
        # Where each part begins here and in the original, and the end of an escape in the original.
        self._starts: list[int] = []
        self._sources: list[tuple[int, int | None]] = []
        size = last = 0
        for match in re.finditer(_ESCAPE, text):
            for part, start, end in (
                (text[last : match.start()], last, None),
                ("".join(_unescape(match[0]).split()), match.start(), match.end()),
            ):
                if part:
                    self._starts.append(size)
                    self._sources.append((start, end))
                    parts.append(part)
                    size += len(part)
            last = match.end()
        if last < len(text):
            self._starts.append(size)
            self._sources.append((last, None))
            parts.append(text[last:])
        self.text = "".join(parts)

    def find(self, secret: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each occurrence of the secret, as positions in the original text."""
        plain = _PlainText(secret).text if re.search(_ESCAPE, secret) else secret
        if len(plain) < _MIN_SECRET:
            return
        yield from self._find_plain(plain, len(plain) // 2 + 1 if len(plain) >= _MIN_CUT else len(plain))
        text = self.text
        for encoded in _encode_base64(secret):
            yield from self._find_plain(encoded, len(encoded))
            if encoded != (other := encoded.replace("+", "-").replace("/", "_")) and other in text:
                yield from self._find_plain(other, len(other))

    def _find_plain(self, plain: str, least: int) -> Iterator[tuple[int, int]]:
        start = self.text.find(plain[:least])
        while start >= 0:
            end = start + least
            while end - start < len(plain) and self.text[end : end + 1] == plain[end - start]:
                end += 1
            yield self._locate(start)[0], self._locate(end - 1)[1]
            start = self.text.find(plain[:least], end)

    def _locate(self, index: int) -> tuple[int, int]:
        """Return the start and end, in the original text, of the character at this index."""
        part = bisect_right(self._starts, index) - 1
        source, end = self._sources[part]
        if end is not None:
            return source, end
        at = source + index - self._starts[part]
        return at, at + 1


def find_named(values: Mapping[str, Any], named: Callable[[str], bool] = lambda _: False) -> Iterator[str]:
    """Yield the secrets in these values: those whose name suggests a secret or satisfies `named`, and parts of URLs."""
    for name, value in values.items():
        if isinstance(value, str) and (_SECRET_NAME.search(name) or named(name)):
            yield from _split_header(value)
        elif isinstance(value, str) and "://" in value:
            yield from find_in_url(value)


def find_in_url(url: str) -> Iterator[str]:
    """Yield the secrets in a URL: its password (or else its user name), and keys in its query or fragment."""
    from urllib.parse import parse_qsl, urlsplit

    with suppress(ValueError):
        parts = urlsplit(url)
        yield parts.password or parts.username or ""
        for query in (parts.query, parts.fragment):
            yield from (value for name, value in parse_qsl(query) if _SECRET_NAME.search(name))


def find_in_client(client: object, depth: int = 4) -> Iterator[str]:
    """Yield the secrets in the attributes of an HTTP or SDK client, and of objects inside it up to `depth` levels."""
    if client is None or depth == 0:
        return
    if isinstance(client, Mapping):
        values: Mapping[str, Any] = {str(name): value for name, value in client.items()}
    else:
        values = getattr(client, "__dict__", {})
    yield from find_named(values)
    yield from find_in_url(str(values.get("_base_url", "")))
    for name, value in values.items():
        if not isinstance(value, str | bytes | type) and (_SECRET_NAME.search(name) or name in _CLIENT):
            yield from find_in_client(value, depth - 1)


def find_in_request(response: Any) -> list[str]:
    """Return the secrets in the address and the headers of the request that this response answers."""
    try:
        request = response.request
        return [*find_in_url(str(request.url)), *find_named(dict(request.headers))]
    except (AttributeError, RuntimeError, TypeError):
        # The responses of a client that the caller wrote may lack a request.
        return []


def _split_header(value: str) -> Iterator[str]:
    """Yield a header's value and the secrets inside it: a token or password after the scheme, and cookie values."""
    yield value
    scheme, _, rest = value.partition(" ")
    if scheme.lower() in ("bearer", "basic", "token", "apikey") and rest:
        yield rest
        with suppress(ValueError):
            yield base64.b64decode(rest, validate=True).decode().partition(":")[2]
    yield from (each.partition("=")[2] for each in value.split("; ") if "=" in each)


def _encode_base64(secret: str) -> Iterator[str]:
    """Yield the Base64 form of a secret for each of the three alignments that it can have in a longer text.

    Characters at its ends that also depend on the neighbouring bytes are left out.
    """
    raw = secret.encode("utf-8", "surrogateescape")
    for shift in range(3):
        encoded = base64.b64encode(bytes(shift) + raw).decode()
        yield encoded[-(-shift * 8 // 6) : (shift + len(raw)) * 8 // 6]


def _unescape(escape: str) -> str:
    """Return the character that an escape stands for; for blanks and plain backslashes, the empty string."""
    if escape.startswith("%"):
        codes = re.findall(r"%(?:25)*([0-9a-fA-F]{2})", escape)
        return bytes.fromhex("".join(codes)).decode("utf-8", "replace")
    if escape.startswith("&"):
        import html

        return html.unescape(re.sub(r"^&(?:amp;)*(?=[#a-z])", "&", escape))
    rest = escape.lstrip("\\")
    if rest[:1] in ("u", "x"):
        return chr(int(rest[1:], 16))
    return rest if rest in ('"', "'", "/") else ""


def _replace(text: str, spans: list[tuple[int, int]]) -> str:
    """Return a text with each of these spans, which may overlap, replaced by `[redacted]`."""
    parts: list[str] = []
    last = 0
    for start, end in sorted(spans):
        if start >= last:
            parts += [text[last:start], REDACTED]
        last = max(last, end)
    return "".join([*parts, text[last:]])
