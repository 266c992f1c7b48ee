"""`longtalk serve`: run the HTTP service."""

from __future__ import annotations

import os
from pathlib import Path

from longtalk.cli.output import print_note
from longtalk.errors import InputError, MissingExtra
from longtalk.service.settings import Settings, load_settings

_SETTINGS = "LONGTALK_SERVE_SETTINGS"
"""The variable that passes the settings to worker processes."""


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
    try:
        import uvicorn
    except ImportError:
        raise MissingExtra("The service needs an extra. Run: pip install 'longtalk[serve]'") from None
    _check(loaded)
    if check:
        print_note("The settings can be used: the store opens, and the models are known.")
        return
    import msgspec

    os.environ[_SETTINGS] = msgspec.json.encode(loaded).decode()
    address = f"http://{'[' + loaded.host + ']' if ':' in loaded.host else loaded.host}:{loaded.port}"
    print_note(f"Longtalk serves on {address}/v1 with {loaded.default_model}. Press Ctrl-C to stop.")
    uvicorn.run(
        "longtalk.cli.serve:make_app",
        factory=True,
        host=loaded.host,
        port=loaded.port,
        workers=loaded.workers,
        root_path=loaded.root_path,
        forwarded_allow_ips=loaded.trusted_proxies or None,
        proxy_headers=bool(loaded.trusted_proxies),
        log_level="warning",
        http="longtalk.service.head_limit:BoundedHttp",
        ws="websockets-sansio",
        ws_max_size=loaded.limits.body_bytes,
        server_header=False,
        access_log=False,
        timeout_graceful_shutdown=loaded.shutdown_seconds,
    )


def make_app() -> object:
    """Return the application, with the settings that the command has read. Each worker process calls it."""
    import msgspec

    from longtalk.service.app import create_app

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
    import sys

    from longtalk.service.access_log import logger

    logger.setLevel(logging.INFO)
    logger.addHandler(logging.StreamHandler(sys.stderr))
    logger.propagate = False


def _check(settings: Settings) -> None:
    """Raise `InputError` for settings that the service could not run with."""
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
        if not is_loopback(settings.host) and settings.jwt is None and not service.keys.exist():
            raise InputError(
                f"Without access keys, the service listens on this machine only, not on {settings.host!r}. "
                "Make a key: longtalk keys add NAME."
            )
    except ApiError as problem:
        raise InputError(problem.message) from None
    finally:
        service.storage.close()
        service.store.close()
