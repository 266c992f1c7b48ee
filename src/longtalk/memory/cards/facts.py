"""Memory cards for small models: ask for the facts that the user has stated, as a list that a JSON schema binds.

A small model makes up facts if it has to fill in a whole card. If it is asked which facts some messages of the user
state, it quotes the messages. A question, and a fact that none of the messages states, is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from longtalk._util import json_bytes
from longtalk.memory.brief.record import read_brief_record
from longtalk.memory.brief.schema import Brief
from longtalk.transcript.transcript import Transcript
from longtalk.wires import text_if_readable

_MAX_MESSAGES = 24
"""The number of messages, counted from the newest, that one request asks about."""
_MAX_CHARS = 300
"""The number of characters of each message that are asked about."""
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "facts": {"type": "array", "items": {"type": "string", "maxLength": _MAX_CHARS}, "maxItems": 12},
    },
    "required": ["facts"],
    "additionalProperties": False,
}
_PROMPT = (
    "These are messages that a user wrote:\n{messages}\n\n"
    "Which facts does the user state about themselves? List them as JSON, one short phrase each, in the words of the "
    "user. Leave out questions and requests for texts."
)


def list_new_messages(transcript: Transcript) -> list[str]:
    """Return the texts of the user's messages that the brief does not cover yet, without repetitions."""
    start = transcript.index_of(read_brief_record(transcript).covers)
    entries = [transcript[i] for i in range(max(start, 0), len(transcript))]
    texts = [" ".join(text_if_readable(entry).split())[:_MAX_CHARS] for entry in entries if entry.role == "user"]
    return list(dict.fromkeys(filter(None, reversed(texts))))[:_MAX_MESSAGES][::-1]


def render_facts_prompt(messages: Sequence[str]) -> str:
    """Return the message that asks a model which facts these messages state, in the form of `SCHEMA`."""
    return _PROMPT.format(messages="\n".join(f"- {text}" for text in messages))


def make_card(answer: str, messages: Sequence[str], config: Brief) -> str:
    """Return the content of a memory card with the facts that a model has found in these messages.

    The facts are added to the field `about_user` of the profile or else to the field `facts` of the brief; if it has
    neither, to its first list. Return "" if the answer can't be read, or if the brief has no list.
    """
    from longtalk.memory.terms import extract_terms

    lists = [field for field in config.schema.fields if field.kind == "list"]
    try:
        found = json_bytes.value(answer.encode())["facts"]
        facts = [text for text in found if isinstance(text, str) and "?" not in text]
    except (ValueError, KeyError, TypeError):
        return ""
    if not lists:
        return ""
    stated = [frozenset(extract_terms(text)) for text in messages]
    kept = [text for text in facts if _is_stated(frozenset(extract_terms(text)), stated)]
    wanted = {field.name: field for field in lists}
    field = wanted.get("about_user") or wanted.get("facts") or lists[0]
    return json_bytes.encode({f"+{field.key}": [f'The user: "{text}"' for text in kept]} if kept else {}).decode()


def _is_stated(terms: frozenset[str], stated: Sequence[frozenset[str]]) -> bool:
    """Return True if one of the messages, given by their terms, has most of these terms."""
    return bool(terms) and any(3 * len(terms & each) >= 2 * len(terms) for each in stated)
