"""Structured output: the type of the answer that a turn asks for, and the check of the answer against it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from longtalk._util import json_bytes
from longtalk.errors import BadOutput, InputError
from longtalk.notices import Notice
from longtalk.transcript.transcript import now
from longtalk.turn.draft import Draft
from longtalk.wires.neutral import system
from longtalk.wires.protocol import Quirks, Wire
from longtalk.wires.schemas import OutputSchema

RETRIES = 2
"""How often an answer that does not have the form is sent back to the model in one turn."""
_INSTRUCTION = (
    "Answer this message with one JSON object and nothing else: no other text, no code fence. "
    "The JSON must match this JSON Schema:\n{schema}"
)
_SENT_BACK = (
    "Your last answer does not have the required form: {problem}. "
    "Answer again, with the corrected JSON alone. It must match this JSON Schema:\n{schema}"
)
_FENCED = re.compile(r"```\w*\s*\n(.*)\n\s*```", re.DOTALL)
_WHY = {"length": "it was cut off", "filtered": "its provider has filtered it"}


class OutputType:
    """A type that an answer is decoded to: a dataclass, a TypedDict, a `msgspec.Struct` or a pydantic model."""

    def __init__(self, kind: Any) -> None:
        """Read the type's schema. Raises `InputError` if it has none, or if its values are not JSON objects."""
        self._kind = kind
        self._is_pydantic = isinstance(kind, type) and hasattr(kind, "model_validate_json")
        try:
            schema = kind.model_json_schema() if self._is_pydantic else msgspec.json.schema(kind)
        except Exception as problem:
            raise InputError(f"`output` is a type with a JSON Schema, and {kind!r} has none: {problem}.") from problem
        name = str(getattr(kind, "__name__", "answer"))
        self.schema = OutputSchema(re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64], _inline_root(schema))
        if "properties" not in self.schema.schema:
            raise InputError(
                "`output` is a dataclass, a TypedDict, a msgspec.Struct or a pydantic model, whose values are JSON "
                f"objects, not {kind!r}: make it the field of one."
            )

    @property
    def instruction(self) -> str:
        """The instruction for a model whose provider has no mode for schemas."""
        return _INSTRUCTION.format(schema=self._render_schema())

    def add_options(self, wire: Wire, options: Mapping[str, Any], quirks: Quirks) -> Mapping[str, Any] | None:
        """Return the options with the schema in the provider's own mode, or None if that can't be used."""
        return None if quirks.no_schemas else wire.add_schema(options, self.schema)

    def decode(self, text: str) -> Any:
        """Return the value of an answer. Raises `ValueError` if the answer does not have the form."""
        text = text.strip()
        fenced = _FENCED.fullmatch(text)
        data = (fenced[1] if fenced else text).encode("utf-8", "replace")
        try:
            return (
                self._kind.model_validate_json(data)
                if self._is_pydantic
                else msgspec.json.decode(data, type=self._kind)
            )
        except (ValueError, RecursionError) as problem:
            raise ValueError(str(problem).strip().rstrip(".")[:2_000]) from problem
        except Exception as problem:  # a dataclass may raise errors of its own
            raise ValueError(f"{type(problem).__name__}: {problem}"[:2_000]) from problem

    def check(self, draft: Draft, *, last: bool) -> Draft:
        """Return the draft with the value of its answer or, if that does not have the form, with a system message.

        The message says what is wrong. Raises `BadOutput` if the attempt was the `last` one, or if another would not
        help.
        """
        answer = draft.answer
        text = answer.view.text if answer is not None else ""
        why = _WHY.get(answer.finish, "") if answer is not None else ""
        if answer is not None and answer.view.refusal:
            why = f"the model refuses: {answer.view.refusal}"
        try:
            if why:
                raise ValueError(why)
            return msgspec.structs.replace(draft, output=self.decode(text))
        except ValueError as problem:
            reason = str(problem)
        if last or why:
            raise BadOutput(
                f"The answer of {draft.turn.model} is no {self.schema.name}: {reason}. It is in `partial.text`."
            )
        notice = Notice(
            "output_refused", f"The answer is no {self.schema.name}, and the model is asked again: {reason}."
        )
        entry = system(_SENT_BACK.format(problem=reason, schema=self._render_schema()), at=now())
        return draft.add_entry(entry).notice(notice)

    def _render_schema(self) -> str:
        return json_bytes.encode(self.schema.schema).decode()


def add_instruction(instruction: str | None, more: str) -> str:
    """Return the instruction of a turn with another text after it."""
    return f"{instruction}\n\n{more}" if instruction else more


def _inline_root(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema whose root is not a reference, because providers require an object there."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    root = schema.get("$defs", {}).get(name)
    if root is None:
        return dict(schema)
    used = f'"#/$defs/{name}"' in json_bytes.encode(schema["$defs"]).decode()
    types = {key: value for key, value in schema["$defs"].items() if key != name or used}
    return {**root, **({"$defs": types} if types else {})}
