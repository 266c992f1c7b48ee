"""Read the description and the parameters from a docstring in Google, NumPy or Sphinx style."""

from __future__ import annotations

import re

_PARAMETERS = "(?:(?:keyword|other) )?(?:args|arguments|parameters|params)"
_SECTIONS = "returns?|yields?|receives?|raises|exceptions|warns|attributes|see also|references|todo"
_NAMED_FIELDS = "param|parameter|arg|argument|key|keyword"
_FIELDS = "type|returns?|rtype|yields?|ytype|raises?|except|exception|meta"


def parse_docstring(doc: str) -> tuple[str, dict[str, str]]:
    """Return the text before the first section of a docstring, and the descriptions of the parameters by name."""
    from inspect import cleandoc

    lines = cleandoc(doc).splitlines()
    text: list[str] = []
    descriptions: dict[str, str] = {}
    style, names, margin = "text", [""], 0
    for line, below in zip(lines, [*lines[1:], ""], strict=False):
        words = line.strip()
        indent = len(line) - len(line.lstrip())
        if words and not indent:
            header = re.match(rf"(?:({_PARAMETERS})|{_SECTIONS})(:|$)", words, re.I)
            underlined = re.fullmatch("-{3,}", below)
            field = re.match(rf":(?:(?:{_NAMED_FIELDS})\b([^:]+)|(?:{_FIELDS})\b[^:]*):(.*)", words)
            if header and (header[2] or underlined):
                style, names, margin = "out" if not header[1] else "numpy" if underlined else "google", [], 0
                continue
            if field:
                style, names, words = "sphinx", (field[1] or "").split()[-1:], field[2].strip()
            elif style == "numpy" and not underlined:
                names, words = [name.strip(" *") for name in words.partition(":")[0].split(",")], ""
            elif style != "text":
                style, names = "out", []
        elif words and style == "google":
            margin = margin or indent
            entry = re.match(r"[-*\s]*(\w+)(?:\s*\(.*?\))?\s*:(?:\s+|$)(.*)", words)
            if entry and indent <= margin:
                names, words = [entry[1]], entry[2]
        if style == "text":
            text.append(line)
        for name in names if style != "text" else ():
            descriptions[name] = f"{descriptions.get(name, '')} {words}".strip()
    return "\n".join(text).strip(), descriptions
