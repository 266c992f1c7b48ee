"""The strict Anthropic server: its answers, whole and streamed, and the requests that it refuses."""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import httpx2
import pytest

from tests.support.strict_anthropic import BINDING_BETA, KEY, OTHER_KEY, VERSION, Fault, Raw, StrictAnthropic, dump

MODEL = "claude-test-1"
ADD = {"name": "add", "input_schema": {"type": "object", "properties": {"note": {"type": "string"}}}}
MUL = {"name": "mul", "input_schema": {"type": "object", "properties": {"by": {"type": "number"}}}}
MARK = {"cache_control": {"type": "ephemeral"}}


@pytest.fixture
def server() -> Iterator[StrictAnthropic]:
    with StrictAnthropic() as running:
        yield running


def load(text: str | bytes) -> Any:
    """Return decoded JSON whose floats keep their literals."""
    return json.loads(text, parse_float=Raw)


class Talk:
    """A correct client, which sends answers back exactly as they came."""

    def __init__(self, server: StrictAnthropic, **parameters: Any) -> None:
        self.server = server
        self.parameters: dict[str, Any] = {"model": MODEL, "max_tokens": 500, "tools": [ADD, MUL], **parameters}
        self.messages: list[dict[str, Any]] = []
        self.headers = {"x-api-key": KEY, "anthropic-version": VERSION, "content-type": "application/json"}

    def post(self, **changes: Any) -> httpx2.Response:
        body = dump({**self.parameters, "messages": self.messages, **changes}).encode()
        return httpx2.post(f"{self.server.url}/messages", content=body, headers=self.headers, verify=False)

    def send(self, *content: Any, **changes: Any) -> dict[str, Any]:
        """Send a message, check that it is answered, and keep the answer."""
        said = content[0] if len(content) == 1 and isinstance(content[0], str) else list(content)
        self.messages.append({"role": "user", "content": said})
        return self.go_on(**changes)

    def go_on(self, **changes: Any) -> dict[str, Any]:
        response = self.post(**changes)
        assert response.status_code == 200, response.text
        streamed = response.headers["content-type"].startswith("text/event-stream")
        answer: dict[str, Any] = assemble(response.content) if streamed else load(response.content)
        self.messages.append({"role": "assistant", "content": answer["content"]})
        return answer

    def refused(self, **changes: Any) -> str:
        """Return the server's refusal of the current messages."""
        response = self.post(**changes)
        assert response.status_code == 400
        error = response.json()
        assert error["type"] == "error"
        assert error["error"]["type"] == "invalid_request_error"
        assert error["request_id"] == response.headers["request-id"]
        return str(error["error"]["message"])


def kinds(answer: dict[str, Any]) -> list[str]:
    return [block["type"] for block in answer["content"]]


def results(answer: dict[str, Any]) -> list[dict[str, Any]]:
    calls = [block for block in answer["content"] if block["type"] == "tool_use"]
    return [{"type": "tool_result", "tool_use_id": call["id"], "content": "5"} for call in calls]


def assemble(events: bytes) -> dict[str, Any]:
    """Return the message that a client builds from the events of a stream."""
    message: dict[str, Any] = {}
    inputs: dict[int, str] = {}
    for event in events.decode().split("\n\n")[:-1]:
        name, _, data = event.partition("\ndata: ")
        payload = load(data)
        assert name == f"event: {payload['type']}"
        if payload["type"] == "message_start":
            message = payload["message"]
        elif payload["type"] == "content_block_start":
            message["content"].append(payload["content_block"])
        elif payload["type"] == "content_block_delta":
            block, delta = message["content"][payload["index"]], payload["delta"]
            if delta["type"] == "input_json_delta":
                inputs[payload["index"]] = inputs.get(payload["index"], "") + delta["partial_json"]
            elif delta["type"] == "citations_delta":
                block["citations"].append(delta["citation"])
            else:
                name = delta["type"].removesuffix("_delta").replace("compaction", "content")
                block[name] = (block[name] or "") + delta[name]
        elif payload["type"] == "content_block_stop" and payload["index"] in inputs:
            message["content"][payload["index"]]["input"] = load(inputs[payload["index"]])
        elif payload["type"] == "message_delta":
            message.update(payload["delta"])
            message["usage"] = payload["usage"]
    return message


# Answers


def test_the_server_answers_the_users_last_text(server: StrictAnthropic) -> None:
    answer = Talk(server).send("Good day")
    assert answer["content"] == [{"type": "text", "text": "You said: Good day."}]
    assert answer["stop_reason"] == "end_turn"
    assert answer["role"] == "assistant"
    assert server.violations == []


@pytest.mark.parametrize(
    ("flags", "blocks", "stop"),
    [
        ("#think", ["thinking", "text"], "end_turn"),
        ("#redacted", ["redacted_thinking", "text"], "end_turn"),
        ("#tool", ["thinking", "tool_use"], "tool_use"),
        ("#tools", ["thinking", "tool_use", "tool_use"], "tool_use"),
        ("#server", ["server_tool_use", "web_search_tool_result", "text"], "end_turn"),
        ("#pause", ["server_tool_use"], "pause_turn"),
        ("#long", ["text"], "max_tokens"),
        ("#compact", ["compaction", "text"], "end_turn"),
    ],
)
def test_flags_shape_the_answer(server: StrictAnthropic, flags: str, blocks: list[str], stop: str) -> None:
    answer = Talk(server).send(f"Please {flags}")
    assert kinds(answer) == blocks
    assert answer["stop_reason"] == stop


def test_the_same_request_gets_the_same_content(server: StrictAnthropic) -> None:
    first, second = Talk(server).send("Sum #tools"), Talk(server).send("Sum #tools")
    assert first["content"] == second["content"]
    assert first["id"] != second["id"]


def test_scripted_answers_come_before_respond(server: StrictAnthropic) -> None:
    server.script.append(([{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Yes."}], "end_turn"))
    talk = Talk(server)
    answer = talk.send("Well?")
    assert answer["content"][1]["text"] == "Yes."
    assert answer["content"][0]["signature"]
    assert talk.send("And now?")["content"][0]["text"] == "You said: And now?."


def test_disabled_thinking_gives_no_thinking_blocks(server: StrictAnthropic) -> None:
    assert kinds(Talk(server, thinking={"type": "disabled"}).send("#tool #redacted")) == ["tool_use"]


def test_omitted_thinking_is_signed_too(server: StrictAnthropic) -> None:
    talk = Talk(server, thinking={"type": "adaptive", "display": "omitted"})
    thought = talk.send("#think")["content"][0]
    assert thought["thinking"] == ""
    assert thought["signature"]
    thought["thinking"] = "text here is ignored"
    talk.send("go on")


@pytest.mark.parametrize("odd", ["", "#odd"])
@pytest.mark.parametrize(
    "flags",
    [
        "",
        "#think",
        "#redacted",
        "#tool",
        "#tools",
        "#server",
        "#pause",
        "#long",
        "#compact",
        "#think #redacted #server",
    ],
)
def test_a_streamed_answer_equals_the_whole_answer(flags: str, odd: str) -> None:
    with StrictAnthropic(chunk_bytes=11) as server:
        talk = Talk(server)
        talk.messages = [{"role": "user", "content": f"Größe € {flags} {odd}"}]
        whole = load(talk.post().content)
        response = talk.post(stream=True)
        streamed = assemble(response.content)
    assert response.headers["content-type"].startswith("text/event-stream")
    for message in (whole, streamed):
        del message["id"], message["usage"]
    assert streamed == whole
    assert list(streamed["content"][0]) == list(whole["content"][0])


def test_a_stream_has_the_events_of_the_provider(server: StrictAnthropic) -> None:
    talk = Talk(server)
    talk.messages = [{"role": "user", "content": "Hi #tool"}]
    events = [json.loads(part.split("data: ")[1]) for part in talk.post(stream=True).text.split("\n\n")[:-1]]
    names = [event["type"] for event in events]
    assert names[:3] == ["message_start", "content_block_start", "ping"]
    assert names[-2:] == ["message_delta", "message_stop"]
    assert events[0]["message"]["content"] == []
    assert events[0]["message"]["usage"]["input_tokens"] > 0
    assert events[1]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    deltas = [event["delta"]["type"] for event in events if event["type"] == "content_block_delta"]
    assert list(dict.fromkeys(deltas)) == ["thinking_delta", "signature_delta", "input_json_delta"]
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert events[-2]["usage"]["output_tokens"] > 1


def test_odd_literals_are_sent_unchanged(server: StrictAnthropic) -> None:
    talk = Talk(server, tools=[{**MUL, "input_schema": {"type": "object", "properties": {"by": {"type": "number"}}}}])
    talk.messages = [{"role": "user", "content": "Hi #tool #odd"}]
    whole, streamed = talk.post().content, talk.post(stream=True).content
    for literal in (
        b'"x_score":1e2',
        b'"x_id":12345678901234567',
        b'"x_note":"caf\\u00e9"',
        b'"b":1.0,"a":[-0.0,null]',
    ):
        assert literal in whole
        assert literal in streamed
    assert b'"input":{"by": 1e2}' in whole
    assert all(block in whole for block in server.issued)


# Requests that are accepted


@pytest.mark.parametrize("stream", [False, True])
def test_a_correct_client_passes_with_all_kinds_of_turns(server: StrictAnthropic, stream: bool) -> None:
    talk = Talk(server, system="Be good.", thinking={"type": "adaptive"}, stream=stream)
    for words in ("#think", "#redacted #think", "#server", "#long", "plain", "#compact #think", "more #think"):
        talk.send(words)
    answer = talk.send("#tool #tools #tool #redacted #odd")
    while answer["stop_reason"] == "tool_use":
        answer = talk.send(*results(answer))
    talk.send("after #think")
    assert server.violations == []
    assert server.dropped == []


def test_the_rounds_of_an_exchange_follow_its_flags(server: StrictAnthropic) -> None:
    talk = Talk(server)
    first = talk.send("#tools #tool sum")
    second = talk.send(*results(first))
    last = talk.send(*results(second))
    assert [len(results(answer)) for answer in (first, second, last)] == [2, 1, 0]
    assert "The tools said" in last["content"][-1]["text"]


def test_a_paused_turn_continues_when_it_is_sent_back(server: StrictAnthropic) -> None:
    talk = Talk(server)
    talk.send("#think #pause news")
    answer = talk.go_on()
    assert kinds(answer) == ["web_search_tool_result", "thinking", "text"]
    talk.send("thanks")
    assert server.violations == []


def test_cache_marks_may_move(server: StrictAnthropic) -> None:
    talk = Talk(server, system="Be good.")
    answer = talk.send("#tool first")
    talk.send(*results(answer))
    talk.messages[0] = {"role": "user", "content": [{"type": "text", "text": "#tool first", **MARK}]}
    talk.send("#think", system=[{"type": "text", "text": "Be good.", **MARK}], tools=[ADD, {**MUL, **MARK}])
    talk.messages[2]["content"][0].update(MARK)
    talk.send("go on")


def test_messages_of_one_role_may_be_merged_or_split(server: StrictAnthropic) -> None:
    talk = Talk(server)
    talk.messages = [{"role": "user", "content": "One."}, {"role": "user", "content": "Two. #think"}]
    talk.go_on()
    talk.messages[0:2] = [{"role": "user", "content": [{"type": "text", "text": t} for t in ("One.", "Two. #think")]}]
    talk.send("go on")


def test_thinking_is_not_bound_to_other_parameters(server: StrictAnthropic) -> None:
    talk = Talk(server)
    talk.send("#think")
    talk.send("go on", max_tokens=9, metadata={"user_id": "u"}, thinking={"type": "adaptive"})


def test_a_tool_that_is_loaded_later_may_be_added(server: StrictAnthropic) -> None:
    talk = Talk(server)
    talk.send("#think")
    talk.send("go on", tools=[ADD, MUL, {**ADD, "name": "sub", "defer_loading": True}])


# Requests that are refused (A7 and A8)


def test_another_system_prompt_is_refused_with_the_path_of_the_block(server: StrictAnthropic) -> None:
    talk = Talk(server, system="Be good.")
    talk.send("plain")
    talk.send("#think")
    talk.messages.append({"role": "user", "content": "go on"})
    assert talk.refused(system="Be better.") == (
        "messages.3.content.0: Invalid `signature` in `thinking` block. The block is bound to a different "
        'conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block". '
        f"That setting requires the `{BINDING_BETA}` value in the `anthropic-beta` header. "
        "The `system` prompt differs from the one this block was created with."
    )
    assert [(violation.request, violation.rule) for violation in server.violations] == [(2, "A8")]


def test_changed_tools_are_refused(server: StrictAnthropic) -> None:
    talk = Talk(server)
    talk.send("#think")
    talk.messages.append({"role": "user", "content": "go on"})
    assert talk.refused(tools=[ADD]).endswith("The `tools` list differs from the one this block was created with.")
    assert "`tools` list" in talk.refused(tools=[{**ADD, "description": "New."}, MUL])


def test_a_missing_earlier_message_is_refused(server: StrictAnthropic) -> None:
    talk = Talk(server)
    for words in ("first", "second", "#think third", "fourth"):
        talk.send(words)
    del talk.messages[2:4]
    talk.messages.append({"role": "user", "content": "go on"})
    message = talk.refused()
    assert message.startswith("messages.3.content.0: Invalid `signature` in `thinking` block.")
    assert message.endswith("differs from when it was created, first at `messages.2.content.0`.")


@pytest.mark.parametrize("content", ["other", [{"type": "text", "text": "first"}, {"type": "text", "text": "more"}]])
def test_an_edited_earlier_message_is_refused(server: StrictAnthropic, content: Any) -> None:
    talk = Talk(server)
    talk.send("first")
    talk.send("#think")
    talk.messages[0]["content"] = content
    talk.messages.append({"role": "user", "content": "go on"})
    assert talk.refused().startswith("messages.3.content.0: Invalid `signature`")


def test_missing_messages_right_before_a_thinking_block_are_refused(server: StrictAnthropic) -> None:
    talk = Talk(server)
    talk.send("first")
    talk.send("#think")
    talk.messages[2:3] = []
    talk.messages.append({"role": "user", "content": "go on"})
    assert talk.refused().endswith("first at `messages.2.content.0`.")


def test_a_number_with_another_literal_is_refused(server: StrictAnthropic) -> None:
    talk = Talk(server)
    talk.messages = [{"role": "user", "content": [{"type": "text", "text": "#think", "weight": Raw("1e2")}]}]
    talk.go_on()
    talk.messages.append({"role": "user", "content": "go on"})
    assert talk.post().status_code == 200
    talk.messages[0]["content"][0]["weight"] = 100.0
    assert "first at `messages.0.content.0`" in talk.refused()


def test_thinking_may_be_left_out_from_the_front_but_not_from_the_middle(server: StrictAnthropic) -> None:
    talk = Talk(server)
    for words in ("#think one", "#think two", "#think three"):
        talk.send(words)
    talk.messages.append({"role": "user", "content": "go on"})
    thoughts = [talk.messages[n]["content"][0] for n in (1, 3, 5)]
    del talk.messages[1]["content"][0]
    assert talk.post().status_code == 200
    talk.messages[1]["content"].insert(0, thoughts[0])
    del talk.messages[3]["content"][0]
    message = talk.refused()
    assert message.startswith("messages.5.content.0:")
    assert message.endswith("block that preceded this one when it was created is missing from this request.")


def test_all_thinking_of_finished_turns_may_be_left_out(server: StrictAnthropic) -> None:
    talk = Talk(server)
    talk.send("#think #redacted one")
    talk.send("#think two")
    for message in talk.messages[1::2]:
        message["content"] = [block for block in message["content"] if block["type"] == "text"]
    talk.send("#think three", system="New.")
    talk.send("go on", system="New.")
    assert server.violations == []


def test_a_forged_signature_is_refused_as_invalid(server: StrictAnthropic) -> None:
    talk = Talk(server)
    talk.send("#think")
    talk.send("plain")
    talk.messages[1]["content"][0]["signature"] = "Zm9yZ2Vk"
    talk.messages.append({"role": "user", "content": "go on"})
    assert talk.refused() == "messages.1.content.0: Invalid `signature` in `thinking` block"


def test_edited_earlier_thinking_is_refused(server: StrictAnthropic) -> None:
    talk = Talk(server)
    talk.send("#think")
    talk.send("plain")
    talk.messages[1]["content"][0]["thinking"] = "Better."
    talk.messages.append({"role": "user", "content": "go on"})
    assert talk.refused() == "messages.1.content.0: Invalid `signature` in `thinking` block"


def test_redacted_thinking_is_bound_too(server: StrictAnthropic) -> None:
    talk = Talk(server, system="Be good.")
    talk.send("#redacted")
    talk.messages.append({"role": "user", "content": "go on"})
    assert talk.refused(system="Be bad.").startswith(
        "messages.1.content.0: Invalid `data` in `redacted_thinking` block."
    )


MODIFIED = "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified."


@pytest.mark.parametrize("how", ["edited", "reordered", "one left out", "a field added"])
def test_changed_latest_thinking_is_refused(server: StrictAnthropic, how: str) -> None:
    talk = Talk(server)
    answer = talk.send("#tool #redacted")
    content = talk.messages[1]["content"]
    if how == "edited":
        content[1]["thinking"] += "!"
    elif how == "reordered":
        content[0], content[1] = content[1], content[0]
    elif how == "one left out":
        del content[0]
    else:
        content[1]["id"] = "new"
    talk.messages.append({"role": "user", "content": results(answer)})
    assert MODIFIED in talk.refused()
    assert server.violations[-1].rule == "A7"


def test_missing_thinking_of_an_open_exchange_is_refused(server: StrictAnthropic) -> None:
    talk = Talk(server)
    answer = talk.send("#tool")
    del talk.messages[1]["content"][0]
    talk.messages.append({"role": "user", "content": results(answer)})
    assert talk.refused().startswith(f"messages.1.content.0: {MODIFIED}")
    server.thinking_required = False
    assert talk.post().status_code == 200


def test_the_thinking_of_an_exchange_that_the_user_ended_may_be_left_out(server: StrictAnthropic) -> None:
    talk = Talk(server)
    answer = talk.send("#tool")
    del talk.messages[1]["content"][0]
    talk.send(*results(answer), {"type": "text", "text": "Never mind."})


def test_invalid_thinking_is_dropped_if_the_request_asks_for_it(server: StrictAnthropic) -> None:
    talk = Talk(server, system="Be good.")
    talk.headers["anthropic-beta"] = BINDING_BETA
    assert talk.send("#think one")["input_transformations"] == []
    talk.send("#think two")
    talk.parameters |= {
        "system": "Be better.",
        "thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}},
    }
    answer = talk.send("#think three")
    assert answer["input_transformations"] == [
        {"type": "thinking_dropped", "path": f"messages.{n}.content.0", "reason": "prefix_binding_mismatch"}
        for n in (1, 3)
    ]
    assert len(talk.send("four")["input_transformations"]) == 2
    assert server.violations == []


def test_drop_block_needs_its_beta_header(server: StrictAnthropic) -> None:
    talk = Talk(server, thinking={"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}})
    talk.messages = [{"role": "user", "content": "Hi."}]
    assert talk.refused() == "thinking.adaptive.block_binding: Extra inputs are not permitted"


def test_a_refusal_does_not_name_the_beta_header_if_the_request_has_it(server: StrictAnthropic) -> None:
    talk = Talk(server)
    talk.send("#think")
    talk.messages.append({"role": "user", "content": "go on"})
    talk.headers["anthropic-beta"] = f"other, {BINDING_BETA}"
    assert "anthropic-beta" not in talk.refused(system="New.")


def test_with_binding_off_thinking_is_not_checked() -> None:
    with StrictAnthropic(binding="off") as server:
        talk = Talk(server)
        talk.send("#think")
        talk.send("go on", system="New.")
        assert server.dropped == []


def test_another_model_or_account_loses_the_thinking_without_an_error(server: StrictAnthropic) -> None:
    talk = Talk(server)
    talk.send("#think")
    talk.send("go on", model="claude-test-2")
    talk.headers["x-api-key"] = OTHER_KEY
    talk.send("go on")
    assert [drop["reason"] for drop in server.dropped] == ["model_binding_mismatch", "organization_binding_mismatch"]
    assert server.violations == []


def test_a_changed_compaction_block_is_refused(server: StrictAnthropic) -> None:
    talk = Talk(server)
    talk.send("one")
    talk.send("#compact #think two")
    del talk.messages[:3]
    talk.send("three #think")
    talk.messages[0]["content"][0]["content"] = "Another summary."
    talk.messages.append({"role": "user", "content": "go on"})
    talk.refused()
    assert server.violations[-1].rule == "A11"


# Rules and headers


def test_a_broken_rule_is_refused_in_the_words_of_the_provider(server: StrictAnthropic) -> None:
    talk = Talk(server)
    talk.send("#tool")
    talk.messages.append({"role": "user", "content": "Never mind."})
    assert talk.refused().startswith("messages.1: `tool_use` ids were found without `tool_result` blocks")
    assert [violation.rule for violation in server.violations] == ["A1"]


def test_the_features_of_the_model_can_be_set() -> None:
    with StrictAnthropic(system_messages=False, prefill=True, models={MODEL}) as server:
        talk = Talk(server)
        talk.messages = [{"role": "user", "content": "Hi."}, {"role": "system", "content": "Be brief."}]
        assert talk.refused() == "messages.1: role 'system' is not supported on this model"
        talk.messages[1] = {"role": "assistant", "content": "It is"}
        assert talk.post().status_code == 200
        assert talk.post(model="claude-unknown").json()["error"]["type"] == "not_found_error"


@pytest.mark.parametrize(
    ("change", "status", "kind", "message"),
    [
        ({"x-api-key": None}, 401, "authentication_error", "x-api-key header is required"),
        ({"x-api-key": "wrong"}, 401, "authentication_error", "invalid x-api-key"),
        ({"anthropic-version": None}, 400, "invalid_request_error", "anthropic-version: header is required"),
        ({"anthropic-version": "2020-01-01"}, 400, "invalid_request_error", "is not a valid version"),
        ({"content-type": "text/plain"}, 400, "invalid_request_error", "content-type"),
    ],
)
def test_headers_are_checked(
    server: StrictAnthropic, change: dict[str, str | None], status: int, kind: str, message: str
) -> None:
    talk = Talk(server)
    talk.messages = [{"role": "user", "content": "Hi."}]
    talk.headers = {name: value for name, value in {**talk.headers, **change}.items() if value is not None}
    response = talk.post()
    assert response.status_code == status
    assert response.json()["error"]["type"] == kind
    assert message in response.json()["error"]["message"]
    assert server.violations[0].rule == "headers"


def test_wrong_paths_large_bodies_and_invalid_json_are_refused() -> None:
    with StrictAnthropic(max_bytes=50) as server:
        headers = Talk(server).headers
        assert httpx2.post(f"{server.url}/complete", content=b"{}", headers=headers).status_code == 404
        large = httpx2.post(f"{server.url}/messages", content=b" " * 51, headers=headers)
        assert (large.status_code, large.json()["error"]["type"]) == (413, "request_too_large")
        broken = httpx2.post(f"{server.url}/messages", content=b'{"model":', headers=headers)
        assert (broken.status_code, server.violations[-1].rule) == (400, "JSON")
        assert server.requests == [b"{}", b" " * 51, b'{"model":']


def test_an_error_in_the_server_is_reported() -> None:
    def broken(_: dict[str, Any]) -> Any:
        raise ZeroDivisionError

    with StrictAnthropic(broken) as server:
        talk = Talk(server)
        talk.messages = [{"role": "user", "content": "Hi."}]
        assert talk.post().status_code == 500
        assert "ZeroDivisionError" in server.violations[0].message


def test_a_request_with_a_lone_surrogate_is_answered(server: StrictAnthropic) -> None:
    assert "\ud800" in Talk(server).send("broken \ud800 text")["content"][0]["text"]


# Usage


def total(usage: dict[str, Any]) -> int:
    return int(usage["input_tokens"] + usage["cache_creation_input_tokens"] + usage["cache_read_input_tokens"])


def test_without_marks_nothing_is_cached(server: StrictAnthropic) -> None:
    usage = Talk(server).send("Hello " * 50)["usage"]
    assert usage["input_tokens"] > 50
    assert (usage["cache_creation_input_tokens"], usage["cache_read_input_tokens"]) == (0, 0)
    assert usage["output_tokens"] > 0


def test_the_next_request_reads_what_a_mark_wrote(server: StrictAnthropic) -> None:
    talk = Talk(server, system=[{"type": "text", "text": "Rules. " * 100, **MARK}])
    first = talk.send("one")["usage"]
    second = talk.send("two")["usage"]
    assert first["cache_read_input_tokens"] == 0
    assert first["cache_creation_input_tokens"] > 100
    assert second["cache_read_input_tokens"] == first["cache_creation_input_tokens"]
    assert second["cache_creation_input_tokens"] == 0
    assert second["input_tokens"] > first["input_tokens"]


def test_a_moved_mark_reads_what_an_earlier_mark_wrote(server: StrictAnthropic) -> None:
    talk = Talk(server, **MARK)
    usages = [talk.send(f"{n} " * 40)["usage"] for n in range(4)]
    for before, after in pairwise(usages):
        assert after["cache_read_input_tokens"] == total(before)
        assert after["input_tokens"] == 0


def test_a_changed_byte_at_the_start_makes_the_cache_useless(server: StrictAnthropic) -> None:
    talk = Talk(server, system="Rules. " * 100, **MARK)
    talk.send("one")
    usage = talk.send("two", system="rules. " + "Rules. " * 99)["usage"]
    assert usage["cache_read_input_tokens"] == 0
    assert usage["cache_creation_input_tokens"] == total(usage)


def test_the_cache_is_per_account_expires_and_skips_short_prompts() -> None:
    with StrictAnthropic(cache_seconds=0) as server:
        talk = Talk(server, **MARK)
        talk.send("one")
        assert talk.send("two")["usage"]["cache_read_input_tokens"] == 0
    with StrictAnthropic(min_cache_tokens=1000) as server:
        assert Talk(server, **MARK).send("one")["usage"]["cache_creation_input_tokens"] == 0
    with StrictAnthropic() as server:
        talk = Talk(server, **MARK)
        talk.send("one")
        talk.headers["x-api-key"] = OTHER_KEY
        assert talk.send("two")["usage"]["cache_read_input_tokens"] == 0


def test_usage_lists_cache_writes_by_ttl(server: StrictAnthropic) -> None:
    hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    talk = Talk(server, system=[{"type": "text", "text": "Rules. " * 100, **hour}], **MARK)
    written = talk.send("one " * 50)["usage"]["cache_creation"]
    assert written["ephemeral_1h_input_tokens"] > 100
    assert written["ephemeral_5m_input_tokens"] > 40


def test_a_compaction_is_counted_separately(server: StrictAnthropic) -> None:
    usage = Talk(server).send("#compact " + "words " * 50)["usage"]
    compaction, message = usage["iterations"]
    assert (compaction["type"], message["type"]) == ("compaction", "message")
    assert compaction["output_tokens"] > 50
    assert message["output_tokens"] == usage["output_tokens"]


def test_searches_are_counted(server: StrictAnthropic) -> None:
    assert Talk(server).send("#server")["usage"]["server_tool_use"] == {"web_search_requests": 1}


# Faults


@pytest.fixture
def talk(server: StrictAnthropic) -> Talk:
    talk = Talk(server)
    talk.messages = [{"role": "user", "content": "Hi #think"}]
    return talk


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, "rate_limit_error"), (529, "overloaded_error"), (500, "api_error"), (413, "request_too_large")],
)
def test_the_next_request_can_be_refused(talk: Talk, status: int, kind: str) -> None:
    talk.server.faults.append(Fault.error(status, retry_after="2"))
    response = talk.post()
    assert (response.status_code, response.json()["error"]["type"]) == (status, kind)
    assert response.headers["retry-after"] == "2"
    assert talk.post().status_code == 200


def test_faults_can_send_a_page_nonsense_or_another_content_type(talk: Talk) -> None:
    talk.server.faults += [Fault.page(), Fault.nonsense(), Fault.content_type("text/plain")]
    page, nonsense, plain = talk.post(), talk.post(), talk.post(stream=True)
    assert (page.status_code, page.headers["content-type"]) == (502, "text/html")
    with pytest.raises(ValueError, match="Unterminated"):
        nonsense.json()
    assert plain.headers["content-type"] == "text/plain"
    assert plain.content.endswith(b'data: {"type":"message_stop"}\n\n')


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("after", [0, 1, 150])
def test_the_connection_can_be_reset(talk: Talk, stream: bool, after: int) -> None:
    talk.server.faults.append(Fault.cut(after))
    got = b""
    with (
        pytest.raises(httpx2.TransportError),
        httpx2.stream(
            "POST",
            f"{talk.server.url}/messages",
            content=dump({**talk.parameters, "messages": talk.messages, "stream": stream}).encode(),
            headers=talk.headers,
        ) as response,
    ):
        for piece in response.iter_raw():
            got += piece
    assert len(got) <= after
    assert talk.post().status_code == 200


def test_a_stall_can_be_longer_than_the_clients_timeout(talk: Talk) -> None:
    talk.server.faults.append(Fault.stall(30, after=200))
    body = dump({**talk.parameters, "messages": talk.messages, "stream": True}).encode()
    with pytest.raises(httpx2.ReadTimeout):
        httpx2.post(f"{talk.server.url}/messages", content=body, headers=talk.headers, timeout=0.1)


def test_a_short_stall_loses_nothing(talk: Talk) -> None:
    talk.server.faults.append(Fault.stall(0.01, after=200))
    stalled, usual = talk.post(stream=True), talk.post(stream=True)
    assert assemble(stalled.content)["content"] == assemble(usual.content)["content"]


def test_a_stream_can_end_in_an_error_event(talk: Talk) -> None:
    talk.server.faults.append(Fault.error_event(after=4))
    response = talk.post(stream=True)
    events = response.text.split("\n\n")[:-1]
    assert response.status_code == 200
    assert len(events) == 5
    assert events[-1] == (
        'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    )


def test_a_request_that_meets_a_fault_is_checked_too(talk: Talk) -> None:
    talk.server.faults.append(Fault.error(529))
    assert talk.post(max_tokens=0).status_code == 529
    assert [violation.rule for violation in talk.server.violations] == ["max_tokens"]
