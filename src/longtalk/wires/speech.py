"""What agents on the command line have in common, and what differs: how to run one, and what its lines say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from longtalk import _json
from longtalk.transcript import Finish
from longtalk.wires.base import Usage

SYSTEM = "<longtalk:system>"
"""In arguments and variables: the file that holds the system text."""
OURS = b'"longtalk"'
"""The type of the last line, which is ours."""
STALE = b"its own record of the conversation is gone, in use, or not what it was"
NO_KEY = re.compile(r"not logged in|please run /login|(?:specify|set|invalid) .{0,20}API.?KEY", re.IGNORECASE)
"""What an agent says that nobody has logged in to."""
TIMEOUT, SILENCE = 3600.0, 600.0


class Start(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to run an agent."""

    arguments: tuple[str, ...]
    input: str
    system: str | None = None
    """For a file that is there while the program runs: `SYSTEM` names it."""
    variables: dict[str, str] = {}
    """Of its environment, beside those that are passed on …"""
    env: tuple[str, ...] = ()
    """… and the names of more that are."""
    cwd: str | None = None
    timeout: float = TIMEOUT
    """Seconds that it may run."""
    silence: float = SILENCE
    """Seconds in which it may say nothing."""
    session: str = ""
    """Which one of its own it goes on with …"""
    stamp: str = ""
    """… and how that looked when it was left."""
    before: msgspec.Raw = msgspec.Raw(b"null")
    """What it had reported by then, where it counts on and on."""


class Ours(msgspec.Struct, frozen=True, omit_defaults=True, tag="longtalk"):
    """What is added behind the last line: how the session looks now."""

    stamp: str = ""
    before: msgspec.Raw = msgspec.Raw(b"null")


class Heard(msgspec.Struct, frozen=True):
    """What a line says."""

    text: str = ""
    partial: bool = False
    """Whether it is a piece of a text …"""
    kept: bool = True
    """… and whether the line is worth keeping."""
    session: str = ""
    final: bool = False
    """Whether it is the last one."""
    usage: bytes | None = None
    finish: Finish = "stop"
    error: bytes | None = None
    trouble: str = ""
    """Why it has to try again."""


class Speech(Protocol):
    """What differs between agents."""

    name: str
    program: str
    package: str
    """Where it comes from, in npm."""
    home: tuple[str, str, str]
    """A variable that says where it keeps its files, the folder below that, and the folder without it."""
    sessions: str
    """Below that: the files of a session, by its `{id}` or the `{start}` of it."""
    passed: tuple[str, ...]
    """Variables of its own that are passed on; a last `*` stands for anything."""
    quiet: Mapping[str, str]
    """Variables that keep it from doing what nobody asked for, unless they are set."""
    repeats: bool
    """Whether a text that it prints in pieces comes whole as well."""
    sums: bool
    """Whether it reports what its session has used so far, not what this answer has."""
    gone: tuple[bytes, ...]
    """What it says of a session that it does not have."""

    def access(self, base_url: str, key: str | None) -> tuple[list[str], dict[str, str]]:
        """Arguments and variables that make it use this address and key."""
        ...

    def start(
        self, model: str, session: str, more: Sequence[str], *, system: bool, stream: bool
    ) -> tuple[list[str], dict[str, str]]:
        """Arguments, with those of the caller's, and variables that make it answer, in lines of JSON."""
        ...

    def unrecorded(self) -> list[str]:
        """Arguments that keep it from keeping a session."""
        ...

    def hear(self, line: Mapping[str, bytes]) -> Heard: ...

    def line(self, text: str) -> bytes:
        """A line that says this."""
        ...

    def count(self, raw: bytes) -> Usage: ...


def counts(line: Mapping[str, bytes], name: str) -> bytes | None:
    """What a line reports as used, if it does."""
    return line[name] if line.get(name, b"")[:1] == b"{" else None


def number(value: object) -> int:
    """A count, as somebody reports it."""
    return int(value) if isinstance(value, int | float) and 0 <= value < 10**12 else 0


def report(error: bytes, status: str) -> bytes:
    """What an agent says went wrong, as an error that can be told by its status, if that is in its words."""
    message = _json.fields(error).get("message", b"") if error[:1] == b"{" else error
    said = _json.text(message) or "it failed."
    found = re.search(status, said)
    return _json.encode({"code": found[1] if found else "invalid_request", "message": said})
