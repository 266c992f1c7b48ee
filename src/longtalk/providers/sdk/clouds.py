"""Recognize the SDK clients of vendors, and adapt requests to the clouds that they connect to.

The SDKs are never imported here: a caller that passes a client has already imported its SDK. Most clients send a
request unchanged. Azure, Bedrock and Vertex require another path or other top-level fields. Their SDKs add these when
they compose a request. Longtalk's requests are already composed, so `adapt_request` adds them and leaves the messages
unchanged.
"""

from __future__ import annotations

from typing import Any

import msgspec

from longtalk._util import json_bytes
from longtalk.errors import InputError

WIRES = {"openai": ("openai-chat", "openai-responses"), "anthropic": ("anthropic",)}
"""The wires whose requests each vendor's client can send."""
CLOUD_VERSIONS = {"bedrock": b'"bedrock-2023-05-31"', "vertex": b'"vertex-2023-10-16"'}
"""The API version for each cloud that takes the model in the path and the API version in the body."""
_BASES = {"SyncAPIClient": False, "AsyncAPIClient": True}
_IDENTITY = ("organization", "project", "auth_token", "aws_profile", "project_id", "region", "location", "workspace_id")


class Vendor(msgspec.Struct, frozen=True):
    """The vendor of an SDK client, and the cloud it connects to."""

    name: str
    is_async: bool
    cloud: str = ""
    """The cloud for which requests are adapted (`azure`, `bedrock` or `vertex`), or "" if none."""


def find_vendor(client: object) -> Vendor | None:
    """Return the vendor of an SDK client, or None if the object is not an SDK client."""
    names = [(each.__module__.partition(".")[0], each.__name__) for each in type(client).__mro__]
    for name, base in names:
        if name in WIRES and base in _BASES:
            clouds = {"BaseAzureClient": "azure", "BaseBedrockClient": "bedrock", "BaseVertexClient": "vertex"}
            cloud = next((clouds[each] for _, each in names if each in clouds), "")
            return Vendor(name, _BASES[base], cloud)
    return None


def check_client(client: Any, vendor: Vendor, *, is_async: bool) -> None:
    """Raise `InputError` if this client can't be used: async instead of sync or vice versa, too old, or incomplete."""
    name = type(client).__name__
    if vendor.is_async != is_async:
        wanted = "an async client" if is_async else "a sync client"
        raise InputError(f"`client` must be {wanted} here, not {name}: Chat takes sync clients, AsyncChat async ones.")
    if not all(map(_is_httpx2, (client.base_url, getattr(client, "_client", client.base_url)))):
        raise InputError(
            f"This {name} uses httpx, and Longtalk needs a client that uses httpx2: install openai 3 or anthropic 1, "
            f"or newer, and don't pass an http_client= of httpx to the client."
        )
    if vendor.cloud == "vertex" and not client.project_id:
        raise InputError(f"{name} has no project: pass it project_id=, or set ANTHROPIC_VERTEX_PROJECT_ID.")


def _is_httpx2(part: object) -> bool:
    return any(each.__module__.partition(".")[0] == "httpx2" for each in type(part).__mro__)


def read_address(client: Any) -> str:
    """Return the base URL to which a client sends its requests."""
    return str(client.base_url).rstrip("/")


def identify_account(client: Any) -> str:
    """Return what identifies the client's account: its key, or a digest if more than a key does.

    A client that has only a key uses the same account as a provider with that key, and the answers of one are valid for
    the other. Credentials that expire are left out, so that the result is stable.
    """
    # Some SDKs have a group of endpoints under one of these names.
    values = [getattr(client, name, None) for name in _IDENTITY]
    parts = [value if isinstance(value, str) else "" for value in values]
    fetched = getattr(client, "_api_key_provider", None) is not None
    key = "" if fetched else str(getattr(client, "api_key", None) or "")
    temporary = getattr(client, "aws_session_token", None)
    parts += [key, "" if temporary else str(getattr(client, "aws_access_key", None) or "")]
    if "".join(parts) == key and key.isascii() and key.isprintable() and key.strip():
        return key
    import hashlib

    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()


def adapt_request(client: Any, vendor: Vendor, model: str, path: str, body: bytes | None) -> tuple[str, bytes | None]:
    """Return the request's path (below the client's address) and its body, both as the client's cloud expects them."""
    if vendor.cloud == "azure" and path == "/chat/completions" and "/deployments" not in client.base_url.path:
        return f"/deployments/{_quote_segment(model)}{path}", body
    if vendor.cloud not in CLOUD_VERSIONS or body is None:
        return path, body
    fields = {"anthropic_version": CLOUD_VERSIONS[vendor.cloud], **json_bytes.fields(body)}
    del fields["model"]
    if vendor.cloud == "bedrock":
        method = "invoke-with-response-stream" if fields.pop("stream", b"") == b"true" else "invoke"
        return f"/model/{_quote_segment(model)}/{method}", json_bytes.build(fields)
    method = "streamRawPredict" if fields.get("stream") == b"true" else "rawPredict"
    location = f"/projects/{_quote_segment(client.project_id)}/locations/{_quote_segment(client.region)}"
    return f"{location}/publishers/anthropic/models/{_quote_segment(model)}:{method}", json_bytes.build(fields)


def _quote_segment(name: str) -> str:
    """Return a name quoted for use as one segment of a URL path."""
    if not name.strip("."):
        raise InputError(f"{name!r} can't be part of an address: use another model or project name.")
    from urllib.parse import quote

    return quote(name, safe=":@")
