"""`longtalk serve`: run the HTTP service."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import webbrowser
from pathlib import Path

import msgspec

from longtalk.cli.holding import find_model_settings
from longtalk.cli.local_model import prepare_model
from longtalk.cli.output import print_error, print_note
from longtalk.errors import InputError, MissingExtra
from longtalk.service.settings import ModelSettings, Settings, load_settings

_SETTINGS = "LONGTALK_SERVE_SETTINGS"
"""The variable that passes the settings to worker processes."""
_HAND_OVER_SECONDS = 10
"""How long a process waits, after its turns were handed over, for clients to read the end of their streams."""


def run(
    *,
    host: str | None,
    port: int | None,
    workers: int | None,
    model: str | None,
    policy: str | None,
    check: bool,
    settings: str | None,
    store: str | None,
    open_page: bool = False,
) -> None:
    """Run the service until it is stopped; with `check`, only check that it could run."""
    loaded = load_settings(
        Path(settings) if settings else None,
        host=host,
        port=port,
        workers=workers,
        default_model=model,
        policy=policy,
        store=store,
    )
    if model is not None and model not in loaded.models:
        loaded = msgspec.structs.replace(loaded, default_model=find_model_settings(loaded, model).model)
    try:
        import uvicorn

        from longtalk.service.server import Server, Supervisor
    except ImportError:
        raise MissingExtra("The service needs an extra. Run: pip install 'longtalk[serve]'") from None
    needs_key = _check(loaded)
    if check:
        print_note("The settings can be used: the store opens, and the models are known.")
        return
    if sys.stdin.isatty() and sys.stderr.isatty():
        _prepare_default(loaded)

    os.environ[_SETTINGS] = msgspec.json.encode(loaded).decode()
    config = uvicorn.Config(
        "longtalk.cli.serve:make_app",
        factory=True,
        host=loaded.host,
        port=loaded.port,
        workers=loaded.workers,
        root_path=loaded.root_path,
        forwarded_allow_ips=loaded.trusted_proxies or None,
        proxy_headers=bool(loaded.trusted_proxies),
        log_level="warning",
        http="longtalk.service.connections:HttpConnection",
        ws="longtalk.service.connections:WebSocketConnection",
        ws_max_size=loaded.limits.body_bytes,
        server_header=False,
        access_log=False,
        timeout_graceful_shutdown=loaded.shutdown_seconds + _HAND_OVER_SECONDS,
    )
    server = Server(config)
    with _listen(loaded.host, loaded.port) as listener:
        _announce(loaded, listener.getsockname()[1], needs_key=needs_key, open_page=open_page)
        with contextlib.suppress(KeyboardInterrupt):
            if loaded.workers > 1:
                Supervisor(config, sockets=[listener]).run()
            else:
                server.run(sockets=[listener])
    if loaded.workers == 1 and not server.started:
        raise InputError("The service could not start. The lines above say why.")


def _prepare_default(settings: Settings) -> None:
    """Download the weights of the default model if it is a local one, so that the first message need not wait."""
    default = settings.models.get(settings.default_model, ModelSettings(settings.default_model))
    try:
        prepare_model(default.model)
    except InputError as problem:
        # Other models can be used meanwhile.
        print_error(problem)


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises `InputError` if the address can't be used."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except (OSError, OverflowError) as problem:
        listener.close()
        why = getattr(problem, "strerror", None) or problem
        raise InputError(f"Can't listen on {host}, port {port}: {why}. Choose another port with --port.") from None
    # Worker processes get the socket too.
    listener.set_inheritable(True)
    return listener


def _announce(settings: Settings, port: int, *, needs_key: bool, open_page: bool) -> None:
    """Print the address of the service and a first request to it, and open its page in a browser where there is one."""
    address = f"http://{'[' + settings.host + ']' if ':' in settings.host else settings.host}:{port}"
    key = " -H 'authorization: Bearer YOUR_KEY'" if needs_key else ""
    body = f'{{"model": "{settings.default_model}", "input": "Hello"}}'
    print_note(f"Longtalk serves on {address}/v1 with {settings.default_model}. Press Ctrl-C to stop.")
    print_note(f"Try: curl {address}/v1/responses -H 'content-type: application/json'{key} -d '{body}'")
    if settings.page:
        print_note(f"The page is at {address}/")
        if open_page and sys.stderr.isatty() and (os.environ.get("DISPLAY") or sys.platform in ("darwin", "win32")):
            # The socket listens already, so the browser waits until the service answers.
            webbrowser.open(address + "/")


def make_app() -> object:
    """Return the application, with the settings that the command has read. Each worker process calls it."""
    from longtalk._util.processes import allow_many_connections, limit_malloc_arenas
    from longtalk.service.app import create_app

    limit_malloc_arenas()
    allow_many_connections()
    settings = msgspec.json.decode(os.environ[_SETTINGS], type=Settings)
    if settings.access_log:
        _write_access_log()
    if settings.telemetry:
        from longtalk.service.telemetry import start_exporting

        start_exporting()
    return create_app(settings)


def _write_access_log() -> None:
    """Write the access log to standard error, one line of JSON for each request."""
    import logging

    from longtalk.service.access_log import logger

    logger.setLevel(logging.INFO)
    logger.addHandler(logging.StreamHandler(sys.stderr))
    logger.propagate = False


def _check(settings: Settings) -> bool:
    """Return True if clients need a key. Raises `InputError` for settings that the service could not run with."""
    from longtalk.service.access import is_loopback
    from longtalk.service.errors import ApiError
    from longtalk.service.service import Service

    if settings.workers > 1 and not settings.store.startswith(("postgres", "redis")):
        # SQLite serves several processes, but one machine's worth of turns at most.
        print_note("Several workers share one SQLite file: for many turns at once, use PostgreSQL or Redis.")
    service = Service(settings)
    try:
        service.models.find(None)
        for name in settings.models:
            service.models.find(name)
        needs_key = settings.jwt is not None or service.keys.exist()
        if not is_loopback(settings.host) and not needs_key:
            raise InputError(
                f"Without access keys, the service listens on this machine only, not on {settings.host!r}. "
                "Make a key: longtalk keys add NAME."
            )
    except ApiError as problem:
        raise InputError(problem.message) from None
    finally:
        service.storage.close()
        service.store.close()
    return needs_key
