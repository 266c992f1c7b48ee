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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from longtalk import _json
from longtalk.errors import InputError, RequestRefused
from longtalk.wires.agent import STALE, SYSTEM, Agent, Ours, Speech, Start

PASSED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TERM", "TZ", "TMPDIR", "XDG_*"),
    *("*_PROXY", "*_proxy", "SSL_CERT_*", "NODE_EXTRA_CA_CERTS", "NODE_OPTIONS"),
    # Without these nothing runs on Windows.
    *("APPDATA", "COMSPEC", "LOCALAPPDATA", "PATHEXT", "PROGRAMDATA", "SYSTEMROOT", "TEMP", "TMP", "USERPROFILE"),
)
"""Variables that every program may see."""
_ID = re.compile(r"[A-Za-z0-9-]{8,100}")
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|AUTH|CREDENTIAL", re.IGNORECASE)
_SHORT = 6
_COMPLAINT = 4000


class Errand:
    """One run. Raises `RequestRefused` with `STALE` when its session is not what it was, or not free."""

    def __init__(self, wire: Agent, label: str, start: Start, access: tuple[Sequence[str], Mapping[str, str]]) -> None:
        self._wire = wire
        self._label = label
        self._start = start
        self._session = start.session
        self._rest = b""
        self._strange: list[bytes] = []
        self.printed_all = False
        self.final = False
        """Whether the last line has come."""
        with contextlib.ExitStack() as held:
            if start.session:
                held.enter_context(self._claimed())
            self._prompt = held.enter_context(tempfile.TemporaryFile())
            self._errors = held.enter_context(tempfile.TemporaryFile())
            self._prompt.write(start.input.encode("utf-8", "replace"))
            self._prompt.seek(0)
            system = held.enter_context(_file(start.system)) if start.system is not None else ""
            speech = wire.speech
            self.command = [_found(speech), *(each.replace(SYSTEM, system) for each in self._arguments(access[0]))]
            variables = {**access[1], **{name: each.replace(SYSTEM, system) for name, each in start.variables.items()}}
            self.settings: dict[str, Any] = {
                "stdin": self._prompt,
                "stderr": self._errors,
                "env": {**_passed_on(speech, start.env), **variables},
                "cwd": _folder(start.cwd),
            }
            self._held = held.pop_all()

    def _arguments(self, access: Sequence[str]) -> list[str]:
        """Settings go behind the name of a command of the program's, where there is one."""
        first = 1 if self._start.arguments[:1] and not self._start.arguments[0].startswith("-") else 0
        return [*self._start.arguments[:first], *access, *self._start.arguments[first:]]

    @contextlib.contextmanager
    def _claimed(self) -> Iterator[None]:
        """The session's file to ourselves, as it was."""
        files = _files(self._wire.speech, self._session)
        with contextlib.ExitStack() as open_files:
            free = all(_locked(open_files.enter_context(path.open("rb"))) for path in files)
            if not free or not files or _stamp(files) != self._start.stamp:
                raise RequestRefused(STALE.decode(), status=404, body=STALE)
            yield

    def lines(self, printed: bytes | None) -> Iterator[bytes]:
        """The whole lines of JSON in what was printed last."""
        self.printed_all = printed is None
        *whole, self._rest = (self._rest + (printed if printed is not None else b"\n")).split(b"\n")
        for line in whole:
            if line[:1] != b"{":
                self._strange.append(line[:500])
                continue
            heard = self._wire.hear(_json.fields(line))
            self._session = heard.session or self._session
            self.final = self.final or heard.final
            yield line

    def last_line(self) -> bytes:
        """How the session looks now, as a line of ours."""
        stamp = _stamp(_files(self._wire.speech, self._session)) if self._session else ""
        return _json.encode(Ours(stamp=stamp, before=self._start.before))

    def complaint(self) -> str:
        """What it printed beside an answer, in one line, without a secret in it."""
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - _COMPLAINT))
        said = b"\n".join([*self._strange[-20:], self._errors.read()]).decode("utf-8", "replace")
        for name, value in self.settings["env"].items():
            if _SECRET.search(name) and len(value) > _SHORT:
                said = said.replace(value, "…")
        return " ".join(said.split())

    def close(self) -> None:
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
    return found


def _folder(cwd: str | None) -> str | None:
    if cwd is not None and not os.path.isdir(cwd):
        raise InputError(f"There is no folder {cwd!r} to run in.")
    return cwd


def _passed_on(speech: Speech, more: Sequence[str]) -> dict[str, str]:
    names = (*PASSED, *speech.passed, *more)
    passed = {name: value for name, value in os.environ.items() if any(fnmatch.fnmatch(name, each) for each in names)}
    return {**speech.quiet, **passed}


@contextlib.contextmanager
def _file(text: str) -> Iterator[str]:
    """A file with this text that nobody else can read, as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="longtalk-") as folder:
        path = Path(folder) / "system.md"
        path.write_text(text, encoding="utf-8", errors="replace")
        yield str(path)
