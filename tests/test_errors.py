"""Every error survives pickle and copy with its attributes, so that it can leave a worker process."""

from __future__ import annotations

import copy
import importlib
import multiprocessing
import pickle
import pkgutil
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import longtalk
from longtalk import Chat, Conversation, LongtalkError, TurnFailed, peek
from longtalk.errors import BadState, Busy, ContextOverflow, ProviderError, RateLimited, StreamCut
from longtalk.stores.base import HeadMoved
from longtalk.stores.in_memory import InMemory
from longtalk.stores.jsonl.errors import Damaged, FileError, NewerFormat
from longtalk.testing import Scripted, Step, says
from longtalk.transfer.read_helpers import UnknownFormat
from longtalk.wires.protocol import ReportedError

for found in pkgutil.walk_packages(longtalk.__path__, "longtalk."):
    if not found.name.startswith(("longtalk._sync", "longtalk.cli", "longtalk.__main__")):
        importlib.import_module(found.name)


def list_subclasses(kind: type[BaseException]) -> Iterator[type[Any]]:
    for each in kind.__subclasses__():
        yield each
        yield from list_subclasses(each)


KINDS = sorted({LongtalkError, *list_subclasses(LongtalkError)}, key=lambda kind: (kind.__module__, kind.__qualname__))
WAYS: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {protocol}": lambda error, protocol=protocol: pickle.loads(pickle.dumps(error, protocol))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    },
}
EXTRA: dict[type[Any], dict[str, Any]] = {
    Busy: {"until": 5},
    BadState: {"reason": "corrupt", "state": b"\x00"},
    ProviderError: {"status": 429, "body": b"{}", "retry_after": 2.5, "retryable": True},
}

FIRST: dict[type[Any], tuple[Any, ...]] = {
    FileError: (Path("a"), "it failed"),
    Damaged: (Path("a"), 1, "it is torn"),
    NewerFormat: (Path("a"), 9, 1),
}


def make(kind: type[Any]) -> LongtalkError:
    extra = next((EXTRA[base] for base in kind.__mro__ if base in EXTRA), {})
    error: LongtalkError = kind(*FIRST.get(kind, ("It failed.",)), **extra)
    error.hint = "an attribute of the app"  # type: ignore[attr-defined]
    error.add_note("a note")
    return error


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__qualname__)
def test_every_error_survives_with_its_attributes(kind: type[Any], way: Callable[[Any], Any]) -> None:
    error = make(kind)
    again = way(error)
    assert type(again) is kind
    assert (str(again), again.args, again.__dict__) == (str(error), error.args, error.__dict__)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize(
    "error",
    [HeadMoved(None), ReportedError(b"{}"), UnknownFormat("what?")],
    ids=lambda error: type(error).__name__,
)
def test_errors_of_stores_wires_and_imports_survive_too(error: Any, way: Callable[[Any], Any]) -> None:
    again = way(error)
    assert (type(again), again.args, again.__dict__) == (type(error), error.args, error.__dict__)


def test_an_attribute_that_was_set_later_survives() -> None:
    error = ContextOverflow("It is too long.", status=400)
    error.window, error.tokens = 4_096, 5_000
    again = pickle.loads(pickle.dumps(error))
    assert (again.status, again.window, again.tokens) == (400, 4_096, 5_000)
    assert pickle.loads(pickle.dumps(RateLimited("Wait.", retryable=False))).retryable is False


def cut_off() -> Scripted:
    step = says("Once upon a time")
    return Scripted(Step(body=step.body, events=(*step.events[:3], StreamCut("The stream was cut."))))


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_a_failed_turn_survives_with_its_state_and_its_partial_reply(way: Callable[[Any], Any]) -> None:
    with pytest.raises(TurnFailed) as caught, Chat(cut_off()).stream("Tell me a story.") as stream:
        list(stream)
    error, again = caught.value, way(caught.value)
    assert error.partial is not None
    assert again.state == error.state
    for name in ("turn_id", "text", "state", "shed", "finish_reason", "usage", "notices"):
        assert getattr(again.partial, name) == getattr(error.partial, name)
    assert again.partial.text
    assert way(again).partial == again.partial


def test_a_failed_turn_of_a_stored_conversation_survives_with_its_text() -> None:
    talk = Conversation("c", model=cut_off(), store=InMemory())
    with pytest.raises(TurnFailed) as caught, talk.stream("Tell me a story.") as stream:
        list(stream)
    again = pickle.loads(pickle.dumps(caught.value))
    assert caught.value.partial is not None
    assert again.partial.text == caught.value.partial.text


def test_an_error_leaves_a_worker_process() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool, pytest.raises(BadState) as caught:
        pool.submit(peek, b"nonsense").result()
    assert (caught.value.reason, caught.value.state) == ("corrupt", b"nonsense")
