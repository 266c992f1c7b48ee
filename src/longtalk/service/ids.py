"""The ids that clients see: of conversations, responses and items. Each can be read back without a lookup.

A response is a turn. Its id holds the key under which the store finds the turn, and the id of the conversation:
`resp_` + key + conversation. The ids of items hold the turn, the number of the item in it, and the conversation. Whose
conversation it is comes from the caller's credentials alone, so an id of another owner names nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
import string
from typing import NamedTuple

from longtalk.transcript.transcript import new_id

KEY_SIZE = 12
_LETTERS = string.ascii_letters + string.digits
_CREATED = re.compile(r"(conv|chain)_([A-Za-z0-9]{22})")
_PLACED = re.compile(r"([a-z]+_.+?)_([ch][A-Za-z0-9]{22}|x[A-Za-z0-9_-]+)", re.DOTALL)
_MARKS = {"conv": "c", "chain": "h"}
_OTHER = "x"


class ResponseId(NamedTuple):
    """The parts of a response's id."""

    conversation: str
    key: str

    def __str__(self) -> str:
        return f"resp_{self.key}{_encode(self.conversation)}"


def _encode(conversation: str) -> str:
    """Return the id of a conversation as a part of other ids."""
    found = _CREATED.fullmatch(conversation)
    if found:
        return _MARKS[found[1]] + found[2]
    return _OTHER + base64.urlsafe_b64encode(conversation.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def _decode(text: str) -> str | None:
    """Return the conversation that a part of an id stands for, or None if it stands for none."""
    mark, rest = text[:1], text[1:]
    if mark == _OTHER:
        try:
            padded = rest + "=" * (-len(rest) % 4)
            conversation = base64.b64decode(padded, altchars=b"-_", validate=True).decode("utf-8", "surrogatepass")
        except (binascii.Error, ValueError):
            return None
    else:
        kind = next((kind for kind, each in _MARKS.items() if each == mark), "")
        conversation = f"{kind}_{rest}"
    # Each id has one form only.
    return conversation if rest and _encode(conversation) == text else None


def new_conversation_id(*, chain: bool = False, seed: str = "") -> str:
    """Return the id of a new conversation: a random one, or with a `seed` always the same one for that seed.

    A *chain* is the conversation of responses that refer to each other and belong to no named conversation.
    """
    kind = "chain" if chain else "conv"
    if not seed:
        return f"{kind}_" + "".join(secrets.choice(_LETTERS) for _ in range(22))
    number = int.from_bytes(hashlib.sha256(seed.encode("utf-8", "surrogatepass")).digest(), "big")
    letters = []
    for _ in range(22):
        number, rest = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[rest])
    return f"{kind}_" + "".join(letters)


def is_created_id(conversation: str) -> bool:
    """Return True if an id has the form of those that the service makes, so that no client has chosen it as a name."""
    return _CREATED.fullmatch(conversation) is not None


def is_chain(conversation: str) -> bool:
    """Return True if a conversation is a chain of responses without a conversation of its own."""
    return conversation.startswith("chain_") and _CREATED.fullmatch(conversation) is not None


def new_key(seed: str = "") -> str:
    """Return the key of a new turn: a random one, or with a `seed` always the same one for that seed."""
    if not seed:
        return new_id()
    digest = hashlib.sha256(seed.encode("utf-8", "surrogatepass")).digest()
    return base64.b32encode(digest).decode().lower()[:KEY_SIZE]


def parse_response_id(text: str) -> ResponseId | None:
    """Return the parts of a response's id, or None if it can't be one."""
    key = text[5 : 5 + KEY_SIZE]
    if not text.startswith("resp_") or not key.isalnum() or not key.isascii() or len(key) != KEY_SIZE:
        return None
    conversation = _decode(text[5 + KEY_SIZE :])
    return None if conversation is None else ResponseId(conversation, key)


class Place(NamedTuple):
    """An entry of a conversation. As text, it is no sealed state: those have no period."""

    entry: str
    conversation: str

    def __str__(self) -> str:
        return f"{self.entry}.{_encode(self.conversation)}"


def parse_place(text: str) -> Place | None:
    """Return the place that a text names, or None if it names none."""
    entry, _, rest = text.rpartition(".")
    conversation = _decode(rest) if entry else None
    return None if conversation is None else Place(entry, conversation)


def make_item_id(kind: str, turn: str, number: int) -> str:
    """Return the id, in its conversation, of an item that a turn has produced.

    `kind` is `msg`, `fc` or `rs`; items are numbered by kind.
    """
    return f"{kind}_{turn}_{number}"


def make_entry_item_id(kind: str, entry: str) -> str:
    """Return the id, in its conversation, of the item that shows an entry of the input."""
    return f"{kind}_{entry}"


def place_item_id(item: str, conversation: str) -> str:
    """Return the id of an item as clients see it, from its id in the conversation."""
    return f"{item}_{_encode(conversation)}"


def split_item_id(text: str) -> tuple[str, str | None]:
    """Return the id of an item in its conversation, and the conversation, or None if the id does not name one."""
    found = _PLACED.fullmatch(text)
    conversation = _decode(found[2]) if found else None
    return (text, None) if found is None or conversation is None else (found[1], conversation)
