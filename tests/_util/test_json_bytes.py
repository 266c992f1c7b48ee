"""JSON is taken apart and put together again without losing a byte of it."""

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtalk._util import json_bytes
from tests.support import strategies

ODD_VALUES = [
    b"1e2",
    b"1.0",
    b"-0",
    b"12345678901234567",
    b"1" * 400,
    b'"\\u00e9"',
    b'"\\ud83d"',
    b'"\\uDE00 alone"',
    b'"\\\\ud83d"',
    b'"\\\\\\ud83d"',
    b'"\\ud83d\\ud83d\\ude00"',
    b'"\xff\xfe"',
    b'{ "b" : 1,\n "a":2 }',
    b'{"a":1,"a":2}',
    b"[ 1 ,2 ]",
    b"null",
]
NOT_JSON = [b"", b"{", b"[1,", b"[01]", b"[NaN]", b'{"a":tru}', b"[1]x", b'["\\x"]', b'["\n"]', b'["\\ud8"]', b"\xff"]
DEEP = 100_000


@pytest.mark.parametrize("value", ODD_VALUES)
def test_the_members_of_an_object_are_the_bytes_they_came_in(value: bytes) -> None:
    assert json_bytes.fields(b'{"first": ' + value + b' ,"second":1e5}') == {"first": value, "second": b"1e5"}


@pytest.mark.parametrize("value", ODD_VALUES)
def test_the_elements_of_an_array_are_the_bytes_they_came_in(value: bytes) -> None:
    assert json_bytes.items(b"[ " + value + b" ," + value + b"]") == [value, value]


@given(st.lists(strategies.values, max_size=5))
def test_any_array_comes_apart_into_its_elements(elements: list[bytes]) -> None:
    document = b"[" + b",".join(elements) + b"]"
    assert json_bytes.items(document) == elements
    assert json_bytes.items(memoryview(document)) == elements
    assert json_bytes.lengths(document) == list(map(len, elements))


@given(st.dictionaries(st.text(max_size=6), strategies.values, max_size=5))
def test_any_object_comes_apart_into_its_members_and_can_be_built_again(members: dict[str, bytes]) -> None:
    document = b"{" + b",".join(json.dumps(key).encode() + b": " + value for key, value in members.items()) + b"}"
    # Two halves that stand side by side are one character once they are in a document.
    joined = {json.loads(json.dumps(key)): value for key, value in members.items()}
    assert json_bytes.fields(document) == joined
    assert json_bytes.fields(json_bytes.build(joined)) == joined


def test_of_a_doubled_key_the_last_one_counts() -> None:
    assert json_bytes.fields(b'{"a":1,"b":2,"a":3}') == {"a": b"3", "b": b"2"}


def test_the_order_of_keys_is_kept() -> None:
    assert list(json_bytes.fields(b'{"z":1,"a":2,"m":3}')) == ["z", "a", "m"]


def test_half_a_pair_in_a_key_is_kept() -> None:
    members = json_bytes.fields(b'{"\\ud83d!":"\\udE00"}')
    assert members == {"\ud83d!": b'"\\udE00"'}
    assert json_bytes.build(members) == b'{"\\ud83d!":"\\udE00"}'


@pytest.mark.parametrize("document", NOT_JSON)
def test_what_is_not_json_is_a_value_error(document: bytes) -> None:
    for read in (json_bytes.fields, json_bytes.items, json_bytes.lengths, json_bytes.check_object, json_bytes.value):
        with pytest.raises(ValueError, match="not JSON"):
            read(document)


@pytest.mark.parametrize("document", [b'["\\ud83d",]', b'{"a":"\\ud83d",}'])
def test_what_is_not_json_is_refused_also_beside_half_a_pair(document: bytes) -> None:
    for read in (json_bytes.fields, json_bytes.items, json_bytes.lengths, json_bytes.check_object, json_bytes.value):
        with pytest.raises(ValueError, match="not JSON"):
            read(document)


@pytest.mark.parametrize("lone", [b"", b'"\\ud83d",'])
def test_a_document_nested_too_deeply_is_a_value_error(lone: bytes) -> None:
    deep = b"[" + lone + b"[" * DEEP + b"]" * DEEP + b"]"
    for read in (json_bytes.items, json_bytes.lengths, json_bytes.value):
        with pytest.raises(ValueError, match="nested too deeply"):
            read(deep)
    for read in (json_bytes.fields, json_bytes.check_object):
        with pytest.raises(ValueError, match="nested too deeply"):
            read(b'{"a":' + deep + b"}")


@given(strategies.objects)
def test_an_object_is_proved_to_be_one(document: bytes) -> None:
    json_bytes.check_object(document)
    json_bytes.check_object(memoryview(document))


@given(strategies.objects, strategies.objects)
def test_two_objects_are_not_one(one: bytes, other: bytes) -> None:
    with pytest.raises(ValueError, match="not JSON"):
        json_bytes.check_object(one + b"," + other)


@pytest.mark.parametrize("document", [b"[]", b"1", b'"{}"', b"null", b'["\\ud83d"]'])
def test_only_an_object_is_proved(document: bytes) -> None:
    with pytest.raises(ValueError, match="not JSON: Expected `object`"):
        json_bytes.check_object(document)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (b'"plain"', "plain"),
        (b'"\\u00e9\\n"', "é\n"),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'"a\\ud83d"', "a\ufffd"),
        (b'"a\xffb"', "a\ufffdb"),
        (b'"\\\\ud83d"', "\\ud83d"),
        (b"null", None),
        (b"12", None),
        (b"", None),
        (b'{"a":1}', None),
    ],
)
def test_a_string_reads_as_text_and_nothing_else_does(document: bytes, text: str | None) -> None:
    assert json_bytes.text(document) == text


def test_a_broken_string_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="truncated"):
        json_bytes.text(b'"never closed')


@given(strategies.values)
def test_any_value_can_be_read(document: bytes) -> None:
    json_bytes.value(document)


def test_a_value_is_read_as_python_objects() -> None:
    assert json_bytes.value(b'{"a":[1,2.5,null,"\\ud83d\xff"]}') == {"a": [1, 2.5, None, "\ufffd\ufffd"]}


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner)))
def test_python_objects_are_written_as_json_that_says_the_same(value: object) -> None:
    assert json.loads(json_bytes.encode(value)) == json.loads(json.dumps(value))


def test_half_a_pair_is_written_as_a_character_that_every_server_takes() -> None:
    assert json.loads(json_bytes.encode({"\ud83d": ["\ude00", 1.5, "é"]})) == {"\ufffd": ["\ufffd", 1.5, "é"]}


def test_half_a_pair_in_a_key_that_came_goes_back_as_it_came() -> None:
    assert json_bytes.build(json_bytes.fields(b'{"\\ud83d":1}')) == b'{"\\ud83d":1}'


@pytest.mark.parametrize("beside", ["", "\ud83d"])
def test_what_json_has_no_number_for_is_null(beside: str) -> None:
    written = json_bytes.encode({"a": math.nan, "b": [math.inf, -math.inf], "c": beside})
    assert json.loads(written) == {"a": None, "b": [None, None], "c": beside.replace("\ud83d", "\ufffd")}


def test_a_struct_is_written_also_with_half_a_pair_in_it() -> None:
    class Said(msgspec.Struct):
        text: str

    assert json_bytes.encode(Said("\ud83d")) == b'{"text":"\\ufffd"}'


@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"9" * 5_000, b"-" + b"9" * 5_000])
def test_a_number_beyond_a_double_is_read_as_infinite_and_keeps_its_bytes(number: bytes) -> None:
    document = b'{"huge":%s,"one":1,"half":"\\ud83d"}' % number
    read = json_bytes.value(document)
    assert read == {"huge": -math.inf if number[:1] == b"-" else math.inf, "one": 1, "half": "\ufffd"}
    assert type(read["one"]) is int
    assert json_bytes.fields(document)["huge"] == number


@pytest.mark.parametrize("number", [b"1", b"1e999"])
def test_what_can_be_read_at_all_can_be_read_from_a_deep_stack(number: bytes) -> None:
    deep = b'{"a":' + b"[" * 600 + number + b"]" * 600 + b"}"

    def read_below(frames: int) -> int:
        if frames:
            return read_below(frames - 1)
        json_bytes.check_object(deep)
        assert json_bytes.value(deep)
        return len(json_bytes.fields(deep)["a"])

    assert read_below(600) == 1_200 + len(number)


def test_a_key_that_is_not_utf_8_does_not_change_the_other_members() -> None:
    read = json_bytes.fields(b'{"\xff":1,"a":"\xfe \\ud83d","b":"caf\xc3\xa9"}')
    assert read == {"\udcff": b"1", "a": b'"\xfe \\ud83d"', "b": b'"caf\xc3\xa9"'}
