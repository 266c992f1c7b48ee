"""The public names: all there, all with help that can be shown, and each kind of chat with its own."""

from __future__ import annotations

import pydoc

import pytest

import longtalk
from longtalk import AsyncChat, Chat, InputError
from longtalk.testing import AsyncScripted, Scripted


@pytest.mark.parametrize("name", longtalk.__all__)
def test_a_public_name_can_be_looked_at(name: str) -> None:
    thing = getattr(longtalk, name)
    assert pydoc.render_doc(thing)
    assert thing.__doc__


def test_sync_and_async_do_not_mix() -> None:
    for kind, provider in ((Chat, AsyncScripted()), (AsyncChat, Scripted())):
        with pytest.raises(InputError, match="does not fit this chat"):
            kind(provider)  # type: ignore[arg-type,operator]
