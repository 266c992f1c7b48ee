"""A bot that keeps each user's state in a database table.

A web or WhatsApp handler would call `handle`. Two messages of one user at the same time are safe: the turn that ends
second finds that the stored state has changed, and runs again on the newer state.

    python examples/bot.py
"""

import os
import sqlite3

from longtalk import Chat, peek

chat = Chat(os.environ.get("LONGTALK_MODEL", "local"), options={"max_tokens": 40})
database = sqlite3.connect("bot.db")
database.execute("CREATE TABLE IF NOT EXISTS talks (user TEXT PRIMARY KEY, revision INTEGER, state BLOB)")


def handle(user: str, text: str) -> str:
    """Return the answer to a message of this user."""
    while True:
        row = database.execute("SELECT revision, state FROM talks WHERE user = ?", (user,)).fetchone()
        revision, state = row or (0, None)
        reply = chat.send(text, state=state, system="You are a friendly violin teacher. Answer in one sentence.")
        if save_if_unchanged(user, revision, reply.state):
            return reply.text


def save_if_unchanged(user: str, revision: int, state: bytes) -> bool:
    """Save a state and return True, or return False if the stored revision has changed."""
    with database:
        if not revision:
            result = database.execute(
                "INSERT OR IGNORE INTO talks VALUES (?, ?, ?)", (user, peek(state).revision, state)
            )
        else:
            result = database.execute(
                "UPDATE talks SET revision = ?, state = ? WHERE user = ? AND revision = ?",
                (peek(state).revision, state, user, revision),
            )
    return result.rowcount == 1


if __name__ == "__main__":
    for message in ("Hello, I'm Ada. How do I hold the bow?", "Thank you! What did I ask you?"):
        print("Ada:", message)
        print("Bot:", handle("ada", message))
