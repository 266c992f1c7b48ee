"""tools/combine_coverage.py leaves out data files that a killed process did not finish."""

from __future__ import annotations

from pathlib import Path

import pytest
from coverage import CoverageData

from tools.combine_coverage import combine


def save(path: Path, lines: list[int]) -> None:
    data = CoverageData(str(path))
    data.add_lines({f"/module_{number}.py": lines for number in range(200)})
    data.write()
    data.close()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:9_000])


def overwrite_a_page(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-4_096:] = b"\xff" * 4_096
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [empty, truncate, overwrite_a_page])
def test_a_damaged_file_is_left_out(damage: object, tmp_path: Path) -> None:
    assert callable(damage)
    folder = tmp_path / "data"
    folder.mkdir()
    save(folder / "data.1", [1])
    save(folder / "data.2", [2])
    save(folder / "data.3", [3])
    damage(folder / "data.2")
    assert combine([folder], tmp_path / "all") == [folder / "data.2"]
    data = CoverageData(str(tmp_path / "all"))
    data.read()
    assert data.lines("/module_7.py") == [1, 3]
    data.close()


def test_the_data_of_all_folders_is_combined_and_kept(tmp_path: Path) -> None:
    for number, name in enumerate(["one", "two"], 1):
        (tmp_path / name).mkdir()
        save(tmp_path / name / "data.1", [number])
    for _ in range(2):
        assert combine([tmp_path / "one", tmp_path / "two"], tmp_path / "all") == []
        data = CoverageData(str(tmp_path / "all"))
        data.read()
        assert data.lines("/module_7.py") == [1, 2]
        data.close()
