"""The configuration and the result of recall. The implementation is in other modules, imported on first use."""

from __future__ import annotations

from typing import Literal

import msgspec

from longtalk.errors import InputError
from longtalk.memory.brief.schema import check_whole_number
from longtalk.transcript.passages import Passage

TAG = "recalled"
"""The name of the tag around recalled text."""
_TOKENS = 100_000


class Recall(msgspec.Struct, frozen=True):
    """The configuration of recall, which finds older entries that are relevant to a message and quotes them."""

    budget: int = 1_000
    """The maximum number of tokens of recalled text, including the tag around it and dates; 0 turns recall off."""
    gate: bool = True
    """Whether to use only as much of the budget as the message needs: nothing if no earlier entry matches it well."""
    meaning: bool = False
    """Whether to search by meaning as well as by words. This needs the extra `[recall]`."""
    scope: Literal["conversation", "owner"] = "conversation"
    """Where to search: in the conversation alone, or also in its owner's other conversations.

    With "owner", a full-text search finds the messages, and `meaning` only ranks them.
    """

    def __repr__(self) -> str:
        # Stored epochs contain a digest of this text.
        return super().__repr__().replace(", scope='conversation'", "")

    def __post_init__(self) -> None:
        check_whole_number(self.budget, "`budget` of Recall, in tokens,", 0, _TOKENS)
        for name in ("gate", "meaning"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"`{name}` of Recall must be True or False, not {getattr(self, name)!r}.")
        if self.scope not in ("conversation", "owner"):
            raise InputError(f"`scope` of Recall must be 'conversation' or 'owner', not {self.scope!r}.")
        if self.meaning:
            from longtalk.memory.recall import embeddings

            embeddings.load_model()


class Recalled(msgspec.Struct, frozen=True):
    """The text that was recalled for one message."""

    text: str = ""
    """The recalled text, without the tag around it; empty if nothing relevant was found."""
    positions: tuple[int, ...] = ()
    """The positions of the quoted entries, in order."""
    tokens: int = 0
    """The number of tokens of the text, including the tag around it."""
    is_foreign: bool = False
    """Whether the text also quotes other conversations, so that it must not be stored."""
    why: str = ""
    """Why it has this length, in words: how likely the message needs it, and what limits it."""
    sizes: tuple[int, ...] = ()
    """The number of tokens of the quotes from each of `positions`, with their dates."""
    passages: tuple[Passage, ...] = ()
    """The best passages that the message needs, including those that the request quotes already."""
