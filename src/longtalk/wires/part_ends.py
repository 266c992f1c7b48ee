"""What a provider says about a part of its answer besides the text: phase, refusal, citations, encrypted reasoning.

Citations are in the form of OpenAI's annotations, whatever provider has made them. Their indexes count the characters
of the part. Citations of files and documents are left out where a provider does not name a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from longtalk.wires.card_tags import split_cards

Citation = Mapping[str, Any]
"""An annotation of a text, as in OpenAI's Responses API."""
_CITED_SOURCES = {"web_search_result_location": "url", "search_result_location": "source"}
"""The types of Anthropic's citations that name an address, with the field that has it."""


class PartEnd(msgspec.Struct, frozen=True):
    """The end of a part of the answer in a stream, with what only its end says.

    A provider of the Responses API has one for each message and each piece of reasoning; other providers have one only
    for text with citations.
    """

    kind: Literal["reasoning", "message"]
    text: str = ""
    """The text of the part, in full. That of reasoning is a summary which the provider has made."""
    raw: str = ""
    """The reasoning itself, if the provider shows it."""
    sealed: str = ""
    """The encrypted form of the reasoning."""
    phase: str = ""
    """Whether a message is `commentary` or the `final_answer`, if the provider says so."""
    refusal: str = ""
    citations: tuple[Citation, ...] = ()
    is_item: bool = True
    """Whether what follows is a new item even if it is of the same kind."""

    def without_cards(self) -> PartEnd:
        """Return the end without the memory cards in it."""
        if "<" not in self.text and "<" not in self.refusal:
            return self
        return msgspec.structs.replace(self, text=split_cards(self.text)[0], refusal=split_cards(self.refusal)[0])


def read_item(item: Mapping[str, Any]) -> PartEnd | None:
    """Return the end of an item of the Responses API, or None for an item of another kind."""
    kind, parts = item.get("type", "message"), _list_objects(item.get("content"))
    if kind == "reasoning":
        text, raw = (_join_texts(each) for each in (_list_objects(item.get("summary")), parts))
        return PartEnd("reasoning", text, raw, sealed=read_text(item, "encrypted_content"))
    if kind != "message":
        return None
    text, citations = read_text(item, "content"), list[Citation]()
    for part in parts:
        if part.get("type") in ("output_text", "input_text", "text"):
            citations += shift(_list_objects(part.get("annotations")), len(text))
            text += read_text(part, "text")
    refusal = "".join(read_text(part, "refusal") for part in parts if part.get("type") == "refusal")
    return PartEnd("message", text, phase=read_text(item, "phase"), refusal=refusal, citations=tuple(citations))


def read_anthropic_text(block: Mapping[str, Any]) -> PartEnd:
    """Return the end of a text block of Anthropic. Each citation is of the whole block."""
    text = read_text(block, "text")
    found: list[Citation] = []
    for citation in _list_objects(block.get("citations")):
        address = read_text(citation, _CITED_SOURCES.get(read_text(citation, "type"), ""))
        if address:
            title = read_text(citation, "title")
            place = {"start_index": 0, "end_index": len(text)}
            found.append({"type": "url_citation", "url": address, "title": title, **place})
    return PartEnd("message", text, citations=tuple(found), is_item=False)


def read_chat_message(message: Mapping[str, Any], text: str) -> PartEnd:
    """Return the end of the text of a chat message."""
    listed = _list_objects(message.get("annotations"))
    cited = [each["url_citation"] for each in listed if isinstance(each.get("url_citation"), Mapping)]
    # Some servers don't say which words a citation is of.
    whole = {"title": "", "start_index": 0, "end_index": len(text)}
    citations = tuple({"type": "url_citation", **whole, **each} for each in cited if read_text(each, "url"))
    return PartEnd("message", text, citations=citations, is_item=False)


def shift(citations: Sequence[Citation], count: int) -> list[Citation]:
    """Return citations whose text begins `count` characters later."""
    return [
        {name: value + count if _is_place(name, value) else value for name, value in citation.items()}
        for citation in citations
    ]


def read_text(members: Mapping[str, Any], name: str) -> str:
    """Return the text of a member, or "" if it is missing or something else."""
    value = members.get(name)
    return value if isinstance(value, str) else ""


def _join_texts(parts: Sequence[Mapping[str, Any]]) -> str:
    return "\n\n".join(filter(None, (read_text(part, "text") for part in parts)))


def _is_place(name: str, value: Any) -> bool:
    return name in ("start_index", "end_index") and isinstance(value, int) and not isinstance(value, bool)


def _list_objects(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
