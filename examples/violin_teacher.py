"""A violin teacher that remembers: a conversation with a brief of what matters.

The brief has fields of its own: at most six techniques, for example, of which the last three always stay. Before the
first message, the app writes what it already knows. After each answer, the program prints the lines of the brief and
the entry that each one came from.

    python examples/violin_teacher.py              # with the local model, or $LONGTALK_MODEL
    python examples/violin_teacher.py --scripted   # with scripted answers
"""

import os
import sys

from longtalk import Brief, Conversation, Memory
from longtalk.memory import Field, Schema
from longtalk.providers.base import Provider
from longtalk.stores.sqlite import SQLite

LESSON = Schema(
    (
        Field("goal", "text", floor=1, value=6),
        Field("constraints", key="must", cap=5, floor=1, value=5),
        Field("decisions", key="decided", cap=6, floor=1, value=4),
        Field("open_questions", key="open", cap=4, value=3, whole=True, answers="decisions"),
        Field("techniques", key="technique", cap=6, floor=3, value=3),
        Field("lesson_context", "text", key="lesson", value=2),
    )
)
SYSTEM = "You are a violin teacher. Answer in one or two sentences."
MESSAGES = (
    "Hello, I'm Ada. I want to play the first movement of the Bach double in June.",
    "My neighbours sleep early, so I can only practise before eight in the evening.",
    "My bow bounces in the semiquavers. What should I try first?",
    "Should I begin with the second movement instead?",
    "What was my goal again?",
)


def make_scripted_model() -> Provider:
    """Return a model with scripted answers, most of them with a memory card."""
    from longtalk.testing import Scripted, says

    return Scripted(
        says('Lovely, welcome!<MEMORY_CARD>{"goal":"Bach double, first movement, by June"}</MEMORY_CARD>'),
        says('Noted.<MEMORY_CARD>{"+must":["practise before eight in the evening"]}</MEMORY_CARD>'),
        says(
            'Play near the balance point.<MEMORY_CARD>{"+technique":["semiquavers at the balance point"]}</MEMORY_CARD>'
        ),
        says('Let us keep to the first.<MEMORY_CARD>{"+decided":["the first movement comes first"]}</MEMORY_CARD>'),
        says("To play the first movement of the Bach double in June."),
    )


def main(model: str | Provider) -> None:
    """Run the lessons and print the brief after each answer."""
    # With these limits, the brief and an outline replace the history at once, so that a short example shows them. By
    # default, Memory() sends the whole conversation until replacing it is cheaper.
    policy = Memory(brief=Brief(budget=150, schema=LESSON), recent=0, limit=0)
    store = SQLite("lessons.db")
    lessons = Conversation("ada", model=model, store=store, policy=policy, options={"max_tokens": 120})
    lessons.brief.set("lesson_context", "first lesson; plays for six years; violin from 1890")
    for message in MESSAGES:
        reply = lessons.send(message, system=SYSTEM)
        print("Ada:    ", message)
        print("Teacher:", reply.text)
        for line in lessons.brief.lines():
            print(f"         {line.field}: {line.text}  ({'the app' if not line.entry else line.entry})")
        print(f"         {reply.context.tokens if reply.context else 0} tokens were sent.\n")
    store.close()


if __name__ == "__main__":
    main(make_scripted_model() if "--scripted" in sys.argv else os.environ.get("LONGTALK_MODEL", "local"))
