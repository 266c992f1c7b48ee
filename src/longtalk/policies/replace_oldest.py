"""`ReplaceOldest`: replace the oldest exchanges with a text that the app writes."""

from __future__ import annotations

import msgspec

from longtalk.errors import InputError
from longtalk.memory.summary import SummaryWriter
from longtalk.policies.base import Compactor
from longtalk.policies.summarize import SummarizeOldest
from longtalk.policies.view import View


class ReplaceOldest(SummarizeOldest, frozen=True, kw_only=True):
    """A strategy that replaces the oldest exchanges with a text that your function `write(earlier, entries)` returns.

    The new text replaces both `earlier`, the text that the function returned last time ("" at first), and `entries`,
    the `OldEntry` values added since then. The function is called whenever another strategy would ask a model for a
    summary: before a model call or, with `background=True`, after an answer. So it may take its time, and in an async
    chat it may be async. `length` is the expected maximum length of its text in tokens. The other arguments are those
    of `SummarizeOldest`. If the function fails, the view does not change.
    """

    write: SummaryWriter

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.write):
            raise InputError(f"`write` must be a function (earlier, entries) that returns text, not {self.write!r}.")

    def __repr__(self) -> str:
        """Return a text without the function's memory address, because policies are compared by their `repr`."""
        name = getattr(self.write, "__qualname__", "")
        write = f"{self.write.__module__}.{name}" if name else repr(self.write)
        return (
            f"ReplaceOldest(write={write}, length={self.length}, keep={self.keep}, background={self.background}, "
            f"timeout={self.timeout})"
        )

    def apply(self, view: View, limits: Compactor) -> View:
        shorter = super().apply(view, limits)
        request = shorter.summary_request
        if request is None or request == view.summary_request:
            return shorter
        return msgspec.structs.replace(shorter, summary_request=msgspec.structs.replace(request, write=self.write))
