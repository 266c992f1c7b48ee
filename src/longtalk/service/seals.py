"""The keys that seal the states of clients, from the file that the settings name."""

from __future__ import annotations

import tomllib
from pathlib import Path

from longtalk.errors import InputError
from longtalk.state.sealing import Seal


def load_seal(path: str) -> Seal | None:
    """Return the seal of a file of keys; None without a file.

    Each line is `name = "64 hexadecimal digits"`. The first key seals, and all of them open what they have sealed.
    """
    if not path:
        return None
    try:
        keys = tomllib.loads(Path(path).read_text("utf-8"))
        return Seal({name: bytes.fromhex(value) for name, value in keys.items()})
    except OSError as problem:
        raise InputError(f"The seal file {path!r} can't be read: {problem.strerror}.") from None
    except (ValueError, TypeError):
        # The text of these errors could quote a key.
        message = f'Each line of the seal file {path!r} must be: name = "64 hexadecimal digits".'
        raise InputError(message) from None
