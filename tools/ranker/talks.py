"""Generated conversations to train the ranker on: facts told, corrected and asked back, with the turns that answer.

The conversations are of two kinds: dialogues of two people in many dated sessions, and chats of a user with an
assistant about a project. How long, chatty, repetitive and dense they are varies from one to the next. Words, phrases
and facts are in `phrases.txt` and `projects.txt`; everything else is drawn from a seeded generator of random numbers.
"""

from __future__ import annotations

import random

from tools.ranker.chats import Chat
from tools.ranker.dialogues import Dialogue
from tools.ranker.writer import Talk

__all__ = ["Talk", "generate_talks"]


def generate_talks(seed: int, dialogues: int, chats: int) -> list[Talk]:
    """Return conversations that depend on the seed alone."""
    made = [Dialogue(random.Random(f"dialogue {seed} {i}")).make() for i in range(dialogues)]
    return made + [Chat(random.Random(f"chat {seed} {i}")).make() for i in range(chats)]
