"""Token counts for texts, messages, tools and files: estimated in microseconds, or exact.

`counters.py` counts text. `messages.py` adds what a message costs beyond its text, and `media.py` what an image, a PDF
or audio costs. The estimate is based on `features.py` and the weights in `families.py`.
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
