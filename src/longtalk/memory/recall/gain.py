"""How much to recall: the expected gain of what was found, against its price.

`estimate_need` turns what the ranking found into the probability that the message needs it. `choose_share` turns this
probability into a share of the budget, at the model's own prices. `limit_recall` also takes account of the room that
the request has and of what recall may still spend in this conversation, and says in words what decided.
"""

from __future__ import annotations

import math

import msgspec

QUESTION_TOKENS = 300
"""The number of tokens that a question which very likely needs recall gets, even if recall has spent its share."""
_HALF = 0.3
"""The share of the budget at which recall finds about half of what it finds with a very large budget."""
_USUAL_OUTPUT = 5.0
"""The usual price of a token of an answer, in uncached input tokens."""
_SURE = 2 / 3
"""The probability from which a message gets the whole budget, at the usual prices."""
_MIN_WORTH = 0.6
"""The least worth of an answer relative to the usual one, however cheap the model's answers are."""


class Evidence(msgspec.Struct, frozen=True):
    """What the ranking found for a message, as far as it shows whether the message needs it."""

    match: float
    """The score of the best match outside the context, relative to the weight of the message."""
    known: float
    """The share of the message's weight that is in words which the conversation has too."""
    pairs: float
    """The best score for pairs of adjacent words outside the context, in units of a word that occurs only once."""
    question_share: float
    """The share of the message that asks for something; the rest only states something."""
    names_speaker: bool
    refers_back: bool


def estimate_need(found: Evidence) -> float:
    """Return the probability that a message needs what was found, from 0 to 1.

    The weights are rounded from those that tell questions about a conversation from questions about another one, each
    conversation judged by weights that come from the others. A statement rarely needs what was said before.
    """
    if found.match <= 0:
        return 0.0
    logit = -1.75 + 4 * math.log(0.05 + min(found.match, 1.2)) + 3 * found.known
    logit += 1.4 * math.log1p(10 * min(found.pairs, 1.0))
    logit += 4.5 if found.names_speaker else 1.25 if found.refers_back else 0.0
    logit -= 6 * (1 - found.question_share) ** 1.5
    return 1 / (1 + math.exp(-logit))


def choose_share(need: float, output: float = _USUAL_OUTPUT) -> float:
    """Return the share of the budget at which a further token would cost more than its expected gain, from 0 to 1.

    `need` is the probability that the message needs recalled text, and `output` the price of a token of an answer, in
    uncached input tokens: a good answer is worth what answers cost. Each further token helps less than the one before
    it; with the usual prices, a message that very likely needs recall gets the whole budget.
    """
    worth = min(1.0, max(_MIN_WORTH, output / _USUAL_OUTPUT))
    return min(1.0, max(0.0, (1 + _HALF) * math.sqrt(need / _SURE * worth) - _HALF))


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What a request allows recall to use, besides the budget of the configuration."""

    room: int | None = None
    """The number of tokens for which the request has room; None if nothing limits it."""
    credit: float | None = None
    """The number of tokens that recall may still spend in this conversation; None if nothing limits it."""
    output: float = _USUAL_OUTPUT
    """The price of a token of the model's answers, in uncached input tokens."""


def limit_recall(
    budget: int, need: float, allowed: Allowance, *, gate: bool = True, asks: bool = True
) -> tuple[int, str]:
    """Return the number of tokens to recall, and why it is not more or less, in words.

    `budget` is the maximum of the configuration. Without `gate`, only the room limits it. `asks` says that the message
    asks for something.
    """
    limit, why = budget, f"the whole budget of {budget:,} tokens"
    if gate:
        limit = int(budget * choose_share(need, allowed.output))
        why = f"{need:.0%} likely to be needed: up to {limit:,} of {budget:,} tokens"
        least = QUESTION_TOKENS * min(1.0, need / _SURE) if asks else 0.0
        if allowed.credit is not None and (credit := int(max(least, allowed.credit))) < limit:
            limit, why = credit, f"{why}, cut to {credit:,}, because recall has spent its share of the cost"
    if allowed.room is not None and allowed.room < limit:
        limit = max(0, allowed.room)
        why = f"{why}, cut to {limit:,}, for which the request has room"
    return limit, why
