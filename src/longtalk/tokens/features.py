"""The features of a text that determine how many tokens it has.

A tokenizer cuts a text into words, numbers, punctuation and blanks, and cuts rare or long ones further. This module
counts what these cuts depend on, the features in `FEATURES`: runs of letters by length, capitals, digits, punctuation,
indents, accented letters, and runs of letters in each script. The estimated number of tokens in a text is the sum of
its features, each times its weight in a tokenizer family (see `families.py`).

All characters of a text are processed at once. Each becomes an octal digit, and the text one long number. A run of
letters is then a run of bits, and one shift and one `and` find every position where a run continues. Counting a feature
takes half a microsecond for 2,000 characters, and the time is linear in the length of any text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import mul

BLOCK_CHARS = 1 << 16
"""The number of characters that are processed at once."""

# Octal digits for character classes. Their bits: 1 for letter or digit, 2 for blank or digit, 4 for capital or newline.
_SIGN, _LETTER, _BLANK, _DIGIT, _CAPITAL, _NEWLINE = b"012356"

_RUNS = ("letters", "letters2", "letters5", "letters10")
LATIN = (
    *_RUNS,
    *("capital_after_small", "digits", "digits2", "digits4", "digit_after_blank"),
    *("signs", "signs3", "blanks2", "blanks3"),
    *("newlines", "newlines2", "newline_after_sign"),
)
_BLANKS_INDEX = LATIN.index("blanks2")

# Scripts by the high byte of UTF-16, with the run lengths to count. Surrogates are almost always emoji.
_LONG, _SHORT = (1, 2, 5, 9), (1, 2)
_SCRIPTS: dict[str, tuple[tuple[range, ...], tuple[int, ...]]] = {
    "greek": ((range(0x03, 0x04), range(0x1F, 0x20)), _LONG),
    "cyrillic": ((range(0x04, 0x05),), _LONG),
    "hebrew": ((range(0x05, 0x06),), _LONG),
    "arabic": ((range(0x06, 0x09),), _LONG),
    "devanagari": ((range(0x09, 0x0A),), _LONG),
    "indic": ((range(0x0A, 0x0E),), _LONG),
    "thai": ((range(0x0E, 0x10),), _LONG),
    "kana": ((range(0x30, 0x31),), _LONG),
    "han": ((range(0x34, 0xA0),), _LONG),
    "hangul": ((range(0xAC, 0xD8),), _LONG),
    "phonetic": ((range(0x02, 0x03),), _SHORT),
    "vietnamese": ((range(0x1E, 0x1F),), _SHORT),
    "typographic": ((range(0x20, 0x21),), _SHORT),
    "symbols": ((range(0x21, 0x30),), _SHORT),
    "surrogates": ((range(0xD8, 0xDC),), _SHORT),
    "selectors": ((range(0xFE, 0xFF),), _SHORT),
    "wide": ((range(0xFF, 0x100),), _SHORT),
    "other": ((range(0x10, 0x1E), range(0x31, 0x34), range(0xA0, 0xAC), range(0xE0, 0xFE)), _SHORT),
}

FEATURES = (
    *LATIN,
    # English words cost fewer tokens than those of related languages, and accents distinguish Polish from French.
    *(f"{name} {where}" for where in ("english", "accented", "eastern") for name in _RUNS),
    *("accents", "eastern"),
    *(f"{script}{run}" for script, (_, runs) in _SCRIPTS.items() for run in runs),
    *("katakana", "katakana2", "hiragana", "hiragana2", "emoji_3c", "emoji_3e", "joiners", "variants"),
    *("ukrainian", "bulgarian"),  # each by a letter that Russian doesn't have, or hardly uses
)
"""The names of all features that are counted, in the order of a family's weights."""
LATIN_END = FEATURES.index("accents")
_SCRIPTS_END = FEATURES.index("katakana")


def _build_class_table() -> bytes:
    """Return a table that maps each byte of Latin-1 to the octal digit of its character class."""

    def digit(char: str) -> int:
        if char.isspace():
            return _NEWLINE if char in "\r\n" else _BLANK
        if char.isalpha():
            return _CAPITAL if char.isupper() else _LETTER
        return _DIGIT if "0" <= char <= "9" else _SIGN

    return bytes(map(digit, map(chr, range(256))))


def _build_table(*ranges: range, yes: bytes = b"1", no: bytes = b"0") -> bytes:
    """Return a table for `bytes.translate` that maps bytes in the ranges to `yes` and all others to `no`."""
    table = bytearray(no * 256)
    for codes in ranges:
        table[codes.start : codes.stop] = yes * len(codes)
    return bytes(table)


_CLASS_TABLE = _build_class_table()
_LATIN1_TABLE, _EASTERN_TABLE = _build_table(range(1), yes=b"7"), _build_table(range(1, 2))
_ACCENTED_TABLE = _build_table(range(0xC0, 0x100))
_KATAKANA_TABLE, _HIRAGANA_TABLE = _build_table(range(0xA0, 0x100)), _build_table(range(0x40, 0xA0))
_KANA_TABLE = _build_table(range(0x30, 0x31))
# For each script: its first high byte, the table of its bytes, the run lengths to count, the index of its features.
_SCRIPT_FEATURES = [
    (codes[0].start, _build_table(*codes), runs, FEATURES.index(f"{name}1")) for name, (codes, runs) in _SCRIPTS.items()
]
_SCRIPT_TABLE = bytearray(b"\xff" * 256)
"""For each high byte of a UTF-16 character, the first high byte of the same script."""
for _codes, _ in _SCRIPTS.values():
    for _part in _codes:
        _SCRIPT_TABLE[_part.start : _part.stop] = bytes((_codes[0].start,)) * len(_part)


@lru_cache(maxsize=32)
def _repeat_octal_one(size: int) -> int:
    """Return the number that is written in octal as `size` ones."""
    return int(b"1" * size, 8)


def _set_lowest_bits(size: int) -> int:
    """Return a number with three bits for each of `size` characters, of which only the lowest is set."""
    power = 1 << (size - 1).bit_length()
    return _repeat_octal_one(power) >> 3 * (power - size)


def split_blocks(text: str) -> list[str]:
    """Split a text into blocks that are small enough to be counted at once."""
    return [text[start : start + BLOCK_CHARS] for start in range(0, len(text), BLOCK_CHARS)]


def estimate(block: str, weights: tuple[float, ...]) -> float:
    """Return the estimated number of tokens in a block: the sum of its features, each times its weight."""
    (_, latin), *more = count_features(block)
    tokens: float = sum(map(mul, latin, weights))
    for position, values in more:
        tokens += sum(map(mul, values, weights[position : position + len(values)]))
    # The weights were fitted on real text. For unnatural text, such as a page of one letter, a minimum applies.
    blanks = latin[_BLANKS_INDEX]
    return max(tokens, (len(block) - blanks) / 8 + blanks / 128)


def count_features(block: str) -> list[tuple[int, Sequence[float]]]:
    """Count the features of a block.

    Return groups of consecutive features, each as the index in `FEATURES` of its first feature, and the counts of that
    and the following features. Features that are in no group have a count of zero.
    """
    if block.isascii():
        classes = int(block.encode().translate(_CLASS_TABLE), 8)
        return [(0, _count_latin(classes, _set_lowest_bits(len(block)), block, 0, 0))]
    units = block.encode("utf-16-le", "surrogatepass")
    low, high = units[::2], units[1::2]
    latin1, eastern = int(high.translate(_LATIN1_TABLE), 8), int(high.translate(_EASTERN_TABLE), 8)
    accents, extended = (int(low.translate(_ACCENTED_TABLE), 8) & latin1).bit_count(), eastern.bit_count()
    classes = int(low.translate(_CLASS_TABLE), 8) & latin1 | eastern
    latin = _count_latin(classes, (latin1 | eastern) & _set_lowest_bits(len(low)), block, accents, extended)
    groups: list[tuple[int, Sequence[float]]] = [(0, latin), (LATIN_END, (accents, extended))]
    scripts = high.translate(_SCRIPT_TABLE)
    for script, table, runs, index in _SCRIPT_FEATURES:
        if script in scripts:
            groups.append((index, _count_runs(int(high.translate(table), 2), runs)))
    if 0x30 in high:
        kana = int(high.translate(_KANA_TABLE), 2)
        katakana = int(low.translate(_KATAKANA_TABLE), 2) & kana
        hiragana = int(low.translate(_HIRAGANA_TABLE), 2) & kana
        groups.append((_SCRIPTS_END, (*_count_runs(katakana, _SHORT), *_count_runs(hiragana, _SHORT))))
    if 0xD8 in high or 0xFE in high:
        emoji = (units.count(b"\x3c\xd8"), units.count(b"\x3e\xd8"), block.count("\u200d"), block.count("\ufe0f"))
        groups.append((_SCRIPTS_END + 4, emoji))
    if 0x04 in high:
        groups.append((_SCRIPTS_END + 8, (block.count("і"), block.count("ъ"))))
    return groups


def _count_runs(bits: int, lengths: tuple[int, ...]) -> list[int]:
    """Return, for each length, how many characters are preceded by at least `length - 1` others in the same run.

    In `bits`, each set bit is a character that belongs to a run.
    """
    counts, length = [], 1
    for wanted in lengths:
        while length < wanted:
            step = min(length, wanted - length)
            bits &= bits >> step
            length += step
        counts.append(bits.bit_count())
    return counts


def _count_latin(classes: int, lowest_bits: int, block: str, accents: int, eastern: int) -> list[float]:
    """Return the counts of the features of Latin letters, digits, punctuation and blanks.

    `classes` has an octal digit for each character, and `lowest_bits` selects the characters to count. `accents` and
    `eastern` are the numbers of accented letters in Latin-1 and beyond it.
    """
    # A character is three bits below the one before it: `a & b >> 3` marks each `a` that follows a `b`.
    first, second, third = classes & lowest_bits, classes >> 1 & lowest_bits, classes >> 2 & lowest_bits
    digits = first & second
    letters, spaces = first ^ digits, second ^ digits
    capitals, newlines = letters & third, spaces & third
    blanks, signs = spaces ^ newlines, lowest_bits & ~(first | second)
    letters2, digits2, blanks2 = letters & letters >> 3, digits & digits >> 3, blanks & blanks >> 3
    letters5 = letters2 & letters2 >> 6 & letters2 >> 9
    runs = (letters.bit_count(), letters2.bit_count(), letters5.bit_count(), (letters5 & letters5 >> 15).bit_count())
    counts: list[float] = [
        *runs,
        (capitals & (letters ^ capitals) >> 3).bit_count(),
        digits.bit_count(),
        digits2.bit_count(),
        (digits2 & digits2 >> 6).bit_count(),
        (digits & blanks >> 3).bit_count(),
        signs.bit_count(),
        (signs & signs >> 3 & signs >> 6).bit_count(),
        blanks2.bit_count(),
        (blanks2 & blanks >> 6).bit_count(),
        newlines.bit_count(),
        (newlines & newlines >> 3).bit_count(),
        (newlines & signs >> 3).bit_count(),
    ]
    # How English, French or Polish a text is, from 0 to 1: by its share of "the" and of accented letters.
    letter_count = runs[0] or 1
    english, accented = (
        min(1.0, block.count(" the ") * 80 / letter_count),
        min(1.0, (accents + eastern) / (0.03 * letter_count)),
    )
    shares = (english, accented, min(1.0, eastern / (0.03 * letter_count))) if accented else (english,)
    for share in shares:
        counts += (runs[0] * share, runs[1] * share, runs[2] * share, runs[3] * share)
    return counts
