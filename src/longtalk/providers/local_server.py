"""The local model's own process: `python -m longtalk.providers.local_server`.

llama.cpp lives here and not in the user's program, because it crashes when it is torn down with a
request in flight and hangs in a forked copy. One JSON line comes in on standard input (`model`,
`context`, `threads`, `key`), one goes out on standard output: `{"url": …}`, or `{"error": …}` and exit
status 1. The process then serves OpenAI's HTTP API on loopback, with the key, until its standard
input ends. That happens in whatever way its parent goes, and it then ends at once.
"""

from __future__ import annotations

import os
import sys
from typing import Any


def main() -> None:
    import json
    from contextlib import suppress

    # The engine may print what it likes: standard output is for the handshake alone.
    answers = os.dup(1)
    os.dup2(2, 1)
    server = None
    try:
        server = _serve(json.loads(sys.stdin.buffer.readline()))
        answer = {"url": server.listening_address}
    except Exception as error:
        answer = {"error": str(error) or type(error).__name__}
    with suppress(OSError):  # Where the parent is gone, the end of standard input is all that is left to read.
        os.write(answers, json.dumps(answer).encode() + b"\n")
    if server is None:
        # The ordinary way out, so that the engine's log, which says why, is written to its end.
        raise SystemExit(1)
    os.close(answers)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        while sys.stdin.buffer.read(4096):
            pass
    finally:
        os._exit(0)  # Also on a signal: there is no orderly way out with a request in flight.


def _serve(settings: dict[str, Any]) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.n_ctx = settings["context"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.api_keys = [settings["key"]]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = 1
    params.use_jinja = True
    params.ui = False
    params.verbosity = 1  # Errors only: a model that can't be loaded has its reason in the log and nowhere else.
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
