"""Structured output: decode an answer to the type that the caller asked for, and check that it matches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from longtalk._util import json_bytes
from longtalk._util.lookalikes import neutralize
from longtalk.errors import BadOutput, InputError
from longtalk.notices import Notice
from longtalk.transcript.transcript import Entry, now
from longtalk.turn.draft import Draft
from longtalk.turn.json_schema import check_value
from longtalk.wires.entries import read_text
from longtalk.wires.neutral import LONGTALK, system
from longtalk.wires.protocol import Quirks, Wire
from longtalk.wires.schemas import OutputSchema

RETRIES = 2
"""The number of times in one turn that the model is asked again because its answer does not match the type."""
_INSTRUCTION = (
    "Answer this message with one JSON object and nothing else: no other text, no code fence. "
    "The JSON must match this JSON Schema:\n{schema}"
)
_SENT_BACK = (
    "Your last answer does not have the required form: {problem}. "
    "Answer again, with the corrected JSON alone. It must match this JSON Schema:\n{schema}"
)
_BEGIN = _SENT_BACK.partition(":")[0]
_FENCED = re.compile(r"```\w*\s*\n(.*)\n\s*```", re.DOTALL)
_UNNAMED = "answer"
"""What a schema without a title is called in a request."""
_WHY = {
    "length": "it was cut off by the length limit. Raise the limit in the options, such as max_tokens",
    "filtered": "its provider has filtered it",
}


class OutputType:
    """The type of an answer: a dataclass, a TypedDict, a `msgspec.Struct`, a pydantic model or a JSON Schema."""

    def __init__(self, kind: Any) -> None:
        """Read the schema of the type. Raise `InputError` if it has none, or if its values are not JSON objects."""
        self._kind = kind
        self._is_pydantic = isinstance(kind, type) and hasattr(kind, "model_validate_json")
        if isinstance(kind, Mapping):
            name = re.sub(r"[^a-zA-Z0-9_-]", "_", str(kind.get("title", "")))[:64]
            self.schema = OutputSchema(name or _UNNAMED, kind)
            if kind.get("type") != "object":
                raise InputError("`output` must be a JSON Schema for an object: set its `type` to 'object'.")
            return
        try:
            schema = kind.model_json_schema() if self._is_pydantic else msgspec.json.schema(kind)
        except Exception as problem:
            raise InputError(
                f"`output` must be a type that has a JSON Schema, and {kind!r} has none: {problem}."
            ) from problem
        name = str(getattr(kind, "__name__", _UNNAMED))
        self.schema = OutputSchema(re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64], _inline_root(schema))
        if "properties" not in self.schema.schema:
            raise InputError(
                "`output` must be a dataclass, a TypedDict, a msgspec.Struct or a pydantic model, whose values "
                "are JSON "
                f"objects, not {kind!r}: wrap it in such a type, as a field."
            )

    @classmethod
    def read(cls, kind: Any) -> OutputType:
        """Return a type as an `OutputType`, which it may be already."""
        return kind if isinstance(kind, OutputType) else cls(kind)

    @property
    def instruction(self) -> str:
        """The instruction that describes the schema to a model whose provider has no option for schemas."""
        return _INSTRUCTION.format(schema=self._render_schema())

    def add_options(self, wire: Wire, options: Mapping[str, Any], quirks: Quirks) -> Mapping[str, Any] | None:
        """Return the options with the schema in the provider's own option, or None if the provider has none."""
        return None if quirks.no_schemas else wire.add_schema(options, self.schema)

    def decode(self, text: str) -> Any:
        """Return an answer as a value of the type. Raise `ValueError` if the answer does not match the type."""
        text = text.strip()
        fenced = _FENCED.fullmatch(text)
        data = (fenced[1] if fenced else text).encode("utf-8", "replace")
        try:
            if isinstance(self._kind, Mapping):
                value = msgspec.json.decode(data)
                check_value(value, self._kind)
                return value
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
        """Return the draft with the decoded answer or, if it does not match, with a system message that says why.

        Raise `BadOutput` if this was the `last` attempt, or if asking the model again would not help.
        """
        answer = draft.answer
        text = answer.view.text if answer is not None else ""
        why = _WHY.get(answer.finish, "") if answer is not None else ""
        if answer is not None and answer.view.refusal:
            why = f"the model refused to answer: {answer.view.refusal}"
        try:
            if why:
                raise ValueError(why)
            return msgspec.structs.replace(draft, output=self.decode(text))
        except ValueError as problem:
            reason = str(problem)
        if last or why:
            raise BadOutput(
                f"The answer of {draft.turn.model} does not match {self._name}: {reason}. Its text is in "
                "`partial.text`."
            )
        notice = Notice(
            "output_refused", f"The answer does not match {self._name}, so the model was asked again: {reason}."
        )
        entry = system(_SENT_BACK.format(problem=neutralize(reason), schema=self._render_schema()), at=now())
        return draft.add_entry(entry).notice(notice)

    @property
    def _name(self) -> str:
        return "the schema" if self.schema.name == _UNNAMED else self.schema.name

    def _render_schema(self) -> str:
        return json_bytes.encode(self.schema.schema).decode()


def is_correction(entry: Entry) -> bool:
    """Return True for a system message that asks the model for another answer because of the form of its last one."""
    return entry.role == "system" and entry.wire == LONGTALK and read_text(entry).startswith(_BEGIN)


def add_instruction(instruction: str | None, more: str) -> str:
    """Return an instruction with another text appended."""
    return f"{instruction}\n\n{more}" if instruction else more


def _inline_root(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema whose root is an object and not a reference, as providers require."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    root = schema.get("$defs", {}).get(name)
    if root is None:
        return dict(schema)
    used = f'"#/$defs/{name}"' in json_bytes.encode(schema["$defs"]).decode()
    types = {key: value for key, value in schema["$defs"].items() if key != name or used}
    return {**root, **({"$defs": types} if types else {})}
