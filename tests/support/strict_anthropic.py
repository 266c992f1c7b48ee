"""A loopback HTTP server that is as strict as the Anthropic Messages endpoint.

It checks the headers, runs `longtalk.testing.wires.anthropic.check`, and also checks what needs memory: it signs its
thinking blocks over the account, the model and everything before them, and refuses a block that comes back changed (A7)
or after another prefix (A8). It counts one token for four bytes and keeps a real prompt cache, so that usage shows what
a moved mark or an edited prefix costs.

It answers from `script` first, then with `respond`, a function from the request to blocks and a stop reason. The
default obeys flags in the user's last text (see `obey`). Whole and streamed answers consist of the same blocks. `dump`
writes them and keeps the given literals, so that tests can compare what comes back byte for byte.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from longtalk.testing.wires.anthropic import check
from longtalk.testing.wires.violation import WireViolation
from tests.support.http_server import HttpHandler, HttpServer

Block = dict[str, Any]
Respond = Callable[[dict[str, Any]], tuple[list[Block], str]]

KEY, OTHER_KEY = "sk-ant-strict-1", "sk-ant-strict-2"
"""The keys of two accounts."""
NEW_KEY = "sk-ant-strict-3"
"""A second key of the first account. A client can't know that both have the same account."""
VERSION = "2023-06-01"
BINDING_BETA = "thinking-binding-controls-2026-08-01"

THINKING = ("thinking", "redacted_thinking")
CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
STEPS = ("tool", "tools", "pause")
LOOKBACK = 20
ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
CHAIN = "The `thinking` block that preceded this one when it was created is missing from this request."
ODD = {"x_score": "1e2", "x_id": "12345678901234567", "x_note": '"caf\\u00e9"', "x_deep": '{"b":1.0,"a":[-0.0,null]}'}


class Raw(str):
    """JSON text that is sent unchanged."""

    __slots__ = ()


def dump(value: Any) -> str:
    """Return compact JSON with the keys in their order and `Raw` text unchanged."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{dump(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(dump, value)) + "]"
    lone = isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value)
    return json.dumps(value, ensure_ascii=lone)


@dataclass(frozen=True)
class Fault:
    """A fault in one answer. Without `body`, the server makes the real answer and then damages it."""

    body: bytes | None = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    after: int = 0
    """The number of bytes that are sent before `reset` or `seconds`, or of events before `event`."""
    reset: bool = False
    seconds: float = 0.0
    event: bytes | None = None

    @classmethod
    def error(cls, status: int, message: str = "", **headers: str) -> Fault:
        """Return a refusal in the provider's format. `retry_after="1"` sets the header `retry-after`."""
        kind = ERRORS.get(status, "api_error")
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        body = error_body(kind, message or kind.replace("_", " "), "req_fault")
        return cls(body.encode(), status, {"content-type": "application/json", **named})

    @classmethod
    def page(cls, status: int = 502, text: str = "<html><body><h1>Bad Gateway</h1></body></html>") -> Fault:
        """Return an HTML page, as proxies send it."""
        return cls(text.encode(), status, {"content-type": "text/html"})

    @classmethod
    def nonsense(cls, body: bytes = b'{"type":"message","content":[{"ty') -> Fault:
        """Return a successful response whose body is not JSON."""
        return cls(body, 200, {"content-type": "application/json"})

    @classmethod
    def content_type(cls, name: str) -> Fault:
        """Return a fault that sends the real answer with another content type."""
        return cls(headers={"content-type": name})

    @classmethod
    def cut(cls, after: int = 0) -> Fault:
        """Return a fault that resets the connection after this many bytes of the body."""
        return cls(after=after, reset=True)

    @classmethod
    def stall(cls, seconds: float, after: int = 0) -> Fault:
        """Return a fault that pauses after this many bytes, and then sends the rest."""
        return cls(after=after, seconds=seconds)

    @classmethod
    def error_event(cls, after: int = 3, kind: str = "overloaded_error", message: str = "Overloaded") -> Fault:
        """Return a fault that ends a stream with an `error` event after this many events."""
        data = dump({"type": "error", "error": {"type": kind, "message": message}})
        return cls(after=after, event=f"event: error\ndata: {data}\n\n".encode())


@dataclass(frozen=True)
class Violation:
    """A broken rule: the number of the request, the rule, and the provider's message."""

    request: int
    rule: str
    message: str


@dataclass(frozen=True)
class _Issued:
    """A thinking block as it was sent. `prefix` is the digest of everything before it."""

    key: str
    account: str
    model: str
    block: Any
    prefix: str
    previous: str | None
    siblings: tuple[str, ...]


@dataclass(frozen=True)
class _Link:
    """A block of a request, with the digest of everything up to it. Thinking doesn't change the digest."""

    path: str
    block: Block
    digest: str
    parent: str


@dataclass(frozen=True)
class _Call:
    """A request that passed the first checks. `exactly` is its body with the literals of its floats."""

    key: str
    account: str
    betas: set[str]
    body: dict[str, Any]
    exactly: dict[str, Any]

    @property
    def model(self) -> str:
        return str(self.body["model"])

    @cached_property
    def links(self) -> list[_Link]:
        return list(_iterate_links(self.exactly))


class _Refused(Exception):
    def __init__(self, status: int, rule: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.rule = rule


def error_body(kind: str, message: str, request_id: str) -> str:
    return dump({"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id})


def parse_exactly(text: str | bytes) -> Any:
    """Return decoded JSON in which floats keep their literals, so that `1e2` differs from `100.0`."""
    return json.loads(text, parse_float=lambda literal: f"number {literal}")


def to_canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def strip_cache_marks(block: Any) -> Any:
    """Return a block without cache marks, including those of blocks inside it."""
    if not isinstance(block, dict):
        return block
    kept = {key: value for key, value in block.items() if key != "cache_control"}
    if isinstance(kept.get("content"), list):
        kept["content"] = [strip_cache_marks(inner) for inner in kept["content"]]
    return kept


def to_blocks(content: Any) -> list[Any]:
    """Return the content of a message or of `system` as blocks."""
    if content is None or content == "":
        return []
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def get_signature(block: Block) -> str:
    """Return the signed field of a thinking block."""
    return str(block["signature"] if block["type"] == "thinking" else block["data"])


class StrictAnthropic(HttpServer):
    """The server. Each of the next requests meets one of `faults`. `violations` has the broken rules.

    `binding` says what happens to thinking after another prefix if the request doesn't say so itself: `error`,
    `drop_block`, or `off`, as for older accounts. With `thinking_required`, the thinking of an open exchange must come
    back wherever it is still valid and was issued for the same key. Without it, all of it may be left out, as with
    adaptive thinking.
    """

    root = "/v1"

    def __init__(
        self,
        respond: Respond | None = None,
        *,
        binding: str = "error",
        thinking_required: bool = True,
        system_messages: bool = True,
        prefill: bool = False,
        models: set[str] | None = None,
        max_bytes: int = 32 * 1024 * 1024,
        min_cache_tokens: int = 0,
        cache_seconds: float = 300.0,
        chunk_bytes: int | None = None,
    ) -> None:
        self.respond: Respond = respond or obey
        self.script: deque[tuple[list[Block], str]] = deque()
        self.faults: deque[Fault] = deque()
        self.requests: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.violations: list[Violation] = []
        self.dropped: list[dict[str, str]] = []
        self.issued: list[bytes] = []
        """Each block that was sent, as the bytes that a correct client sends back."""
        self.usages: list[dict[str, Any]] = []
        self.binding = binding
        self.thinking_required = thinking_required
        self.system_messages = system_messages
        self.prefill = prefill
        self.models = models
        self.max_bytes = max_bytes
        self.min_cache_tokens = min_cache_tokens
        self.cache_seconds = cache_seconds
        self.chunk_bytes = chunk_bytes
        self.accounts = {KEY: "account-1", OTHER_KEY: "account-2", NEW_KEY: "account-1"}
        self._secret = b"strict"
        self._thoughts: dict[str, _Issued] = {}
        self._answers: dict[str, tuple[str, ...]] = {}
        self._parents: dict[str, str] = {}
        self._compactions: set[str] = set()
        self._cache: dict[str, float] = {}
        self._count = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        super().__init__(_make_handler(self))

    def body(self, request: int = -1) -> dict[str, Any]:
        """Return a decoded request."""
        parsed: dict[str, Any] = json.loads(self.requests[request])
        return parsed

    def __exit__(self, *_: object) -> None:
        self._over.set()
        super().__exit__()

    # One request

    def answer(self, path: str, headers: dict[str, str], raw: bytes) -> tuple[int, str, bytes | list[bytes], Fault]:
        """Return the status, the request id, the body or the events of a stream, and the fault for this request."""
        with self._lock:
            number = len(self.requests)
            self.requests.append(raw)
            self.headers.append(headers)
            self.paths.append(path)
            request_id = f"req_{number:024d}"
            fault = self.faults.popleft() if self.faults else Fault()
            try:
                call = self._admit(path, headers, raw)
                drops, kept = self._check(call)
                if fault.body is not None:
                    return fault.status, request_id, fault.body, fault
                message = self._make_message(call, drops, kept)
            except Exception as problem:
                refused = problem if isinstance(problem, _Refused) else _Refused(500, "server", repr(problem))
                self.violations.append(Violation(number, refused.rule, str(refused)))
                if fault.body is not None:
                    return fault.status, request_id, fault.body, fault
                refusal = error_body(ERRORS[refused.status], str(refused), request_id)
                return refused.status, request_id, refusal.encode(), Fault()
            if BINDING_BETA in call.betas:
                message["input_transformations"] = drops
            return 200, request_id, list(stream(message)) if call.body.get("stream") else dump(message).encode(), fault

    def _admit(self, path: str, headers: dict[str, str], raw: bytes) -> _Call:
        if path.partition("?")[0] != "/v1/messages":
            raise _Refused(404, "path", "Not found")
        if len(raw) > self.max_bytes:
            raise _Refused(413, "size", "Request exceeds the maximum size")
        # The SDK sends the key as a bearer token.
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if not key:
            raise _Refused(401, "headers", "x-api-key header is required")
        if key not in self.accounts:
            raise _Refused(401, "headers", "invalid x-api-key")
        if "anthropic-version" not in headers:
            raise _Refused(400, "headers", "anthropic-version: header is required")
        if headers["anthropic-version"] != VERSION:
            version = headers["anthropic-version"]
            raise _Refused(400, "headers", f'anthropic-version: "{version}" is not a valid version')
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise _Refused(400, "headers", "content-type: Input should be application/json")
        betas = {beta.strip() for beta in headers.get("anthropic-beta", "").split(",")}
        try:
            body, exactly = json.loads(raw), parse_exactly(raw)
        except ValueError as problem:
            raise _Refused(400, "JSON", f"The request body is not valid JSON: {problem}") from None
        return _Call(key, self.accounts[key], betas, body, exactly)

    def _check(self, call: _Call) -> tuple[list[dict[str, str]], str | None]:
        """Return the blocks to drop and the signature of the last valid thinking block, or raise `_Refused`."""
        body = call.body
        try:
            check(body, system_messages=self.system_messages, prefill=self.prefill)
        except WireViolation as broken:
            raise _Refused(400, broken.rule, str(broken).removeprefix(f"{broken.rule}: ")) from None
        if self.models is not None and body["model"] not in self.models:
            raise _Refused(404, "model", f"model: {body['model']}")
        thinking = body.get("thinking") or {}
        if "block_binding" in thinking and BINDING_BETA not in call.betas:
            raise _Refused(
                400, "thinking", f"thinking.{thinking.get('type')}.block_binding: Extra inputs are not permitted"
            )
        self._check_latest_thinking(call)
        return self._check_bindings(
            call, thinking.get("block_binding", {}).get("prefix_mismatch_behavior", self.binding)
        )

    def _make_message(self, call: _Call, drops: list[dict[str, str]], kept: str | None) -> dict[str, Any]:
        blocks, stop_reason = self.script.popleft() if self.script else self.respond(call.body)
        content = self._sign(call, blocks, kept)
        self.dropped += drops
        self.issued += [dump(block).encode() for block in content]
        self._count += 1
        usage = self._count_usage(call, {drop["path"] for drop in drops}, content)
        self.usages.append(usage)
        return {
            "model": call.model,
            "id": f"msg_{self._count:024d}",
            "type": "message",
            "role": "assistant",
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": usage,
        }

    # Thinking: signed when it is sent, verified when it comes back

    def _sign(self, call: _Call, blocks: list[Block], kept: str | None) -> list[Block]:
        links, account, model = call.links, call.account, call.model
        self._parents.update((link.digest, link.parent) for link in links if link.digest != link.parent)
        root, prefix = links[1].digest, links[-1].digest
        omitted = (call.body.get("thinking") or {}).get("display") == "omitted"
        content: list[Block] = []
        own: list[tuple[str, _Issued]] = []
        for block in blocks:
            kind = block["type"]
            if kind in THINKING:
                block = {**block, "thinking": ""} if omitted and kind == "thinking" else dict(block)
                signature = self._mac("thought", account, model, prefix, kept, dump(block), len(content))
                odd = {key: block.pop(key) for key in list(block) if key in ODD}
                block = {**block, "signature" if kind == "thinking" else "data": signature, **odd}
                own.append((signature, _Issued(call.key, account, model, parse_exactly(dump(block)), prefix, kept, ())))
                kept = signature
            else:
                if kind == "compaction":
                    block = {**block, "signature": self._mac("compaction", account, model, prefix, dump(block))}
                    self._compactions.add(to_canonical(parse_exactly(dump(block))))
                parent = root if kind == "compaction" and block["content"] is not None else prefix
                prefix = _digest(parent, _write_item("assistant", parse_exactly(dump(block))))
                self._parents[prefix] = parent
            content.append(block)
        siblings = tuple(signature for signature, _ in own)
        for signature, issued in own:
            self._thoughts[signature] = replace(issued, siblings=siblings)
        for block in content:
            if block["type"] == "tool_use":
                self._answers[block["id"]] = siblings
        return content

    def _mac(self, *parts: Any) -> str:
        digest = hmac.new(self._secret, to_canonical(parts).encode(), hashlib.sha256).digest()
        return base64.b64encode(b"strict" + digest).decode()

    def _check_latest_thinking(self, call: _Call) -> None:
        """Check that the thinking of the latest assistant turn is complete, unchanged and in order (A7)."""
        turn, after = _find_latest_turn(call.exactly["messages"])
        sent = [(path, block) for path, block in turn if block["type"] in THINKING]
        is_open = all(block["type"] == "tool_result" for block in after)
        expected: list[str] = []
        for _, block in turn:
            siblings: tuple[str, ...] = ()
            if block["type"] in THINKING:
                known = self._thoughts.get(get_signature(block))
                siblings = known.siblings if known else (get_signature(block),)
            elif block["type"] == "tool_use" and (sent or (is_open and self.thinking_required)):
                thoughts = self._answers.get(block["id"], ())
                siblings = thoughts if all(self._is_due_in_turn(call, turn, each) for each in thoughts) else ()
            expected += [signature for signature in siblings if signature not in expected]
        changed = [
            path
            for path, block in sent
            if (known := self._thoughts.get(get_signature(block))) and _is_modified(block, known)
        ]
        if changed or [get_signature(block) for _, block in sent] != expected:
            at = changed[0] if changed else sent[0][0] if sent else turn[0][0]
            raise _Refused(
                400,
                "A7",
                f"{at}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. "
                "These blocks must remain as they were in the original response.",
            )

    def _is_due_in_turn(self, call: _Call, turn: list[tuple[str, Block]], signature: str) -> bool:
        """Return whether a thinking block has to come back in this turn: same key, model and content before it."""
        issued = self._thoughts[signature]
        paths = {path for path, _ in turn}
        prefixes = {digest for link in call.links if link.path in paths for digest in (link.parent, link.digest)}
        return (issued.key, issued.model) == (call.key, call.model) and issued.prefix in prefixes

    def _check_bindings(self, call: _Call, behaviour: str) -> tuple[list[dict[str, str]], str | None]:
        """Check that each thinking block comes after the same content as when it was made (A8)."""
        drops: list[dict[str, str]] = []
        kept: str | None = None
        first = True
        for link in call.links:
            if (
                link.block["type"] == "compaction"
                and to_canonical(strip_cache_marks(link.block)) not in self._compactions
            ):
                raise _Refused(400, "A11", f"{link.path}: the compaction block is not as it was issued")
            if link.block["type"] not in THINKING:
                continue
            signature, issued = get_signature(link.block), self._thoughts.get(get_signature(link.block))
            field_name = "signature" if link.block["type"] == "thinking" else "data"
            invalid = f"{link.path}: Invalid `{field_name}` in `{link.block['type']}` block"
            if issued is None or _is_modified(link.block, issued):
                raise _Refused(400, "A7", invalid)
            reason = None
            if issued.model != call.model:
                drops.append(_make_drop(link.path, "model_binding_mismatch"))
            elif issued.account != call.account:
                drops.append(_make_drop(link.path, "organization_binding_mismatch"))
            elif issued.prefix != link.digest:
                reason = self._describe_change(issued.prefix, call.links, link.path)
            elif not first and issued.previous != kept:
                reason = CHAIN
            first = False
            if reason is None or behaviour == "off":
                kept = signature
                continue
            if behaviour != "drop_block":
                header = f" That setting requires the `{BINDING_BETA}` value in the `anthropic-beta` header."
                raise _Refused(
                    400,
                    "A8",
                    f"{invalid}. The block is bound to a different conversation. Remove the block, or set "
                    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
                    f"{'' if BINDING_BETA in call.betas else header} {reason}",
                )
            drops.append(_make_drop(link.path, "prefix_binding_mismatch"))
        return drops, kept

    def _describe_change(self, was: str, links: list[_Link], path: str) -> str:
        """Return a sentence that names the first change before a block."""
        ancestors = set()
        while was:
            ancestors.add(was)
            was = self._parents[was]
        for link in links:
            if link.path == path:
                break
            if link.digest not in ancestors:
                if link.path in ("system", "tools"):
                    thing = "`system` prompt" if link.path == "system" else "`tools` list"
                    return f"The {thing} differs from the one this block was created with."
                path = link.path
                break
        return f"Content before this block differs from when it was created, first at `{path}`."

    # Usage, from a real cache

    def _count_usage(self, call: _Call, dropped: set[str], content: list[Block]) -> dict[str, Any]:
        now = time.monotonic()
        self._cache = {entry: until for entry, until in self._cache.items() if until > now}
        thinking = call.body.get("thinking") or {}
        rolling = self._mac(call.account, call.model, thinking.get("type"), thinking.get("budget_tokens"))
        size = 0
        entries: list[tuple[str, int, str | None]] = []
        for part, ttl in _iterate_parts(call.exactly, dropped):
            size += len(part.encode())
            rolling = hashlib.sha256(f"{rolling}{part}".encode()).hexdigest()
            entries.append((rolling, size // 4, ttl))
        marks = [n for n, (_, tokens, ttl) in enumerate(entries) if ttl and tokens >= self.min_cache_tokens]
        reachable = [n for mark in marks for n in range(max(0, mark - LOOKBACK), mark + 1)]
        hits = [n for n in reachable if entries[n][0] in self._cache]
        read = entries[max(hits)][1] if hits else 0
        written = {"5m": 0, "1h": 0}
        done = read
        for mark in marks:
            entry, tokens, ttl = entries[mark]
            until = now + self.cache_seconds * (12 if ttl == "1h" else 1)
            self._cache[entry] = max(until, self._cache.get(entry, 0.0))
            written[ttl or "5m"] += max(0, tokens - done)
            done = max(done, tokens)
        for hit in hits:
            self._cache[entries[hit][0]] = max(self._cache[entries[hit][0]], now + self.cache_seconds)
        total = size // 4
        usage: dict[str, Any] = {
            "input_tokens": total - done,
            "cache_creation_input_tokens": sum(written.values()),
            "cache_read_input_tokens": read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": written["5m"],
                "ephemeral_1h_input_tokens": written["1h"],
            },
            "output_tokens": len(dump([block for block in content if block["type"] != "compaction"]).encode()) // 4,
        }
        searches = sum(block["type"] == "server_tool_use" for block in content)
        if searches:
            usage["server_tool_use"] = {"web_search_requests": searches}
        summaries = [block for block in content if block["type"] == "compaction"]
        if summaries:
            spent = len(dump(summaries).encode()) // 4
            usage["iterations"] = [
                {"type": "compaction", "input_tokens": total, "output_tokens": spent},
                {"type": "message", "input_tokens": usage["input_tokens"], "output_tokens": usage["output_tokens"]},
            ]
        return usage


def _iterate_links(exactly: dict[str, Any]) -> Iterator[_Link]:
    """Yield the parts that thinking is bound to, with their digests: system, tools, then each block before it.

    The digest leaves out earlier thinking (a block is bound only to the thinking block before it), tools that are
    loaded later, content that a compaction block replaced, and message borders, since messages of one role are merged.
    """
    tools = [strip_cache_marks(tool) for tool in exactly.get("tools") or [] if not tool.get("defer_loading")]
    system = _digest("", to_canonical([strip_cache_marks(block) for block in to_blocks(exactly.get("system"))]))
    root = parent = _digest(system, to_canonical(tools))
    yield _Link("system", {"type": "system"}, system, "")
    yield _Link("tools", {"type": "tools"}, root, system)
    for i, message in enumerate(exactly["messages"]):
        for j, block in enumerate(to_blocks(message["content"])):
            digest = parent
            if block["type"] not in THINKING:
                starts = block["type"] == "compaction" and block.get("content") is not None
                parent = root if starts else parent
                digest = _digest(parent, _write_item(message["role"], block))
            yield _Link(f"messages.{i}.content.{j}", block, digest, parent)
            parent = digest


def _digest(parent: str, text: str) -> str:
    return hashlib.sha256(f"{parent} {text}".encode()).hexdigest()


def _find_latest_turn(messages: list[dict[str, Any]]) -> tuple[list[tuple[str, Block]], list[Block]]:
    """Return the last assistant turn with the paths of its blocks, and the user's blocks after it."""
    turn: list[tuple[str, Block]] = []
    after: list[Block] = []
    for i in range(len(messages) - 1, -1, -1):
        blocks = to_blocks(messages[i]["content"])
        if messages[i]["role"] == "assistant":
            turn = [(f"messages.{i}.content.{j}", block) for j, block in enumerate(blocks)] + turn
        elif messages[i]["role"] == "user":
            if turn:
                break
            after = blocks + after
    return turn, after


def _make_drop(path: str, reason: str) -> dict[str, str]:
    return {"type": "thinking_dropped", "path": path, "reason": reason}


def _write_item(role: str, block: Any) -> str:
    return f"{role} {to_canonical(strip_cache_marks(block))}"


def _is_modified(block: Block, issued: _Issued) -> bool:
    """Return whether a block came back changed. Text in a block that was sent without its text is ignored."""
    was, now = issued.block, strip_cache_marks(block)
    if was.get("thinking") == "":
        now = {**now, "thinking": ""}
    return to_canonical(was) != to_canonical(now)


def _iterate_parts(exactly: dict[str, Any], dropped: set[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the parts of a request in the order of the cache, each with the ttl of its mark."""
    found: list[tuple[str, str | None]] = [
        (to_canonical(strip_cache_marks(block)), _find_ttl(block))
        for block in [*(exactly.get("tools") or []), *to_blocks(exactly.get("system"))]
    ]
    for i, message in enumerate(exactly["messages"]):
        for j, block in enumerate(to_blocks(message["content"])):
            if f"messages.{i}.content.{j}" not in dropped:
                found.append((_write_item(message["role"], block), _find_ttl(block)))
    automatic = _find_ttl(exactly)
    if automatic and found:
        found[-1] = (found[-1][0], automatic)
    yield from found


def _find_ttl(block: Any) -> str | None:
    marked = [block, *(block["content"] if isinstance(block.get("content"), list) else [])]
    ttls = [(inner.get("cache_control") or {}).get("ttl", "5m") for inner in marked if inner.get("cache_control")]
    return ttls[-1] if ttls else None


def stream(message: dict[str, Any]) -> Iterator[bytes]:
    """Yield the events of a stream with this message."""
    usage = {**message["usage"], "output_tokens": 1}
    opening = {**message, "content": [], "stop_reason": None, "usage": usage}
    yield _make_event({"type": "message_start", "message": opening})
    for index, block in enumerate(message["content"]):
        start, deltas = _split_block(block)
        yield _make_event({"type": "content_block_start", "index": index, "content_block": start})
        if index == 0:
            yield _make_event({"type": "ping"})
        for delta in deltas:
            yield _make_event({"type": "content_block_delta", "index": index, "delta": delta})
        yield _make_event({"type": "content_block_stop", "index": index})
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
    yield _make_event({"type": "message_delta", "delta": ending, "usage": message["usage"]})
    yield _make_event({"type": "message_stop"})


def _make_event(data: dict[str, Any]) -> bytes:
    return f"event: {data['type']}\ndata: {dump(data)}\n\n".encode()


def _split_block(block: Block) -> tuple[Block, list[Block]]:
    """How a block begins in a stream, and what is added to it."""
    kind = block["type"]
    if kind == "text":
        cited = block.get("citations") or []
        start = {**block, "text": "", **({"citations": []} if cited else {})}
        deltas = [{"type": "text_delta", "text": piece} for piece in _split(block["text"])]
        return start, deltas + [{"type": "citations_delta", "citation": citation} for citation in cited]
    if kind == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _split(block["thinking"])]
        sealed = {"type": "signature_delta", "signature": block["signature"]}
        return {**block, "thinking": "", "signature": ""}, [*deltas, sealed]
    if kind in CALLS:
        pieces = ["", *_split(dump(block["input"]))]
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    if kind == "compaction" and block["content"] is not None:
        return {**block, "content": None}, [{"type": "compaction_delta", "content": block["content"]}]
    return block, []


def _split(text: str, size: int = 9) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


# Answers


def obey(body: dict[str, Any]) -> tuple[list[Block], str]:
    """Return the blocks and the stop reason that the flags in the user's last text ask for.

    These flags make one answer each, in their order: `#tool` thinks and calls the first tool, `#tools` calls two at
    once, `#pause` stops in the middle of a search. Then comes the final answer, shaped by `#think`, `#redacted`,
    `#server` (a search, its results and cited text), `#long` (out of tokens) and `#compact`. `#odd` adds unknown fields
    with unusual literals to every block. The same request gets the same answer.
    """
    text, step = _find_last_text(body["messages"])
    flags = re.findall(r"#(\w+)", text)
    words = " ".join(re.sub(r"#\w+", "", text).split()) or "nothing"
    steps = [flag for flag in flags if flag in STEPS]
    seed = hashlib.sha256(
        to_canonical([strip_cache_marks(message) for message in body["messages"]]).encode()
    ).hexdigest()
    now = steps[step] if step < len(steps) else None
    if now in ("tool", "tools") and not body.get("tools"):
        now = None
    blocks: list[Block] = []
    if "compact" in flags and now is None:
        blocks.append({"type": "compaction", "content": f"So far: {words}."})
    if "redacted" in flags:
        blocks.append({"type": "redacted_thinking"})
    if "think" in flags or now in ("tool", "tools"):
        blocks.append({"type": "thinking", "thinking": f"Step {step + 1}. They said: {words}."})
    if (body.get("thinking") or {}).get("type") == "disabled":
        blocks = [block for block in blocks if block["type"] not in THINKING]
    blocks = _finish_search(body["messages"], words) + blocks
    if now in ("tool", "tools"):
        blocks += _make_tool_calls(body["tools"], words, seed, 2 if now == "tools" else 1, "odd" in flags)
        stop = "tool_use"
    elif now == "pause":
        blocks += _make_search(words, seed)[:1]
        stop = "pause_turn"
    else:
        blocks += _make_final_blocks(body["messages"], flags, words, seed)
        stop = "max_tokens" if "long" in flags else "end_turn"
    if "odd" in flags:
        blocks = [{**block, **{key: Raw(text) for key, text in ODD.items()}} for block in blocks]
    return blocks, stop


def _find_last_text(messages: list[dict[str, Any]]) -> tuple[str, int]:
    """Return the user's last text, and the number of answers since."""
    for i in range(len(messages) - 1, -1, -1):
        if messages[i]["role"] == "user":
            texts = [block["text"] for block in to_blocks(messages[i]["content"]) if block["type"] == "text"]
            if texts:
                return "\n".join(texts), sum(message["role"] == "assistant" for message in messages[i + 1 :])
    return "", 0


def _make_tool_calls(tools: list[Block], words: str, seed: str, count: int, odd: bool) -> list[Block]:
    ours = [tool for tool in tools if "input_schema" in tool]
    values = {"string": words, "integer": 7, "number": Raw("1e2") if odd else 100.5, "boolean": True, "array": []}
    calls: list[Block] = []
    for n in range(count if ours else 0):
        tool = ours[n % len(ours)]
        wanted = tool["input_schema"].get("properties", {})
        given: Any = {name: values.get(schema.get("type"), {}) for name, schema in wanted.items()}
        if odd:
            members = (f"{json.dumps(name)}: {_to_json(value)}" for name, value in given.items())
            given = Raw("{" + ", ".join(members) + "}")
        calls.append({"type": "tool_use", "id": f"toolu_{seed[:20]}{n}", "name": tool["name"], "input": given})
    return calls


def _to_json(value: Any) -> str:
    return str(value) if isinstance(value, Raw) else json.dumps(value)


def _make_search(words: str, seed: str) -> list[Block]:
    call = f"srvtoolu_{seed[:20]}"
    found = {
        "type": "web_search_result",
        "url": "https://example.com/page",
        "title": "A page",
        "encrypted_content": base64.b64encode(words.encode()).decode(),
        "page_age": None,
    }
    return [
        {"type": "server_tool_use", "id": call, "name": "web_search", "input": {"query": words}},
        {"type": "web_search_tool_result", "tool_use_id": call, "content": [found]},
    ]


def _finish_search(messages: list[dict[str, Any]], words: str) -> list[Block]:
    """Return the result of the search in which the turn was paused, if there is one."""
    last = to_blocks(messages[-1]["content"])
    if messages[-1]["role"] != "assistant" or not last or last[-1]["type"] != "server_tool_use":
        return []
    return [{**_make_search(words, "")[1], "tool_use_id": last[-1]["id"]}]


def _make_final_blocks(messages: list[dict[str, Any]], flags: list[str], words: str, seed: str) -> list[Block]:
    last = to_blocks(messages[-1]["content"])
    blocks: list[Block] = []
    citations: list[Block] = []
    if "server" in flags:
        blocks += _make_search(words, seed)
        citations = [
            {
                "type": "web_search_result_location",
                "url": "https://example.com/page",
                "title": "A page",
                "encrypted_index": "RW8=",
                "cited_text": words,
            }
        ]
    results = [
        to_canonical(strip_cache_marks(block).get("content")) for block in last if block["type"] == "tool_result"
    ]
    said = f"You said: {words}." + (f" The tools said: {', '.join(results)}." if results else "")
    text: Block = {"type": "text", "text": said[: len(said) // 2] if "long" in flags else said}
    return [*blocks, {"citations": citations, **text} if citations else text]


# HTTP


def _make_handler(strict: StrictAnthropic) -> type[HttpHandler]:
    class Anthropic(HttpHandler):
        def do_POST(self) -> None:
            status, request_id, body, fault = strict.answer(self.path, self.lower_headers(), self.read_body())
            try:
                if fault.reset and not fault.after:
                    self._reset()
                elif isinstance(body, bytes):
                    self._whole(status, request_id, body, fault)
                else:
                    self._stream(request_id, body, fault)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def _head(self, status: int, request_id: str, headers: dict[str, str]) -> None:
            self.send_head(status, {"request-id": request_id, "anthropic-organization-id": "strict", **headers})

        def _whole(self, status: int, request_id: str, body: bytes, fault: Fault) -> None:
            headers = {"content-type": "application/json", "content-length": str(len(body)), **fault.headers}
            self._head(status, request_id, headers)
            self._write_with_fault(body, fault, self.wfile.write)

        def _stream(self, request_id: str, events: list[bytes], fault: Fault) -> None:
            if fault.event is not None:
                events = [*events[: fault.after], fault.event]
            headers = {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"}
            self._head(200, request_id, {**headers, **fault.headers})
            size = strict.chunk_bytes
            whole = b"".join(events)
            chunks = [whole[at : at + size] for at in range(0, len(whole), size)] if size else events
            sent = 0
            for chunk in chunks:
                if fault.event is None and (fault.reset or fault.seconds) and sent <= fault.after < sent + len(chunk):
                    self._write_with_fault(
                        chunk, Fault(**{**vars(fault), "after": fault.after - sent}), self.send_chunk
                    )
                    if self.close_connection:
                        return
                else:
                    self.send_chunk(chunk)
                sent += len(chunk)
            self.end_stream()

        def _write_with_fault(self, body: bytes, fault: Fault, write: Callable[[bytes], Any]) -> None:
            """Write a body with the pause or the reset that the fault asks for."""
            if fault.reset or fault.seconds:
                if body[: fault.after]:
                    write(body[: fault.after])
                body = body[fault.after :]
                if fault.reset:
                    self._reset()
                    return
                strict._over.wait(fault.seconds)
            if body:
                write(body)

        def _reset(self) -> None:
            self.close_connection = True
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(self.connection.detach())

    return Anthropic
