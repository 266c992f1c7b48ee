"""Ids that clients see, and what they stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk.service.ids import (
    ResponseId,
    is_chain,
    new_conversation_id,
    new_key,
    parse_response_id,
    place_item_id,
    split_item_id,
)


@given(st.text(min_size=1))
def test_any_conversation_comes_back_from_the_id_of_a_response(conversation: str) -> None:
    made = ResponseId(conversation, new_key())
    assert parse_response_id(str(made)) == made


@given(st.text(min_size=1), st.sampled_from(["msg_abc_0", "fco_abc-12", "rs_x1_y2_c"]))
def test_the_conversation_of_an_item_comes_back_from_its_id(conversation: str, item: str) -> None:
    assert split_item_id(place_item_id(item, conversation)) == (item, conversation)
    assert split_item_id(item) == (item, None)


@given(st.text())
def test_any_text_can_be_asked_for_as_an_item(text: str) -> None:
    item, conversation = split_item_id(text)
    assert text == item if conversation is None else text == place_item_id(item, conversation)


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
