"""Terms: the normalized words that recall compares.

A term is a word in lower case, without accents and without its ending: "Adopted" and "adopting" both become `adopt`.
English stop words are left out; in other languages, frequent words get a low weight instead. Irregular English forms
share a term ("bought", "buy"). Text in scripts without spaces, and in Korean, whose words carry particles, is split
into overlapping pairs of characters. Every string is accepted, even one with lone surrogates.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = [
    "extract_terms",
    "extract_terms_with_words",
    "fold",
    "list_spellings",
    "split_char_pairs",
    "split_words",
    "stem",
]

_STOP_WORD_LIST = """
    a about after again all also am an and any anybody anyone anything are aren as at be because been before being
    both but by can cannot could couldn d did didn do does doesn doing don done else ever every for from get gets
    getting got had hadn has hasn have haven having he her here hers herself hey hi him himself his how i if in into
    is isn it its itself just let ll m may me might mine more most much must my myself no nor not now of off oh ok
    okay on once one or other our ours ourselves out own please quite rather re really s same shall she should
    shouldn so some such t than that the their theirs them themselves then there these they this those through to
    too up upon us ve very was wasn we were weren what when where whether which while who whom whose why will with
    won would wouldn yes you your yours yourself yourselves
"""
_STOP_WORDS = frozenset(_STOP_WORD_LIST.split())
# Groups of irregular forms. The last word of a group is the base form of the others.
_IRREGULAR_GROUPS = """
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
# Words that end like an inflected form but are not one.
_UNSTEMMED = frozenset(("business", "news", "series", "species", "lens", "during", "evening", "morning"))
_BASE_FORMS = {form: group.split()[-1] for group in _IRREGULAR_GROUPS.split("|") for form in group.split()[:-1]}
# Scripts without spaces between words, and Hangul.
_DENSE = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
# Indic scripts, whose words contain combining signs that `\w` does not match.
_COMBINING = "\u0900-\u0963\u0966-\u0dff"
_ACCENTS = re.compile("[\u0300-\u036f\u0591-\u05c7\u064b-\u0652\u0670]")
_WORD = re.compile(rf"[{_DENSE}]+|(?:[^\W_{_DENSE}]|[{_COMBINING}])+(?:[.,][0-9]+)*")
_DENSE_CHAR = re.compile(rf"[{_DENSE}]")
# Suffixes that are removed from an English word, by the minimum number of letters that must remain.
_SUFFIXES_BY_MIN_REST = {
    4: "fulness ousness iveness ization isation ment ness able ible less ful ist ism ion ly",
    5: "ation ance ence ancy ency ality ivity ity ate at ize ise ive ous ant ent al er or ic",
}
_MIN_REST_BY_SUFFIX = {
    suffix: min_rest for min_rest, suffixes in _SUFFIXES_BY_MIN_REST.items() for suffix in suffixes.split()
}
_VOWEL = re.compile("[aeiouy]")
# Endings that a short term may have in a text. `list_spellings` discards the endings that `stem` would not remove.
_SHORT_TERM_ENDINGS = (
    "s",
    "es",
    "ed",
    "ing",
    "e",
    "y",
    "ie",
    "ies",
    "ied",
    "er",
    "ers",
    "ly",
    "al",
    "ion",
    "ive",
    "able",
)
_MAX_WORD_CHARS = 64  # the remaining characters of a longer word are ignored
_MAX_CACHED_WORDS = 65_536
_STEM_CHARS = 6  # of a word in another alphabet; most endings come after its first six characters


def split_words(text: str) -> list[str]:
    """Return the words of a text in order, in lower case and without accents.

    In a script without spaces, each unbroken run of characters is returned as one word.
    """
    return _WORD.findall(fold(text))


def fold(text: str) -> str:
    """Return a text in lower case and without accents."""
    folded = text.casefold()
    if folded.isascii():
        return folded
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFKD", folded)))


def extract_terms(text: str) -> list[str]:
    """Return the terms of a text in order, without stop words."""
    return [term for term, _ in extract_terms_with_words(text)]


def extract_terms_with_words(text: str) -> list[tuple[str, str]]:
    """Return the terms of a text in order, without stop words, each with the word that it was made from."""
    folded = fold(text)
    if folded.isascii():
        return [(term, word) for word in _WORD.findall(folded) if (term := _term_cache[word])]
    found: list[tuple[str, str]] = []
    for word in _WORD.findall(folded):
        if _DENSE_CHAR.match(word):
            found.extend((pair, pair) for pair in split_char_pairs(word))
        elif term := _term_cache[word]:
            found.append((term, word))
    return found


def list_spellings(term: str, word: str) -> tuple[list[str], list[str]]:
    """Return the forms in which a term may appear in plain text: a list of whole words, and a list of word prefixes.

    `word` is the word that the term was made from. Unrelated words may have the same prefix, so callers must check
    whether a matching word really has this term.
    """
    whole = list(dict.fromkeys((word, term, *_IRREGULAR_FORMS.get(term, ()))))
    if not term.isalpha() or _DENSE_CHAR.match(term):
        return whole, []
    if not term.isascii():
        return whole, [term] if len(term) == _STEM_CHARS else []
    root = term.removesuffix("i")
    if len(root) > 3:
        return whole, list(dict.fromkeys((root, root.replace("ss", "ß"))))
    last = root[-1:]
    forms = [root + end for end in (*_SHORT_TERM_ENDINGS, last + "ed", last + "ing", last + "er")]
    return list(dict.fromkeys((*whole, *(form for form in forms if stem(form) == term)))), []


def split_char_pairs(run: str) -> list[str]:
    """Return the overlapping pairs of characters in a run; a run of one character is returned unchanged."""
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


def stem(word: str) -> str:
    """Return the term for a word. The word must be in lower case and without accents, as `split_words` returns it."""
    if not word.isalpha():
        return word
    if not word.isascii():
        return word[:_STEM_CHARS]
    word = _BASE_FORMS.get(word, word)
    if len(word) < 4 or word in _UNSTEMMED:
        return word
    return _strip_suffixes(_strip_inflection(word))


def _strip_inflection(word: str) -> str:
    """Return an English word without its ending for the plural ("-s"), the past ("-ed") or the progressive ("-ing")."""
    if word.endswith(("ies", "ied")):
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zes", "oes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        rest = word.removesuffix(ending)
        if rest != word and len(rest) > 2 and _VOWEL.search(rest):
            return _BASE_FORMS.get(_undouble(rest), _undouble(rest))
    return word


def _undouble(word: str) -> str:
    """Return a word with a doubled last letter made single ("runn" becomes "run"), except for "ll", "ss" and "zz"."""
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz" else word


def _strip_suffixes(word: str) -> str:
    """Return a word without a suffix such as "-ment" or "-able", without a final "e", and with a final "y" as "i"."""
    for size in range(7, 1, -1):
        min_rest = _MIN_REST_BY_SUFFIX.get(word[-size:], len(word))
        if len(word) - size >= min_rest:
            word = word[:-size]
            break
    if word.endswith("e") and len(word) > 3:
        word = word[:-1]
    return word[:-1] + "i" if word.endswith("y") and len(word) > 3 else word


def _group_irregular_forms() -> dict[str, list[str]]:
    """Return the irregular English forms of each term that has any, by term."""
    found: dict[str, list[str]] = {}
    for form in _BASE_FORMS:
        found.setdefault(stem(form), []).append(form)
    return found


_IRREGULAR_FORMS = _group_irregular_forms()


class _TermCache(dict[str, str]):
    """A cache of limited size that maps words to their terms, and stop words to an empty string."""

    def __missing__(self, word: str) -> str:
        if len(self) >= _MAX_CACHED_WORDS:
            self.clear()
        term = self[word] = "" if word in _STOP_WORDS else stem(word[:_MAX_WORD_CHARS])
        return term


_term_cache = _TermCache()
