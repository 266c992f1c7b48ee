"""The built-in local models, and which of them `local` means on this machine.

`local` is the largest model that fits: Qwen2.5-Coder-1.5B where the machine or its container has 6 GB of memory, else
0.5B. The choice is made once and recorded beside the weights. `LONGTALK_LOCAL` names another one. The weights of all
models are under the Apache licence.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Literal, NamedTuple

from longtalk.errors import InputError
from longtalk.providers.local.folder import weights_folder

_NEEDED = 6_000_000_000
_RECORD = "default.txt"
_PERSON = 'Say "you" and "your" when you mean the user. Answer in one or two short sentences.'
_UNLIMITED = 1 << 60


class LocalModel(NamedTuple):
    """A model whose weights are downloaded when they are first needed."""

    name: str
    """The name after `local:`."""
    title: str
    size: int
    """The size of the weights in bytes."""
    line: str
    """A line for the model after the system text: without it, small models mix up who said what."""
    max_tokens: int
    """The longest answer, unless the request says otherwise: small models often don't stop by themselves."""
    tools: bool = False
    """Whether the model calls tools reliably enough to be given any."""
    cards: Literal["request", "none"] = "none"
    """How the model writes memory cards: see `Capabilities.cards`. The smallest ones make up facts."""


MODELS = {
    "1.5b": LocalModel("1.5b", "Qwen2.5-Coder-1.5B", 1_117_320_768, _PERSON, 1024, tools=True, cards="request"),
    "0.5b": LocalModel(
        "0.5b",
        "Qwen2.5-Coder-0.5B",
        491_400_064,
        'You are a helpful assistant, not the user. Begin answers about the user with "You" or "Your".',
        1024,
        tools=True,
    ),
    "135m": LocalModel("135m", "SmolLM2-135M", 98_362_432, _PERSON, 256),
}
_OTHER_NAMES = {"smollm2": "135m"}


def find_model(name: str) -> LocalModel | None:
    """Return the built-in model of a name, "" being the default one; None if the name is that of a file."""
    name = name.lower()
    return MODELS.get(_OTHER_NAMES.get(name, name) or choose_default())


def choose_default() -> str:
    """Return the name of the model that `local` means here: by the environment, by an earlier choice, or by memory."""
    named = os.environ.get("LONGTALK_LOCAL", "").strip().lower()
    if named:
        if named not in MODELS:
            raise InputError(f"LONGTALK_LOCAL is {named!r}: set it to one of {', '.join(MODELS)}.")
        return named
    with suppress(OSError, UnicodeDecodeError), open(_record_path(), encoding="utf-8") as file:
        recorded = file.read().strip()
        if recorded in MODELS:
            return recorded
    return "1.5b" if read_memory() >= _NEEDED else "0.5b"


def record_default(name: str) -> None:
    """Record what `local` means on this machine from now on."""
    with suppress(OSError):
        os.makedirs(weights_folder(), exist_ok=True)
        with open(_record_path(), "w", encoding="utf-8") as file:
            file.write(name + "\n")


def read_memory() -> int:
    """Return how many bytes of memory this process may use: those of the machine, or of its container if fewer."""
    found = [_UNLIMITED]
    with suppress(AttributeError, OSError, ValueError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError), open(path, encoding="ascii") as file:
            found.append(int(file.read()))
    return min(found)


def _record_path() -> str:
    return os.path.join(weights_folder(), _RECORD)
