"""The rules of the Anthropic Messages endpoint: each is broken once, alone, and what looks like a break passes."""

from typing import Any

import pytest

from longtalk.testing.wires.anthropic import check
from longtalk.testing.wires.violation import WireViolation

MARK: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
HOUR: dict[str, Any] = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
TOOL = {"name": "add", "description": "Add.", "input_schema": {"type": "object", "properties": {}}}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
HIDDEN = {"type": "redacted_thinking", "data": "opaque"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


def text(words: str = "Hello.", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def call(n: int = 1) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{n}", "name": "add", "input": {}}


def result(n: int = 1, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": "3", **more}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content) if content else "Hi."}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content) if content else "Hello."}


def system(*content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "system", "content": list(content) if content else "Be brief.", **more}


def request(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "claude-test", "max_tokens": 100, "messages": list(messages) or [user()], **more}


def refused(rule: str, body: Any, match: str | None = None, **options: bool) -> None:
    with pytest.raises(WireViolation, match=match) as caught:
        check(body, **options)
    assert caught.value.rule == rule


def test_a_whole_conversation_passes() -> None:
    check(
        request(
            user(),
            assistant(THOUGHT, text(), call(1), call(2)),
            user(result(1), result(2)),
            assistant(HIDDEN, SEARCH, FOUND, text(citations=[{"type": "web_search_result_location"}])),
            user(text(), {"type": "image", "source": {}}, text("Look.", **MARK)),
            system(),
            system(),
            assistant(text()),
            user(),
            system=[text("You are a tester.", **HOUR)],
            tools=[TOOL, {"type": "web_search_20250305", "name": "web_search", **HOUR}],
            thinking={"type": "adaptive"},
            stream=True,
        )
    )


# A1 and A2: calls and results


@pytest.mark.parametrize(
    "following",
    [
        [user()],
        [user(result(1))],
        [user(text(), result(1), result(2))],
        [user(result(1), text(), result(2))],
        [user(result(1), text()), user(result(2))],
        [assistant(text()), user(text())],
        [],
    ],
    ids=["none", "one", "late", "split by text", "split by a message", "after more words", "at the end"],
)
def test_calls_without_all_their_results_first_in_the_next_turn_are_refused(following: list[Any]) -> None:
    refused("A1", request(user(), assistant(call(1), call(2)), *following), "without `tool_result` blocks")


def test_the_message_of_the_call_is_named() -> None:
    refused(
        "A1", request(user(), user(), assistant(text()), assistant(call()), user()), r"^A1: messages\.3: .*toolu_1\."
    )


def test_results_may_come_in_any_order_and_in_several_messages_of_one_turn() -> None:
    check(request(user(), assistant(call(1), call(2)), user(result(2)), user(result(1), text())))


def test_a_call_and_words_of_the_same_turn_may_be_two_messages() -> None:
    check(request(user(), assistant(call()), assistant(text()), user(result())))


@pytest.mark.parametrize(
    "messages",
    [
        [user(result())],
        [user(), assistant(text()), user(result())],
        [user(), assistant(call(2)), user(result(2), result(1))],
        [user(), assistant(call()), user(result()), assistant(text()), user(result())],
    ],
    ids=["first", "no call", "another call", "an earlier call"],
)
def test_results_without_their_call_in_the_turn_before_are_refused(messages: list[Any]) -> None:
    refused("A2", request(*messages), "unexpected `tool_use_id`")


def test_two_results_for_one_call_are_refused() -> None:
    refused("A2", request(user(), assistant(call()), user(result(), result())), "single result")


def test_the_ids_of_calls_are_unique_in_the_whole_request() -> None:
    again = request(user(), assistant(call()), user(result()), assistant(call()), user(result()))
    refused("ids", again, r"messages\.3\.content\.0: `tool_use` ids must be unique")


def test_an_id_that_another_provider_made_may_not_fit() -> None:
    odd = {"type": "tool_use", "id": "call:1", "name": "add", "input": {}}
    refused("ids", request(user(), assistant(odd), user()), "pattern")


# A3: the server's own tools


def test_a_server_call_without_its_result_is_refused() -> None:
    refused(
        "A3", request(user(), assistant(SEARCH, text()), user()), "without a corresponding `web_search_tool_result`"
    )


def test_a_server_result_without_its_call_is_refused() -> None:
    refused("A3", request(user(), assistant(FOUND, text()), user()), "`server_tool_use` block before it")


def test_a_server_result_after_the_users_turn_is_refused() -> None:
    refused("A3", request(user(), assistant(SEARCH), user(), assistant(FOUND, text()), user()))


def test_a_paused_turn_may_be_last_and_may_go_on_in_the_next_message() -> None:
    check(request(user(), assistant(THOUGHT, SEARCH)))
    check(request(user(), assistant(SEARCH, FOUND)))
    check(request(user(), assistant(SEARCH), assistant(FOUND, text()), user()))


def test_a_server_call_beside_our_own_waits_for_our_results_alone() -> None:
    check(request(user(), assistant(SEARCH, call()), user(result())))
    check(request(user(), assistant(SEARCH, call()), user(result()), assistant(FOUND, text()), user()))
    refused("A3", request(user(), assistant(SEARCH, call()), user(result(), text())))


def test_the_tools_of_a_connector_pair_too() -> None:
    used = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "echo", "server_name": "s", "input": {}}
    check(request(user(), assistant(used, {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1"}, text()), user()))
    refused("A3", request(user(), assistant(used, text()), user()))


# A4, A5, A6: the messages


def test_the_first_message_is_the_users() -> None:
    refused("A4", request(assistant(), user()), 'first message must use the "user" role')


def test_a_compaction_may_be_the_first_message() -> None:
    check(request(assistant({"type": "compaction", "content": "So far."}), user()))


def test_messages_of_one_role_may_follow_each_other() -> None:
    check(request(user(), user(), assistant(), assistant(text()), user()))


@pytest.mark.parametrize("words", ["", " ", "\n\t"])
def test_text_is_not_empty_and_not_only_white_space(words: str) -> None:
    refused("A6", request(user(text(words))), "non-whitespace" if words else "must be non-empty")
    refused("A6", request(user(), assistant(text(words)), user()))
    refused("A6", request({"role": "user", "content": words}))
    refused("A6", request({"role": "assistant", "content": words}, user()))
    refused("A6", request(system=words))
    refused("A6", request(system=[text(words)]))


def test_content_is_not_an_empty_list() -> None:
    for message in ({"role": "user", "content": []}, {"role": "system", "content": []}):
        refused("A6", request(user(), message), "non-empty content")
    refused("A6", request(user(), {"role": "assistant", "content": []}, user()), "optional final assistant message")


def test_the_last_assistant_message_may_be_empty_for_a_model_that_goes_on_with_it() -> None:
    check(request(user(), {"role": "assistant", "content": ""}), prefill=True)
    check(request(user(), {"role": "assistant", "content": []}), prefill=True)


def test_a_tool_result_may_be_empty() -> None:
    check(request(user(), assistant(call()), user(result(content=""))))
    check(request(user(), assistant(call()), user(result(content=[]))))
    check(request(user(), assistant(call()), user({"type": "tool_result", "tool_use_id": "toolu_1"})))


@pytest.mark.parametrize("messages", [None, [], {}, "Hi.", [None], ["Hi."]])
def test_messages_are_a_list_of_objects(messages: Any) -> None:
    refused("messages", {**request(), "messages": messages})


def test_a_request_of_directives_alone_has_no_messages() -> None:
    refused("messages", request({"role": "system", "content": [], "output_config": {"effort": "low"}}))


@pytest.mark.parametrize("role", ["tool", "developer", "", None])
def test_other_roles_are_refused(role: Any) -> None:
    refused("role", request({"role": role, "content": "Hi."}))


@pytest.mark.parametrize("field", ["id", "type", "model", "usage", "stop_reason"])
def test_what_only_an_answer_has_is_refused_in_a_message(field: str) -> None:
    refused("messages", request(user(), {**assistant(), field: None}, user()), f"messages.1.{field}: Extra inputs")


@pytest.mark.parametrize("content", [None, 3, {}, [3], ["Hi."], [{}], [{"text": "Hi."}], [{"type": "text"}]])
def test_content_is_text_or_a_list_of_typed_blocks(content: Any) -> None:
    refused("content", request({"role": "user", "content": content}))


@pytest.mark.parametrize("block", [call(), THOUGHT, HIDDEN, SEARCH, FOUND], ids=lambda block: block["type"])
def test_what_only_an_assistant_says_is_refused_from_the_user(block: Any) -> None:
    refused("role", request(user(block)), "can only be in `assistant` messages")


def test_a_tool_result_is_refused_from_the_assistant() -> None:
    refused("role", request(user(), assistant(result()), user()), "can only be in `user` messages")


def test_a_call_has_a_name_and_an_object_as_input() -> None:
    for broken in ({**call(), "input": "{}"}, {**call(), "name": ""}):
        refused("content", request(user(), assistant(broken), user(result())))


def test_the_content_of_a_tool_result_is_text_or_a_list() -> None:
    refused("content", request(user(), assistant(call()), user(result(content={"x": 1}))))


def test_block_types_and_fields_of_a_later_year_pass() -> None:
    future = {"type": "hologram", "x": 1}
    check(request(user(future), assistant(future, text(mood="good")), user(text(), future)))


# A7: the form of thinking


@pytest.mark.parametrize(
    "block",
    [
        {"type": "thinking", "signature": "sig"},
        {"type": "thinking", "thinking": "Hm."},
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        {"type": "redacted_thinking"},
        {"type": "redacted_thinking", "data": ""},
    ],
)
def test_thinking_has_its_text_and_its_signature(block: Any) -> None:
    refused("A7", request(user(), assistant(block, text()), user()), "Field required")


def test_the_text_of_thinking_may_be_left_out() -> None:
    check(request(user(), assistant({**THOUGHT, "thinking": ""}, text()), user()))


# A9: system


@pytest.mark.parametrize("broken", [3, {"type": "text", "text": "x"}, ["x"], [{"type": "image"}], [{}]])
def test_system_is_text_or_a_list_of_text_blocks(broken: Any) -> None:
    refused("A9", request(system=broken))


@pytest.mark.parametrize(
    ("messages", "match"),
    [
        ([system(), user()], r"messages\.0: use the top-level 'system' parameter"),
        ([user(), assistant(), system(), user()], r"messages\.2: role 'system' must follow a 'user' message"),
        ([user(), assistant(), system(), assistant(), user()], r"messages\.2: role 'system' must follow"),
        ([user(), assistant(call()), system(), user(result())], r"messages\.2: role 'system' must follow"),
        ([user(), system(), user()], r"messages\.1: role 'system' must precede an 'assistant' message"),
        ([user(), system(), system(), user()], r"messages\.2: role 'system' must precede"),
        ([user(), system({"type": "image"})], "text, tool_addition, and tool_removal"),
    ],
    ids=["first", "after an assistant", "between assistants", "in a pair", "before a user", "a group", "an image"],
)
def test_a_system_message_in_the_wrong_place_is_refused(messages: list[Any], match: str) -> None:
    refused("A9", request(*messages), match)


def test_a_system_message_stands_behind_a_user_turn_and_before_an_assistants_or_at_the_end() -> None:
    check(request(user(), system()))
    check(request(user(), system(), system(), assistant(), user()))
    check(request(user(), assistant(call()), user(result()), system()))
    check(request(user(), assistant(SEARCH, FOUND), system()))


def test_a_system_message_without_words_may_stand_anywhere() -> None:
    directive = {"role": "system", "content": [], "output_config": {"effort": "low"}}
    check(request(directive, user(), assistant(), directive, user()))


def test_a_model_without_system_messages_refuses_them_in_any_place() -> None:
    refused("A9", request(user(), system()), "not supported on this model", system_messages=False)


# A10: the end


@pytest.mark.parametrize("last", [assistant(), assistant(text()), {"role": "assistant", "content": ""}])
def test_a_last_assistant_message_is_refused(last: Any) -> None:
    refused("A10", request(user(), last), "does not support assistant message prefill")


def test_a_model_that_takes_it_goes_on_with_the_last_assistant_message() -> None:
    check(request(user(), assistant(text("It is"))), prefill=True)
    refused("A10", request(user(), assistant(text("It is "))), "trailing whitespace", prefill=True)


def test_thinking_is_never_the_last_word() -> None:
    refused("A10", request(user(), assistant(THOUGHT)), "cannot be `thinking`", prefill=True)
    check(request(user(), assistant(THOUGHT), user()))


def test_a_compaction_that_paused_may_be_last() -> None:
    check(request(user(), assistant({"type": "compaction", "content": "So far."})))


# A11: compaction


@pytest.mark.parametrize("content", ["So far.", None])
def test_a_compaction_goes_back_with_its_content(content: Any) -> None:
    check(request(user(), assistant({"type": "compaction", "content": content}, text()), user()))


@pytest.mark.parametrize("block", [{"type": "compaction"}, {"type": "compaction", "content": [text()]}])
def test_a_compaction_in_another_form_is_refused(block: Any) -> None:
    refused("A11", request(user(), assistant(block, text()), user()))


# A13: thinking before open results


def thinks(*messages: Any, kind: str = "enabled") -> dict[str, Any]:
    return request(*messages, thinking={"type": kind, "budget_tokens": 1024})


def test_an_open_exchange_without_its_leading_thought_is_refused() -> None:
    lost = [user(), assistant(text(), call()), user(result())]
    refused("A13", thinks(*lost), r"messages\.1\.content\.0\.type: Expected `thinking`.*found `text`")
    refused("A13", thinks(*lost[:2], user(result()), assistant(call(2)), user(result(2))))


def test_text_after_the_results_or_a_pause_lift_no_duty_to_think() -> None:
    refused("A13", thinks(user(), assistant(call()), user(result(), text())))
    refused("A13", thinks(user(), assistant(call()), user(result()), user()))
    paused = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    refused("A13", thinks(user(), assistant(paused)))
    check(thinks(user(), assistant(THOUGHT, paused)))


def test_an_open_exchange_that_starts_with_thinking_passes() -> None:
    check(thinks(user(), assistant(THOUGHT, call()), user(result())))
    check(thinks(user(), assistant(HIDDEN, call()), user(result())))


def test_without_interleaving_the_first_round_holds_the_thought() -> None:
    check(thinks(user(), assistant(THOUGHT, call()), user(result()), assistant(call(2)), user(result(2))))


def test_finished_exchanges_need_no_thought() -> None:
    check(thinks(user(), assistant(call()), user(result()), assistant(text()), user()))


def test_adaptive_thinking_may_have_had_no_thought() -> None:
    check(thinks(user(), assistant(call()), user(result()), kind="adaptive"))
    check(request(user(), assistant(call()), user(result())))


# The parameters


@pytest.mark.parametrize("limit", [None, 0, -1, 1.5, "100", True])
def test_max_tokens_is_a_positive_integer(limit: Any) -> None:
    refused("max_tokens", {**request(), "max_tokens": limit})


def test_max_tokens_is_required() -> None:
    refused("max_tokens", {"model": "claude-test", "messages": [user()]})


@pytest.mark.parametrize("model", [None, "", 3])
def test_the_model_is_named(model: Any) -> None:
    refused("model", {**request(), "model": model})


def test_stream_is_yes_or_no() -> None:
    refused("stream", request(stream=1))


def test_the_body_is_an_object() -> None:
    refused("body", [])


@pytest.mark.parametrize(
    "tools",
    [
        {},
        ["add"],
        [{"input_schema": {"type": "object"}}],
        [{**TOOL, "name": "add two"}],
        [{"name": "add"}],
        [{"name": "add", "input_schema": {}}],
        [{"type": "function", "function": TOOL}],
        [TOOL, TOOL],
    ],
)
def test_tools_have_a_name_of_their_own_and_a_schema(tools: Any) -> None:
    refused("tools", request(tools=tools))


def test_no_tools_and_tools_of_the_server_pass() -> None:
    check(request(tools=[]))
    check(
        request(tools=[{"type": "mcp_toolset", "mcp_server_name": "s"}, TOOL, {**TOOL, "type": "custom", "name": "b"}])
    )


# Cache marks


def test_four_marks_pass_and_five_are_refused() -> None:
    four = {"tools": [{**TOOL, **MARK}], "system": [text(**MARK)]}
    check(request(user(text(**MARK)), assistant(text(**MARK)), user(), **four))
    refused("cache", request(user(text(**MARK)), assistant(text(**MARK)), user(text(**MARK)), **four), "Found 5")


def test_marks_inside_of_tool_results_count() -> None:
    inside = [text(**MARK) for _ in range(5)]
    refused("cache", request(user(), assistant(call()), user(result(content=inside))), "Found 5")


def test_a_mark_on_the_request_counts_unless_the_last_block_has_one() -> None:
    marked = [text(**MARK) for _ in range(4)]
    refused("cache", request(user(*marked, text()), **MARK), "Found 5")
    check(request(user(*marked), **MARK))


def test_what_tools_are_given_is_not_searched_for_marks() -> None:
    given = {**call(), "input": {"cache_control": {"type": "ephemeral"}}}
    marked = [text(**MARK) for _ in range(4)]
    check(request(user(*marked), assistant(given), user(result())))


def test_no_mark_on_thinking() -> None:
    for block in (THOUGHT, HIDDEN):
        refused("cache", request(user(), assistant({**block, **MARK}, text()), user()), "Extra inputs")


def test_no_mark_on_empty_text() -> None:
    refused("cache", request(user(text("", **MARK))), "empty text blocks")
    refused("cache", request(user(), assistant(call()), user(result(content=[text("", **MARK)]))), "empty text blocks")


def test_a_mark_that_is_null_is_none() -> None:
    check(request(user(text(cache_control=None)), assistant({**THOUGHT, "cache_control": None}, text()), user()))


@pytest.mark.parametrize("mark", [True, {}, {"type": "forever"}, {"type": "ephemeral", "ttl": "2h"}])
def test_a_mark_in_another_form_is_refused(mark: Any) -> None:
    refused("cache", request(user(text(cache_control=mark))))


def test_a_long_mark_does_not_come_after_a_short_one() -> None:
    check(request(user(text(**MARK)), system=[text(**HOUR)]))
    refused("cache", request(user(text(**HOUR)), system=[text(**MARK)]), "must not come after")
