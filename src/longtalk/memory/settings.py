"""That something is recalled, and what was: apart from how, which is loaded when it is needed."""

from __future__ import annotations

import msgspec

from longtalk.errors import InputError
from longtalk.memory.schema import within

_TOKENS = 100_000


class Recall(msgspec.Struct, frozen=True):
    """That older things are recalled: at most so many tokens of them, tag and dates counted; 0 for nothing."""

    budget: int = 1_000
    gate: bool = True
    """Only as much as the message is found to need: nothing when it does not refer to what was said."""
    meaning: bool = False
    """Whether what is close in meaning counts beside words. Needs the extra `[recall]`."""

    def __post_init__(self) -> None:
        within(self.budget, "The budget of recall in tokens", 0, _TOKENS)
        for name in ("gate", "meaning"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"`{name}` of Recall is True or False, not {getattr(self, name)!r}.")
        if self.meaning:
            from longtalk.memory import vectors

            vectors.model()


class Recalled(msgspec.Struct, frozen=True):
    """What was recalled for one message."""

    text: str = ""
    """To be sent as data, in the tag `recalled`. Empty if there is nothing."""
    places: tuple[int, ...] = ()
    """Of the entries it is from, in order."""
    tokens: int = 0
    """How long it is with its tag."""
