"""Idempotency: recognize a repeated request, so that it makes only one turn.

With the header `Idempotency-Key`, the same key and body of an owner is the same request for a day; another body under
the key is refused. openai-python repeats a request after a lost connection without such a key, and says so in
`x-stainless-retry-count`: then an equal body of the same owner within ten minutes is the same request, if its response
was not delivered to the end. It is claimed once, so that equal requests that run at the same time stay apart.

The answer itself is in the conversation. If a request keeps nothing there, its answer is in the event log of its run,
which expires sooner (`LOG_LIFETIME`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import msgspec
from starlette.requests import Request

from longtalk._util import typed_json
from longtalk._util.concurrency import call_store
from longtalk.service.errors import ApiError
from longtalk.service.http import read_number
from longtalk.service.run import RunName
from longtalk.service.runs import Runs
from longtalk.service.storage.protocol import Storage
from longtalk.transcript.transcript import now

_KEYED = "idempotency"
_RECENT = "recent_request"
_KEYED_LIFETIME = 24 * 3_600_000
_RECENT_LIFETIME = 600_000
_LONGEST_KEY = 255
_MOST_EQUAL = 1_000
"""Among how many equal requests that were not delivered a repeated one is looked for."""


class Claim(msgspec.Struct, frozen=True):
    """A request, and the response that belongs to it."""

    response: str
    digest: str
    is_new: bool = True
    tries: int = 0
    """How often the client has repeated the request."""
    document: tuple[str, str] = ("", "")
    """The kind and key of what is stored about it."""


class Idempotency:
    """Finds the response of a request that was made before."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def claim(self, owner: str, path: str, body: bytes, headers: Mapping[str, str], response: str) -> Claim:
        """Return the claim of a request. If it is a new one, its response has the id `response`."""
        key = headers.get("idempotency-key", "")
        digest = hashlib.sha256(b"\0".join((path.encode(), _normalize(body) if key else body))).hexdigest()
        if len(key) > _LONGEST_KEY:
            raise ApiError(
                400, f"An Idempotency-Key may have at most {_LONGEST_KEY} characters.", param="Idempotency-Key"
            )
        if key:
            claim: Claim = await call_store(self._storage, lambda: self._claim_key(owner, key, digest, response))
            return claim
        tries = read_number(headers.get("x-stainless-retry-count", "")) or 0
        recent: Claim = await call_store(self._storage, lambda: self._claim_recent(owner, digest, response, tries))
        return recent

    async def mark_delivered(self, claim: Claim, request: Request) -> None:
        """Note that a response is delivered to the end: an equal request without a key is then a new one.

        It is not if the client has gone away meanwhile, and is about to repeat its request.
        """
        kind, key = claim.document
        if kind == _RECENT and not await request.is_disconnected():
            await call_store(self._storage, lambda: self._storage.delete(kind, key))

    def _claim_key(self, owner: str, key: str, digest: str, response: str) -> Claim:
        name = f"{len(owner)}:{owner}{key}"
        new = Claim(response, digest, document=(_KEYED, name))
        while True:
            if self._storage.put(_KEYED, name, _encode(new), expect=0, expires=now() + _KEYED_LIFETIME):
                return new
            found = self._storage.get(_KEYED, name)
            if found is None:
                continue
            claim = typed_json.decode(found.value, Claim)
            if claim.digest != digest:
                message = "This Idempotency-Key was used for a different request. Use a new one."
                raise ApiError(422, message, param="Idempotency-Key", code="idempotency_key_reused")
            return msgspec.structs.replace(claim, is_new=False)

    def _claim_recent(self, owner: str, digest: str, response: str, tries: int) -> Claim:
        name = f"{len(owner)}:{owner}{digest}/"
        expires = now() + _RECENT_LIFETIME
        for found in self._storage.list_documents(_RECENT, prefix=name, limit=_MOST_EQUAL) if tries else ():
            claim = typed_json.decode(found.value, Claim)
            # Only one of the requests that are repeated at the same time gets it, and later that client again.
            if claim.tries < tries:
                again = msgspec.structs.replace(claim, tries=tries)
                if self._storage.put(_RECENT, found.key, _encode(again), expect=found.version, expires=expires):
                    return msgspec.structs.replace(again, is_new=False)
        document = (_RECENT, name + response)
        new = Claim(response, digest, tries=tries, document=document)
        self._storage.put(*document, _encode(new), expires=expires)
        return new


async def has_answer(runs: Runs, name: RunName, is_answer: Callable[[bytes], bool]) -> bool:
    """Return True if a run of which nothing else is kept goes on, or if its event log ends with its answer.

    Otherwise, it has failed or its log has expired: the same request runs again.
    """
    if await runs.is_running(name):
        return True
    events, _ = await runs.read_events(name)
    return bool(events) and is_answer(events[-1])


def _normalize(body: bytes) -> bytes:
    """Return a form of the body that is the same for equal JSON, whatever the order of its members."""
    try:
        return msgspec.json.encode(msgspec.json.decode(body), order="sorted")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return body


def _encode(claim: Claim) -> bytes:
    return msgspec.json.encode(claim)
