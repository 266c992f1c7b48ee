"""Access keys, and the owner that each request acts for.

A key is shown once, when it is made; the storage has only its SHA-256. Each key belongs to one owner, or with `act_as`
to an app that names the owner of each request in the header `Longtalk-Owner`. Without keys the service runs for one
user on this machine: it then checks the headers `Host` and `Origin`, so that no web page that the user has open can
reach it, by its address or by a name that points to it.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from longtalk._util import typed_json
from longtalk._util.checks import check_name
from longtalk.errors import InputError
from longtalk.service.errors import ApiError, quote
from longtalk.service.sessions import Sessions
from longtalk.service.settings import JwtSettings, Settings
from longtalk.service.storage.protocol import Storage
from longtalk.transcript.transcript import new_id, now

if TYPE_CHECKING:
    from starlette.datastructures import Headers

KIND = "access_key"
OWNER = "owner"
"""The kind of document that exists for each owner that the service has seen, with the owner's name as its key."""
_MOST_SEEN = 100_000
_PREFIX = "lt_"
_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]", "::1")
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d*)?")
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class AccessKey(msgspec.Struct, frozen=True, kw_only=True):
    """A stored access key: everything but its text."""

    id: str
    digest: str
    name: str
    owner: str
    act_as: bool = False
    models: tuple[str, ...] = ()
    """The names of models that the key may use; empty for all."""
    routes: tuple[str, ...] = ()
    """Prefixes of the paths that the key may use; empty for all."""
    created: int = 0
    expires: int | None = None


class Caller(msgspec.Struct, frozen=True):
    """The authenticated caller of a request, and what the caller may use."""

    owner: str
    key: str = ""
    """The id of the access key; empty without one."""
    models: tuple[str, ...] = ()


class AccessKeys:
    """The access keys of the service."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def add(
        self,
        name: str,
        owner: str,
        *,
        act_as: bool = False,
        models: tuple[str, ...] = (),
        routes: tuple[str, ...] = (),
        expires: int | None = None,
    ) -> tuple[str, AccessKey]:
        """Create a key. Return its text, which is not stored, and the stored key."""
        check_name(owner, "owner", empty=True)
        secret = _PREFIX + secrets.token_urlsafe(32)
        key = AccessKey(
            id=new_id(),
            digest=_digest(secret),
            name=name,
            owner=owner,
            act_as=act_as,
            models=models,
            routes=routes,
            created=now(),
            expires=expires,
        )
        self._storage.put(KIND, key.digest, msgspec.json.encode(key))
        return secret, key

    def list(self) -> list[AccessKey]:
        """Return all keys, oldest first."""
        found: list[AccessKey] = []
        last = ""
        while page := self._storage.list_documents(KIND, after=last):
            found += [typed_json.decode(each.value, AccessKey) for each in page]
            last = page[-1].key
        return sorted(found, key=lambda key: (key.created, key.id))

    def revoke(self, id: str) -> bool:  # noqa: A002
        """Delete the key with this id. Return False if there is none."""
        return any(self._storage.delete(KIND, key.digest) for key in self.list() if key.id == id)

    def find(self, secret: str) -> AccessKey | None:
        """Return the key with this text, or None if it does not exist or has expired."""
        return self.find_digest(_digest(secret)) if secret.startswith(_PREFIX) else None

    def find_digest(self, digest: str) -> AccessKey | None:
        """Return the key whose text has this SHA-256, or None if it does not exist or has expired."""
        document = self._storage.get(KIND, digest)
        if document is None:
            return None
        key = typed_json.decode(document.value, AccessKey)
        expired = key.expires is not None and key.expires <= now()
        return key if hmac.compare_digest(key.digest, digest) and not expired else None

    def note_owner(self, owner: str) -> None:
        """Note that an owner uses the service."""
        self._storage.put(OWNER, owner, b"", expect=0)

    def exist(self) -> bool:
        """Return True if there is any key."""
        return bool(self._storage.list_documents(KIND, limit=1))


class Gate:
    """The authentication of requests. `identify` raises `ApiError` for a request that has no access."""

    def __init__(self, settings: Settings, keys: AccessKeys, sessions: Sessions | None = None) -> None:
        self._settings = settings
        self._keys = keys
        self._sessions = sessions
        self._jwt = _JwtReader(settings.jwt) if settings.jwt else None
        self._seen: set[str] = set()
        self._had_keys = keys.exist()

    def identify(self, method: str, path: str, headers: Headers) -> Caller:
        """Return the caller of a request. Reads the storage, so it is called in a thread."""
        caller = self._identify(method, path, headers)
        if caller.owner not in self._seen:
            # Retention goes through the owners. Which of them this process has seen need not be complete.
            self._keys.note_owner(caller.owner)
            if len(self._seen) >= _MOST_SEEN:
                self._seen.clear()
            self._seen.add(caller.owner)
        return caller

    def _identify(self, method: str, path: str, headers: Headers) -> Caller:
        self.check_origin(method, headers)
        given = headers.get("authorization", "")
        scheme, _, token = given.partition(" ")
        token = token.strip() if scheme.lower() == "bearer" else headers.get("api-key", "")
        if token and self._jwt is not None and not token.startswith(_PREFIX):
            return Caller(self._jwt.read_owner(token))
        key = self._keys.find(token) if token else self._find_session_key(headers)
        if key is None:
            if self._jwt is None and not self._need_keys():
                return self._identify_single_user(headers)
            raise ApiError(401, "The access key is missing, wrong or expired.", code="invalid_api_key")
        self._had_keys = True
        if key.routes and not any(path == each or path.startswith(each.rstrip("/") + "/") for each in key.routes):
            raise ApiError(403, "This access key does not give access to this path.", code="route_not_allowed")
        owner = key.owner
        if key.act_as:
            if "longtalk-owner" not in headers:
                message = "This access key acts for others: name the owner in the header `Longtalk-Owner`."
                raise ApiError(400, message, param="Longtalk-Owner", code="owner_missing")
            owner = headers["longtalk-owner"]
            try:
                check_name(owner, "owner", empty=True)
            except InputError as problem:
                raise ApiError(400, str(problem), param="Longtalk-Owner") from None
        elif headers.get("longtalk-owner", owner) != owner:
            raise ApiError(403, "This access key can't act for another owner.", code="owner_not_allowed")
        return Caller(owner, key.id, key.models)

    def _find_session_key(self, headers: Headers) -> AccessKey | None:
        """Return the key that was exchanged for the cookie of a request."""
        digest = self._sessions.find(headers) if self._sessions else None
        return None if digest is None else self._keys.find_digest(digest)

    def is_single_user(self) -> bool:
        """Return True if the service is for the user of this machine alone. Reads the storage."""
        return self._jwt is None and is_loopback(self._settings.host) and not self._need_keys()

    def _need_keys(self) -> bool:
        """Return True if requests need a key: there is one, or there was one since this process has started.

        Otherwise revoking the last key would open the service.
        """
        self._had_keys = self._had_keys or self._keys.exist()
        return self._had_keys

    def _identify_single_user(self, headers: Headers) -> Caller:
        """Return the user of this machine as the caller, without credentials. Refuse other host names."""
        host = ",".join(headers.getlist("host"))
        found = _HOST.fullmatch(host)
        name = found[1] if found else host
        if not is_loopback(self._settings.host):
            raise ApiError(
                401,
                "The service has no access keys yet. Create one with: longtalk keys add NAME",
                code="invalid_api_key",
            )
        if name.lower() not in (*_LOCAL_NAMES, *self._settings.allowed_hosts):
            raise ApiError(
                403, f"The host name {quote(name)} is not allowed: add it to `allowed_hosts`.", code="host_not_allowed"
            )
        return Caller("")

    def check_origin(self, method: str, headers: Headers) -> None:
        """Raise `ApiError` for a request from a web page of another origin."""
        origin = headers.get("origin")
        if origin in self._settings.cors_origins:
            return
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise ApiError(
                403,
                "Requests from web pages of other sites are refused: add their origins to `cors_origins`.",
                code="origin_not_allowed",
            )
        if origin is None or origin.partition("://")[2] == headers.get("host"):
            return
        if method not in _SAFE_METHODS or origin == "null":
            raise ApiError(
                403, f"Requests from {quote(origin)} are refused: add it to `cors_origins`.", code="origin_not_allowed"
            )


class _JwtReader:
    """A reader of signed tokens (JWT) that another system has issued."""

    def __init__(self, settings: JwtSettings) -> None:
        self._settings = settings
        if any(name.lower() == "none" or name.startswith("HS") for name in settings.algorithms):
            raise InputError("`jwt.algorithms` must name only public-key algorithms, such as RS256.")
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        try:
            with open(settings.key_file, "rb") as file:
                self._key: Any = load_pem_public_key(file.read())
        except OSError as problem:
            raise InputError(f"The key file of `jwt` can't be read: {problem.strerror}.") from None
        except (ValueError, UnsupportedAlgorithm):
            raise InputError("The key file of `jwt` has no public key in PEM form.") from None

    def read_owner(self, token: str) -> str:
        """Return the owner that a token names. Raises `ApiError` if the token is invalid."""
        import jwt

        settings = self._settings
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                self._key,
                algorithms=list(settings.algorithms),
                audience=settings.audience,
                issuer=settings.issuer,
                options={"require": ["exp", settings.owner_claim]},
            )
            owner = claims[settings.owner_claim]
            check_name(owner, "owner")
        except (jwt.PyJWTError, InputError, KeyError, TypeError):
            raise ApiError(401, "The token is invalid or expired.", code="invalid_api_key") from None
        return str(owner)


def is_loopback(host: str) -> bool:
    """Return True if an address is reached from this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
