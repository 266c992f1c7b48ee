"""Text as terms: what search compares instead of words.

A term is a word without its case, its accents and its ending: "Adopted" and "adopting" are both `adopt`. Common English
words that say nothing are left out; in other languages it is their frequency that makes such words weigh nothing.
Irregular forms of English verbs are one term ("bought", "buy"). Scripts that are written without spaces, and Korean,
whose words carry particles, give overlapping pairs of characters. Any string goes, lone surrogates as well.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["folded", "pairs", "spelt", "stem", "terms", "worded", "words"]

_COMMON = """
    a about after again all also am an and any anybody anyone anything are aren as at be because been before being
    both but by can cannot could couldn d did didn do does doesn doing don done else ever every for from get gets
    getting got had hadn has hasn have haven having he her here hers herself hey hi him himself his how i if in into
    is isn it its itself just let ll m may me might mine more most much must my myself no nor not now of off oh ok
    okay on once one or other our ours ourselves out own please quite rather re really s same shall she should
    shouldn so some such t than that the their theirs them themselves then there these they this those through to
    too up upon us ve very was wasn we were weren what when where whether which while who whom whose why will with
    won would wouldn yes you your yours yourself yourselves
"""
_STOP = frozenset(_COMMON.split())
# Forms and what they are forms of.
_IRREGULAR = """
    became become|began begun begin|bought buy|broke broken break|brought bring|built build|caught catch|
    chose chosen choose|came come|drew drawn draw|drank drunk drink|drove driven drive|ate eaten eat|
    fell fallen fall|felt feel|fought fight|found find|flew flown fly|forgot forgotten forget|gave given give|
    went gone go|grew grown grow|heard hear|held hold|kept keep|knew known know|led lead|left leave|lent lend|
    lost lose|made make|meant mean|met meet|paid pay|ran run|rode ridden ride|said say|sang sung sing|saw seen see|
    sent send|sold sell|shown show|slept sleep|spent spend|spoke spoken speak|stood stand|stole stolen steal|
    swam swum swim|taught teach|told tell|thought think|took taken take|threw thrown throw|understood understand|
    woke woken wake|won win|wore worn wear|wrote written write|children child|men man|women woman|people person|
    feet foot|teeth tooth|mice mouse|wives wife|lives life|knives knife|better best good|worse worst bad
"""
# Words that only look as if they had an ending.
_WHOLE = frozenset(("business", "news", "series", "species", "lens", "during", "evening", "morning"))
_FORMS = {form: group.split()[-1] for group in _IRREGULAR.split("|") for form in group.split()[:-1]}
# Scripts without spaces between words, and Hangul.
_DENSE = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
# Scripts whose words hold signs that are no letters by themselves.
_SIGNED = "\u0900-\u0963\u0966-\u0dff"
_ACCENTS = re.compile("[\u0300-\u036f\u0591-\u05c7\u064b-\u0652\u0670]")
_WORD = re.compile(rf"[{_DENSE}]+|(?:[^\W_{_DENSE}]|[{_SIGNED}])+(?:[.,][0-9]+)*")
_DENSE_RUN = re.compile(rf"[{_DENSE}]")
# What is taken off the end of an English word, by how many letters must stay.
_OFF = {
    4: "fulness ousness iveness ization isation ment ness able ible less ful ist ism ion ly",
    5: "ation ance ence ancy ency ality ivity ity ate at ize ise ive ous ant ent al er or ic",
}
_ENDINGS = {ending: stay for stay, endings in _OFF.items() for ending in endings.split()}
_VOWEL = re.compile("[aeiouy]")
# What a short term may have lost, or may be followed by.
_ENDS = ("s", "es", "ed", "ing", "e", "y", "ie", "ies", "ied", "er", "ers", "ly", "al", "ion", "ive", "able")
_LONG = 64  # characters of a word that count
_KNOWN = 65_536  # words whose terms are kept at hand
_STEM = 6  # characters that count of a word in another alphabet: most endings come after


def words(text: str) -> list[str]:
    """The words of a text in small letters without accents, in order; dense scripts as whole runs."""
    return _WORD.findall(folded(text))


def folded(text: str) -> str:
    """A text in small letters without accents."""
    small = text.casefold()
    if small.isascii():
        return small
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", small)))


def terms(text: str) -> list[str]:
    """The terms of a text in order, stop words left out."""
    return [term for term, _ in worded(text)]


def worded(text: str) -> list[tuple[str, str]]:
    """The terms of a text in order, each with the word it comes from."""
    small = folded(text)
    if small.isascii():
        return [(term, word) for word in _WORD.findall(small) if (term := _TERMS[word])]
    found: list[tuple[str, str]] = []
    for word in _WORD.findall(small):
        if _DENSE_RUN.match(word):
            found.extend((pair, pair) for pair in pairs(word))
        elif term := _TERMS[word]:
            found.append((term, word))
    return found


def spelt(term: str, word: str) -> tuple[list[str], list[str]]:
    """How a term may be written where words are kept as they are: whole words, and beginnings of words.

    `word` is the one that the term comes from. Beginnings may be those of other words as well: who finds one has to
    look at its term.
    """
    whole = list(dict.fromkeys((word, term, *_INFLECTED.get(term, ()))))
    if not term.isalpha() or _DENSE_RUN.match(term):
        return whole, []
    if not term.isascii():
        return whole, [term] if len(term) == _STEM else []
    root = term.removesuffix("i")
    if len(root) > 3:
        return whole, list(dict.fromkeys((root, root.replace("ss", "ß"))))
    last = root[-1:]
    forms = [root + end for end in (*_ENDS, last + "ed", last + "ing", last + "er")]
    return list(dict.fromkeys((*whole, *(form for form in forms if stem(form) == term)))), []


def pairs(run: str) -> list[str]:
    """The overlapping pairs of characters of a run; a single one is itself."""
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


def stem(word: str) -> str:
    """A word of `words` without its ending."""
    if not word.isalpha():
        return word
    if not word.isascii():
        return word[:_STEM]
    word = _FORMS.get(word, word)
    if len(word) < 4 or word in _WHOLE:
        return word
    return _rooted(_uninflected(word))


def _uninflected(word: str) -> str:
    """Without plural, past and progressive."""
    if word.endswith(("ies", "ied")):
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zes", "oes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        rest = word.removesuffix(ending)
        if rest != word and len(rest) > 2 and _VOWEL.search(rest):
            return _FORMS.get(_single(rest), _single(rest))
    return word


def _single(word: str) -> str:
    """A doubled last letter once: "running" came from "run"; but "falling" from "fall", "missing" from "miss"."""
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz" else word


def _rooted(word: str) -> str:
    """Without what makes a noun of a verb and the like, and without a last e."""
    for size in range(7, 1, -1):
        stay = _ENDINGS.get(word[-size:], len(word))
        if len(word) - size >= stay:
            word = word[:-size]
            break
    if word.endswith("e") and len(word) > 3:
        word = word[:-1]
    return word[:-1] + "i" if word.endswith("y") and len(word) > 3 else word


def _inflected() -> dict[str, list[str]]:
    """By term: its irregular forms."""
    found: dict[str, list[str]] = {}
    for form in _FORMS:
        found.setdefault(stem(form), []).append(form)
    return found


_INFLECTED = _inflected()


class _Terms(dict[str, str]):
    """The terms of words, as far as they were needed; nothing for those that are left out."""

    def __missing__(self, word: str) -> str:
        if len(self) >= _KNOWN:
            self.clear()
        term = self[word] = "" if word in _STOP else stem(word[:_LONG])
        return term


_TERMS = _Terms()
