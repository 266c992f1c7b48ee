"""Wrong values are described in the words of JSON."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from longtalk.service.json_errors import describe


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    """An object in the body."""

    id: str


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A body with fields of all kinds."""

    text: Annotated[str, Meta(max_length=8)] | None = None
    share: Annotated[float, Meta(ge=0, le=1)] | None = None
    kind: Literal["a", "b"] | None = None
    inner: Inner | None = None
    inners: list[Inner] | None = None
    meta: dict[str, str] | None = None


@pytest.mark.parametrize(
    ("body", "message", "field", "code"),
    [
        ({"text": 5}, "`text` must be a string or null, not an integer.", "text", "invalid_type"),
        ({"share": 2}, "`share` must be a number of at most 1.", "share", "decimal_above_max_value"),
        ({"kind": "c"}, "`kind` can't be 'c'.", "kind", "invalid_value"),
        ({"inner": {}}, "`inner.id` is missing.", "inner.id", "missing_required_parameter"),
        ({"inner": {"id": "x", "y": 1}}, "`inner.y` is not a field of this request.", "inner.y", "unknown_parameter"),
        ({"inners": [{"id": True}]}, "`inners[0].id` must be a string, not a boolean.", "inners[0].id", "invalid_type"),
        ({"meta": {"k": None}}, "A value of `meta` must be a string, not null.", "meta", "invalid_type"),
        ({"other": 1}, "`other` is not a field of this request.", "other", "unknown_parameter"),
        ({"text": "x" * 9}, "`text` must be a string of length of at most 8.", "text", "string_above_max_length"),
        ([], "The body must be an object, not an array.", None, "invalid_type"),
    ],
)
def test_a_wrong_value_is_described_with_its_field(body: Any, message: str, field: str | None, code: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(msgspec.json.encode(body), type=Body)
    assert describe(str(caught.value)) == (message, field, code)
