"""Token counts for texts, messages, tools and files: estimated in microseconds, or exact.

`counters.py` counts the tokens of text. `messages.py` counts what a message has besides text, and `media.py` counts
images, PDFs and audio. Estimates are based on the features in `features.py` and their weights in `families.py`.
"""

from longtalk.tokens.counters import CheckedCounter, Counter, Estimator, Exact, counter_for
from longtalk.tokens.families import EXACT, FAMILIES
from longtalk.tokens.messages import count_message, count_preamble

__all__ = [
    "EXACT",
    "FAMILIES",
    "CheckedCounter",
    "Counter",
    "Estimator",
    "Exact",
    "count_message",
    "count_preamble",
    "counter_for",
]
