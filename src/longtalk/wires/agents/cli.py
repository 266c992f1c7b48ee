"""The interface that each agent program implements, and the values that describe one run.

`AgentCommand` says how to run a program; `ParsedLine` says what a line of its output means. Each program implements
`AgentCli`; the code that all programs share is in `wire.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from longtalk._util import json_bytes
from longtalk.transcript.transcript import Finish
from longtalk.usage import Usage
from longtalk.wires.native import object_fields

SYSTEM_FILE = "<longtalk:system>"
"""A placeholder, in arguments and environment variables, for the path of the file that contains the system text."""
STAMP_TYPE = b'"longtalk"'
"""The `type` of the line that Longtalk adds after the last line of the program."""
STALE_SESSION = b"its own record of the conversation is missing, in use, or changed"
NOT_LOGGED_IN = re.compile(r"not logged in|please run /login|(?:specify|set|invalid) .{0,20}API.?KEY", re.IGNORECASE)
"""A pattern for the messages that agents print if the user has not logged in."""
TIMEOUT, SILENCE = 3600.0, 600.0


class AgentCommand(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to run an agent program for one answer. Encoded as JSON, this is the body of a request."""

    arguments: tuple[str, ...]
    input: str
    system: str | None = None
    """The system text. It is written to a file while the program runs; `SYSTEM_FILE` stands for the file's path."""
    variables: dict[str, str] = {}
    """Environment variables to set for the program."""
    env: tuple[str, ...] = ()
    """Names of additional environment variables to pass on to the program."""
    cwd: str | None = None
    timeout: float = TIMEOUT
    """Seconds after which the program is terminated."""
    silence: float = SILENCE
    """Seconds without output after which the program is terminated."""
    session: str = ""
    """The id of the program's own session to resume; empty to start a new one."""
    stamp: str = ""
    """The fingerprint that the resumed session had after its last answer."""
    before: msgspec.Raw = msgspec.Raw(b"null")
    """For a program that reports totals for the whole session: the totals after the previous answer; else null."""


class SessionStamp(msgspec.Struct, frozen=True, omit_defaults=True, tag="longtalk"):
    """The line that Longtalk adds after the program's last line, to record the state of the session."""

    stamp: str = ""
    before: msgspec.Raw = msgspec.Raw(b"null")


class ParsedLine(msgspec.Struct, frozen=True):
    """The meaning of one line of a program's output."""

    text: str = ""
    is_partial: bool = False
    """Whether `text` is only a piece of a longer text."""
    is_stored: bool = True
    """Whether the line is stored with the answer."""
    session: str = ""
    is_final: bool = False
    """Whether this is the last line of an answer."""
    usage: bytes | None = None
    finish: Finish = "stop"
    error: bytes | None = None
    retry_reason: str = ""
    """Why the program retries its request; "" if it does not."""


class AgentCli(Protocol):
    """An agent program: how to run it, and what the lines of its output mean."""

    name: str
    program: str
    package: str
    """The npm package that installs the program."""
    home: tuple[str, str, str]
    """Where the program keeps its files: the name of an environment variable, the folder below the path in that
    variable, and the folder below the user's home that is used if the variable is not set.
    """
    sessions: str
    """A glob pattern for the files of a session: `{id}` stands for its id, `{start}` for the id's first characters."""
    passed_variables: tuple[str, ...]
    """Patterns for the environment variables that the program needs in addition to those that every agent gets."""
    quiet_variables: Mapping[str, str]
    """Environment variables that turn off telemetry and updates. They apply unless the user has set them."""
    repeats_text: bool
    """Whether the program prints a text in full after it has printed the text in pieces."""
    reports_totals: bool
    """Whether the program reports the usage of the whole session instead of the last answer."""
    session_lost_texts: tuple[bytes, ...]
    """Texts that mark the program's error message for a session that can't be resumed."""

    def configure_access(self, base_url: str, key: str | None) -> tuple[list[str], dict[str, str]]:
        """Return the arguments and environment variables that make the program use this address and key."""
        ...

    def build_command(
        self, model: str, session: str, more: Sequence[str], *, system: bool, stream: bool
    ) -> tuple[list[str], dict[str, str]]:
        """Return the arguments and environment variables that make the program answer in lines of JSON.

        `session` is the session to resume, or "" for a new one. The arguments include `more`, which the caller passed.
        `system` says whether there is a system text, and `stream` whether to print the answer in pieces.
        """
        ...

    def no_session_arguments(self) -> list[str]:
        """Return the arguments that stop the program from recording a session."""
        ...

    def parse_line(self, line: Mapping[str, bytes]) -> ParsedLine:
        """Return the meaning of one line of the program's output."""
        ...

    def render_line(self, text: str) -> bytes:
        """Return a line as the program would print it for an answer with this text."""
        ...

    def read_usage(self, raw: bytes) -> Usage:
        """Return the token counts in the program's usage report."""
        ...


def find_usage(line: Mapping[str, bytes], name: str) -> bytes | None:
    """Return the usage report in the field `name` of a line, or None if the field is not an object."""
    return line[name] if line.get(name, b"")[:1] == b"{" else None


def to_token_count(value: object) -> int:
    """Return a reported number of tokens as an int, or 0 if the value is not a plausible count."""
    return int(value) if isinstance(value, int | float) and 0 <= value < 10**12 else 0


def to_error_report(error: bytes, status: str) -> bytes:
    """Return an agent's error as JSON with `code` and `message`.

    The code is the HTTP status that the pattern `status` finds in the message, or "invalid_request" if it finds none.
    """
    message = object_fields(error).get("message", b"") if error[:1] == b"{" else error
    text = json_bytes.text(message) or "the program failed without a message."
    found = re.search(status, text)
    return json_bytes.encode({"code": found[1] if found else "invalid_request", "message": text})
