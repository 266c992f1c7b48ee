"""Damaged and malicious archives are refused."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile

import pytest

from longtalk import InputError
from longtalk.transfer.importers import zips
from longtalk.transfer.importers.zips import unpack
from tests.transfer.importers.exports import as_zip

NAME = "conversations.json"


def packed(data: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as held:
        held.writestr(NAME, data)
    return made.getvalue()


def claiming(data: bytes, size: int) -> bytes:
    """Return an archive that declares this size for its only file."""
    place = data.index(b"PK\x01\x02") + 24
    return data[:place] + struct.pack("<I", size) + data[place + 4 :]


def test_what_is_in_it_is_read() -> None:
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        assert unpack(packed(b"[1]" * 1_000_000, method)) == [b"[1]" * 1_000_000]
    assert unpack(as_zip({"users.json": b"{}"})) == []


def test_a_small_file_that_becomes_a_large_one_is_not_unpacked() -> None:
    data = claiming(packed(b" " * 1_000_000), 200_000_000)
    with pytest.raises(InputError, match=r"bytes would unpack to 200,000,000, and the limit .* If you trust it"):
        unpack(data)


@pytest.mark.parametrize("name", ["conversations-%03d.json", NAME], ids=["numbered parts", "one name"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_many_files_that_become_large_ones_together_are_not_unpacked(name: str) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as held:
        for number in range(4):
            held.writestr(name % number if "%" in name else name, bytes(40_000_000))
    with pytest.raises(InputError, match=r"would unpack to 160,000,000, and the limit for an archive of this size is"):
        unpack(made.getvalue())


def test_an_archive_in_an_archive_is_not_unpacked() -> None:
    inner = as_zip({NAME: b"[]"})
    assert unpack(as_zip({"conversations.zip": inner})) == []
    assert unpack(as_zip({NAME: inner})) == [inner]


def test_more_than_fits_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="more than 2,000,000,000 bytes"):
        unpack(claiming(packed(b"[]"), 2_000_000_001))
    monkeypatch.setattr(zips, "MAX_BYTES", 5)
    parts = {f"conversations-{number}.json": b"[1]" for number in range(2)}
    with pytest.raises(InputError, match="more than 5 bytes"):
        unpack(as_zip(parts))


def test_a_zip_with_a_false_size_uses_no_more_memory_than_it_declares() -> None:
    data = claiming(packed(bytes(60_000_000)), 1000)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="damaged"):
            unpack(data)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_ways_of_packing_without_a_bound_are_not_read(method: int) -> None:
    with pytest.raises(InputError, match="uses an unsupported compression method"):
        unpack(packed(b"[]", method))


def test_one_with_a_password_is_told() -> None:
    data = bytearray(packed(b"[]"))
    data[data.index(b"PK\x03\x04") + 6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(InputError, match="has a password"):
        unpack(bytes(data))


def test_any_damage_is_told() -> None:
    whole = packed(bytes(range(256)) * 40)
    refused = 0
    for place in range(len(whole)):
        data = whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
        try:
            unpack(data)
        except InputError as problem:
            assert "None" not in str(problem)
            refused += 1
    assert refused > len(whole) // 2
    for size in range(4, len(whole)):
        with pytest.raises(InputError, match="damaged"):
            unpack(whole[:size])
