"""Make the tables of other tools in a PostgreSQL database, with the tools themselves (`make clients`).

.venv/clients/bin/python tests/transfer/importers/making_postgres.py langgraph postgresql://…
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any


def langgraph(address: str) -> None:
    """Make a thread with a system message, an image and a tool, and one that waits for its tool."""
    from langgraph.checkpoint.postgres import PostgresSaver  # type: ignore
    from making import run_graph

    with PostgresSaver.from_conn_string(address) as saver:
        saver.setup()
        run_graph(saver)


def agents_sdk(address: str) -> None:
    """Make a session with a tool, and one with text only."""
    from agents.extensions.memory import SQLAlchemySession  # type: ignore
    from making import run_agents
    from sqlalchemy.ext.asyncio import create_async_engine  # type: ignore

    async def talk() -> None:
        engine = create_async_engine(address.replace("postgresql://", "postgresql+asyncpg://"))
        await run_agents(lambda name: SQLAlchemySession(name, engine=engine, create_tables=True))
        await engine.dispose()

    asyncio.run(talk())


MAKERS: dict[str, Any] = {"langgraph": langgraph, "agents-sdk": agents_sdk}

if __name__ == "__main__":
    MAKERS[sys.argv[1]](sys.argv[2])
