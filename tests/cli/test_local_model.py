"""A local model is there before a conversation starts: at a terminal after a question, else without one."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from longtalk.cli.local_model import prepare_model
from longtalk.cli.serve import _prepare_default
from longtalk.errors import InputError
from longtalk.providers.local import catalog, download, weights
from longtalk.providers.local.folder import weights_folder
from longtalk.service.settings import ModelSettings, Settings

TINY = catalog.MODELS["0.5b"]._replace(size=4)


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The models that are downloaded. `local` is one of four bytes that is not there yet."""
    monkeypatch.setenv("LONGTALK_CACHE", str(tmp_path))
    Path(weights_folder()).mkdir(parents=True)
    monkeypatch.setitem(catalog.MODELS, "0.5b", TINY)
    monkeypatch.setenv("LONGTALK_LOCAL", "0.5b")
    done: list[str] = []

    def write(model: catalog.LocalModel, folder: str) -> None:
        done.append(model.name)
        Path(download.get_path(model, folder)).write_bytes(b"GGUF")

    monkeypatch.setattr(download, "download", write)
    return done


class Shown(io.StringIO):
    """What is printed to a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Shown]]:
    """Returns a function that sits down at a terminal, and types an answer there."""
    with contextlib.ExitStack() as stack:

        def begin(answer: str) -> Shown:
            main, other = os.openpty()
            stack.callback(os.close, main)
            os.write(main, answer.encode())
            monkeypatch.setattr("sys.stdin", stack.enter_context(open(other)))
            monkeypatch.setattr("sys.stderr", Shown())
            return sys.stderr  # type: ignore[return-value]

        yield begin


def test_without_a_terminal_the_model_is_downloaded_at_once(downloads: list[str]) -> None:
    assert prepare_model("local") == "local:0.5b"
    assert prepare_model("local") == "local:0.5b"
    assert downloads == ["0.5b"]


def test_other_models_are_left_alone(downloads: list[str]) -> None:
    assert prepare_model("openai:gpt-5.6") == "openai:gpt-5.6"
    assert downloads == []


def test_at_a_terminal_a_large_download_is_asked_for_once(downloads: list[str], shown: Callable[[str], Shown]) -> None:
    screen = shown("\n")
    assert prepare_model("local") == "local:0.5b"
    assert "Qwen2.5-Coder-0.5B, the model of this machine, has to be downloaded once" in screen.getvalue()
    asked = screen.tell()
    assert prepare_model("local") == "local:0.5b"
    assert (downloads, screen.tell()) == (["0.5b"], asked)


def test_the_small_model_can_be_taken_instead_and_stays_the_default(
    downloads: list[str], shown: Callable[[str], Shown], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(weights_folder(), weights.SMOLLM2.name).write_bytes(b"GGUF")
    monkeypatch.setattr(weights, "SMOLLM2", weights.SMOLLM2._replace(size=4))
    shown("s\n")
    monkeypatch.delenv("LONGTALK_LOCAL")
    monkeypatch.setattr(catalog, "read_memory", lambda: 1)
    assert prepare_model("local") == "local:135m"
    assert (prepare_model("local"), downloads) == ("local:135m", [])


@pytest.mark.parametrize("name", ["local", "local:0.5b"])
def test_a_download_can_be_refused(name: str, downloads: list[str], shown: Callable[[str], Shown]) -> None:
    shown("n\n")
    with pytest.raises(InputError, match=r"Nothing was downloaded\. Choose another model with -m"):
        prepare_model(name)
    assert downloads == []


def test_a_model_that_is_nowhere_to_be_had_is_replaced_by_the_smallest_under_its_own_name(
    downloads: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(weights_folder(), weights.SMOLLM2.name).write_bytes(b"GGUF")
    monkeypatch.setattr(weights, "SMOLLM2", weights.SMOLLM2._replace(size=4))

    def refuse(*_: object) -> None:
        raise download.Unavailable("the hub answers 503")

    monkeypatch.setattr(download, "download", refuse)
    assert prepare_model("local") == "local:135m"
    assert "the hub answers 503. SmolLM2-135M, which is tiny, answers instead." in capsys.readouterr().err
    with pytest.raises(InputError, match="can't be downloaded: the hub answers 503"):
        prepare_model("local:0.5b")


def test_a_stopped_download_says_that_it_goes_on(
    downloads: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(download, "download", stop)
    with pytest.raises(KeyboardInterrupt):
        prepare_model("local")
    assert "It goes on the next time." in capsys.readouterr().err


def test_the_service_prepares_its_default_model_and_does_without_it(
    downloads: list[str], shown: Callable[[str], Shown]
) -> None:
    settings = Settings(default_model="tutor", models={"tutor": ModelSettings("local")})
    screen = shown("n\n\n")
    _prepare_default(settings)
    assert (downloads, "Nothing was downloaded" in screen.getvalue()) == ([], True)
    _prepare_default(settings)
    assert downloads == ["0.5b"]
