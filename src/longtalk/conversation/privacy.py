"""A conversation and the profile of its owner: whether it is private, and what its turns know about the user."""

from __future__ import annotations

from longtalk._util.concurrency import call_store
from longtalk.archive.owner_profile import AsyncOwnerProfile
from longtalk.archive.profile_reading import change_privacy, read_privacy, read_turn_profile
from longtalk.branches.branch import AsyncBranch
from longtalk.errors import InputError
from longtalk.memory.profile.lines import is_private, make_private_record, with_turn_profile
from longtalk.policies.base import get_profile
from longtalk.stores.base import Store
from longtalk.transcript.transcript import Transcript, now
from longtalk.turn.engine import AsyncEngine


class AsyncPrivacy:
    """The methods of a conversation that concern the owner's other conversations."""

    _stored: AsyncBranch
    _engine: AsyncEngine
    _private: bool | None
    """Whether the conversation is to be private; None to leave that as it is."""

    @property
    def profile(self) -> AsyncOwnerProfile:
        """The owner's profile, to be read and changed. Raise `InputError` if the policy keeps none."""
        config = get_profile(self._engine.rules.keeper)
        if config is None:
            raise InputError("This policy keeps no profile: use policy=Memory(profile=Profile()).")
        return AsyncOwnerProfile(self._stored.store, self._stored.owner, config)

    async def private(self) -> bool:
        """Return True if the conversation is private: it adds nothing to the owner's profile and uses none of it."""
        if await self._stored.head() is None:
            return bool(self._private)
        found: bool = await self._stored.call(lambda *whose: read_privacy(self._stored.store, *whose))
        return found

    async def set_private(self, private: bool = True) -> None:
        """Make the conversation private, or end that. What it has added to the owner's profile is no longer there."""
        check_private(private)
        create = self._stored.create
        await self._stored.call(
            lambda *whose: change_privacy(self._stored.store, *whose, private=private, create=create)
        )
        self._private = private if self._private is not None else None
        self._stored.forget()

    async def _follow_privacy(self, transcript: Transcript, *, is_new: bool) -> bool:
        """Return True if the conversation had to be made private, or that was ended, so that it must be read again."""
        if self._private is None or is_new or is_private(transcript.records) == self._private:
            return False
        await self.set_private(self._private)
        return True

    async def _add_profile(self, transcript: Transcript) -> Transcript:
        """Return the transcript with the profile that a turn sends."""
        stored, private = self._stored, bool(self._private) or is_private(transcript.records)
        return await add_profile(
            transcript, stored.store, stored.owner, stored.conversation, self._engine, private=private
        )

    def _mark_private(self, transcript: Transcript, *, is_new: bool) -> Transcript:
        """Return the transcript of a new conversation with the mark that makes it private, if it is to be."""
        if not is_new or not self._private:
            return transcript
        return transcript.with_records((*transcript.records, make_private_record(now(), private=True)))


async def add_profile(
    transcript: Transcript, store: Store, owner: str, conversation: str, engine: AsyncEngine, *, private: bool
) -> Transcript:
    """Return the transcript of a conversation with the profile of its owner that its next turn sends."""
    config = get_profile(engine.rules.keeper)
    if config is None or private:
        return with_turn_profile(transcript, None)
    found = await call_store(store, lambda: read_turn_profile(store, owner, conversation, config, engine.counter))
    return with_turn_profile(transcript, found)


def check_private(private: object) -> None:
    """Raise `InputError` unless the value is True or False."""
    if not isinstance(private, bool):
        raise InputError(f"`private` must be True or False, not {private!r}.")
