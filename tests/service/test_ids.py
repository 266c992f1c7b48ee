"""Ids that clients see, and what they stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk.service.ids import ResponseId, is_chain, new_conversation_id, new_key, parse_response_id


@given(st.text(min_size=1))
def test_any_conversation_comes_back_from_the_id_of_a_response(conversation: str) -> None:
    made = ResponseId(conversation, new_key())
    assert parse_response_id(str(made)) == made


@pytest.mark.parametrize("chain", [False, True])
def test_the_ids_of_created_conversations_are_short_in_responses(chain: bool) -> None:
    made = ResponseId(new_conversation_id(chain=chain), new_key())
    assert parse_response_id(str(made)) == made
    assert len(str(made)) <= 64
    assert is_chain(made.conversation) is chain


@given(st.text(max_size=80) | st.text(max_size=80).map("resp_".__add__))
def test_any_other_text_is_no_id_or_the_only_form_of_one(text: str) -> None:
    found = parse_response_id(text)
    assert found is None or str(found) == text


def test_a_seed_gives_the_same_ids_again() -> None:
    assert new_conversation_id(seed="a") == new_conversation_id(seed="a") != new_conversation_id(seed="b")
    assert new_key("a") == new_key("a") != new_key("b")
    assert new_conversation_id() != new_conversation_id()
