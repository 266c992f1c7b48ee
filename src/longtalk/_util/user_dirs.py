"""The user's folders, as `platformdirs` determines them for each operating system.

`platformdirs` is imported on first use, which keeps `import longtalk` fast.
"""

from __future__ import annotations

from collections.abc import Callable

from longtalk.errors import InputError


def data() -> str:
    """Return the folder for data that must not be lost, such as stored conversations."""
    import platformdirs

    return _find(platformdirs.user_data_dir)


def config() -> str:
    """Return the folder for the user's settings. On Windows, this is the roaming folder."""
    import platformdirs

    return _find(platformdirs.user_config_dir, roaming=True)


def cache() -> str:
    """Return the folder for files that can be downloaded again."""
    import platformdirs

    return _find(platformdirs.user_cache_dir)


def _find(folder: Callable[..., str], **options: bool) -> str:
    try:
        return folder("longtalk", appauthor=False, **options)
    except RuntimeError:
        # In a container, the user may have no entry in the system's user database.
        raise InputError("This user has no home folder: set HOME to an absolute path.") from None
