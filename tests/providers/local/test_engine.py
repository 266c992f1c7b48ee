"""The engine's process: a real model answers, and no way of leaving the program leaves the process behind."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from longtalk.errors import InputError
from longtalk.providers.local import engine as local_engine
from longtalk.providers.local import weights
from longtalk.providers.local.engine import Engine, get_engine, stop_all

posix = pytest.mark.skipif(os.name != "posix", reason="signals and forks as POSIX has them")

PATIENCE = 60.0


@pytest.fixture(scope="module")
def model() -> str:
    return weights.find_weights()


@pytest.fixture(scope="module", autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    stop_all()


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTALK_THREADS", "1")


@pytest.fixture
def no_engine() -> None:
    """Stop the engines that earlier tests have started and that other tests may share."""
    stop_all()


def ask(url: str, key: str | None, path: str = "/v1/chat/completions", **more: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, **more}
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(f"{url}{path}", json.dumps(body).encode(), headers)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=PATIENCE) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def answers(running: Engine) -> bool:
    return bool(ask(running.url, running.key)["choices"][0]["message"]["content"])


def is_alive(pid: int) -> bool:
    """Return whether a process runs. A zombie does not."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        return not Path("/proc/self").exists() or stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (ProcessLookupError, FileNotFoundError):
        return False


def soon(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.05)
    return False


@contextmanager
def parent(model: str, then: str) -> Iterator[subprocess.Popen[str]]:
    """A program with an engine, in a process group of its own. It prints what the test wants to know."""
    code = f"""
import os, signal, sys, time
from longtalk.providers.local import engine as local_engine
mine = local_engine.get_engine({model!r}, context=512)
{then}
"""
    started = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with started:
        try:
            yield started
        finally:
            started.kill()


def heard(process: subprocess.Popen[str]) -> list[str]:
    """The next line, as words."""
    assert process.stdout is not None
    return process.stdout.readline().split()


def test_the_local_model_answers(model: str) -> None:
    assert answers(get_engine(model))


def test_the_engine_listens_on_loopback_only(model: str) -> None:
    assert get_engine(model).url.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("key", [None, "wrong"], ids=["no key", "a wrong key"])
def test_other_users_of_the_machine_cannot_use_the_server(model: str, key: str | None) -> None:
    running = get_engine(model)
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(running.url, key)
    refused.value.close()
    assert refused.value.code == 401


def test_what_memory_adds_after_a_message_is_shown_before_it(model: str) -> None:
    running = get_engine(model, context=512, line="Be brief.")
    messages = [
        {"role": "user", "content": "I am Ada."},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Who am I?"},
        {"role": "user", "content": "<memory>\nUser: I am Ada.\n</memory>"},
    ]
    shown = ask(running.url, running.key, "/apply-template", messages=messages)["prompt"]
    assert shown.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nI am Ada.<|im_end|>\n")
    assert shown.endswith(
        "<|im_start|>user\n<memory>\nUser: I am Ada.\n</memory>\n\nWho am I?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert shown.count("<memory>") == 1


def test_the_window_is_as_wide_as_asked_for(model: str) -> None:
    running = get_engine(model, context=512)
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(running.url, running.key, messages=[{"role": "user", "content": "word " * 600}])
    with refused.value as answer:
        assert json.load(answer)["error"]["type"] == "exceed_context_size_error"


def test_the_same_file_has_one_engine_however_it_is_named(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = get_engine(model)
    monkeypatch.chdir(os.path.dirname(model))
    assert get_engine(os.path.basename(model)) is first


@pytest.mark.slow
@pytest.mark.usefixtures("no_engine")
def test_threads_that_ask_at_once_get_the_same_engine(model: str) -> None:
    got: list[Engine] = []
    threads = [threading.Thread(target=lambda: got.append(get_engine(model))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 4
    assert len({running.pid for running in got}) == 1


def test_another_window_is_another_engine(model: str) -> None:
    assert get_engine(model, context=512).pid != get_engine(model, context=1024).pid


def test_stop_all_ends_the_children(model: str) -> None:
    running = get_engine(model)
    assert running.is_alive()
    stop_all()
    assert not running.is_alive()


def test_an_engine_can_be_started_again(model: str) -> None:
    first = get_engine(model)
    stop_all()
    second = get_engine(model)
    assert second.pid != first.pid
    assert answers(second)


@posix
def test_an_engine_that_died_is_replaced(model: str) -> None:
    first = get_engine(model)
    os.kill(first.pid, signal.SIGKILL)
    assert soon(lambda: not first.is_alive())
    second = get_engine(model)
    assert second is not first
    assert answers(second)


@pytest.mark.slow
def test_stopping_in_the_middle_of_an_answer_is_clean(model: str) -> None:
    running = get_engine(model)
    body = {"messages": [{"role": "user", "content": "Count to a thousand."}], "max_tokens": 400, "stream": True}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {running.key}"}
    request = urllib.request.Request(f"{running.url}/v1/chat/completions", json.dumps(body).encode(), headers)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=PATIENCE) as response:
        assert response.readline().startswith(b"data: ")
        stop_all()
    assert running._process.returncode == 0


@posix
def test_an_engine_ends_with_its_program(model: str) -> None:
    with parent(model, "print(mine.pid)") as program:
        (pid,) = heard(program)
        assert program.wait(PATIENCE) == 0
    assert not is_alive(int(pid))


@posix
def test_an_engine_ends_when_its_program_is_killed(model: str) -> None:
    with parent(model, "print(mine.pid, flush=True); time.sleep(600)") as program:
        pid = int(heard(program)[0])
        assert is_alive(pid)
        program.kill()
        program.wait(PATIENCE)
    assert soon(lambda: not is_alive(pid))


@pytest.mark.slow
@posix
def test_an_engine_ends_when_its_program_is_killed_while_a_forked_copy_lives(model: str) -> None:
    then = """
copy = os.fork()
if copy == 0:
    sys.stdin.read()
    os._exit(0)
print(mine.pid, copy, flush=True)
time.sleep(600)
"""
    with parent(model, then) as program:
        pid, copy = map(int, heard(program))
        program.kill()
        program.wait(PATIENCE)
        assert soon(lambda: not is_alive(pid))
        assert is_alive(copy)
    assert soon(lambda: not is_alive(copy))


@pytest.mark.slow
@posix
def test_a_forked_copy_has_its_own_engine_and_leaves_the_original_alone(model: str) -> None:
    then = f"""
copy = os.fork()
if copy == 0:
    other = local_engine.get_engine({model!r}, context=512)
    print("copy", other.pid, flush=True)
    sys.exit(0)
_, status = os.waitpid(copy, 0)
again = local_engine.get_engine({model!r}, context=512)
print("original", mine.pid, again.pid, again.is_alive(), status, flush=True)
"""
    with parent(model, then) as program:
        _, other = heard(program)
        _, first, again, alive, status = heard(program)
        assert program.wait(PATIENCE) == 0
    assert first == again != other
    assert (alive, status) == ("True", "0")
    assert soon(lambda: not is_alive(int(other)))


@pytest.mark.slow
@posix
def test_ctrl_c_does_not_reach_the_engine(model: str) -> None:
    then = """
signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
print(mine.pid, mine.url, mine.key, flush=True)
sys.stdin.read()
"""
    with parent(model, then) as program:
        pid, url, key = heard(program)
        os.killpg(program.pid, signal.SIGINT)
        assert heard(program) == ["interrupted"]
        assert ask(url, key)["choices"]
        assert os.getsid(int(pid)) != os.getsid(program.pid)
        program.communicate(timeout=PATIENCE)
    assert not is_alive(int(pid))


@posix
def test_ctrl_c_while_the_model_loads_leaves_no_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = "import os, time; print(os.getpid(), end='.', file=open('pid', 'w'), flush=True); time.sleep(600)"
    (tmp_path / "xllamacpp.py").write_text(slow)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    noted = tmp_path / "pid"
    command = [sys.executable, "-c", "from longtalk.providers.local.engine import get_engine; get_engine('any.gguf')"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stderr=pipe, cwd=tmp_path, text=True, start_new_session=True) as program:
        try:
            assert soon(lambda: noted.exists() and noted.read_text().endswith("."))
            pid = int(noted.read_text().rstrip("."))
            assert is_alive(pid)
            os.killpg(program.pid, signal.SIGINT)
            _, said = program.communicate(timeout=PATIENCE)
        finally:
            program.kill()
    assert said.endswith("KeyboardInterrupt\n")
    assert not is_alive(pid)


@posix
def test_a_model_that_does_not_load_in_time_is_an_input_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "never.gguf")
    monkeypatch.setattr(local_engine, "START_LIMIT", 1.5)
    with pytest.raises(InputError, match=r"never\.gguf': it took more than 1\.5 seconds"):
        get_engine(str(tmp_path / "never.gguf"))


@pytest.mark.parametrize(
    "rest",
    [b"", bytes(range(256)) * 400, b"\3\0\0\0" + bytes(1000)],
    ids=["nothing", "noise", "no model"],
)
def test_a_damaged_model_is_an_input_error_with_its_cause(tmp_path: Path, rest: bytes) -> None:
    file = tmp_path / "damaged.gguf"
    file.write_bytes(b"GGUF" + rest)
    with pytest.raises(InputError) as refused:
        get_engine(weights.find_weights(str(file)))
    said = str(refused.value)
    assert said.startswith(f"The local model can't be loaded from {str(file)!r}: ")
    assert any(cause in said for cause in ("header", "version", "architecture")), said


def test_half_a_model_is_an_input_error_with_its_cause(model: str, tmp_path: Path) -> None:
    file = tmp_path / "half.gguf"
    with open(model, "rb") as whole:
        file.write_bytes(whole.read(50_000_000))
    with pytest.raises(InputError, match="model is corrupted or incomplete"):
        get_engine(str(file))


def test_a_model_without_a_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.gguf"):
        get_engine(str(tmp_path / "nowhere.gguf"))


@pytest.mark.parametrize(
    ("module", "cause"),
    [
        ("import os; os._exit(7)", "its process exited with status 7"),
        ("import os; os.write(2, b'no such instruction'); os._exit(7)", "no such instruction"),
        ("raise ImportError('libgomp.so.1 is missing')", "libgomp.so.1 is missing"),
        ("print('{}', flush=True); raise ImportError('not for this processor')", "not for this processor"),
        ("class CommonParams: __init__ = None", "'NoneType' object is not callable"),
    ],
    ids=["dies without a word", "dies with a word", "can't be imported", "talks and can't be imported", "has changed"],
)
def test_an_engine_that_fails_is_an_input_error_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, cause: str
) -> None:
    (tmp_path / "xllamacpp.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError) as refused:
        get_engine(str(tmp_path / "any.gguf"))
    assert f": {cause}. Check" in str(refused.value)


def test_a_child_that_can_not_start_is_an_input_error_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "longtalk").mkdir()
    (tmp_path / "longtalk" / "__init__.py").write_text("raise RuntimeError('half an installation')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="RuntimeError: half an installation"):
        get_engine(str(tmp_path / "any.gguf"))


@pytest.mark.usefixtures("no_engine")
def test_an_interpreter_that_says_something_at_its_start_does_no_harm(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('Welcome to this computer!', flush=True)")
    monkeypatch.syspath_prepend(tmp_path)
    assert answers(get_engine(model))


@pytest.mark.usefixtures("no_engine")
def test_a_missing_extra_is_an_input_error_with_the_remedy(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "xllamacpp" else real(name, *more)
    )
    with pytest.raises(InputError) as refused:
        get_engine(model)
    assert str(refused.value) == "The local model needs its engine: pip install 'longtalk[local]'."


def test_the_program_itself_never_loads_the_engine(model: str) -> None:
    with parent(model, "print('xllamacpp' in sys.modules)") as program:
        assert heard(program) == ["False"]


@pytest.mark.slow
@pytest.mark.usefixtures("no_engine")
def test_the_engine_says_nothing_on_the_terminal(model: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert answers(get_engine(model))
    (tmp_path / "damaged.gguf").write_bytes(b"GGUF")
    with pytest.raises(InputError):
        get_engine(str(tmp_path / "damaged.gguf"))
    stop_all()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("cores", "threads"), [(None, 1), (1, 1), (2, 1), (6, 3), (64, 4)])
def test_half_of_the_cores_work_but_no_more_than_four(
    monkeypatch: pytest.MonkeyPatch, cores: int | None, threads: int
) -> None:
    monkeypatch.delenv("LONGTALK_THREADS")
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert local_engine._choose_threads() == threads


def test_the_number_of_threads_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTALK_THREADS", "7")
    assert local_engine._choose_threads() == 7


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_a_number_of_threads_that_makes_no_sense_is_refused(
    model: str, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("LONGTALK_THREADS", value)
    with pytest.raises(InputError, match=f"LONGTALK_THREADS is '{value}'"):
        get_engine(model)


def serve(settings: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "longtalk.providers.local.server"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert process.stdin is not None
    process.stdin.write(json.dumps(settings) + "\n")
    process.stdin.flush()
    return process


def test_the_server_process_says_where_it_listens_and_ends_with_its_input(model: str) -> None:
    with serve({"model": model, "context": 512, "threads": 1, "key": "secret"}) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        assert ask(url, "secret")["choices"]
        assert process.communicate(timeout=PATIENCE) == ("", "")
    assert process.returncode == 0


def test_the_server_process_says_what_is_wrong_and_ends(tmp_path: Path) -> None:
    with serve({"model": str(tmp_path / "nowhere.gguf"), "context": 512, "threads": 1, "key": "secret"}) as process:
        said, _ = process.communicate(timeout=PATIENCE)
    assert list(json.loads(said)) == ["error"]
    assert process.returncode == 1
