"""Sessions of the page: an access key is exchanged for a cookie that scripts can't read.

The storage has the SHA-256 of the cookie and of the access key, so a session ends with its key. A cookie counts only
for requests of the page itself: a browser sends `Sec-Fetch-Site` or `Origin` with them. Where it sends neither, over
plain HTTP, the page sends the header `Longtalk-Page`, which another site can't add.
"""

from __future__ import annotations

import hashlib
import secrets
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING

from longtalk.service.storage.protocol import Storage
from longtalk.transcript.transcript import now

if TYPE_CHECKING:
    from starlette.datastructures import Headers

COOKIE = "longtalk_session"
LIFETIME = 30 * 24 * 3600
"""The lifetime of a session in seconds."""
_KIND = "page_session"


class Sessions:
    """The sessions of people who have signed in on the page."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def add(self, key_digest: str) -> str:
        """Begin a session of the access key with this digest, and return the value of its cookie."""
        token = secrets.token_urlsafe(32)
        self._storage.put(_KIND, _digest(token), key_digest.encode(), expires=now() + LIFETIME * 1000)
        return token

    def find(self, headers: Headers) -> str | None:
        """Return the digest of the access key whose session a request belongs to, or None if it belongs to none."""
        token = read_cookie(headers)
        if not token or not is_from_page(headers):
            return None
        document = self._storage.get(_KIND, _digest(token))
        return None if document is None else document.value.decode()

    def end(self, token: str) -> bool:
        """End the session with this cookie value. Return False if there is none."""
        return self._storage.delete(_KIND, _digest(token))


def read_cookie(headers: Headers) -> str:
    """Return the value of the session cookie of a request, or an empty text."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""


def is_from_page(headers: Headers) -> bool:
    """Return True if a request comes from a page of this origin."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if origin is not None and origin.partition("://")[2] != headers.get("host"):
        return False
    if site is not None:
        return site == "same-origin"
    return origin is not None or "longtalk-page" in headers


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
