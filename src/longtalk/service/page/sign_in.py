"""Signing in on the page: an access key is exchanged for a cookie, and signing out ends it."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from longtalk._util.concurrency import call_store
from longtalk.service.errors import ApiError, from_error
from longtalk.service.http import decode, json_response, read_body
from longtalk.service.service import Service
from longtalk.service.sessions import COOKIE, LIFETIME, is_from_page, read_cookie


class SignIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The access key to sign in with."""

    key: str


async def handle_session(request: Request) -> Response:
    """Answer POST, which signs in, and DELETE, which signs out."""
    service: Service = request.app.state.service
    try:
        service.gate.check_origin(request.method, request.headers)
        if not is_from_page(request.headers):
            raise ApiError(
                403,
                "Sign-in and sign-out are only accepted from this service's own page, not from another site.",
                code="origin_not_allowed",
            )
        return await (_sign_in if request.method == "POST" else _sign_out)(service, request)
    except Exception as problem:
        return from_error(problem).to_response()


async def _sign_in(service: Service, request: Request) -> Response:
    given = decode(await read_body(request, service.settings.limits), SignIn, service.settings.limits)
    key = await call_store(service.storage, lambda: service.keys.find(given.key.strip()))
    if key is None:
        raise ApiError(401, "The access key is wrong or expired.", param="key", code="invalid_api_key")
    if key.act_as:
        message = "This access key acts for others. Sign in with a key that belongs to one owner."
        raise ApiError(403, message, param="key", code="owner_missing")
    token = await call_store(service.storage, lambda: service.sessions.add(key.digest))
    response = json_response({"owner": key.owner})
    response.set_cookie(
        COOKIE,
        token,
        max_age=LIFETIME,
        path=request.scope.get("root_path") or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


async def _sign_out(service: Service, request: Request) -> Response:
    token = read_cookie(request.headers)
    if token:
        await call_store(service.storage, lambda: service.sessions.end(token))
    response = json_response({})
    response.delete_cookie(COOKIE, path=request.scope.get("root_path") or "/", httponly=True, samesite="strict")
    return response
