"""Clients of the vendors' own SDKs: whose they are, and where their clouds want a request.

An SDK itself is never imported here: who hands in a client has done so. Most clients take a request as it is. Three
clouds want it in another place or form, which their SDKs make from the parts of a request that they compose; ours is
composed already, so it is done here, and what is said in it is not touched.
"""

from __future__ import annotations

from typing import Any

import msgspec

from longtalk import _json
from longtalk.errors import InputError

WIRES = {"openai": ("openai-chat", "openai-responses"), "anthropic": ("anthropic",)}
"""What the client of a vendor can carry."""
REWRITTEN = {"bedrock": b'"bedrock-2023-05-31"', "vertex": b'"vertex-2023-10-16"'}
"""Clouds that want the model in the address and the version in the body: which one the wire speaks, in their words."""
_BASES = {"SyncAPIClient": False, "AsyncAPIClient": True}
_IDENTITY = ("organization", "project", "auth_token", "aws_profile", "project_id", "region", "location", "workspace_id")


class Vendor(msgspec.Struct, frozen=True):
    """Whose client it is."""

    name: str
    is_async: bool
    cloud: str = ""
    """`azure`, `bedrock` or `vertex`, where requests are not sent as they are."""


def vendor_of(client: object) -> Vendor | None:
    """The vendor of an SDK's client; None for any other object."""
    names = [(each.__module__.partition(".")[0], each.__name__) for each in type(client).__mro__]
    for name, base in names:
        if name in WIRES and base in _BASES:
            parts = {"BaseAzureClient": "azure", "BaseBedrockClient": "bedrock", "BaseVertexClient": "vertex"}
            cloud = next((parts[each] for _, each in names if each in parts), "")
            return Vendor(name, _BASES[base], cloud)
    return None


def check(client: Any, vendor: Vendor, *, is_async: bool) -> None:
    """Raise `InputError` for a client that can't be used."""
    name = type(client).__name__
    if vendor.is_async != is_async:
        right = "an async client" if is_async else "a sync client"
        raise InputError(f"`client` is {right} here, and {name} is not: Chat takes sync ones, AsyncChat async ones.")
    if not all(map(_is_new, (client.base_url, getattr(client, "_client", client.base_url)))):
        raise InputError(
            f"This {name} stands on httpx, and Longtalk needs one that stands on httpx2: openai 3 or anthropic 1, or "
            f"newer, without an http_client= of the old kind."
        )
    if vendor.cloud == "vertex" and not client.project_id:
        raise InputError(f"{name} does not know its project: give it project_id=, or set ANTHROPIC_VERTEX_PROJECT_ID.")


def _is_new(part: object) -> bool:
    return any(each.__module__.partition(".")[0] == "httpx2" for each in type(part).__mro__)


def address(client: Any) -> str:
    """Where a client sends its requests."""
    return str(client.base_url).rstrip("/")


def identity(client: Any) -> str:
    """A digest of whose client it is, by what stays the same: tokens and keys that are fetched anew do not count."""
    about = [str(getattr(client, name, None) or "") for name in _IDENTITY]
    fetched = getattr(client, "_api_key_provider", None) is not None
    about.append("" if fetched else str(getattr(client, "api_key", None) or ""))
    passing = getattr(client, "aws_session_token", None)
    about.append("" if passing else str(getattr(client, "aws_access_key", None) or ""))
    import hashlib

    return hashlib.sha256("\0".join(about).encode("utf-8", "replace")).hexdigest()


def placed(client: Any, vendor: Vendor, model: str, path: str, body: bytes | None) -> tuple[str, bytes | None]:
    """Where a request goes below the client's address, and in which form."""
    if vendor.cloud == "azure" and path == "/chat/completions" and "/deployments" not in client.base_url.path:
        return f"/deployments/{_segment(model)}{path}", body
    if vendor.cloud not in REWRITTEN or body is None:
        return path, body
    fields = {"anthropic_version": REWRITTEN[vendor.cloud], **_json.fields(body)}
    del fields["model"]
    if vendor.cloud == "bedrock":
        method = "invoke-with-response-stream" if fields.pop("stream", b"") == b"true" else "invoke"
        return f"/model/{_segment(model)}/{method}", _json.build(fields)
    method = "streamRawPredict" if fields.get("stream") == b"true" else "rawPredict"
    place = f"/projects/{_segment(client.project_id)}/locations/{_segment(client.region)}"
    return f"{place}/publishers/anthropic/models/{_segment(model)}:{method}", _json.build(fields)


def _segment(name: str) -> str:
    """A name as one part of a path."""
    if not name.strip("."):
        raise InputError(f"{name!r} can't be part of an address.")
    from urllib.parse import quote

    return quote(name, safe=":@")
