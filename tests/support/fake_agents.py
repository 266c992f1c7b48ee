"""Small fake agent programs that print the same lines and write the same session files as the real ones.

They obey flags in the new message (`#slow` …), but not in the earlier conversation. `runs.jsonl` in their home folder
has a line for each run.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

NAMES = {"claude-cli": "claude", "gemini-cli": "gemini", "codex-cli": "codex"}
AGENT_NAMES = ["claude-cli", "gemini-cli", "codex-cli"]

# The program runs without site packages, so that a run takes only a few milliseconds.
SCRIPT = r"""#!{python} -SE
import json, os, signal, sys, time
from glob import glob

NAME = os.path.basename(sys.argv[0])
HOME = os.environ["HOME"]
PLACES = {
    "claude": (".claude/projects/-work", "%s.jsonl"),
    "gemini": (".gemini/tmp/work/chats", "session-2026-01-02T03-04-%.8s.jsonl"),
    "codex": (".codex/sessions/2026/01/02", "rollout-2026-01-02T03-04-05-%s.jsonl"),
}


def after(word, arguments=sys.argv):
    return arguments[arguments.index(word) + 1] if word in arguments else ""


def show(line):
    sys.stdout.buffer.write(json.dumps(line).encode() + b"\n")
    sys.stdout.flush()


def spawn(**streams):
    import subprocess

    child = subprocess.Popen(["sleep", "60"], **streams)
    with open(HOME + "/spawned", "a") as file:
        file.write("%d\n" % child.pid)


def piece(text):
    if NAME == "claude" and "--include-partial-messages" in sys.argv:
        delta = {"type": "text_delta", "text": text}
        event = {"type": "content_block_delta", "index": 0, "delta": delta}
        show({"type": "stream_event", "event": event, "session_id": session, "parent_tool_use_id": None})
    elif NAME == "gemini":
        show({"type": "message", "role": "assistant", "content": text, "delta": True})


def say(text):
    half = len(text) // 2
    piece(text[:half])
    if "#slow" in new:
        time.sleep(60)
    piece(text[half:])
    if NAME == "claude":
        block = {"type": "text", "text": text}
        message = {"role": "assistant", "model": "m", "content": [block]}
        show({"type": "assistant", "message": message, "parent_tool_use_id": None, "session_id": session})
    elif NAME == "codex":
        show({"type": "item.completed", "item": {"id": "item_0", "type": "agent_message", "text": text}})


def use_a_tool():
    if NAME == "claude":
        block = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
        show({"type": "assistant", "message": {"role": "assistant", "content": [block]}, "session_id": session})
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a file"}
        show({"type": "user", "message": {"role": "user", "content": [result]}, "session_id": session})
    elif NAME == "gemini":
        show({"type": "tool_use", "tool_name": "ls", "tool_id": "ls-1", "parameters": {}})
        show({"type": "tool_result", "tool_id": "ls-1", "status": "success", "output": "a file"})
    else:
        item = {"id": "item_1", "type": "command_execution", "command": "ls", "aggregated_output": ""}
        show({"type": "item.started", "item": item})
        show({"type": "item.completed", "item": {**item, "aggregated_output": "a file", "exit_code": 0}})


def begin():
    if NAME == "claude":
        show({"type": "system", "subtype": "init", "session_id": session, "tools": []})
    elif NAME == "gemini":
        show({"type": "init", "session_id": session, "model": "m"})
        show({"type": "message", "role": "user", "content": prompt})
    else:
        show({"type": "thread.started", "thread_id": session})
        show({"type": "turn.started"})


def finish(text, turns):
    if NAME == "claude":
        usage = {"input_tokens": 20, "output_tokens": 5}
        end = {"type": "result", "subtype": "success", "is_error": False, "result": text, "usage": usage}
        end["session_id"] = session
    elif NAME == "gemini":
        end = {"type": "result", "status": "success", "stats": {"input_tokens": 20, "output_tokens": 5, "cached": 2}}
    else:
        counts = {"input_tokens": 20 * turns, "output_tokens": 5 * turns, "cached_input_tokens": 2 * turns}
        end = {"type": "turn.completed", "usage": counts}
    line = json.dumps(end).encode()
    if "#cut" in new:
        line = line[: len(line) // 2]
    sys.stdout.buffer.write(line + (b"" if "#cut" in new or "#nonl" in new else b"\n"))
    sys.stdout.flush()


def refuse(text):
    if NAME == "claude":
        show({"type": "result", "is_error": True, "result": text, "session_id": session, "api_error_status": 400})
    elif NAME == "gemini":
        show({"type": "result", "status": "error", "error": {"type": "Error", "message": text}})
    else:
        show({"type": "turn.failed", "error": {"message": "status 400: " + text}})
    sys.exit(1)


prompt = "" if "--deaf" in sys.argv else sys.stdin.buffer.read().decode()
new = prompt.rpartition("</conversation_so_far>")[2]
system = after("--system-prompt-file") or os.environ.get("GEMINI_SYSTEM_MD", "")
for each in sys.argv:
    if each.startswith("model_instructions_file="):
        system = each.partition("=")[2].strip("'")
run = {
    "argv": sys.argv[1:], "input": prompt, "env": dict(os.environ), "cwd": os.getcwd(), "pid": os.getpid(),
    "system": open(system).read() if system else None, "system_file": system,
}
with open(HOME + "/runs.jsonl", "a") as log:
    log.write(json.dumps(run) + "\n")

if "#stubborn" in new:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "#spawn" in new:
    import subprocess

    spawn(stdout=subprocess.DEVNULL)
if "#silent" in new:
    time.sleep(60)
if "#exit3" in new:
    print("{half a line", flush=True)
    print("Something broke.", os.environ.get("SOME_SECRET"), file=sys.stderr)
    sys.exit(3)
if "#secret" in new:
    print(" ".join(os.environ.values()), file=sys.stderr)
    print("x" * 3990, os.environ.get("CLAUDE_KEY"), "y" * 3985, file=sys.stderr)
    print(os.environ.get("CLAUDE_KEY"), os.environ.get("GARDEN_GATE"))
    sys.exit(1)
if "#exit0" in new:
    sys.exit(0)
if "#close" in new:
    os.close(1)
    time.sleep(60)
if "#garbage" in new:
    out = sys.stdout.buffer
    out.write(b"{not json\n\n[1,2]\nnull\n\xff\xfe\x00\n{}\n  {\"type\":\"unknown\",\"a\":\"\xff\"}\r\n")
    out.write(b'{"type":"longtalk","stamp":"x y","before":{"input_tokens":9}}\n{"type":5}\n{"type":null,"item":3}\n')

session = after("--resume") or after("resume")
folder, name = PLACES[NAME]
kept = "--no-session-persistence" not in sys.argv and "--ephemeral" not in sys.argv
if session and not glob(os.path.join(HOME, folder, name % session)):
    print("No conversation found. Error resuming session. no rollout found", file=sys.stderr)
    sys.exit(1)
if not session:
    made = os.urandom(16).hex()
    session = "-".join((made[:8], made[8:12], made[12:16], made[16:20], made[20:]))
if "#evil" in new:
    session = "--dangerously-skip-permissions"
os.makedirs(os.path.join(HOME, folder), exist_ok=True)
path = os.path.join(HOME, folder, name % session)
turns = len(open(path).readlines()) if os.path.exists(path) else 0
turns += 1
if "#wait" in new:
    open(HOME + "/waiting", "w").close()
    while not os.path.exists(HOME + "/go"):
        time.sleep(0.01)

begin()
if "#refuse" in new:
    refuse("no violins here")
if "#quote" in new:
    refuse("Wrong key: " + " ".join(os.environ.values()))
if "#tool" in new:
    say("Let me see.")
    use_a_tool()
last = (new.strip().splitlines() or [""])[-1]
text = os.environ.get("CLAUDE_SAYS") or "turn %d: %s" % (turns, last)
text = "x" * 5_000_000 if "#huge" in new else text
say(text)
if kept:
    with open(path, "a") as file:
        file.write(json.dumps({"heard": prompt, "said": text[:100]}) + "\n")
finish(text, turns)
if "#hold" in new:
    spawn()
if "#linger" in new:
    time.sleep(60)
"""


class Agents:
    """The installed fake agents, with a home folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.work = self.home / "work"
        self.bin = folder / "bin"
        self.work.mkdir(parents=True)
        self.bin.mkdir(parents=True)
        for name in NAMES.values():
            (self.bin / name).write_text(SCRIPT.replace("{python}", sys.executable))
            (self.bin / name).chmod(0o755)

    def runs(self) -> list[dict[str, Any]]:
        path = self.home / "runs.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def inputs(self) -> list[str]:
        return [run["input"] for run in self.runs()]

    def sessions(self) -> list[Path]:
        return sorted(path for path in self.home.rglob("*.jsonl") if path.parent != self.home)

    def list_alive(self) -> list[int]:
        """Return the ids of the processes that are still running, of all that were started."""
        spawned = self.home / "spawned"
        pids = [run["pid"] for run in self.runs()]
        pids += map(int, spawned.read_text().split()) if spawned.exists() else []
        return [pid for pid in pids if _is_running(pid)]

    def wait_until_gone(self) -> bool:
        """Wait up to 20 seconds for all processes to end, and return whether they did."""
        until = time.monotonic() + 20
        while self.list_alive() and time.monotonic() < until:
            time.sleep(0.01)
        return not self.list_alive()

    def kill_all(self) -> None:
        for pid in self.list_alive():
            os.kill(pid, signal.SIGKILL)


def _is_running(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def install_agents(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Agents:
    """Write the fake agents to a folder, and put them on PATH with a new HOME."""
    agents = Agents(folder)
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "GEMINI_SYSTEM_MD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(agents.home))
    monkeypatch.setenv("PATH", os.pathsep.join([str(agents.bin), os.environ["PATH"]]))
    monkeypatch.setenv("SOME_SECRET", "a secret of another program")
    return agents
