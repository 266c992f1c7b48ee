"""Two conversations with one user: the second knows what was said in the first.

The policy keeps a profile of the user, and recalls what the user's other conversations say. The program prints what
is said, how much of it was recalled, and the lines of the profile with the message that each one came from.

    python examples/two_conversations.py              # with the local model, or $LONGTALK_MODEL
    python examples/two_conversations.py --scripted   # with scripted answers
"""

import os
import sys

from longtalk import Archive, Conversation, Memory, Recall
from longtalk.memory import Profile
from longtalk.providers.base import Provider
from longtalk.stores.sqlite import SQLite

FIRST = (
    "Hello! My name is Ada and I live in Bergen.",
    "I play the violin, and my bow is from 1890.",
    "I can only practise before eight in the evening, because of my neighbours.",
    "What is a good warm-up for the left hand?",
)
SECOND = (
    "Hi! Do you know which instrument I play?",
    "What is my name, and where do I live?",
    "Which warm-up did you suggest for my left hand?",
    "When can I practise at home, and why?",
)
SYSTEM = "You are a friendly music teacher. Answer in one or two sentences."


def make_scripted_model() -> Provider:
    """Return a model with scripted answers; the last one of the first conversation has a memory card."""
    from longtalk.testing import Scripted, says

    return Scripted(
        says("Nice to meet you, Ada!"),
        says("What a fine old bow."),
        says("Then let us plan short sessions."),
        says(
            "Slow scales, one finger at a time."
            '<MEMORY_CARD>{"+about":["is called Ada","lives in Bergen","plays the violin"],'
            '"+prefers":["practises before eight"]}</MEMORY_CARD>'
        ),
        says("You play the violin."),
        says("You are Ada, and you live in Bergen."),
        says("Slow scales, one finger at a time."),
        says("Before eight in the evening, because of your neighbours."),
    )


def main(model: str | Provider) -> None:
    """Hold both conversations, and print what the second one knows from the first."""
    # With these limits, each answer is followed by notes, so that a short example shows them. By default, Memory() asks
    # for them once a conversation has become long.
    policy = Memory(limit=0, recent=0, recall=Recall(300, scope="owner"), profile=Profile())
    store = SQLite("talks.db")
    for name, messages in (("monday", FIRST), ("friday", SECOND)):
        print(f"\n=== {name} ===\n")
        talk = Conversation(name, model=model, owner="ada", store=store, policy=policy, options={"max_tokens": 80})
        for message in messages:
            reply = talk.send(message, system=SYSTEM)
            print("Ada:    ", message)
            print("Teacher:", reply.text)
            if name == "friday" and reply.context is not None:
                print(f"         ({reply.context.tokens} tokens sent, {reply.context.recall} of them recalled)")
    archive = Archive(store, owner="ada")
    print("\nThe profile of Ada:")
    for line in archive.profile().lines():
        source = line.sources[0]
        said = {entry.id: entry.text for entry in archive.history(source.conversation)}
        print(f"  {line.field}: {line.text}")
        print(f"    said on {source.conversation}: {said[source.entry]}")
    store.close()


if __name__ == "__main__":
    main(make_scripted_model() if "--scripted" in sys.argv else os.environ.get("LONGTALK_MODEL", "local"))
