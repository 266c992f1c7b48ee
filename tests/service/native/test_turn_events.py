"""Test what is read from the stored events of a turn."""

from __future__ import annotations

import pytest

from longtalk.events import Event, Notice, Text, ToolCall
from longtalk.service.native.turn_events import encode, read_last_text, to_event


@pytest.mark.parametrize(
    "between", [ToolCall("c1", "lookup", b"{}"), Notice("output_refused", "The answer does not match the schema.")]
)
def test_the_last_text_is_that_of_the_answer_that_was_not_saved(between: Event) -> None:
    events = [to_event(each) for each in (Text("Saved."), between, Text("Not "), Text("saved."))]
    assert read_last_text(encode(each) for each in events if each is not None) == "Not saved."
