"""One run of a command-line agent: its command, environment and files, the lock on its session, and its output."""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import os
import platform
import re
import shutil
import tempfile
from _thread import allocate_lock
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from longtalk._util import json_bytes
from longtalk.errors import InputError, RequestRefused
from longtalk.providers.redaction import Redactor, find_named
from longtalk.wires.agents.cli import STALE_SESSION, SYSTEM_FILE, AgentCli, AgentCommand, ParsedLine, SessionStamp
from longtalk.wires.agents.wire import AgentWire

PASSED_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TERM", "TZ", "TMPDIR", "XDG_*"),
    *("*_PROXY", "*_proxy", "SSL_CERT_*", "NODE_EXTRA_CA_CERTS", "NODE_OPTIONS"),
    # Windows programs need these.
    *("APPDATA", "COMSPEC", "LOCALAPPDATA", "PATHEXT", "PROGRAMDATA", "SYSTEMROOT", "TEMP", "TMP", "USERPROFILE"),
)
"""Patterns for the environment variables that every agent gets. `*` matches any text."""
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{7,99}")
"""A pattern for valid session ids. An id is passed as an argument, so it must not look like an option."""
_ERROR_BYTES = 4000


class AgentRun:
    """One run of an agent program, from its preparation to the last line of its output."""

    def __init__(
        self, wire: AgentWire, agent_command: AgentCommand, access: tuple[Sequence[str], Mapping[str, str]]
    ) -> None:
        self._wire = wire
        self._agent_command = agent_command
        self._access = access
        self._session = agent_command.session
        self._rest: list[bytes] = []
        self._other_lines: deque[str] = deque(maxlen=20)
        self._resources = contextlib.ExitStack()
        self._closed = False
        self._lock = allocate_lock()
        self.redactor = Redactor(self._find_secrets)
        self.command: list[str] = []
        self.settings: dict[str, Any] = {}
        self.printed_all = False
        self.begun = False
        """True once a line of JSON has arrived."""
        self.final = False
        """True once the line that ends the answer has arrived."""
        self.failed = False
        """True once a line has reported an error in place of an answer."""
        self.broken = False
        """True if the output ended in the middle of a line."""
        self.retry_reason = ""
        """The last problem that the program reported before a retry."""

    def open(self) -> None:
        """Lock the session, write the input files, and set `command` and `settings`.

        Raise `RequestRefused` with the body `STALE_SESSION` if the session is missing, in use, or changed. If `close`
        was called in the meantime, the lock and the files are released at once.
        """
        agent_command, cli = self._agent_command, self._wire.cli
        with contextlib.ExitStack() as resources:
            if agent_command.session and not self._lock_session(resources):
                raise RequestRefused(STALE_SESSION.decode(), status=404, body=STALE_SESSION)
            system = (
                resources.enter_context(_private_file(agent_command.system)) if agent_command.system is not None else ""
            )
            arguments = [each.replace(SYSTEM_FILE, system) for each in self._insert_arguments(self._access[0])]
            variables = {name: each.replace(SYSTEM_FILE, system) for name, each in agent_command.variables.items()}
            variables = {**self._access[1], **variables}
            if any("\0" in each for each in (*arguments, *variables.values())):
                raise InputError(f"An argument or variable for {cli.name} contains a NUL character: remove it.")
            self._errors = resources.enter_context(tempfile.TemporaryFile())
            prompt = resources.enter_context(tempfile.TemporaryFile())
            prompt.write(agent_command.input.encode("utf-8", "replace"))
            prompt.seek(0)
            self.command = [_find_program(cli), *arguments]
            self.settings = {
                "stdin": prompt,
                "stderr": self._errors,
                "env": {**_build_environment(cli, agent_command.env), **variables},
                "cwd": _check_folder(agent_command.cwd),
            }
            with self._lock:
                if not self._closed:
                    self._resources = resources.pop_all()

    def _insert_arguments(self, access: Sequence[str]) -> list[str]:
        """Return the command's arguments with `access` inserted after the subcommand, or at the start without one."""
        first = 1 if self._agent_command.arguments[:1] and not self._agent_command.arguments[0].startswith("-") else 0
        return [*self._agent_command.arguments[:first], *access, *self._agent_command.arguments[first:]]

    def _lock_session(self, resources: contextlib.ExitStack) -> bool:
        """Lock the session's files. Return False if they are missing, changed, or locked by another process."""
        try:
            files = _find_session_files(self._wire.cli, self._session)
            locked = all(_try_lock(resources.enter_context(path.open("rb"))) for path in files)
            return locked and bool(files) and _digest_files(files) == self._agent_command.stamp
        except OSError:
            return False

    def take_lines(self, printed: bytes | None) -> Iterator[bytes]:
        """Yield each line of JSON that this piece of output completes. `printed` is None at the end of the output.

        Secrets are removed from lines that report a problem. An answer stays as it was printed.
        """
        self.printed_all = printed is None
        first, *more = (printed if printed is not None else b"\n").split(b"\n")
        self._rest.append(first)
        for rest in more:
            line, self._rest = b"".join(self._rest).strip(), [rest]
            if line and (parsed := self._record_line(line)):
                reports = parsed.error is not None or parsed.retry_reason
                yield self.redactor.redact_bytes(line) if reports else line

    def _record_line(self, line: bytes) -> ParsedLine | None:
        """Update the run from a line of the output and return its meaning, or None if the line is not JSON.

        A line that is not JSON is kept, because it may be an error message.
        """
        try:
            parsed = self._wire.parse_line(json_bytes.fields(line))
        except ValueError:
            # A line that was cut off may quote the prompt, so it must not appear in an error message.
            self.broken = self.printed_all and line.startswith(b'{"')
            self._other_lines += [] if self.broken else [self._redact(line)[:500]]
            return None
        self.retry_reason = self.redactor.redact(parsed.retry_reason)[:300] or self.retry_reason
        self._session = parsed.session or self._session
        self.begun = True
        self.final = self.final or parsed.is_final
        self.failed = self.failed or parsed.error is not None
        return parsed

    def stamp_line(self, *, exited: bool) -> bytes:
        """Return a line that records the state of the session file.

        If the program did not exit by itself (`exited` is False), the stamp is empty, so that no later run continues
        the session.
        """
        stamp = ""
        with contextlib.suppress(OSError):
            stamp = _digest_files(_find_session_files(self._wire.cli, self._session)) if exited else ""
        return json_bytes.encode(SessionStamp(stamp=stamp, before=self._agent_command.before))

    def error_output(self) -> str:
        """Return the program's error output on one line, without warnings and with secrets redacted."""
        start = max(0, self._errors.seek(0, os.SEEK_END) - _ERROR_BYTES)
        self._errors.seek(start)
        printed = self._errors.read()
        # The first word may be cut, and half a secret would not be redacted.
        printed = re.sub(rb"^\S*", b"", printed) if start else printed
        printed = re.sub(rb"(?im)^warning:.*$", b"", printed)
        return " ".join(" ".join((*self._other_lines, self._redact(printed))).split())

    def _redact(self, printed: bytes) -> str:
        return self.redactor.redact(printed.decode("utf-8", "replace"))

    def _find_secrets(self) -> list[str]:
        """Return the secrets in the program's environment, including each variable that the caller asked to pass on."""
        variables = self.settings.get("env", self._access[1])
        return list(find_named(variables, lambda name: _matches(name, self._agent_command.env)))

    def close(self) -> None:
        """Unlock the session and remove the input files."""
        with self._lock:
            self._closed = True
        self._resources.close()


def digest_session_location(cli: AgentCli) -> str:
    """Return a digest of the machine's name and the folder in which an agent keeps its sessions."""
    return hashlib.sha256(f"{platform.node()} {_find_home(cli)}".encode("utf-8", "replace")).hexdigest()[:16]


def _find_home(cli: AgentCli) -> Path:
    variable, below, default = cli.home
    folder = os.environ.get(variable)
    return Path(folder) / below if folder else Path.home() / default


def _find_session_files(cli: AgentCli, session: str) -> list[Path]:
    if not _SESSION_ID.fullmatch(session):
        return []
    return sorted(_find_home(cli).glob(cli.sessions.format(id=session, start=session[:8])))


def _digest_files(files: Sequence[Path]) -> str:
    """Return a digest that changes when the session is continued, or "" if there are no files."""
    seen = [(path.name, info.st_size, info.st_mtime_ns) for path in files for info in [path.stat()]]
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:24] if seen else ""


def _try_lock(file: Any) -> bool:
    """Lock a file until it is closed. Return False if another process holds the lock."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _find_program(cli: AgentCli) -> str:
    found = shutil.which(cli.program)
    if found is None:
        raise InputError(
            f"{cli.name} runs the program {cli.program!r}, which is not installed or not on PATH. Install it with: "
            f"npm install -g {cli.package}"
        )
    # The program may be started in another folder.
    return os.path.abspath(found)


def _check_folder(cwd: str | None) -> str | None:
    if cwd is not None and not os.path.isdir(cwd):
        raise InputError(f"The folder {cwd!r} was not found: set the option 'cwd' to an existing folder.")
    return cwd


def _build_environment(cli: AgentCli, more: Sequence[str]) -> dict[str, str]:
    names = (*PASSED_VARIABLES, *cli.passed_variables, *more)
    return {**cli.quiet_variables, **{name: value for name, value in os.environ.items() if _matches(name, names)}}


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name, each) for each in patterns)


@contextlib.contextmanager
def _private_file(text: str) -> Iterator[str]:
    """Write a text to a temporary file that only this user can read, and yield its path."""
    with tempfile.TemporaryDirectory(prefix="longtalk-") as folder:
        path = Path(folder) / "system.md"
        path.write_text(text, encoding="utf-8", errors="replace")
        yield str(path)
