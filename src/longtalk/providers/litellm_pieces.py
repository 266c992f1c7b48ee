"""What LiteLLM makes of an answer, as plain values: without what says nothing, and with thoughts in one piece.

It streams the thinking of a model as pieces of blocks. They are put together here and sent along with the end of the
answer, as the blocks that a whole answer has: only so can they go back.
"""

from __future__ import annotations

from typing import Any

_BLOCKS = "thinking_blocks"
_FIELDS = "provider_specific_fields"


def plain(answer: Any) -> dict[str, Any]:
    """An answer, or a piece of one, without the many fields that say nothing."""
    found: dict[str, Any] = answer.model_dump(mode="json", exclude_none=True, warnings=False)
    return found


def _is_cut(stream: Any) -> bool:
    """Whether the provider has given no reason for an end so far: LiteLLM then makes one up."""
    names = ("received_finish_reason", "intermittent_finish_reason")
    return hasattr(stream, names[0]) and not any(getattr(stream, name, None) for name in names)


class Pieces:
    """Takes the pieces of one answer."""

    def __init__(self) -> None:
        self.begun = False
        """Whether anything has come."""
        self.said = False
        """Whether there was anything in it. Of what is no stream at all LiteLLM makes one that ends at once."""
        self.finished = False
        """Whether a reason was given for its end. A stream that just ends was cut."""
        self._blocks: list[dict[str, Any]] = []

    def take(self, chunk: Any, *, of: Any) -> dict[str, Any]:
        """A piece of a stream as it is to be passed on."""
        self.begun = True
        piece = plain(chunk)
        for choice in piece.get("choices", ()):
            delta = choice.setdefault("delta", {})
            if _is_cut(of):
                choice.pop("finish_reason", None)
            self.finished = self.finished or bool(choice.get("finish_reason"))
            self.said = self.said or bool(delta) or choice.get("finish_reason") not in (None, "stop")
            for block in delta.pop(_BLOCKS, ()):
                self._add(block)
            fields = delta.get(_FIELDS)
            if isinstance(fields, dict) and fields.pop(_BLOCKS, None) and not fields:
                del delta[_FIELDS]
            if choice.get("finish_reason") and self._blocks:
                delta[_BLOCKS], self._blocks = self._blocks, []
        return piece

    def _add(self, block: dict[str, Any]) -> None:
        """A thought is at its end when it is signed."""
        last = self._blocks[-1] if self._blocks else {}
        if "thinking" in last and "thinking" in block and not last.get("signature"):
            self._blocks[-1] = {**last, **block, "thinking": f"{last['thinking']}{block['thinking']}"}
        else:
            self._blocks.append(block)
