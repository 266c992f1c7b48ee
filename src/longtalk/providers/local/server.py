"""The child process that runs a local model: `python -m longtalk.providers.local.server`.

llama.cpp runs here and not in the user's program, because it crashes if it is shut down during a request, and hangs in
a forked process. The child reads one line of JSON from standard input (`model`, `context`, `threads`, `key`, `line`)
and writes one line to standard output: `{"url": …}`, or `{"error": …}` before it exits with status 1. It then serves
OpenAI's HTTP API on the loopback address, protected by the key. It exits as soon as its standard input ends, which
happens however the parent ends.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

_CACHE_MIB = 512
_TEMPLATE = """\
{%- set line = LINE -%}
{%- set said = messages[0]['content'] if messages[0]['role'] == 'system' else '' -%}
{{- '<|im_start|>system\\n' + said -}}
{%- if not tools -%}{{- ('\\n\\n' if said else '') + line -}}
{%- elif not said -%}{{- 'You are a helpful assistant.' -}}{%- endif -%}
{%- if tools -%}
{{- '\\n\\n# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\n' -}}
{{- 'You are provided with function signatures within <tools></tools> XML tags:\\n<tools>' -}}
{%- for tool in tools -%}{{- '\\n' + (tool | tojson) -}}{%- endfor -%}
{{- '\\n</tools>\\n\\nFor each function call, return a json object ' -}}
{{- 'with function name and arguments in a fenced block:\\n' -}}
{{- '```json\\n{"name": <function-name>, "arguments": <args-json-object>}\\n```' -}}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- for message in messages -%}
{%- set text = message['content'] or '' -%}
{%- set next = {} if loop.last else messages[loop.index0 + 1] -%}
{%- set before = messages[loop.index0 - 1] if loop.index0 else {} -%}
{%- if message['role'] == 'user' and text.startswith('<memory>') and before['role'] == 'user' -%}
{%- elif message['role'] == 'user' and next['role'] == 'user' and (next['content'] or '').startswith('<memory>') -%}
{{- '<|im_start|>user\\n' + next['content'] + '\\n\\n' + text + '<|im_end|>\\n' -}}
{%- elif message['role'] == 'tool' -%}
{{- '<|im_start|>user\\nThe function returned:\\n' + text -}}
{%- if next['role'] != 'tool' -%}
{{- '\\n\\nAnswer my question with it, in plain words.' -}}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- elif not (loop.first and message['role'] == 'system') -%}
{{- '<|im_start|>' + message['role'] + '\\n' + text -}}
{%- for call in message['tool_calls'] or [] -%}
{%- set given = call['function']['arguments'] -%}
{{- '```json\\n{"name": "' + call['function']['name'] + '", "arguments": ' -}}
{{- (given if given is string else given | tojson) -}}
{{- '}\\n```' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""
"""How the built-in models, which all know ChatML, are shown a request: with a line of ours after the system text.

Tools are described as these models have learned it, except that a call is a fenced block of JSON: that is what they
write, whatever else is asked for, and llama.cpp reads the calls by this template. The line would keep the smaller model
from calling anything, so requests with tools are without it. After a result, the models call again unless they are
asked to answer. What memory adds after a message (recalled text, new lines of the brief) is shown before it: small
models take whatever comes last for the question.
"""


def render_template(line: str) -> str:
    """Return the chat template of a built-in model, which adds `line` to the system text."""
    return _TEMPLATE.replace("LINE", json.dumps(line))


def main() -> None:
    """Serve the model that standard input names, until standard input ends."""
    from contextlib import suppress

    # Standard output is for the handshake only, so whatever the engine prints goes to standard error.
    answers = os.dup(1)
    os.dup2(2, 1)
    server = None
    try:
        server = _serve(json.loads(sys.stdin.buffer.readline()))
        answer = {"url": server.listening_address}
    except Exception as error:
        answer = {"error": str(error) or type(error).__name__}
    with suppress(OSError):  # The parent may be gone: then standard input ends.
        os.write(answers, json.dumps(answer).encode() + b"\n")
    if server is None:
        # An ordinary exit, so that the engine completes its log, which contains the reason.
        raise SystemExit(1)
    os.close(answers)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        while sys.stdin.buffer.read(4096):
            pass
    finally:
        os._exit(0)  # Also on a signal: llama.cpp can't shut down during a request.


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
    # Otherwise the memory of the engine grows by gigabytes with the number of conversations.
    params.cache_ram_mib = _CACHE_MIB
    if settings.get("line"):
        params.chat_template = render_template(settings["line"])
    params.use_jinja = True
    params.ui = False
    params.verbosity = 1  # Errors only: the log is the only source of the reason why a model can't be loaded.
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
