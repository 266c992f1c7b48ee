"""A caller's message: what is refused, and what the error says."""

import json
from typing import Any

import pytest

from longtalk.errors import InputError
from longtalk.turn.message import parse_message
from longtalk.wires import WIRES


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "Hello."},
        {"role": "user", "parts": [{"text": "Hello."}]},
        [{"type": "message", "role": "assistant", "content": "Hello."}],
    ],
)
def test_a_message_with_a_role_is_refused_with_what_to_pass_instead(wire: str, message: Any):
    with pytest.raises(
        InputError, match=r"without a role, as text or as a list.*This one has the role '(user|assistant)'"
    ) as told:
        parse_message(message, WIRES[wire])
    assert '"role"' not in str(told.value)


@pytest.mark.parametrize("wire", WIRES)
def test_what_is_no_part_is_refused_with_an_example_that_is_one(wire: str):
    with pytest.raises(InputError, match="part") as told:
        parse_message({"functionCall": 1, 2: 3}, WIRES[wire])
    if "such as " in str(told.value):
        example = str(told.value).split("such as ")[1].split(". This one has")[0]
        (entry,) = parse_message(json.loads(example), WIRES[wire])
        assert entry.role == "user"
