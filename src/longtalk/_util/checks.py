"""Checks for arguments that several parts of the API accept."""

from __future__ import annotations

from collections.abc import Mapping

from longtalk.errors import InputError


def check_meta(value: object) -> None:
    """Raise `InputError` unless the value is a mapping with string keys, as an app's metadata must be."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f"Metadata must be a mapping with string keys, such as {{'title': 'Bows'}}, not {value!r}.")


def check_name(value: object, what: str, *, empty: bool = False) -> None:
    """Raise `InputError` unless the value is a string that can serve as the `what` (such as the id) of a conversation.

    An empty string is accepted only if `empty` is True.
    """
    if not isinstance(value, str) or not (value or empty):
        kind = "a string" if empty else "a non-empty string"
        raise InputError(f"The {what} of a conversation must be {kind}, not {value!r}.")
