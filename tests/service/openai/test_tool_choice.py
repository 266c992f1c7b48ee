"""Every form of `tool_choice` is translated, or refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from longtalk.testing import AsyncScripted, says, validate
from longtalk.wires import HTTP_WIRES
from tests.service.conftest import Serve

PAY = {"type": "function", "name": "pay", "parameters": {"type": "object", "properties": {}}}
PATCH = {"type": "custom", "name": "patch"}


def list_names(request: bytes) -> list[str]:
    """Return the names of the tools in a request of any wire."""
    tools = json.loads(request).get("tools", [])
    tools = [each for tool in tools for each in tool.get("functionDeclarations", [tool])]
    return [tool.get("name") or tool["function"]["name"] for tool in tools]


@pytest.mark.parametrize("wire", HTTP_WIRES)
@pytest.mark.parametrize("mode", ["auto", "required"])
def test_only_allowed_tools_are_sent(serve: Serve, wire: str, mode: str) -> None:
    provider = AsyncScripted(says("Hi.", wire=wire), wire=HTTP_WIRES[wire])
    choice: Any = {"type": "allowed_tools", "mode": mode, "tools": [{"type": "custom", "name": "patch"}]}
    client: Any = serve(m=provider).client()
    made = client.responses.create(model="m", input="Hi.", tools=[PAY, PATCH], tool_choice=choice)
    assert list_names(provider.requests[0]) == ["patch"]
    assert made.tool_choice.to_dict() == choice
    validate(provider.requests[0], wire=wire)


def test_allowed_tools_of_a_chat_completion(serve: Serve) -> None:
    provider = AsyncScripted(says("Hi."))
    tools: Any = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("pay", "look")]
    choice: Any = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": tools[:1]}}
    client = serve(m=provider).client()
    client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "Hi."}], tools=tools, tool_choice=choice
    )
    assert list_names(provider.requests[0]) == ["pay"]
    assert json.loads(provider.requests[0])["tool_choice"] == "required"


@pytest.mark.parametrize("wire", HTTP_WIRES)
def test_a_custom_tool_can_be_chosen(serve: Serve, wire: str) -> None:
    provider = AsyncScripted(says("Hi.", wire=wire), wire=HTTP_WIRES[wire])
    client: Any = serve(m=provider).client()
    client.responses.create(model="m", input="Hi.", tools=[PAY, PATCH], tool_choice={"type": "custom", "name": "patch"})
    body = json.loads(provider.requests[0])
    assert list_names(provider.requests[0]) == ["pay", "patch"]
    assert "patch" in json.dumps([body.get("tool_choice"), body.get("toolConfig")])
