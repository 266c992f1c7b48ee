"""Checks of arguments that occur in several parts of the API."""

from __future__ import annotations

from collections.abc import Mapping

from longtalk.errors import InputError

PROFILE_ID = "longtalk:profile"
"""The id of the conversation without messages that keeps what the app has changed in the profile of its owner."""


def check_id(value: object) -> None:
    """Raise `InputError` unless a conversation can have this id."""
    check_name(value, "id")
    if value == PROFILE_ID:
        raise InputError(f"The id {value!r} is taken by the owner's profile: choose another.")


def check_meta(value: object) -> None:
    """Raise `InputError` unless the value is a mapping with string keys, as an app's metadata must be."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f"Metadata must be a mapping with string keys, such as {{'title': 'Bows'}}, not {value!r}.")


def check_name(value: object, what: str, *, empty: bool = False) -> None:
    """Raise `InputError` unless the value is a string; it may be empty only if `empty` is True.

    `what` says in the error what the value names, such as "id" for the id of a conversation.
    """
    if not isinstance(value, str) or not (value or empty):
        kind = "a string" if empty else "a non-empty string"
        raise InputError(f"The {what} of a conversation must be {kind}, not {value!r}.")
