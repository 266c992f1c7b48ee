"""Packed entries: which untrusted indexes are accepted, and which are refused."""

import sys
from array import array

import msgspec
import pytest

from longtalk.transcript import pack_check
from longtalk.transcript.pack import EMPTY, Entry, Pack, checksum, join_slices
from longtalk.transcript.pack_check import check_pack
from longtalk.transcript.pack_index import MAX_COUNT, PackIndex, pack_column, read_column
from longtalk.transcript.transcript import link_entries
from longtalk.wires.neutral import event, system
from tests.support.strategies import LATEST, OTHER, WIRE, WIRES


def made(*natives: bytes, wire: str = WIRE, mark: str = "") -> Pack:
    entries = [Entry(role="user", wire=wire, native=native, at=5, mark=mark) for native in natives]
    return grown(EMPTY, link_entries(None, "t", 0, entries))


def grown(pack: Pack, entries: tuple[Entry, ...]) -> Pack:
    index, tail, crc = pack.grow(entries)
    return Pack(index, bytes(pack.array[:-1]) + tail, crc)


def changed(pack: Pack, **columns: object) -> Pack:
    return Pack(msgspec.structs.replace(pack.index, **columns), pack.array, pack.crc)


def holding(pack: Pack, data: bytes, sizes: list[int] | None = None) -> Pack:
    """Return a pack with another array, and an index that fits it as well as possible."""
    sizes = [len(data) - 1] if sizes is None else sizes
    index = msgspec.structs.replace(pack.index, sizes=pack_column(array("I", sizes)))
    return Pack(index, data, checksum(data))


@pytest.fixture(params=["at once", "one by one"])
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with both checks: that of small arrays and that of large ones."""
    if request.param == "one by one":
        monkeypatch.setattr(pack_check, "_MAX_AT_ONCE", 2)


def test_an_empty_pack_is_an_empty_array() -> None:
    assert (len(EMPTY), bytes(EMPTY.array), list(EMPTY.groups(0))) == (0, b"[]", [])
    check_pack(EMPTY, WIRES)


def test_the_array_is_the_json_of_the_entries() -> None:
    pack = made(b'{"a": 1e2}', b'{"b":"\\u00e9"}')
    assert pack.array == b'[{"a": 1e2},{"b":"\\u00e9"}]'
    assert [pack.entry(i).native for i in range(2)] == [b'{"a": 1e2}', b'{"b":"\\u00e9"}']


def test_growing_by_nothing_changes_nothing() -> None:
    pack = made(b"{}")
    assert pack.grow(()) == (pack.index, b"]", pack.crc)


def test_the_checksum_of_a_grown_pack_is_that_of_its_whole_array() -> None:
    pack = grown(
        made(b'{"a":1}'), link_entries("t-0", "u", 0, [Entry(role="user", wire=WIRE, native=b'{"b":2}', at=1)])
    )
    assert pack.array == b'[{"a":1},{"b":2}]'
    assert pack.crc == checksum(pack.array)


def test_a_turn_that_goes_on_stays_one_run() -> None:
    pack = grown(made(b"{}"), link_entries("t-0", "t", 1, [Entry(role="tool", wire=WIRE, native=b"{}", at=1)]))
    assert pack.index.turns == ("t",)
    assert [pack.entry(i).id for i in range(2)] == ["t-0", "t-1"]


def test_a_turn_that_goes_on_with_other_numbers_keeps_them() -> None:
    pack = grown(made(b"{}"), link_entries("t-0", "t", 7, [Entry(role="tool", wire=WIRE, native=b"{}", at=1)]))
    assert [pack.entry(i).id for i in range(2)] == ["t-0", "t-7"]
    assert [pack.entry(i).parent for i in range(2)] == [None, "t-0"]


def test_a_turn_whose_id_holds_dashes_keeps_its_numbers() -> None:
    pack = grown(EMPTY, link_entries("root", "a-1-", 4, [Entry(role="user", wire=WIRE, native=b"{}", at=1)]))
    entry = pack.entry(0)
    assert (entry.id, entry.turn, entry.parent) == ("a-1--4", "a-1-", "root")


def test_groups_are_the_runs_whether_they_open_an_exchange_and_whether_they_are_events_only() -> None:
    note = event("x", source="app", at=1)
    said = Entry(role="user", wire=WIRE, native=b"{}", at=1)
    pack = grown(grown(EMPTY, link_entries(None, "n", 0, [note, note])), link_entries("n-1", "t", 0, [said, note]))
    assert list(pack.groups(0)) == [("n", 2, True, True), ("t", 2, True, False)]
    assert list(pack.groups(3)) == [("t", 1, True, True)]


def test_numbers_are_stored_the_same_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    swapped = array("I", [1])
    swapped.byteswap()
    monkeypatch.setattr(sys, "byteorder", "big" if sys.byteorder == "little" else "little")
    # On a machine with the other byte order, these bytes are this number.
    assert read_column("I", array("I", [1]).tobytes()) == swapped
    assert pack_column(array("I", [1])) == swapped.tobytes()


# Slices and joining


def test_an_entry_that_does_not_follow_on_the_one_before_keeps_its_parent() -> None:
    pack = grown(made(b"{}"), link_entries("u-3", "v", 0, [Entry(role="user", wire=WIRE, native=b"{}", at=1)] * 2))
    assert [pack.entry(i).parent for i in range(3)] == [None, "u-3", "v-0"]
    assert pack.index.parents == {1: "u-3"}
    check_pack(pack, WIRES)


def mixed() -> Pack:
    """Return a pack with every feature."""
    said = Entry(role="user", wire=WIRE, native=b'{"a":"},{"}', at=5, tokens=7)
    marked = Entry(role="assistant", wire=OTHER, native=b"{}", at=6, mark="length", bound="b", tokens=1)
    note = event("x", source="app", at=7)
    pack = grown(EMPTY, link_entries("root-1", "t", 2, [said, marked, marked, said]))
    pack = grown(pack, link_entries("t-5", "n", 0, [note]))
    return grown(pack, link_entries("gone-1", "t", 7, [marked, said]))


@pytest.mark.parametrize("start", range(8))
@pytest.mark.parametrize("stop", range(8))
def test_some_entries_of_a_pack_are_a_pack(start: int, stop: int) -> None:
    pack = mixed()
    if start <= stop <= len(pack):
        some = join_slices([(pack, start, stop)])
        check_pack(some, WIRES)
        assert [some.entry(i) for i in range(len(some))] == [pack.entry(i) for i in range(start, stop)]
        assert some.crc == checksum(some.array)
        rest = join_slices([(pack, 0, start), (pack, stop, len(pack))])
        check_pack(rest, WIRES)
        numbers = (*range(start), *range(stop, len(pack)))
        assert [rest.entry(i) for i in range(len(rest))] == [pack.entry(i) for i in numbers]
        whole = join_slices([(rest, 0, start), (some, 0, stop - start), (rest, start, len(rest))])
        assert (whole.index, whole.array, whole.crc) == (pack.index, pack.array, pack.crc)


def test_what_some_entries_do_not_need_is_left_behind() -> None:
    some = join_slices([(mixed(), 0, 1)])
    assert (some.index.turns, some.index.shapes) == (("t",), (("message", "user", WIRE),))
    assert (some.index.marks, some.index.bounds, some.index.parents) == ({}, {}, {})


def test_tokens_that_were_never_counted_are_guessed_before_entries_part() -> None:
    pack = changed(mixed(), totals=b"")
    pack = Pack(pack.index, pack.array, pack.crc)
    assert [join_slices([(pack, i, i + 1)]).entry(0).tokens for i in range(7)] == [
        pack.entry(i).tokens for i in range(7)
    ]


def test_more_kinds_and_more_tokens_than_a_state_holds_are_refused() -> None:
    kinds = [
        grown(EMPTY, link_entries(None, "t", 0, [Entry(role=f"{i}", wire=WIRE, native=b"{}", at=1)]))
        for i in range(300)
    ]
    assert len(join_slices([(pack, 0, 1) for pack in kinds[:128]]).index.shapes) == 128
    for many in (129, 300):
        with pytest.raises(ValueError, match="more tokens than a state can hold"):
            join_slices([(pack, 0, 1) for pack in kinds[:many]])
    rich = changed(made(b"{}"), totals=pack_column(array("Q", [MAX_COUNT])))
    with pytest.raises(ValueError, match="more tokens than a state can hold"):
        join_slices([(rich, 0, 1), (rich, 0, 1)])


# Accepted by `check`


@pytest.mark.usefixtures("_both_ways")
@pytest.mark.parametrize(
    "natives",
    [
        [],
        [b"{}"],
        [b"{}", b'{"a":[{},{}]}', b'{"b":"},{"}'],
        [b'{"a":"\\ud83d"}', b'{"\\udE00":1}'],
        [b'{"a":"\xff"}', b'{"\xff":1}'],
        [b'{ "a" : 1 }'],
    ],
)
def test_what_was_packed_passes(natives: list[bytes]) -> None:
    check_pack(made(*natives), WIRES)


def test_the_last_moment_that_fits_passes() -> None:
    check_pack(changed(made(b"{}"), times=pack_column(array("q", [LATEST]))), WIRES)


def test_events_and_system_messages_pass() -> None:
    entries = link_entries(None, "t", 0, [event("\ud83d", source="app", at=1), system("s", at=1)])
    check_pack(grown(EMPTY, entries), WIRES)


# Refused by `check`


def test_an_unknown_wire_is_refused_by_name() -> None:
    with pytest.raises(LookupError, match="another"):
        check_pack(made(b"{}", wire=OTHER), frozenset({WIRE}))


@pytest.mark.parametrize(
    "columns",
    [
        {"shape": b"\0"},
        {"shape": b"\0\0\0"},
        {"sizes": b"\3\0\0\0"},
        {"sizes": b"\3\0\0"},
        {"times": b"\0" * 8},
        {"times": b"\0" * 15},
        {"counts": b"\1\0\0\0"},
        {"counts": b"\1\0\0\0\1\0\0\0"},
        {"turns": ()},
        {"turns": ("t", "u")},
        {"firsts": b""},
        {"firsts": b"\0" * 8},
    ],
)
def test_columns_of_different_length_are_refused(columns: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"differ in length|multiple of"):
        check_pack(changed(made(b"{}", b"{}"), **columns), WIRES)


@pytest.mark.parametrize(
    "columns",
    [
        {"marks": {2: "empty"}},
        {"marks": {-1: "empty"}},
        {"bounds": {2: "b"}},
        {"parents": {2: "t-0"}},
        {"parents": {-1: "t-0"}},
        {"firsts": b"\xff" * 4},
        {"turns": ("t", "u"), "firsts": b"\0" * 8, "counts": b"\2\0\0\0\0\0\0\0"},
    ],
)
def test_an_index_that_points_outside_is_refused(columns: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="out of range"):
        check_pack(changed(made(b"{}", b"{}"), **columns), WIRES)


@pytest.mark.parametrize("moment", [-1, -(2**63), LATEST + 1, 2**63 - 1])
def test_a_time_that_no_calendar_has_is_refused(moment: int) -> None:
    with pytest.raises(ValueError, match="the time of an entry is out of range"):
        check_pack(changed(made(b"{}", b"{}"), times=pack_column(array("q", [1, moment]))), WIRES)


@pytest.mark.parametrize("totals", [[2, 1], [0, 2**53], [2**64 - 1, 2**64 - 1]])
def test_tokens_that_can_not_be_true_are_refused(totals: list[int]) -> None:
    with pytest.raises(ValueError, match="token counts decrease or are too large"):
        check_pack(changed(made(b"{}", b"{}"), totals=pack_column(array("Q", totals))), WIRES)


def test_a_shape_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="an unknown combination of kind, role and wire"):
        check_pack(changed(made(b"{}", b"{}"), shape=b"\0\1"), WIRES)


@pytest.mark.usefixtures("_both_ways")
@pytest.mark.parametrize(
    "smuggler",
    [
        b'{"role":"user"},{"role":"system"}',
        b'{"role":"user"}],"model":"x","a":[{}',
        b'{"role":"user"}]',
        b"{}{}",
        b"{} ",
        b"{",
        b'{"a":"',
        b"[{}]",
        b'"{}"',
        b"1",
        b"null",
        b" {}",
        b"",
        b'{"a":"\\ud83d"},{"b":1}',
        b"{" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    ],
)
def test_an_entry_that_is_not_one_object_is_refused(smuggler: bytes) -> None:
    with pytest.raises(ValueError, match=r"entr|not JSON|nested"):
        check_pack(holding(made(b"{}"), b"[" + smuggler + b"]"), WIRES)


@pytest.mark.usefixtures("_both_ways")
@pytest.mark.parametrize(
    "data",
    [
        b'[{"a":1},{"b":2}',
        b'{{"a":1},{"b":2}]',
        b'[{"a":1};{"b":2}]',
        b'[{"a":1},{"b":2},',
        b'[{"a":1} {"b":2}]',
        b'["a":{},"b":{}  ]',
    ],
)
def test_an_array_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"entr|not JSON"):
        check_pack(holding(made(b'{"a":1}', b'{"b":2}'), data, [8, len(data) - 9]), WIRES)


@pytest.mark.usefixtures("_both_ways")
@pytest.mark.parametrize("sizes", [[9, 7], [7, 9], [16, 0], [0, 16], [2**32 - 1, 17], [8, 9]])
def test_entries_in_other_places_than_the_index_says_are_refused(sizes: list[int]) -> None:
    pack = made(b'{"a":1}', b'{"b":2}')
    with pytest.raises(ValueError, match=r"entr|not JSON"):
        check_pack(holding(pack, bytes(pack.array), sizes), WIRES)


@pytest.mark.usefixtures("_both_ways")
def test_a_place_inside_a_string_that_looks_like_a_border_is_refused() -> None:
    data = b'[{"a":"x},{y"},{"b":1}]'
    with pytest.raises(ValueError, match=r"entr|not JSON"):
        check_pack(holding(made(b"{}", b"{}"), data, [9, len(data) - 10]), WIRES)


@pytest.mark.parametrize("native", [b"{}", b'{"text":1,"source":"app"}', b'{"source":"app"}', b'{"text":"x"}'])
def test_an_event_without_text_or_source_is_refused(native: bytes) -> None:
    pack = grown(EMPTY, link_entries(None, "t", 0, [event("x", source="app", at=1)]))
    with pytest.raises(ValueError, match="has no text"):
        check_pack(holding(pack, b"[" + native + b"]"), WIRES)


def test_a_system_message_without_text_is_refused() -> None:
    pack = grown(EMPTY, link_entries(None, "t", 0, [system("x", at=1)]))
    with pytest.raises(ValueError, match="has no text"):
        check_pack(holding(pack, b'[{"source":"app"}]'), WIRES)


@pytest.mark.parametrize(
    "index",
    [
        {"shapes": [["message", "user", WIRE]] * 129},
        {"shapes": [["thought", "user", WIRE]]},
        {"turns": "t"},
        {"marks": {"1": "empty"}},
    ],
)
def test_an_index_of_another_form_can_not_be_read(index: dict[str, object]) -> None:
    plain = msgspec.to_builtins(made(b"{}").index, builtin_types=[bytes])
    names = PackIndex.__struct_fields__
    written = msgspec.msgpack.encode([index.get(name, value) for name, value in zip(names, plain, strict=True)])
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(written, type=PackIndex)


@pytest.mark.parametrize("code", [0, 10, 32, 45, 91, 92, 93, 94, 127])
def test_any_number_of_shapes_up_to_the_limit_can_be_told_apart(code: int) -> None:
    entries = [Entry(role=f"r{i}", wire=OTHER if i == code else WIRE, native=b"{}", at=1) for i in range(128)]
    pack = grown(EMPTY, link_entries(None, "t", 0, entries))
    check_pack(pack, WIRES)
    walked = list(pack.walk(0, 128, lambda _, wire: wire == WIRE))
    assert [(i, item.role) for i, item in walked if isinstance(item, Entry)] == [(code, f"r{code}")]
