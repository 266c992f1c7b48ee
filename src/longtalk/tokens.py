"""How many tokens a text, a message or a preamble has: roughly and at once, or exactly.

An `Estimator` needs no vocabulary: it counts words, digits, signs and scripts and weighs them as a tokenizer family
would (see `token_families.py`). It is some percent off, and takes about ten microseconds for a usual message. `Exact`
is a real tokenizer and needs the extra `[tokens]`. Both are a `Counter`, which counts text; what a message costs
beside its text is told here: what frames it, its calls, its images and files. `of_message` takes any bytes: what can't
be read counts by its size.

Base64 is never text. An image counts by its size in pixels, by the rules that providers publish:

- OpenAI's tiles: shrunk to 2,048 square and then to 768 on the short side; 85, and 170 for each tile of 512.
- Claude: pixels / 750, after shrinking to 1,568 on the long side (2,576 for newer models).
- Gemini: 258 for each tile of 768; for a small image 258.

One whose size can't be told counts as one of 1,024 by 1,024. A PDF counts 2,500 a page, the pages as its page objects
say, else one for each 60 kB. Audio counts 10 a second (32 for Gemini), its length from its header, else 16 kB a second.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from longtalk import _json
from longtalk.errors import InputError
from longtalk.token_families import CALL, DEFAULT, EXACT, FAMILIES, FRAMES, MODELS, blocks, estimate, weights
from longtalk.tools import Function, Tool

__all__ = ["EXACT", "FAMILIES", "Checked", "Counter", "Estimator", "Exact", "counter_for", "of_message", "of_preamble"]

_NODES = 20_000  # values of one message that are looked at; the rest is counted by its size
_SKIPPED = frozenset(
    (
        *("role", "type", "id", "tool_call_id", "tool_use_id", "call_id", "file_id", "index", "status", "is_error"),
        *("signature", "thoughtSignature", "cache_control", "media_type", "format", "detail", "finish_reason"),
        *("logprobs", "phase"),
    )
)
"""Members that a model is not shown, or that are counted as part of the frame."""
_UNSEEN = frozenset(("type", "strict", "cache_control"))
"""The same of a tool."""
_SAID = frozenset(("text", "content", "thinking", "refusal", "arguments", "name", "output"))
_PARTS = frozenset(("functionCall", "functionResponse", "inlineData", "fileData"))
_BASE64 = r"[A-Za-z0-9+/_\-\r\n]{256,}={0,2}"
_PAGE = rb"/Type\s{0,9}/Page(?!s)"


class Counter(Protocol):
    """Counts the tokens of a text."""

    def count(self, text: str) -> int: ...


class Estimator(msgspec.Struct, frozen=True):
    """A counter by character classes, for a tokenizer family: one of `FAMILIES`."""

    family: str = "o200k"

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise InputError(f"There is no tokenizer family {self.family!r}: there are {', '.join(FAMILIES)}.")

    def count(self, text: str) -> int:
        """About how many tokens this is; at least one for any text but the empty one."""
        costs = weights(self.family)
        found = sum(estimate(block, costs) for block in blocks(text))
        return round(found) or bool(text)


class Exact:
    """A real tokenizer, one of `EXACT`. Needs the extra `[tokens]`."""

    __slots__ = ("_encode", "family")

    def __init__(self, family: str = "o200k") -> None:
        if family not in EXACT:
            remedy = "count with an Estimator" if family in FAMILIES else "see counter_for(model).family"
            raise InputError(f"There is no exact tokenizer {family!r}, only {', '.join(EXACT)}: {remedy}.")
        self.family = family
        self._encode = _tokenizer(EXACT[family]).encode_ordinary

    def count(self, text: str) -> int:
        """How many tokens this is."""
        try:
            return len(self._encode(text))
        except UnicodeEncodeError:
            return len(self._encode(text.encode("utf-8", "replace").decode()))

    def __repr__(self) -> str:
        return f"Exact({self.family!r})"


@lru_cache
def _tokenizer(name: str) -> Any:
    try:
        from splintr import Tokenizer
    except ImportError:
        raise InputError("Exact counts need the extra [tokens]: pip install 'longtalk[tokens]'.") from None
    return Tokenizer.from_pretrained(name)


def counter_for(model: str) -> Estimator:
    """The estimator for a model, by its label, such as `openai-chat:gpt-5.6` or `local`."""
    provider, _, name = model.lower().partition(":")
    for pattern, family in MODELS:
        if re.search(pattern, name or provider):
            return Estimator(family)
    return Estimator(DEFAULT.get(provider, DEFAULT[""]))


class Checked:
    """A counter of somebody else's: tried once. What it can't count later is guessed, so that it costs no answer."""

    __slots__ = ("_counter", "family")

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self.family = getattr(counter, "family", "")
        said = counter.count("Does it count?")
        if not _tokens(said):
            raise InputError(f"{counter!r} counts {said!r} tokens in a text: a counter gives a number above 0.")

    def count(self, text: str) -> int:
        """How many tokens this is."""
        try:
            tokens = _tokens(self._counter.count(text))
        except Exception:
            tokens = None
        return len(text) // 4 + bool(text) if tokens is None else tokens


def _tokens(said: Any) -> int | None:
    """What a counter said as a number of tokens, if it is one."""
    try:
        tokens: int = round(said)
    except (TypeError, ValueError, OverflowError):
        return None
    return tokens if 0 <= tokens < 2**40 else None


def of_message(native: bytes | Mapping[str, Any], counter: Counter) -> int:
    """The tokens of one message of any wire, as its JSON bytes or as a mapping, with what frames it."""
    if not isinstance(native, (bytes, bytearray)):
        if not isinstance(native, Mapping):
            raise InputError(
                f"A message is its JSON as bytes, or a mapping, not {type(native).__name__}: "
                "text alone is counted with counter.count(text)."
            )
        native = _written(native)
    tally = _Tally(getattr(counter, "family", ""))
    try:
        tally.add(_json.value(native))
    except ValueError:
        tally.fixed += len(native) // 4
    return tally.total(counter)


def of_preamble(system: str | None, tools: Sequence[Function | Mapping[str, Any]], counter: Counter) -> int:
    """The tokens of the system text and of the tools, as a request carries them.

    A tool is one of `longtalk.tool`, a plain function, or a mapping as OpenAI's or Anthropic's requests have it.
    """
    tally = _Tally(getattr(counter, "family", ""))
    tally.fixed -= 0 if system else tally.frame
    tally.texts.append(system or "")
    if tools and tally.family.startswith("claude"):
        tally.fixed += 350  # a system text of the provider's own, which says how to call tools
    for tool in tools:
        name, description, schema = _described(tool)
        tally.fixed += CALL
        tally.texts += (name, description)
        if tally.openai:
            tally.schema(_json.value(schema))
        else:
            tally.texts.append(schema.decode())
    return tally.total(counter)


def _described(tool: Function | Mapping[str, Any]) -> tuple[str, str, bytes]:
    """A tool's name, what it does, and its schema; of a provider's own tool, which has none, its settings."""
    if not isinstance(tool, Mapping):
        made = Tool.of(tool)
        return made.name, made.description, made.schema
    inner = tool.get("function") or tool.get("custom")
    told = dict(inner if isinstance(inner, Mapping) else tool)
    name, description = (str(told.pop(key, None) or "") for key in ("name", "description"))
    for key in ("input_schema", "parameters", "parametersJsonSchema"):
        if isinstance(told.get(key), Mapping):
            return name, description, _written(told[key])
    return name, description, _written({key: told[key] for key in told if key not in _UNSEEN})


def _written(value: Mapping[str, Any]) -> bytes:
    try:
        return _json.encode(dict(value))
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(f"This can't be written as JSON, so it can't be counted: {problem}.") from None


def _texts(parts: list[Any]) -> list[str] | None:
    """What parts say that are nothing but text; None if there are others."""
    texts = [p["text"] for p in parts if type(p) is dict and len(p) == 1 and type(p.get("text")) is str]
    return texts if len(texts) == len(parts) else None


class _Tally:
    """Takes a message apart into text and what counts by rules of its own."""

    def __init__(self, family: str) -> None:
        self.family = family
        self.openai = family not in FAMILIES or family in ("o200k", "cl100k")
        self.frame = FRAMES.get(family, 4)
        self.fixed = self.frame
        self.texts: list[str] = []

    def total(self, counter: Counter) -> int:
        return self.fixed + counter.count("\n".join(filter(None, self.texts)))

    def add(self, value: Any) -> None:
        """Any value: known blocks by their rules, other strings as text. It may be deep, so nothing recurs."""
        waiting, left = [value], _NODES
        while waiting:
            value = waiting.pop()
            left -= 1
            if left < 0:
                # Nobody writes such a message by hand. What is left is counted by its size.
                self.fixed += len(_json.encode([value, *waiting])) // 4
                return
            if isinstance(value, str):
                self._string(value)
            elif isinstance(value, list):
                # A streamed answer may be thousands of parts that are nothing but text.
                texts = _texts(value) if len(value) < left else None
                if texts is None:
                    waiting += reversed(value)
                else:
                    self.texts += texts
                    left -= len(texts)
            elif isinstance(value, dict):
                waiting += reversed(self._object(value))
            elif value is not None:
                self.fixed += 1

    def _object(self, value: dict[str, Any]) -> list[Any]:
        """Count what is known of an object; return the values in it that are still to be looked at."""
        kind = value.get("type")
        known = _KNOWN.get(kind) if isinstance(kind, str) else None
        if known is not None:
            value = known(self, value)
        rest: list[Any] = []
        for key, member in value.items():
            if key in _SKIPPED or member is None or member is True or member is False:
                continue
            if isinstance(member, str) and key == "encrypted_content":
                self._sealed(member)
                continue
            if isinstance(member, str):
                # What people and models say may look like base64, and is text all the same.
                self.texts.append(member) if key in _SAID else self._string(member)
                continue
            if key in ("function", "function_call"):
                self.fixed += CALL
            rest.append(self._part(key, member) if key in _PARTS and isinstance(member, dict) else member)
        return rest

    def _part(self, key: str, value: dict[str, Any]) -> Any:
        """A member of a part that is known by its name, not by a type. Returns what is still to be looked at."""
        if key in ("inlineData", "fileData"):
            media, data = (value.get(name) for name in ("mimeType", "data"))
            self._blob(media if isinstance(media, str) else "", data if isinstance(data, str) else "")
            return None
        self.fixed += CALL
        args, response = value.get("args"), value.get("response")
        self.texts.append("" if args is None else _json.encode(args).decode())
        told = response if isinstance(response, dict) else {}
        # A tool's words are text, whatever they look like.
        self.texts += [member for member in told.values() if isinstance(member, str)]
        others = [member for member in told.values() if not isinstance(member, str)]
        return [{name: value[name] for name in value if name not in ("args", "response")}, *others]

    def _string(self, text: str) -> None:
        if text.startswith("data:") and ";base64," in text[:256]:
            self._blob(text[5 : text.index(";")], text[text.index(",") + 1 :])
        elif len(text) >= 256 and re.fullmatch(_BASE64, text.rstrip()):
            self._blob("", text)
        else:
            self.texts.append(text)

    def _blob(self, media: str, data: str, detail: object = None) -> None:
        """Base64, by what it begins with, else by what it is said to be."""
        start = _decoded(data[:4096])
        if start.startswith(b"%PDF") or "pdf" in media:
            content = _decoded(data)
            pages = len(re.findall(_PAGE, content)) or max(1, len(content) // 60_000)
            self.fixed += pages * (258 if self.family == "gemma" else 2_500)
        elif media.startswith("audio") or start[8:12] == b"WAVE" or start.startswith(b"ID3"):
            rate = int.from_bytes(start[28:32], "little") if start[8:12] == b"WAVE" else 16_000
            seconds = len(data) * 3 / 4 / max(rate, 1_000)
            self.fixed += 1 + round(seconds * (32 if self.family == "gemma" else 10))
        elif media.startswith(("text/", "application/json")):
            self.texts.append(_decoded(data).decode("utf-8", "replace"))
        else:
            if start.startswith(b"\xff\xd8"):
                start = _decoded(data[: 1 << 18])  # a preview may stand before the size
            self._image(_pixels(start), detail)

    def _image(self, size: tuple[int, int] | None, detail: object = None) -> None:
        width, height = map(float, size or (1024, 1024))
        if self.family.startswith("claude"):
            side, most = (2576, 5_000) if self.family == "claude" else (1568, 1_600)
            scale = min(1, side / max(width, height))
            self.fixed += min(most, 1 + int(width * height * scale * scale / 750))
        elif self.family == "gemma":
            small = max(width, height) <= 384
            self.fixed += 258 if small else 258 * _tiles(width, height, 768, 64)
        elif detail == "low":
            self.fixed += 85
        else:
            scale = min(1, 2048 / max(width, height))
            scale = min(scale, 768 / min(width, height))
            self.fixed += 85 + 170 * _tiles(width * scale, height * scale, 512, 16)

    def schema(self, value: Any) -> None:
        """A tool's parameters as OpenAI's models are shown them: names, types and descriptions, not JSON."""
        waiting = [value]
        while waiting:
            value = waiting.pop()
            if isinstance(value, dict):
                properties = value.get("properties")
                if isinstance(properties, dict):
                    self.fixed += 3 * len(properties)
                    self.texts += properties
                waiting += [member for key, member in value.items() if key not in ("required", "title", "$ref")]
            elif isinstance(value, list):
                waiting += value
            elif isinstance(value, str):
                self.texts.append(value)

    # What blocks of known types hold. Each counts what has rules of its own and returns the members that are left.

    def _image_url(self, value: dict[str, Any]) -> dict[str, Any]:
        image = value.get("image_url")
        told = image if isinstance(image, dict) else {"url": image, "detail": value.get("detail")}
        url, detail = told.get("url"), told.get("detail")
        if isinstance(url, str) and url.startswith("data:") and "," in url:
            self._blob("image/", url[url.index(",") + 1 :], detail)
        else:
            self._image(None, detail)
        return {}

    def _source(self, value: dict[str, Any]) -> dict[str, Any]:
        """Anthropic's images and documents."""
        source = value.get("source")
        rest = {key: member for key, member in value.items() if key != "source"}
        source = source if isinstance(source, dict) else {}
        media, data = source.get("media_type"), source.get("data")
        media = media if isinstance(media, str) else ("image/" if value["type"] == "image" else "application/pdf")
        if source.get("type") in ("text", "content"):
            rest["text" if isinstance(data, str) else "source"] = data or source.get("content")
        elif isinstance(data, str):
            self._blob(media, data)
        elif value["type"] == "image":
            self._image(None)
        else:
            self._blob(media, "")
        return rest

    def _audio(self, value: dict[str, Any]) -> dict[str, Any]:
        audio = value.get("input_audio")
        data = audio.get("data") if isinstance(audio, dict) else None
        self._blob("audio/", data if isinstance(data, str) else "")
        return {}

    def _file(self, value: dict[str, Any]) -> dict[str, Any]:
        file = value.get("file")
        data = file.get("file_data") if isinstance(file, dict) else None
        if isinstance(data, str) and data.startswith("data:"):
            self._string(data)
        else:
            self._blob("application/pdf", data if isinstance(data, str) else "")
        return {"name": file.get("filename")} if isinstance(file, dict) else {}

    def _tool_use(self, value: dict[str, Any]) -> dict[str, Any]:
        self.fixed += CALL
        given = value.get("input")
        self.texts.append("" if given is None else _json.encode(given).decode())
        return {key: member for key, member in value.items() if key != "input"}

    def _result(self, value: dict[str, Any]) -> dict[str, Any]:
        self.fixed += CALL
        return value

    def _redacted(self, value: dict[str, Any]) -> dict[str, Any]:
        data = value.get("data")
        self._sealed(data if isinstance(data, str) else "")
        return {}

    def _reasoning(self, value: dict[str, Any]) -> dict[str, Any]:
        """OpenAI's: of its summary the model is shown nothing."""
        return {key: member for key, member in value.items() if key != "summary"}

    def _sealed(self, data: str) -> None:
        """Thinking in a form that only the provider reads: about four bytes of it are a token."""
        self.fixed += len(data) * 3 // 16

    def _input_file(self, value: dict[str, Any]) -> dict[str, Any]:
        return self._file({"file": value})


_KNOWN: Mapping[str, Any] = {
    "image_url": _Tally._image_url,
    "image": _Tally._source,
    "document": _Tally._source,
    "input_audio": _Tally._audio,
    "file": _Tally._file,
    "tool_use": _Tally._tool_use,
    "server_tool_use": _Tally._tool_use,
    "tool_result": _Tally._result,
    "redacted_thinking": _Tally._redacted,
    "input_image": _Tally._image_url,
    "input_file": _Tally._input_file,
    "reasoning": _Tally._reasoning,
    **dict.fromkeys(("function_call", "function_call_output"), _Tally._result),
    **dict.fromkeys(("custom_tool_call", "custom_tool_call_output"), _Tally._result),
}


def _tiles(width: float, height: float, side: int, most: int) -> int:
    return min(most, -int(-width // side) * -int(-height // side))


def _decoded(data: str) -> bytes:
    """What base64 holds; empty when it is none."""
    try:
        return binascii.a2b_base64(data[: len(data) // 4 * 4].replace("-", "+").replace("_", "/"))
    except ValueError:
        return b""


def _pixels(data: bytes) -> tuple[int, int] | None:
    """Width and height, as the header of a PNG, GIF, WebP or JPEG tells them."""
    size = (0, 0)
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        size = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    elif data.startswith((b"GIF87a", b"GIF89a")):
        size = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        if data[12:16] == b"VP8X":
            size = int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
        elif data[12:16] == b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            size = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        else:
            width, height = int.from_bytes(data[26:28], "little"), int.from_bytes(data[28:30], "little")
            size = width & 0x3FFF, height & 0x3FFF
    elif data.startswith(b"\xff\xd8"):
        size = _jpeg(data)
    return size if 0 < size[0] < 1 << 20 and 0 < size[1] < 1 << 20 else None


def _jpeg(data: bytes) -> tuple[int, int]:
    place = 2
    while place + 9 < len(data) and data[place] == 0xFF:
        marker, length = data[place + 1], int.from_bytes(data[place + 2 : place + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = data[place + 5 : place + 7], data[place + 7 : place + 9]
            return int.from_bytes(width, "big"), int.from_bytes(height, "big")
        place += 2 + max(length, 2)
    return 0, 0
