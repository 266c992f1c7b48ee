"""Terms: the normalized words that recall compares.

A term is a word without case, accents and ending: "Adopted" and "adopting" both become `adopt`. English stop words are
left out; in other languages frequent words get a low weight instead. Irregular English forms share a term ("bought",
"buy"). Scripts without spaces, and Korean, whose words carry particles, are split into overlapping pairs of characters.
Every string is accepted, even one with lone surrogates.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["char_pairs", "fold", "spellings", "stem", "terms", "terms_with_words", "words"]

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
    """Return the words of a text in order, in lower case and without accents.

    In a script without spaces, each unbroken run of characters is returned as one word.
    """
    return _WORD.findall(fold(text))


def fold(text: str) -> str:
    """Return a text in lower case and without accents."""
    small = text.casefold()
    if small.isascii():
        return small
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", small)))


def terms(text: str) -> list[str]:
    """Return the terms of a text in order, without stop words."""
    return [term for term, _ in terms_with_words(text)]


def terms_with_words(text: str) -> list[tuple[str, str]]:
    """Return the terms of a text in order, each with the word that it comes from, without stop words."""
    small = fold(text)
    if small.isascii():
        return [(term, word) for word in _WORD.findall(small) if (term := _TERMS[word])]
    found: list[tuple[str, str]] = []
    for word in _WORD.findall(small):
        if _DENSE_RUN.match(word):
            found.extend((pair, pair) for pair in char_pairs(word))
        elif term := _TERMS[word]:
            found.append((term, word))
    return found


def spellings(term: str, word: str) -> tuple[list[str], list[str]]:
    """Return how a term may appear in plain text: as one of these words, or in words with one of these beginnings.

    `word` is the word that the term comes from. Unrelated words may share a beginning, so callers must check the term
    of each match.
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


def char_pairs(run: str) -> list[str]:
    """Return the overlapping pairs of characters in a run; a run of one character is returned unchanged."""
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


def stem(word: str) -> str:
    """Return the term for a word, which must be in the form that `words` returns."""
    if not word.isalpha():
        return word
    if not word.isascii():
        return word[:_STEM]
    word = _FORMS.get(word, word)
    if len(word) < 4 or word in _WHOLE:
        return word
    return _rooted(_uninflected(word))


def _uninflected(word: str) -> str:
    """Return an English word without the endings of plural, past tense and progressive form."""
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
    """Return a word without a doubled last letter: "runn" becomes "run", but "fall" and "miss" stay unchanged."""
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz" else word


def _rooted(word: str) -> str:
    """Return a word without derivational suffixes such as "-ment" and "-able", and without a final "e"."""
    for size in range(7, 1, -1):
        stay = _ENDINGS.get(word[-size:], len(word))
        if len(word) - size >= stay:
            word = word[:-size]
            break
    if word.endswith("e") and len(word) > 3:
        word = word[:-1]
    return word[:-1] + "i" if word.endswith("y") and len(word) > 3 else word


def _inflected() -> dict[str, list[str]]:
    """Return the irregular English forms of each term that has any."""
    found: dict[str, list[str]] = {}
    for form in _FORMS:
        found.setdefault(stem(form), []).append(form)
    return found


_INFLECTED = _inflected()


class _Terms(dict[str, str]):
    """A bounded cache that maps words to their terms. A stop word is mapped to an empty term."""

    def __missing__(self, word: str) -> str:
        if len(self) >= _KNOWN:
            self.clear()
        term = self[word] = "" if word in _STOP else stem(word[:_LONG])
        return term


_TERMS = _Terms()
