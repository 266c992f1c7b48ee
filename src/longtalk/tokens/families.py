"""Tokenizer families: which family a model belongs to, and how many tokens each feature of a text costs in a family.

The weights of a family come from `bench/fit_tokens.py`, which fits them to the real tokenizer. Claude has no public
tokenizer, so its weights are derived from those of `cl100k`.
"""

from __future__ import annotations

from functools import lru_cache

from longtalk.tokens.features import LATIN, LATIN_END

EXACT = {
    "o200k": "o200k_base",
    "cl100k": "cl100k_base",
    "llama3": "llama3",
    "qwen": "qwen3",
    "deepseek": "deepseek_v3",
    "gemma": "gemma3",
    "mistral": "mistral_v3",
    "glm": "glm4",
    "kimi": "kimi_k2",
}
"""The families for which the extra `[tokens]` has an exact tokenizer, with the names of these tokenizers."""

CALL_TOKENS = 8
"""The number of tokens that a tool call, a tool result or a tool definition has besides its name and content."""
FRAME_TOKENS = {"llama3": 5, "qwen": 5, "gemma": 5, "smollm2": 5, "claude": 5, "mistral": 3, "deepseek": 2, "glm": 2}
"""The number of tokens in each message for its role and delimiters. For families not listed here it is 4."""

DEFAULT_FAMILIES = {
    **dict.fromkeys(("openai", "openai-chat"), "o200k"),
    "anthropic": "claude",
    "gemini": "gemma",
    "local": "smollm2",
    "mistral": "mistral",
    "": "cl100k",
}
"""The family to assume, by provider, for a model whose name matches none of `MODEL_PATTERNS`.

For providers that are not listed it is `cl100k`, because most other tokenizers need slightly fewer tokens.
"""
MODEL_PATTERNS = (
    # Claude's tokenizer changed with Opus 4.7 and the fifth generation.
    (r"claude-(?:[23]|instant|(?:opus|sonnet|haiku)-4(?![-.][789]\b))", "claude3"),
    (r"claude", "claude"),
    (r"gpt-(?:4o|4\.[1-9]|[5-9]|oss)|chatgpt|\bo[1-9]\b", "o200k"),
    (r"gpt-[34]|phi-?4", "cl100k"),
    (r"smollm", "smollm2"),
    (r"qwen|qwq|qvq", "qwen"),
    (r"llama", "llama3"),
    (r"deepseek", "deepseek"),
    (r"gemini|gemma", "gemma"),
    (r"mi[sx]tral|ministral|codestral|magistral|devstral|pixtral", "mistral"),
    (r"glm", "glm"),
    (r"kimi|moonshot", "kimi"),
)
"""Pairs of a pattern for model names and the family of these models. The first pattern that matches applies."""

_WEIGHTS: dict[str, str] = {
    # As printed by `bench/fit_tokens.py`, in thousandths of a token.
    "o200k": """
        485 -263 -150 -73 1370 1767 -1976 760 1682 549 -518 904 -887 863 -624 -823 457 -618 68 -36 20 108 -318 926 1043
        -1548 1008 -1071 600 -167 1117 -855 57 -160 956 -723 -176 93 534 -141 186 380 749 -436 -175 -7 620 -336 53 311
        335 236 -347 -102 374 267 -357 103 26 -43 -631 436 2237 -1943 715 -241 1153 -604 -302 4655 -1129 0 -1778 0 -185
        3050 2483 -2796 1847 0 2650 0 168 531 5610 -6170 2479 -1957 402 414 78 447 838 -2946 1539 2548
    """,
    "cl100k": """
        456 -183 -217 -26 1366 1801 -2020 788 1797 512 -496 923 -905 697 -548 -792 583 -822 159 -115 -227 497 -465 1167
        885 -1308 946 -1343 1177 333 1344 -405 116 27 1472 -904 -626 425 1036 267 -205 657 668 402 -532 -108 489 1178
        -690 819 954 786 -83 -416 567 563 -56 -149 -291 177 -434 273 2228 -1352 480 -264 1756 -660 -1825 8012 -523 0
        -252 0 242 865 3226 -4892 2417 0 9280 0 1450 -513 7624 -6602 2746 -2039 1357 -282 367 730 1607 -9597 2669 1470
    """,
    "llama3": """
        482 -221 -213 -31 1395 1774 -1978 751 1759 523 -513 872 -855 771 -612 -789 578 -816 164 -115 -91 311 -314 1188
        2056 -3010 1508 -1340 161 -594 966 -564 -128 -91 887 -594 -129 40 1035 265 -196 628 362 121 -20 -35 314 531
        -366 835 955 788 -94 -400 290 258 151 -242 62 352 -799 507 1397 -563 -28 15 1164 -612 176 3806 -1701 0 -3097 0
        -1458 6762 2329 -3254 2404 0 7380 0 278 342 4448 -2923 464 57 305 238 420 907 2136 -6684 352 5052
    """,
    "qwen": """
        494 -244 -178 -59 1305 1924 -1245 442 1527 501 -481 950 -934 699 -701 -712 509 -705 93 -63 -208 484 -516 1264
        1195 -1766 1210 -1729 1104 -470 1716 -1004 364 -55 1271 -1036 -120 93 928 -647 180 380 1446 -1183 -311 98 775
        664 -612 547 927 479 -134 -100 236 281 380 -344 940 -840 -304 342 979 -78 -419 200 1334 -623 -1046 4770 -586 0
        -2102 0 4188 -2960 1343 -1589 1705 0 4827 0 -632 1530 1228 -464 478 22 142 225 -249 378 -3116 -4471 3355 4896
    """,
    "deepseek": """
        497 -280 -76 -162 1328 1821 -2051 738 1380 589 -541 991 -978 863 -705 -877 472 -623 -24 76 -352 705 -605 1127 9
        -49 279 -673 1043 922 911 -379 -152 21 1019 -723 -194 -17 658 -126 -2 390 599 -144 -157 -147 1953 -1726 255
        -1002 548 260 -311 -214 274 238 39 -222 511 522 -1294 1185 1419 -817 -106 133 1239 -461 -1039 5933 2185 0 671 0
        70 3343 901 -556 2188 0 3488 0 -319 569 3956 -3512 -693 808 -227 274 -382 232 469 -2001 2440 3431
    """,
    "gemma": """
        691 -531 -80 -159 1280 1913 -1324 363 1121 618 -602 966 -944 1101 -925 64 412 -569 43 57 -262 484 -435 1090 901
        -1349 889 -1141 664 -93 808 -367 -174 -65 886 -606 -280 139 627 -116 73 10 565 -217 -10 -180 783 -628 4 160 314
        95 -261 -102 190 203 142 -265 406 -122 -368 500 1252 -973 752 -434 1174 -753 45 5193 -668 0 -1612 0 -444 3649
        1796 -2205 1279 0 2164 0 764 -580 2179 -1346 260 -265 320 -183 -48 343 324 -3062 1123 1687
    """,
    "mistral": """
        522 -303 -110 -148 1483 1958 -1298 406 1482 566 -498 894 -877 986 -768 -970 574 -779 66 34 -226 472 -475 1103
        846 -1216 757 -1054 549 138 756 -278 -215 -46 846 -632 42 -95 783 -336 67 643 805 -539 -158 98 604 -227 70 402
        277 302 -109 -383 529 291 -335 23 575 -635 -420 525 2011 -1070 -195 268 1115 -734 1068 3889 -886 0 -1377 0 385
        3480 1921 -2697 3540 0 4720 0 -170 1652 5088 -5220 690 206 -516 1400 -153 195 513 -1097 1167 1496
    """,
    "glm": """
        549 -327 -151 -74 1420 1753 -1851 1072 1690 513 -500 956 -943 807 -775 -815 511 -706 90 -57 -163 378 -386 1019
        721 -1089 830 -1217 877 96 1151 -809 12 -115 925 -672 -188 103 1055 242 -209 675 513 -9 -82 141 504 1156 -683
        831 962 768 -65 -419 555 565 -32 -164 963 -668 -706 799 2077 -1652 94 183 1389 -470 -1011 3354 -387 0 -1412 0
        -149 4985 2059 -2769 2377 0 6881 0 -787 1060 5666 -4264 200 441 -502 881 335 715 999 -6036 1777 3303
    """,
    "kimi": """
        406 -141 -168 -67 1261 1713 -1851 711 1767 523 -518 1074 -1063 680 -483 -820 483 -660 59 -53 -351 810 -636 1169
        1371 -2029 1134 -1202 448 386 943 -289 25 -269 966 -465 -365 85 728 80 -260 1064 500 211 -371 19 668 94 -193 -4
        599 405 -230 -69 500 473 61 -284 1457 -651 -524 816 2352 -1876 -233 414 1440 -467 -1633 5858 -2186 0 100 0 229
        3629 2028 -3143 2433 0 3528 0 -1271 2305 6816 -7032 -1202 1158 -1502 1717 9 589 -251 -2622 772 2371
    """,
    "smollm2": """
        357 -82 -64 -297 1475 2279 -1766 508 780 635 -554 248 -241 775 126 141 475 -619 -121 284 -1048 1966 -1252 1806
        1959 -2906 1579 -1613 505 666 917 227 -337 284 943 139 -451 172 1114 359 -219 489 1557 -361 -412 -278 -219 2342
        -785 1141 1347 1125 -839 391 1205 965 208 -532 1152 633 -441 415 2428 -727 312 -199 2974 -275 235 189 -1342 0
        1965 0 1316 5300 3032 -3147 3154 0 3253 0 478 2290 2564 -171 -1540 2009 48 182 -680 -16 355 -2779 1050 392
    """,
}

# Anthropic publishes no tokenizer, so these factors are not fitted but estimated on the high side. Up to Claude 4.6, a
# text has as many tokens as with cl100k or slightly more. For the newer tokenizer (Opus 4.7, the fifth generation) the
# documentation states about 30 % more than before. Measurements with the counting endpoint found 1.2 to 1.45 times as
# many for prose in Latin letters, 1.15 to 1.35 for code, and about the same as before for other scripts.
_DERIVED = {"claude3": (1.12, 1.1, 1.05), "claude": (1.5, 1.25, 1.05)}
"""By family, the factors for the weights of cl100k: for words; for digits, signs and blanks; for other scripts."""

FAMILIES = (*EXACT, "smollm2", *_DERIVED)


@lru_cache
def get_weights(family: str) -> tuple[float, ...]:
    """Return the weights of a family: the number of tokens that each of `FEATURES` costs, in the same order."""
    if family not in _DERIVED:
        return tuple(int(cost) / 1000 for cost in _WEIGHTS[family].split())
    words, signs, scripts = _DERIVED[family]
    digits, wordy, others = LATIN.index("digits"), len(LATIN), LATIN_END + 2
    return tuple(
        cost * (words if i < digits or wordy <= i < others else signs if i < wordy else scripts)
        for i, cost in enumerate(get_weights("cl100k"))
    )
