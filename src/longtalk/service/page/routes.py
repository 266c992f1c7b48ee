"""The files of the page. They hold no data of anyone, so they are served without an access key.

Browsers ask again for each file by its ETag, so that a changed file is used at once. The policy for content allows no
inline code and no other origin.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from functools import lru_cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from longtalk.service.errors import not_found, quote
from longtalk.service.page.sign_in import handle_session

STATIC = Path(__file__).with_name("static")
HEADERS = {
    "content-security-policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' data: blob:",
            "connect-src 'self'",
            "font-src 'self'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
    "vary": "accept-encoding",
}
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".txt": "text/plain",
}
_PATH = re.compile(r"[\w-]+(?:\.[\w-]+)*(?:/[\w-]+(?:\.[\w-]+)*)*", re.ASCII)
_MISSING = """The page has not been set up: its parts from npm are missing.

Run in the folder of the source:  make setup
Or:                               python tools/fetch_page_parts.py

The API at /v1 and /longtalk/v1 works without them.
"""


def make_page_routes() -> list[BaseRoute]:
    """Return the routes of the page."""
    return [
        Route("/", serve_index),
        Route("/page/session", handle_session, methods=["POST", "DELETE"]),
        Route("/page/{path:path}", serve_file),
    ]


async def serve_index(request: Request) -> Response:
    """Return the page, or say what to run if its parts are missing."""
    if not (STATIC / "vendor" / "licences.txt").exists():
        return Response(_MISSING, 503, HEADERS, media_type="text/plain")
    return _serve(request, "index.html")


async def serve_file(request: Request) -> Response:
    """Return a file of the page."""
    return _serve(request, request.path_params["path"])


def _serve(request: Request, name: str) -> Response:
    path = STATIC / name
    kind = "text/plain" if path.name.startswith("LICENSE") else _TYPES.get(path.suffix)
    try:
        if kind is None or not _PATH.fullmatch(name):
            raise FileNotFoundError
        found = path.stat()
        body, packed, tag = _read(path, found.st_mtime_ns, found.st_size)
    except OSError:
        return not_found(f"The path {quote(request.url.path)}").to_response()
    headers = {**HEADERS, "etag": tag}
    if tag in request.headers.get("if-none-match", ""):
        return Response(None, 304, headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(packed, 200, {**headers, "content-encoding": "gzip"}, media_type=kind)
    return Response(body, 200, headers, media_type=kind)


@lru_cache(maxsize=200)
def _read(path: Path, _time: int, _size: int) -> tuple[bytes, bytes, str]:
    """Return a file, compressed too, and its ETag. A changed file has another time or size."""
    body = path.read_bytes()
    return body, gzip.compress(body, 9, mtime=0), f'W/"{hashlib.sha256(body).hexdigest()[:20]}"'
