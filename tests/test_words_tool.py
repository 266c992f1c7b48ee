"""`tools/check_words.py` finds the words that the project's English avoids, and only those."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "check_words.py"


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the program, with an empty folder in place of the repository."""
    spec = importlib.util.spec_from_file_location("check_words", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_each_use_is_reported_with_its_line(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, third, fourth = tool.WORDS
    write(tmp_path, "src/longtalk/chat.py", f'"""Ask {first}."""\n\n# {second.upper()} or {third}\n')
    write(tmp_path, "docs/page.md", f"Begin {fourth}.\n")
    assert tool.main([]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [": ".join(line.split(": ")[:2]) for line in lines] == [
        f"src/longtalk/chat.py:1: '{first}'",
        f"src/longtalk/chat.py:3: '{second}'",
        f"src/longtalk/chat.py:3: '{third}'",
        f"docs/page.md:1: '{fourth}'",
    ]


def test_other_words_pass(tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    longer = " ".join(f"x{word} {word}s" for word in tool.WORDS)
    write(tmp_path, "README.md", f"The caller begins again. {longer}\n")
    assert tool.main([]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "name",
    ["src/longtalk/_sync/chat.py", "bench/samples/english.md", "tests/fixtures/old.py", "src/a.json", "LICENSE.md"],
)
def test_generated_code_and_data_are_skipped(tool: ModuleType, tmp_path: Path, name: str) -> None:
    write(tmp_path, name, " ".join(tool.WORDS))
    assert tool.main([]) == 0


def test_uses_are_counted_by_top_level_folder(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = " ".join(tool.WORDS)
    write(tmp_path, "src/longtalk/chat.py", f"# {words}\n")
    write(tmp_path, "src/longtalk/cli/show.py", f"# {words}\n")
    write(tmp_path, "bench/chat.py", f"# {words}\n")
    assert tool.main(["--count"]) == 1
    assert capsys.readouterr().out.split() == ["8", "src", "4", "bench"]


def test_only_the_given_files_are_checked(tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = " ".join(tool.WORDS)
    clean = write(tmp_path, "docs/clean.md", "Fine.\n")
    write(tmp_path, "docs/other.md", words)
    assert tool.main([str(clean)]) == 0
    assert tool.main([str(tmp_path / "docs" / "other.md")]) == 1
    assert capsys.readouterr().out.count("docs/other.md:1") == len(tool.WORDS)


def test_the_program_does_not_report_itself(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "ROOT", TOOL.parent.parent)
    assert TOOL not in list(tool.find_files([TOOL.parent]))
