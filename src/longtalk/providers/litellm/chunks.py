"""LiteLLM's answers and stream chunks as plain values, without empty fields and with complete thinking blocks.

LiteLLM streams the thinking of a model in fragments of blocks. They are joined here and passed on with the last chunk,
as in an unstreamed answer, because a later request may only contain complete blocks.
"""

from __future__ import annotations

from typing import Any

_BLOCKS = "thinking_blocks"
_FIELDS = "provider_specific_fields"


def to_dict(answer: Any) -> dict[str, Any]:
    """Return an answer or a chunk as a dict, without fields that are None."""
    fields: dict[str, Any] = answer.model_dump(mode="json", exclude_none=True, warnings=False)
    return fields


def _is_cut(stream: Any) -> bool:
    """Return True if the provider has sent no finish reason so far. If the stream ends, LiteLLM makes one up."""
    names = ("received_finish_reason", "intermittent_finish_reason")
    return hasattr(stream, names[0]) and not any(getattr(stream, name, None) for name in names)


class ChunkReader:
    """A reader for the chunks of one streamed answer. Its attributes say what is known about the stream so far."""

    def __init__(self) -> None:
        self.begun = False
        """True once any chunk has arrived."""
        self.has_content = False
        """True once a chunk has had content. If a response is not a stream, LiteLLM turns it into an empty stream."""
        self.finished = False
        """True once the provider has sent a finish reason. A stream that ends without one was cut off."""
        self._blocks: list[dict[str, Any]] = []

    def read(self, chunk: Any, *, stream: Any) -> dict[str, Any]:
        """Return a chunk as a dict. The last chunk contains the joined thinking blocks."""
        self.begun = True
        fields = to_dict(chunk)
        for choice in fields.get("choices", ()):
            delta = choice.setdefault("delta", {})
            if _is_cut(stream):
                choice.pop("finish_reason", None)
            self.finished = self.finished or bool(choice.get("finish_reason"))
            self.has_content = self.has_content or bool(delta) or choice.get("finish_reason") not in (None, "stop")
            for block in delta.pop(_BLOCKS, ()):
                self._add_block(block)
            extra = delta.get(_FIELDS)
            if isinstance(extra, dict) and extra.pop(_BLOCKS, None) and not extra:
                del delta[_FIELDS]
            if choice.get("finish_reason") and self._blocks:
                delta[_BLOCKS], self._blocks = self._blocks, []
        return fields

    def _add_block(self, block: dict[str, Any]) -> None:
        """Append a fragment to the last thinking block. If that block is signed, it is complete, so start a new one."""
        last = self._blocks[-1] if self._blocks else {}
        if "thinking" in last and "thinking" in block and not last.get("signature"):
            self._blocks[-1] = {**last, **block, "thinking": f"{last['thinking']}{block['thinking']}"}
        else:
            self._blocks.append(block)
