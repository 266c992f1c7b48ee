"""Notices: things that happened during a turn, did not stop it, and are worth reporting to the caller."""

from __future__ import annotations

import msgspec


class Notice(msgspec.Struct, frozen=True):
    """Something worth reporting that happened during a turn but did not stop it.

    Streams emit each notice as an event, and `reply.notices` has all of them.
    """

    kind: str
    """A code for the kind of notice, such as `bad_state`, `preamble_changed`, `server_refused` or `state_size`."""
    text: str
    data: bytes = b""
