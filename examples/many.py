"""Several conversations at once in an async program.

python examples/many.py
"""

import asyncio
import os

from longtalk import AsyncChat


async def main() -> None:
    """Run three conversations concurrently."""
    async with AsyncChat(os.environ.get("LONGTALK_MODEL", "local"), options={"max_tokens": 30}) as chat:

        async def talk(name: str) -> str:
            reply = await chat.send(f"Hello, I'm {name}.")
            reply = await chat.send("Who am I?", state=reply.state)
            return f"{name}: {reply.text}"

        for line in await asyncio.gather(talk("Ada"), talk("Niccolò"), talk("Clara")):
            print(line)


asyncio.run(main())
