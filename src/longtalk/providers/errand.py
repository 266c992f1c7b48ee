"""What a run of an agent needs on this machine: its command, files and variables, and its session to itself."""

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

from longtalk import _json
from longtalk.errors import InputError, RequestRefused
from longtalk.wires.agent import Agent
from longtalk.wires.speech import STALE, SYSTEM, Ours, Speech, Start

PASSED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TERM", "TZ", "TMPDIR", "XDG_*"),
    *("*_PROXY", "*_proxy", "SSL_CERT_*", "NODE_EXTRA_CA_CERTS", "NODE_OPTIONS"),
    # Without these nothing runs on Windows.
    *("APPDATA", "COMSPEC", "LOCALAPPDATA", "PATHEXT", "PROGRAMDATA", "SYSTEMROOT", "TEMP", "TMP", "USERPROFILE"),
)
"""Variables that every program may see."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{7,99}")
"""It becomes an argument: none may look like an option."""
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|AUTH|CREDENTIAL", re.IGNORECASE)
_WITH_PASSWORD = re.compile(r"://[^/\s]*@")
_SHORT = 6
_COMPLAINT = 4000


class Errand:
    """One run."""

    def __init__(self, wire: Agent, start: Start, access: tuple[Sequence[str], Mapping[str, str]]) -> None:
        self._wire = wire
        self._start = start
        self._access = access
        self._session = start.session
        self._rest: list[bytes] = []
        self._strange: deque[str] = deque(maxlen=20)
        self._held = contextlib.ExitStack()
        self._closed = False
        self._lock = allocate_lock()
        self.command: list[str] = []
        self.settings: dict[str, Any] = {}
        self.printed_all = False
        self.begun = False
        """Whether a line has come."""
        self.final = False
        """Whether the last line has come."""
        self.failed = False
        """Whether a line says that there will be no answer."""
        self.broken = False
        """Whether it ended in the middle of one."""
        self.trouble = ""
        """Why it tries again and again."""

    def open(self) -> None:
        """Get all that it takes. `RequestRefused` with `STALE` says that its session is not what it was, or not free.

        Whoever is cancelled meanwhile closes it first: then nothing is kept.
        """
        start, speech = self._start, self._wire.speech
        with contextlib.ExitStack() as held:
            if start.session and not self._is_ours(held):
                raise RequestRefused(STALE.decode(), status=404, body=STALE)
            system = held.enter_context(_file(start.system)) if start.system is not None else ""
            arguments = [each.replace(SYSTEM, system) for each in self._arguments(self._access[0])]
            variables = {name: each.replace(SYSTEM, system) for name, each in start.variables.items()}
            variables = {**self._access[1], **variables}
            if any("\0" in each for each in (*arguments, *variables.values())):
                raise InputError(f"What {speech.name} is run with can't have a NUL character in it.")
            self._errors = held.enter_context(tempfile.TemporaryFile())
            prompt = held.enter_context(tempfile.TemporaryFile())
            prompt.write(start.input.encode("utf-8", "replace"))
            prompt.seek(0)
            self.command = [_found(speech), *arguments]
            self.settings = {
                "stdin": prompt,
                "stderr": self._errors,
                "env": {**_passed_on(speech, start.env), **variables},
                "cwd": _folder(start.cwd),
            }
            with self._lock:
                if not self._closed:
                    self._held = held.pop_all()

    def _arguments(self, access: Sequence[str]) -> list[str]:
        """Settings go behind the name of a command of the program's, where there is one."""
        first = 1 if self._start.arguments[:1] and not self._start.arguments[0].startswith("-") else 0
        return [*self._start.arguments[:first], *access, *self._start.arguments[first:]]

    def _is_ours(self, open_files: contextlib.ExitStack) -> bool:
        """Whether the session's file is there, free, and as it was. Somebody may remove it meanwhile."""
        try:
            files = _files(self._wire.speech, self._session)
            free = all(_locked(open_files.enter_context(path.open("rb"))) for path in files)
            return free and bool(files) and _stamp(files) == self._start.stamp
        except OSError:
            return False

    def lines(self, printed: bytes | None) -> Iterator[bytes]:
        """The whole lines of JSON in what was printed last."""
        self.printed_all = printed is None
        first, *more = (printed if printed is not None else b"\n").split(b"\n")
        self._rest.append(first)
        for rest in more:
            line, self._rest = b"".join(self._rest).strip(), [rest]
            if line and self._is_heard(line):
                yield line

    def _is_heard(self, line: bytes) -> bool:
        """Whether it is a line of JSON. Whatever else a program prints may be a complaint."""
        try:
            heard = self._wire.hear(_json.fields(line))
        except ValueError:
            # The beginning of a line may quote what was said to it: no complaint.
            self.broken = self.printed_all and line.startswith(b'{"')
            self._strange += [] if self.broken else [self._without_secrets(line)[:500]]
            return False
        self.trouble = self._without_secrets(heard.trouble.encode("utf-8", "replace"))[:300] or self.trouble
        self._session = heard.session or self._session
        self.begun = True
        self.final = self.final or heard.final
        self.failed = self.failed or heard.error is not None
        return True

    def last_line(self, *, whole: bool) -> bytes:
        """How the session looks now, as a line of ours. After a run that had to be ended nobody goes on with it."""
        stamp = ""
        with contextlib.suppress(OSError):
            stamp = _stamp(_files(self._wire.speech, self._session)) if whole else ""
        return _json.encode(Ours(stamp=stamp, before=self._start.before))

    def complaint(self) -> str:
        """What it printed beside an answer, in one line, without a secret in it, and without warnings."""
        start = max(0, self._errors.seek(0, os.SEEK_END) - _COMPLAINT)
        self._errors.seek(start)
        said = self._errors.read()
        # Half a word may be half a secret.
        said = re.sub(rb"^\S*", b"", said) if start else said
        said = re.sub(rb"(?im)^warning:.*$", b"", said)
        return " ".join(" ".join((*self._strange, self._without_secrets(said))).split())

    def _without_secrets(self, said: bytes) -> str:
        text = said.decode("utf-8", "replace")
        for secret in _secrets(self.settings["env"], self._start.env):
            text = text.replace(secret, "…")
        return text

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._held.close()


def place_of(speech: Speech) -> str:
    """A digest of where an agent keeps its sessions: on which machine, in which folder."""
    return hashlib.sha256(f"{platform.node()} {_home(speech)}".encode("utf-8", "replace")).hexdigest()[:16]


def _home(speech: Speech) -> Path:
    variable, below, usual = speech.home
    given = os.environ.get(variable)
    return Path(given) / below if given else Path.home() / usual


def _files(speech: Speech, session: str) -> list[Path]:
    if not _ID.fullmatch(session):
        return []
    return sorted(_home(speech).glob(speech.sessions.format(id=session, start=session[:8])))


def _stamp(files: Sequence[Path]) -> str:
    """What changes when somebody goes on with a session; nothing if there is none."""
    seen = [(path.name, about.st_size, about.st_mtime_ns) for path in files for about in [path.stat()]]
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:24] if seen else ""


def _secrets(variables: Mapping[str, str], named: Sequence[str]) -> list[str]:
    """Values that nobody else is to read, long ones first: one may begin like another."""
    found = {
        value
        for name, value in variables.items()
        if len(value) > _SHORT and (_SECRET.search(name) or _WITH_PASSWORD.search(value) or _is_among(name, named))
    }
    return sorted(found, key=len, reverse=True)


def _locked(file: Any) -> bool:
    """Whether nobody else has this file; nobody will until it is closed."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _found(speech: Speech) -> str:
    found = shutil.which(speech.program)
    if found is None:
        raise InputError(
            f"{speech.name} runs the program {speech.program!r}, which is not installed here (or not on PATH): "
            f"npm install -g {speech.package}"
        )
    # It may be started in another folder.
    return os.path.abspath(found)


def _folder(cwd: str | None) -> str | None:
    if cwd is not None and not os.path.isdir(cwd):
        raise InputError(f"There is no folder {cwd!r} to run in.")
    return cwd


def _passed_on(speech: Speech, more: Sequence[str]) -> dict[str, str]:
    names = (*PASSED, *speech.passed, *more)
    return {**speech.quiet, **{name: value for name, value in os.environ.items() if _is_among(name, names)}}


def _is_among(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name, each) for each in patterns)


@contextlib.contextmanager
def _file(text: str) -> Iterator[str]:
    """A file with this text that nobody else can read, as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="longtalk-") as folder:
        path = Path(folder) / "system.md"
        path.write_text(text, encoding="utf-8", errors="replace")
        yield str(path)
