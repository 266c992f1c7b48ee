"""The folders of the user, where each system keeps them."""

from __future__ import annotations

import os
import sys


def data() -> str:
    """For what the user wants to keep."""
    if sys.platform == "win32":
        return _longtalk(os.environ.get("LOCALAPPDATA", ""), "~", "AppData", "Local")
    if sys.platform == "darwin":
        return _longtalk("", "~", "Library", "Application Support")
    return _longtalk(os.environ.get("XDG_DATA_HOME", ""), "~", ".local", "share")


def config() -> str:
    """For what the user has set up."""
    if sys.platform == "win32":
        return _longtalk(os.environ.get("APPDATA", ""), "~", "AppData", "Roaming")
    if sys.platform == "darwin":
        return _longtalk("", "~", "Library", "Application Support")
    return _longtalk(os.environ.get("XDG_CONFIG_HOME", ""), "~", ".config")


def cache() -> str:
    """For what can be fetched again."""
    if sys.platform == "win32":
        return _longtalk(os.environ.get("LOCALAPPDATA", ""), "~", "AppData", "Local")
    if sys.platform == "darwin":
        return _longtalk("", "~", "Library", "Caches")
    return _longtalk(os.environ.get("XDG_CACHE_HOME", ""), "~", ".cache")


def _longtalk(given: str, *usual: str) -> str:
    # The XDG specification says to ignore a relative one.
    base = given if os.path.isabs(given) else os.path.expanduser(os.path.join(*usual))
    return os.path.join(base, "longtalk")
