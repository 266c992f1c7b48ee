"""Notices: facts that the caller should know about a turn, although they did not stop the turn."""

from __future__ import annotations

import msgspec


class Notice(msgspec.Struct, frozen=True):
    """A fact about a turn that did not stop the turn. Streams emit it as an event; `reply.notices` lists them all."""

    kind: str
    """A code for the kind of notice, such as `bad_state`, `preamble_changed`, `server_refused` or `state_size`."""
    text: str
    data: bytes = b""
