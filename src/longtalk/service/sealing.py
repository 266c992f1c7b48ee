"""States that clients keep for the service: sealed, so that a client can neither read nor change them.

The key is that of the settings. Without one, a key is made once and kept in the storage, so that all processes open
what any of them has sealed. What was sealed for one owner can't be opened for another.
"""

from __future__ import annotations

import base64
import binascii

from longtalk._util.concurrency import call_store
from longtalk.errors import BadState
from longtalk.service.storage.protocol import Storage
from longtalk.state.sealing import Seal

_KIND = "seal_key"
_NAME = "1"


class StateSealer:
    """Seals and opens the states of owners. `seal` has the keys of the settings."""

    def __init__(self, storage: Storage, seal: Seal | None = None) -> None:
        self._storage = storage
        self._seal = seal

    async def close(self, state: bytes, owner: str, purpose: str) -> str:
        """Return a state as sealed text. It can be opened for the same owner and purpose only."""
        seal = await self._find_seal()
        return base64.b64encode(seal.close_encoded(state, owner=owner, conversation=purpose)).decode()

    async def open(self, text: str, owner: str, purpose: str) -> bytes:
        """Return the state in a sealed text. Raises `BadState` for anything else, whatever is wrong with it."""
        try:
            sealed = base64.b64decode(text, validate=True)
            return (await self._find_seal()).open(sealed, owner=owner, conversation=purpose)
        except (binascii.Error, ValueError, BadState):
            # That a state is one of another owner must not be told from nonsense.
            message = "This is not a state that the service has sealed for you, or it was changed. Send the last one."
            raise BadState(message, reason="not_sealed", state=b"") from None

    async def _find_seal(self) -> Seal:
        if self._seal is None:
            self._seal = await call_store(self._storage, self._read_seal)
        return self._seal

    def _read_seal(self) -> Seal:
        found = self._storage.get(_KIND, _NAME)
        while found is None:
            found = self._storage.put(_KIND, _NAME, Seal.new_key(), expect=0) or self._storage.get(_KIND, _NAME)
        return Seal({_NAME: found.value})
