"""The ASGI application: routes, who may use them, and errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from longtalk._util.concurrency import call_store
from longtalk.providers.base import AsyncProvider
from longtalk.service.access import Caller
from longtalk.service.access_log import AccessLog
from longtalk.service.errors import ApiError, describe_for_log, from_error, not_found, quote, shorten
from longtalk.service.http import json_response, read_path
from longtalk.service.native.openapi import make_document
from longtalk.service.native.routes import PREFIX
from longtalk.service.native.table import ROUTES
from longtalk.service.openai import chat, context, conversations, models, response_socket, responses
from longtalk.service.openai.recovery import recover_all
from longtalk.service.page.routes import make_page_routes
from longtalk.service.service import Service
from longtalk.service.settings import Settings, load_settings
from longtalk.service.storage.protocol import Storage
from longtalk.stores.base import Store

Endpoint = Callable[[Service, Caller, Request], Awaitable[Response]]
_log = logging.getLogger("longtalk")

OPENAI_ENDPOINTS: tuple[tuple[str, str, Endpoint], ...] = (
    *chat.ENDPOINTS,
    *context.ENDPOINTS,
    *responses.ENDPOINTS,
    *conversations.ENDPOINTS,
    *models.ENDPOINTS,
)


async def describe_api(_: Service, __: Caller, request: Request) -> Response:
    """Return the OpenAPI document of all routes."""
    app = request.app
    if not hasattr(app.state, "document"):
        app.state.document = make_document(ROUTES, OPENAI_ENDPOINTS, SOCKETS)
    return json_response(app.state.document)


ENDPOINTS: tuple[tuple[str, str, Endpoint], ...] = (
    *OPENAI_ENDPOINTS,
    *((route.method, route.full_path, route) for route in ROUTES),
    ("GET", PREFIX + "/openapi.json", describe_api),
)
"""Method, path and function of each route that needs a caller."""
SOCKETS = response_socket.SOCKETS
"""Path and function of each WebSocket."""


def create_app(
    settings: Settings | None = None,
    *,
    store: Store | None = None,
    storage: Storage | None = None,
    providers: Mapping[str, AsyncProvider] | None = None,
) -> Starlette:
    """Return the service as an ASGI application.

    `store` and `storage` replace those that the settings name, and `providers` maps model names to providers. They are
    for programs that mount the service in their own application, and for tests.
    """
    settings = settings or load_settings()

    @asynccontextmanager
    async def run(app: Starlette) -> AsyncIterator[Mapping[str, Any]]:
        service: Service = app.state.service
        jobs = service.clean_up(), service.return_memory(), recover_all(service)
        tasks = [asyncio.ensure_future(each) for each in jobs]
        try:
            # The protocols of connections call `stop` as soon as the server stops.
            yield {"stop": service.stop}
        finally:
            for task in tasks:
                task.cancel()
            await service.aclose()

    cors = Middleware(
        CORSMiddleware, allow_origins=settings.cors_origins, allow_methods=["*"], allow_headers=["*"], max_age=600
    )
    app = Starlette(
        routes=[*_make_routes(), *(make_page_routes() if settings.page else [])],
        lifespan=run,
        exception_handlers={404: _unknown, 405: _unknown},
        middleware=[Middleware(AccessLog), *([cors] if settings.cors_origins else [])],
    )
    # A redirect would lead to whatever host the request names.
    app.router.redirect_slashes = False
    app.state.service = Service(settings, store=store, storage=storage, providers=providers)
    return app


def _make_routes() -> list[BaseRoute]:
    routes: list[BaseRoute] = [Route("/healthz", _report_health), Route("/readyz", _report_ready)]
    by_path: dict[str, dict[str, Endpoint]] = {}
    for method, path, endpoint in ENDPOINTS:
        by_path.setdefault(path, {})[method] = endpoint
    routes += [WebSocketRoute(path, _make_socket(endpoint)) for path, endpoint in SOCKETS]
    return routes + [Route(path, _make_route(each), methods=list(each)) for path, each in by_path.items()]


def _make_socket(endpoint: Callable[[Service, WebSocket], Awaitable[None]]) -> Callable[[WebSocket], Awaitable[None]]:
    async def route(socket: WebSocket) -> None:
        service: Service = socket.app.state.service
        try:
            await response_socket.identify(service, socket)
        except Exception as problem:
            await socket.send_denial_response(from_error(problem).to_response())
            return
        await socket.accept()
        await endpoint(service, socket)

    return route


def _make_route(endpoints: Mapping[str, Endpoint]) -> Callable[[Request], Awaitable[Response]]:
    async def route(request: Request) -> Response:
        service: Service = request.app.state.service
        try:
            caller: Caller = await call_store(
                service.storage,
                lambda: service.gate.identify(request.method, read_path(request.scope), request.headers),
            )
            request.state.caller = caller
            await service.limiter.count_request(caller.owner)
            method = "GET" if request.method == "HEAD" else request.method
            response = await endpoints[method](service, caller, request)
        except Exception as problem:
            error = from_error(problem)
            if error.status >= 500:
                _log.warning("%s %s failed: %s", request.method, shorten(request.url.path), describe_for_log(problem))
            response = error.to_response()
        return response

    return route


async def _unknown(request: Request, problem: Exception) -> Response:
    status: Any = getattr(problem, "status_code", 404)
    if status == 405:
        message, headers = f"{request.method} is not for this path.", getattr(problem, "headers", None)
        return ApiError(405, message, code="method_not_allowed", headers=headers).to_response()
    return not_found(f"The path {quote(request.url.path)}").to_response()


async def _report_health(_: Request) -> Response:
    return json_response({"status": "ok"})


async def _report_ready(request: Request) -> Response:
    """Report whether the store can be reached, and the process does not stop."""
    service: Service = request.app.state.service
    if service.runs.is_stopping:
        return json_response({"status": "stopping"}, 503)
    try:
        await call_store(service.store, lambda: service.store.info("", "healthz"))
        await call_store(service.storage, lambda: service.storage.get("health", "healthz"))
    except Exception as problem:
        _log.warning("the store can't be reached: %s", describe_for_log(problem))
        return json_response({"status": "unavailable"}, 503)
    return json_response({"status": "ok"})
