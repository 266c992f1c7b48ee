"""The form of an answer that a client asks for (`text.format`, `response_format`).

Every provider is asked for it in the way that it knows: by its own option for schemas, or by an instruction. With
`strict`, an answer that does not match is sent back to the model, and is an error in the end. Without it, and for
answers that were cut off or refused, the client gets the answer as it is, like from OpenAI.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from longtalk.errors import BadOutput
from longtalk.service.errors import ApiError
from longtalk.turn.draft import Draft
from longtalk.turn.output import OutputType

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class ClientOutput(OutputType):
    """A JSON Schema that a client has sent."""

    def __init__(self, schema: Mapping[str, Any], *, is_strict: bool) -> None:
        super().__init__(schema)
        self._is_strict = is_strict

    def check(self, draft: Draft, *, last: bool) -> Draft:
        """Return the draft with its answer, or with a message that asks the model for another one."""
        answer = draft.answer
        try:
            return super().check(draft, last=last or not self._is_strict)
        except BadOutput:
            is_whole = answer is not None and answer.finish not in ("length", "filtered") and not answer.view.refusal
            if is_whole and self._is_strict:
                raise
        return msgspec.structs.replace(draft, output=answer.view.text if answer is not None else "")


def read_output(form: Mapping[str, Any] | None, where: str, place: str) -> ClientOutput | None:
    """Return the schema of an answer's form, or None for text and for any JSON.

    `where` names the field, and `place` the part of it that has the schema. Raises `ApiError` if it is wrong.
    """
    if form is None or form.get("type") in ("text", "json_object"):
        return None
    if form.get("type") != "json_schema":
        raise _wrong(f"{where}.type", "'text', 'json_object' or 'json_schema'")
    name, schema, strict = form.get("name"), form.get("schema"), form.get("strict")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _wrong(f"{place}.name", "a name of 1 to 64 letters, digits, underscores and dashes")
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise _wrong(f"{place}.schema", "a JSON Schema of an object: set its `type` to 'object'")
    if strict is not None and not isinstance(strict, bool):
        raise _wrong(f"{place}.strict", "a boolean or null")
    return ClientOutput({"title": name, **schema}, is_strict=strict is True)


def _wrong(param: str, what: str) -> ApiError:
    return ApiError(400, f"`{param}` must be {what}.", param=param, code="invalid_value")
