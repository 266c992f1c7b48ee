"""Make the files of other tools that these tests read, with the tools themselves.

Each tool needs an environment of its own, separate from Longtalk's:

    python -m venv env && env/bin/pip install llm llm-echo
    env/bin/python tests/transfer/importers/making.py llm tests/transfer/importers/files/llm.sql

`llm-old` needs `llm==0.27.1 llm-echo "httpx<1"`, `langgraph` needs `langgraph langgraph-checkpoint-sqlite`, and
`agents-sdk` needs `openai-agents`. The output is SQL that recreates the tables. Its first line names the tools and
their versions.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any


def dumped(path: Path, *makers: str) -> str:
    """Return the tables of a database as SQL, without those that only serve as an index."""
    with closing(sqlite3.connect(path)) as db, db:
        lines = [f"-- Made with {', '.join(f'{name} {version(name)}' for name in makers)}."]
        tables = db.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '%_fts%'"
            " AND name NOT LIKE 'sqlite_%' AND name NOT LIKE '_llm_%' ORDER BY name"
        ).fetchall()
        for name, sql in tables:
            lines.append(f"{sql};")
            columns = [row[1] for row in db.execute(f"PRAGMA table_info('{name}')")]
            quoted = " || ',' || ".join(f'quote("{column}")' for column in columns)
            for (row,) in db.execute(f'SELECT {quoted} FROM "{name}" ORDER BY rowid'):
                lines.append(f'INSERT INTO "{name}" VALUES({row});')
    return "\n".join(lines) + "\n"


def llm(folder: Path) -> str:
    """Make two conversations, and return the log as SQL.

    One has a system text, a tool and its error, the other a fragment and an attachment.
    """
    environment = {**os.environ, "LLM_USER_PATH": str(folder)}
    program = Path(sys.executable).parent / "llm"
    tools = (
        "def rosin(kind: str) -> str:\n    'Which rosin?'\n"
        "    if kind == 'none':\n        raise ValueError('no such rosin')\n    return f'{kind} rosin'\n"
    )

    def ask(*arguments: str, said: bytes = b"") -> None:
        subprocess.run([program, *arguments], env=environment, check=True, input=said, stdout=subprocess.DEVNULL)

    call = '{"tool_calls": [{"name": "rosin", "arguments": {"kind": "%s"}}]}'
    ask("-m", "echo", "-s", "You teach the violin.", "How do I hold the bow?")
    ask("-c", "And the thumb?")
    ask("-c", "--functions", tools, call % "amber")
    ask("-c", "--functions", tools, call % "none")
    ask("fragments", "set", "bach", "-", said=b"The chaconne is in D minor.\n")
    ask("-m", "echo", "-f", "bach", "What is this about?")
    png = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
    ask("-c", "What is in the picture?", "-a", "-", "--at", "https://example.com/bow.png", "image/png", said=png)
    return dumped(folder / "logs.db", "llm", "llm-echo")


def langgraph(folder: Path) -> str:
    """Make a thread with a system message, an image and a tool, and one that waits for its tool; return the SQL."""
    from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore

    path = folder / "checkpoints.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        run_graph(saver)
    return dumped(path, "langgraph", "langgraph-checkpoint-sqlite", "langchain-core")


def run_graph(saver: Any) -> None:
    """Run a graph on two threads, whose checkpoints go to `saver`."""
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage  # type: ignore
    from langgraph.graph import START, MessagesState, StateGraph  # type: ignore

    def agent(state: Any) -> Any:
        last = state["messages"][-1]
        if last.type == "human" and "rosin" in str(last.content):
            calls = [{"name": "rosin", "args": {"kind": "amber"}, "id": f"call_{len(state['messages'])}"}]
            told = {"model_name": "gpt-5.6"}
            return {"messages": [AIMessage("Let me look.", tool_calls=calls, response_metadata=told)]}
        if last.type == "tool":
            parts = [{"type": "reasoning", "reasoning": "Amber it is."}, {"type": "text", "text": "Amber rosin."}]
            return {"messages": [AIMessage(parts)]}
        return {"messages": [AIMessage("Hello, Ada.")]}

    def tools(state: Any) -> Any:
        call = state["messages"][-1].tool_calls[0]
        return {"messages": [ToolMessage("amber: 3 left", tool_call_id=call["id"], name="rosin")]}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", agent)
    graph.add_node("tools", tools)
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", lambda state: "tools" if state["messages"][-1].tool_calls else "__end__")
    graph.add_edge("tools", "agent")
    whole = graph.compile(checkpointer=saver)
    ada: Any = {"configurable": {"thread_id": "ada"}}
    whole.invoke({"messages": [SystemMessage("You sell rosin."), HumanMessage("Hello, I'm Ada.")]}, ada)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    asked = HumanMessage([{"type": "text", "text": "Which rosin is this?"}, picture])
    whole.invoke({"messages": [asked]}, ada)
    waits = graph.compile(checkpointer=saver, interrupt_before=["tools"])
    waits.invoke({"messages": [HumanMessage("Have you rosin?")]}, {"configurable": {"thread_id": "bob"}})


def agents_sdk(folder: Path) -> str:
    """Make a session with a tool, and one with text only; return the SQL."""
    from agents import SQLiteSession  # type: ignore

    path = folder / "agents.db"
    sessions: list[Any] = []

    def open_session(name: str) -> Any:
        sessions.append(SQLiteSession(name, path))
        return sessions[-1]

    asyncio.run(run_agents(open_session))
    for session in sessions:
        session.close()
    return dumped(path, "openai-agents")


async def run_agents(open_session: Callable[[str], Any]) -> None:
    """Run an agent in two sessions."""
    from agents import Agent, Runner, function_tool, set_tracing_disabled
    from agents.testing import ScriptedModel, assistant_message, function_call  # type: ignore

    set_tracing_disabled(True)

    @function_tool
    def rosin(kind: str) -> str:
        """How much there is."""
        return f"{kind}: 3 left"

    first = open_session("ada")
    steps = [[function_call("rosin", {"kind": "amber"}, call_id="call_1")], [assistant_message("Three are left.")]]
    agent = Agent(name="Shop", model=ScriptedModel([*steps, [assistant_message("With pleasure.")]]), tools=[rosin])
    await Runner.run(agent, "Have you amber rosin?", session=first)
    await Runner.run(agent, "Thank you!", session=first)
    plain = Agent(name="Shop", model=ScriptedModel([[assistant_message("Hello, Bob.")]]))
    await Runner.run(plain, "I'm Bob.", session=open_session("bob"))


MAKERS = {"llm": llm, "llm-old": llm, "langgraph": langgraph, "agents-sdk": agents_sdk}

if __name__ == "__main__":
    what, to = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        Path(to).write_text(MAKERS[what](Path(folder)))
