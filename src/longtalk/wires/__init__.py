"""Provider grammars: how each family of providers writes messages, requests and answers.

Each family has a package (`openai_chat`, `openai_responses`, `anthropic`, `gemini`, `agents`) that implements the
`Wire` protocol in `protocol.py`. No module here does I/O. `entries.py` reads entries of any wire; `convert.py` rewrites
an entry of one wire for another.
"""

from longtalk.wires.entries import read_usage, redact, text_if_readable
from longtalk.wires.registry import AGENTS, HTTP_WIRES, NAMES, WIRES

__all__ = ["AGENTS", "HTTP_WIRES", "NAMES", "WIRES", "read_usage", "redact", "text_if_readable"]
