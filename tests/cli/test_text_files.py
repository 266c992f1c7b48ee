"""Which files `longtalk ask -f` finds by a pattern or in a folder, and what it says about them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from longtalk.cli import text_files
from longtalk.cli.text_files import find_text_files
from longtalk.errors import InputError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of text files, hidden ones and others, in the current folder."""
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "src"
    for name in ("b.py", "a.py", "inner/a.py", ".git/config", "__pycache__/a.txt"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("pass\n")
    (source / "image.png").write_bytes(b"\x89PNG\0")
    (source / "latin.txt").write_bytes(b"caf\xe9")
    return source


def test_a_folder_is_its_text_files_in_order(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [each.name for each in find_text_files(["src/"])] == ["src/a.py", "src/b.py", "src/inner/a.py"]
    assert capsys.readouterr().err == "(src/: 3 files with 15 bytes; 2 other files left out, without text.)\n"


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("src/*.py", ["src/a.py", "src/b.py"]),
        ("src/**/*.py", ["src/a.py", "src/b.py", "src/inner/a.py"]),
        ("src/inner/", ["inner/a.py"]),
        ("{folder}/*.py", ["a.py", "b.py"]),
        ("{folder}/in*/[ab].py", ["inner/a.py"]),
        ("{folder}", ["src/a.py", "src/b.py", "src/inner/a.py"]),
    ],
)
def test_names_say_where_a_file_is_but_not_where_the_folder_is(given: str, names: list[str], folder: Path) -> None:
    assert [each.name for each in find_text_files([given.format(folder=folder)])] == names


def test_a_pipe_in_a_folder_is_left_alone(folder: Path) -> None:
    os.mkfifo(folder / "inner" / "pipe")
    assert [each.name for each in find_text_files(["src/inner"])] == ["inner/a.py"]


def test_the_current_folder_has_no_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert [each.name for each in find_text_files(["."])] == ["a.py", "b.py", "inner/a.py"]


def test_a_file_is_taken_once(folder: Path) -> None:
    assert [each.name for each in find_text_files(["src/a.py", "src/*.py"])] == ["a.py", "src/b.py"]


def test_a_file_whose_name_is_a_pattern_is_that_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "[ab].py").write_text("pass\n")
    assert [each.name for each in find_text_files(["src/[ab].py"])] == ["[ab].py"]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("given", "message"),
    [("src/*.md", r"matches no text file: src/\*\.md"), ("src/*.png", "1 other file left out"), ("empty", "has no")],
)
def test_nothing_found_is_an_error(given: str, message: str, folder: Path) -> None:
    (folder.parent / "empty").mkdir()
    with pytest.raises(InputError, match=message):
        find_text_files([given])


def test_what_would_fill_the_window_of_any_model_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "_MOST_BYTES", 14)
    with pytest.raises(InputError, match=r"src/ are too long: .* 14 bytes .*, such as -f 'src/\*\.md'"):
        find_text_files(["src/"])
    assert len(find_text_files(["src/*.py"])) == 2
    with pytest.raises(InputError, match=r"such as -f 'src/a\*\.py'"):
        find_text_files(["src/inner/", "src/*.py"])
    with pytest.raises(InputError, match=r"such as -f 'src/\*\.py'"):
        find_text_files(["src/**/*.py"])
