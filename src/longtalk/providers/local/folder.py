"""The folder of the weights of built-in local models."""

from __future__ import annotations

import os

from longtalk._util import user_dirs


def weights_folder() -> str:
    """Return the folder of the built-in weights: below `LONGTALK_CACHE` if that is set, else in the user's cache."""
    custom = os.environ.get("LONGTALK_CACHE", "")
    base = os.path.join(os.path.abspath(os.path.expanduser(custom)), "longtalk") if custom else user_dirs.cache()
    return os.path.join(base, "models")
