"""The conversation of a command that talks with a model: which one it is, and what is done with it."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from longtalk._sync.archive.archive import Archive
from longtalk._sync.branches.branch import Branch
from longtalk._sync.conversation.conversation import Conversation
from longtalk.branches.settings import Settings
from longtalk.cli.addresses import find_address, remember_address
from longtalk.cli.holding import (
    Choices,
    Held,
    connect_model,
    find_model_settings,
    find_settings,
    read_settings,
    resolve,
)
from longtalk.cli.local_model import prepare_model
from longtalk.cli.output import escape_line, print_note
from longtalk.cli.store import choose_branch, describe_location, find_conversation, open_archive
from longtalk.errors import InputError
from longtalk.policies import KeepAll, Policy
from longtalk.policies.notation import parse_policy
from longtalk.providers.base import Provider
from longtalk.service.settings import load_settings
from longtalk.stores.base import MAIN, Commit, HeadMoved
from longtalk.stores.leases import is_free
from longtalk.transcript.transcript import now


@contextlib.contextmanager
def open_session(
    *,
    store: str | None,
    owner: str,
    id: str | None,  # noqa: A002
    new: bool,
    model: str | None,
    system: str | None,
    base_url: str | None,
    policy: Policy | None,
    branch: str | None = None,
    stem: str = "chat",
    in_memory: bool = False,
    without: Collection[str] = (),
) -> Iterator[ChatSession]:
    """Open the conversation that a command continues or starts, and close its store and its provider at the end.

    Without an id, it is the most recently changed conversation, or with `new` a new one, whose id begins with `stem`.
    With `in_memory`, nothing is stored. Options of the last turn named in `without` no longer apply.
    """
    with contextlib.ExitStack() as stack:
        settings = load_settings()
        choices = Choices(model, base_url, policy, system)
        if model is not None:
            # Before the store is opened, which would be made.
            prepare_model(find_model_settings(settings, model).model)
        archive = stack.enter_context(open_archive(store, owner, make=True, in_memory=in_memory))
        found, held = (None, None) if new else find_settings(archive, id, branch)
        address = find_address(store, owner, found, held.model) if found and held else None
        resolved = resolve(settings, choices, held, address)
        provider, options = connect_model(resolved, held)
        options = {name: value for name, value in options.items() if name not in without}
        providers = stack.enter_context(contextlib.ExitStack())
        providers.callback(provider.close)
        if store is None and not in_memory:
            _mention_old_file(archive)
        session = ChatSession(
            archive, provider, id, new=new, policy=resolved.policy, options=options, stem=stem, branch=branch
        )
        providers.pop_all()
        stack.callback(session.close)
        session.system, session.is_default_model = resolved.system, resolved.is_default
        session.held, session.before, session.stack = resolved, held, stack
        session.store = store
        if resolved.base_url is not None and not in_memory:
            remember_address(store, owner, session.id, provider.label, resolved.base_url)
        if held is None and model is None and not session.is_new:
            _mention_other_model(session)
        yield session


class ChatSession:
    """The conversation that the chat continues. A new conversation is stored only when its first message is sent."""

    held: Held
    before: Settings | None = None
    """How the conversation was held in its last turn before this command; None if it is new or that is not stored."""
    arguments: Mapping[str, Any] = MappingProxyType({})
    """The options and tools of the command line, for each turn."""
    store: str | None = None
    """The store that the command line names; None if it is the usual one."""
    stack: contextlib.ExitStack
    """What is closed when the command ends."""

    def __init__(
        self,
        archive: Archive,
        provider: Provider,
        id: str | None,  # noqa: A002
        *,
        new: bool,
        policy: Policy = KeepAll(),  # noqa: B008
        options: Mapping[str, Any] | None = None,
        stem: str = "chat",
        branch: str | None = None,
    ) -> None:
        self.system: str | None = None
        self.is_default_model = False
        """Whether the small local model is used because nothing else was chosen, ever."""
        self.archive = archive
        self.policy = policy
        self._stem = stem
        self._was_created = False
        self.options: Mapping[str, Any] = options or {}
        self._provider = provider
        self._is_named = id is not None
        found = [] if new or id is not None else archive.conversations(limit=1)
        info = found[0] if found else archive.store.info(archive.owner, id) if id is not None else None
        # Another program may create a conversation under the id that is chosen here.
        self.is_new = info is None
        if branch is not None:
            branch = choose_branch(
                archive, find_conversation(archive, info.id if info is not None else id or ""), branch
            )
        elif info is not None:
            branch = choose_branch(archive, info, None)
        self.talk = self._make_talk(
            info.id if info is not None else id if id is not None else self._new_id(), branch or MAIN
        )

    @property
    def provider(self) -> Provider:
        return self._provider

    @property
    def id(self) -> str:
        return self.talk.id

    @property
    def window(self) -> int | None:
        """The number of tokens that the model can take; None if unknown."""
        return self._provider.capabilities.window

    def _make_talk(self, id: str, branch: str = MAIN) -> Conversation:  # noqa: A002
        return Conversation(
            id,
            model=self._provider,
            owner=self.archive.owner,
            store=self.archive.store,
            branch=branch,
            policy=self.policy,
            options=self.options,
        )

    def _enter(self, id: str, branch: str = MAIN) -> None:  # noqa: A002
        self.talk = self._make_talk(id, branch)

    def close(self) -> None:
        """Close the connections of the model."""
        self._provider.close()

    def open(self, id: str) -> None:  # noqa: A002
        """Continue another stored conversation, as it was last held."""
        info = find_conversation(self.archive, id)
        branch = choose_branch(self.archive, info, None)
        stored = read_settings(self.archive, info, branch)
        address = find_address(self.store, self.archive.owner, id, stored.model) if stored is not None else None
        held = resolve(load_settings(), Choices(), stored, address)
        connected = connect_model(held, stored)
        if id != self.id:
            self.delete_if_failed()
            self._was_created = False
        self._is_named, self.is_new = True, False
        self._hold(held, connected, id, branch)

    def open_branch(self, branch: str) -> None:
        """Continue on another branch of the conversation."""
        self._enter(self.id, branch)

    def choose_branch(self, branch: str) -> None:
        """Continue on another branch, now and next time."""
        self.open_branch(branch)
        # A commit without content, so that it is the branch that changed last.
        stored = Branch(self.archive.store, self.archive.owner, self.id, branch, self.policy, create=False)
        stored.attach(lambda transcript: transcript)

    def change_model(self, name: str) -> None:
        """Let another model answer from now on. Policy and system text are those of its settings, or stay."""
        chosen = find_model_settings(load_settings(), name)
        # Models of one server have its address in common.
        same = chosen.model.partition(":")[0] == self.held.model.partition(":")[0]
        held = self.held._replace(
            model=chosen.model,
            base_url=chosen.base_url or (self.held.base_url if same else None),
            policy=parse_policy(chosen.policy) if chosen.policy else self.policy,
            options=chosen.options,
            system=chosen.system or self.system,
        )
        self._hold(held, connect_model(held), self.id, self.talk.branch)

    def change_policy(self, policy: Policy) -> None:
        """Send what another policy keeps from now on."""
        self.policy = policy
        self._enter(self.id, self.talk.branch)

    def _hold(self, held: Held, connected: tuple[Provider, Mapping[str, Any]], id: str, branch: str) -> None:  # noqa: A002
        """Continue a conversation with another provider, and close the one so far."""
        before = self.talk
        self._provider, self.options = connected
        self.held, self.policy, self.system = held, held.policy, held.system
        self._enter(id, branch)
        # Waits for a summary that is being written.
        before.close()

    def _new_id(self) -> str:
        """Return an unused conversation id that contains the current time."""
        stem = time.strftime(f"{self._stem}-%Y%m%d-%H%M%S")
        names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
        return next(name for name in names if self.archive.store.info(self.archive.owner, name) is None)

    def start_new(self, id: str | None = None) -> None:  # noqa: A002
        """Switch to a new conversation. Raise `InputError` if there is one with this id."""
        if id is not None and self.archive.store.info(self.archive.owner, id) is not None:
            raise InputError(f"There is a conversation {id!r} already: choose another name, or /open it.")
        self.delete_if_failed()
        self._is_named, self.is_new, self._was_created = id is not None, True, False
        self._enter(id or self._new_id())

    def ensure_stored(self) -> Conversation:
        """Create the conversation in the store if it is new, and return it."""
        while self.is_new:
            try:
                commit = Commit(branch=self.talk.branch, expect=0, at=now())
                self.archive.store.write(self.archive.owner, self.id, commit)
            except HeadMoved:
                # Another process has just created a conversation with this id.
                if not self._is_named:
                    self._enter(self._new_id())
                    print_note(f"Another program has just used this id. The conversation is now called {self.id}.")
                    continue
            else:
                self._was_created = True
            self.is_new = False
        return self.talk

    def delete_without_answer(self) -> None:
        """Delete the conversation if it was created here, has one branch, and no answer, not even a part of one.

        Other branches may have answers, such as one that `/edit` or `/undo` moved there.
        """
        info = self.archive.store.info(self.archive.owner, self.id) if self._was_created else None
        if info is None or len(info.branches) != 1:
            return
        if all(entry.role == "user" for entry in self.talk.history()):
            self.archive.delete(self.id)

    def delete_if_failed(self) -> None:
        """Delete the conversation if it was created here and its first message failed."""
        head = None if self.is_new else self.archive.store.head(self.archive.owner, self.id, self.talk.branch)
        if head is not None and head.turn is not None and head.turn.status == "failed":
            self.delete_without_answer()

    def is_unanswered(self) -> bool:
        """Return True if the last turn failed or was interrupted, and no process is still running it."""
        owner = self.archive.owner
        head = self.archive.store.head(owner, self.id, self.talk.branch)
        if head is None or head.turn is None or head.turn.status == "complete":
            return False
        return is_free(head, owner, self.id)


def _mention_other_model(session: ChatSession) -> None:
    """Print which model answered so far in a conversation whose settings are not stored, such as an imported one."""
    turns = session.archive.metrics(session.id, branch=session.talk.branch)
    if turns and turns[-1].model and turns[-1].model != session.provider.label:
        print_note(
            f"({escape_line(turns[-1].model)} answered so far; now {session.provider.label} does. To choose another "
            "model, use -m.)"
        )


def _mention_old_file(archive: Archive) -> None:
    """Print a hint if the data folder has a state file of an earlier version that has not been imported yet."""
    path = os.path.join(os.path.dirname(describe_location(None)), "chat.talk")
    if os.path.exists(path) and archive.store.info(archive.owner, "chat") is None:
        print_note(f"An earlier conversation is in {path}. To import it as `chat`, run `longtalk import {path}`.")


@contextlib.contextmanager
def exit_on_signals() -> Iterator[None]:
    """Exit cleanly when the terminal closes or the process is terminated, even in the middle of an answer."""
    import signal

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    names = ("SIGTERM", "SIGHUP")
    before = {
        getattr(signal, name): signal.signal(getattr(signal, name), end) for name in names if hasattr(signal, name)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
