"""The body of a request for a turn, and the order that it becomes."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from longtalk.providers.base import AsyncProvider
from longtalk.service.errors import ApiError
from longtalk.service.models import ServedModel
from longtalk.service.native.objects import Meta, Name, Text
from longtalk.service.native.routes import ApiCall
from longtalk.service.openai.client_tools import make_function
from longtalk.service.openai.input_items import check_chat_parts
from longtalk.service.openai.options import to_provider_options
from longtalk.service.turns import TurnOrder
from longtalk.stores.base import MAIN
from longtalk.tools import Tool

WIRE = "openai-chat"
"""The wire in which messages of this surface are kept."""
Parts = Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)]


class GivenOutput(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The result of a call that the client has run."""

    call_id: Text
    text: str


class GivenTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A function that the client runs."""

    name: Name
    description: str = ""
    parameters: dict[str, Any] = {}
    """The JSON Schema of its arguments."""


class GivenOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of the model call. One that the provider does not have is refused."""

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    stop: list[Text] | None = None
    seed: int | None = None
    reasoning: dict[str, Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    verbosity: str | None = None


class GivenTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every request for a turn can say."""

    message: Text | Parts | None = None
    """Text, or parts in the form of Chat Completions; null continues what was cut off, or answers a note."""
    outputs: list[GivenOutput] = []
    """The results of calls that the last turn has left to the client."""
    model: Name | None = None
    """By default that of the last turn."""
    policy: Text | None = None
    """A policy as in Python: `Memory()`; by default that of the last turn."""
    system: str | None = None
    instruction: str | None = None
    """Applies to this turn only."""
    tools: list[GivenTool] = []
    options: GivenOptions = GivenOptions()
    output: dict[str, Any] | None = None
    """A JSON Schema that the answer must match."""
    brief: dict[str, str | list[str]] | None = None
    """Fields of the brief, with the texts that they are set to."""
    stream: bool = False

    def to_messages(self) -> list[bytes]:
        """Return the message and the tool results, encoded as JSON in the format of the wire.

        Raises `ApiError` for a part of the message that must not be opened.
        """
        said: list[Any] = [
            {"role": "tool", "tool_call_id": each.call_id, "content": each.text} for each in self.outputs
        ]
        if self.message is not None:
            check_chat_parts(self.message, "message")
            said.append({"role": "user", "content": self.message})
        return [msgspec.json.encode(each) for each in said]

    def make_tools(self) -> list[Tool]:
        """Return the functions that the client runs."""
        return [make_function(msgspec.to_builtins(tool), f"tools[{i}]") for i, tool in enumerate(self.tools)]

    def make_options(self, provider: AsyncProvider) -> dict[str, Any]:
        """Return the options in the form of the provider."""
        return to_provider_options(msgspec.structs.asdict(self.options), provider)


class StartTurn(GivenTurn, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A turn on a stored conversation."""

    branch: Name = MAIN
    after: Name | None = None
    """The turn to go on from; on a new branch if others follow it already."""
    edits: Name | None = None
    """The entry or turn whose message this one replaces, on a new branch."""
    regenerates: Name | None = None
    """The turn whose message is answered again, on a new branch."""
    meta: Meta = {}
    """The client's own data about the message."""


class StatelessTurn(GivenTurn, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A turn that nothing is stored of."""

    state: Text | None = None
    """The state that the last turn has returned, in base64; null begins a conversation."""


def check_place(given: StartTurn) -> None:
    """Raise `ApiError` if a request names more than one place, or has nothing to say there."""
    places = [name for name in ("after", "edits", "regenerates") if getattr(given, name) is not None]
    if len(places) > 1:
        raise ApiError(400, f"Only one of {', '.join(places)} can be given.", param=places[1], code="invalid_value")
    if given.regenerates is not None and (given.message is not None or given.outputs):
        message = "With `regenerates`, the message of that turn is answered again."
        raise ApiError(400, message, param="message", code="invalid_value")
    if given.edits is not None and given.message is None:
        raise ApiError(400, "`edits` needs a message.", param="message", code="invalid_value")


def make_order(call: ApiCall[Any, Any], given: GivenTurn, model: ServedModel) -> TurnOrder:
    """Return the order of a turn that is kept nowhere yet."""
    return TurnOrder(
        owner=call.caller.owner,
        model=model,
        wire=WIRE,
        messages=given.to_messages(),
        system=given.system,
        instruction=given.instruction,
        tools=given.make_tools(),
        options=given.make_options(model.provider),
        output=given.output,
        brief=given.brief,
    )
