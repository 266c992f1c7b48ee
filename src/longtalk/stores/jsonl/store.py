"""The JSONL store: conversations as human-readable files, one JSON line per entry, in the order of events.

Each owner has a folder, and each conversation a file. A commit is one group of lines (see `folder.py`): its entries,
the turn with model, duration, usage and request key, its records, and a closing line with branch, revision and head.
Unknown line types and keys are from a later version: they are ignored, and kept when the file is rewritten.

A process reads a file once, and afterwards only what other processes have appended.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from longtalk.stores._tree import ConversationTree
from longtalk.stores.base import BranchHead, Commit, DeletionReceipt, HeadMoved
from longtalk.stores.in_memory import TreeStore
from longtalk.stores.jsonl.conversation_file import ConversationFile
from longtalk.stores.jsonl.errors import FileError
from longtalk.stores.jsonl.folder import (
    InterruptedWrite,
    Log,
    list_files,
    list_folders,
    parse_file_name,
    read_first_line,
    to_file_name,
)
from longtalk.stores.jsonl.lines import (
    ConversationLine,
    LeaseLine,
    MetaLine,
    commit_to_lines,
    encode_line,
    meta_to_raw,
    parse_line,
)

T = TypeVar("T")


class JSONL(TreeStore):
    """A store that keeps conversations as JSONL files in a folder.

    A commit always survives the end of the process; with `fsync`, it also survives a power cut. At most `keep`
    conversations stay in memory; the rest are read again when needed.
    """

    def __init__(self, folder: str | os.PathLike[str], *, fsync: bool = False, keep: int = 1_000) -> None:
        self._folder = Path(folder)
        self._fsync = fsync
        self._keep = keep
        self._lock = threading.Lock()
        self._files: OrderedDict[tuple[str, str], ConversationFile] = OrderedDict()
        self._interrupted_writes: list[InterruptedWrite] = []
        self._damaged_files: dict[Path, FileError] = {}

    def __repr__(self) -> str:
        return f"JSONL({str(self._folder)!r})"

    def list_interrupted_writes(self) -> list[InterruptedWrite]:
        """Return the interrupted writes that this store has moved out of conversation files."""
        return list(self._interrupted_writes)

    def list_damaged_files(self) -> list[FileError]:
        """Return an error for each damaged or unreadable file that this store has left out of a list or a search."""
        return list(self._damaged_files.values())

    def _use_trees(self, owner: str, work: Callable[[str, ConversationTree], T]) -> list[T]:
        results: list[T] = []
        for name in self._list_ids(owner):
            # A file that can't be read must not hide the rest.
            with self._note_damage():
                results += self._use_existing(owner, name, work)
        return results

    @contextmanager
    def _note_damage(self) -> Iterator[None]:
        """Suppress an error about a single file, and remember the error for `list_damaged_files`."""
        try:
            yield
        except FileError as problem:
            self._damaged_files[problem.path] = problem

    def _get_file(self, owner: str, conversation: str) -> ConversationFile:
        with self._lock:
            file = self._files.pop((owner, conversation), None) or ConversationFile(self._folder, owner, conversation)
            self._files[owner, conversation] = file
            if len(self._files) > self._keep:
                self._files.popitem(last=False)
            return file

    def _use_tree(self, owner: str, conversation: str, work: Callable[[ConversationTree | None], T]) -> T:
        file = self._get_file(owner, conversation)
        with file.mutex:
            file.refresh()
            return work(file.tree or None)

    def _run_locked(self, owner: str, conversation: str, work: Callable[[ConversationFile], T]) -> T:
        """Lock a conversation's file, read what was appended since the last time, and return the result of `work`."""
        file = self._get_file(owner, conversation)

        def refresh_and_work() -> T:
            file.refresh()
            if file.torn_size:
                self._interrupted_writes.append(file.log.set_aside(file.end.size))
                file.torn_size = 0
            return work(file)

        with file.mutex:
            return file.log.run_locked(refresh_and_work)

    def _list_ids(self, owner: str) -> list[str]:
        found: list[str] = []
        for path in list_files(self._folder / to_file_name(owner)):
            # Skip files that this store hasn't named, and files whose first write is in progress or was interrupted.
            with suppress(ValueError), self._note_damage():
                name = parse_file_name(path)
                if name is None:
                    header = parse_line(read_first_line(path))
                    name = header.id if isinstance(header, ConversationLine) else ""
                if Log(path.parent, to_file_name(name)).path == path:
                    found.append(name)
        return found

    def owners(self) -> list[str]:
        found = {self._find_owner(path) for path in list_folders(self._folder)}
        return sorted(owner for owner in found - {None} if owner is not None and self._list_ids(owner))

    def _find_owner(self, folder: Path) -> str | None:
        """Return the owner of a folder, or None if the folder was not named by this store or has no conversation."""
        with suppress(ValueError):
            owner = parse_file_name(folder)
            for path in list_files(folder) if owner is None else ():
                # A long name is hashed, so it is only in the files.
                with suppress(ValueError), self._note_damage():
                    header = parse_line(read_first_line(path))
                    if isinstance(header, ConversationLine):
                        owner = header.owner
                        break
            return owner if owner is not None and to_file_name(owner) == folder.name else None
        return None

    def write(self, owner: str, conversation: str, commit: Commit) -> BranchHead:
        if commit.expect and not self._get_file(owner, conversation).log.exists():
            raise HeadMoved(None)

        def work(file: ConversationFile) -> BranchHead:
            file.tree.check(commit)
            with file.discard_on_failure():
                file.append(*commit_to_lines(commit, file.tree), fsync=self._fsync)
                return file.tree.write(commit)

        return self._run_locked(owner, conversation, work)

    def renew(self, owner: str, conversation: str, branch: str, token: int, until: int) -> bool:
        def work(file: ConversationFile) -> bool:
            with file.discard_on_failure():
                if not file.tree.renew(branch, token, until):
                    return False
                file.append([], encode_line(LeaseLine(branch=branch, token=token, until=until)), fsync=self._fsync)
                return True

        return self._change_existing(owner, conversation, work)

    def describe(self, owner: str, conversation: str, meta: Mapping[str, Any], *, entry: str | None = None) -> bool:
        line = encode_line(MetaLine(entry=entry, meta=meta_to_raw(meta)))

        def work(file: ConversationFile) -> bool:
            if not file.tree or (entry is not None and not file.tree.has_entry(entry)):
                return False
            with file.discard_on_failure():
                file.append([], line, fsync=self._fsync)
                return file.tree.describe(meta, entry)

        return self._change_existing(owner, conversation, work)

    def delete(self, owner: str, conversation: str) -> DeletionReceipt | None:
        file = self._get_file(owner, conversation)
        if not file.log.exists():
            return None

        def work() -> DeletionReceipt | None:
            try:
                file.refresh()
                found = bool(file.tree)
            except FileError:
                # Delete the conversation anyway. The receipt counts the part that could be read.
                found = True
            receipt = file.tree.make_receipt(conversation) if found else None
            file.log.remove()
            file.discard_tree()
            return receipt

        with file.mutex:
            return file.log.run_locked(work)

    def redact(self, owner: str, conversation: str, entry: str, native: bytes) -> bool:
        def work(file: ConversationFile) -> bool:
            if not file.tree.has_entry(entry):
                return False
            file.replace(file.render_redacted(entry, native))
            return True

        return self._change_existing(owner, conversation, work)

    def _change_existing(self, owner: str, conversation: str, work: Callable[[ConversationFile], bool]) -> bool:
        """Call `work` as `_run_locked` does, but return False if the conversation doesn't exist."""
        if not self._get_file(owner, conversation).log.exists():
            return False
        return self._run_locked(owner, conversation, work)

    def verify(self, owner: str, conversation: str) -> list[str]:
        """Read the whole file again, check all checksums, and return a description of each problem."""
        while True:
            file = ConversationFile(self._folder, owner, conversation)
            note = file.log.read_note()
            try:
                file.refresh()
            except FileError as problem:
                return [str(problem)]
            problems = [*file.tree.find_problems(), *file.find_cut(note)]
            # If a file is deleted or replaced in between, it looks as if it were cut.
            if not problems or note == file.log.read_note():
                return problems

    def uncovered(self, owner: str, conversation: str) -> list[str]:
        """Return a description of each part of a file for which `verify` can't tell whether it is complete."""
        file = ConversationFile(self._folder, owner, conversation)
        note = file.log.read_note()
        file.refresh()
        return file.find_uncovered(note)

    def close(self) -> None:
        """Discard the conversations in memory."""
        with self._lock:
            self._files.clear()
