"""Text that is quoted to a model: wrapped in a tag that the text can't close, or with its middle cut out."""

from __future__ import annotations

from longtalk._util.lookalikes import neutralize


def wrap_in_tag(tag: str, text: str) -> str:
    """Return the text between `<tag>` and `</tag>`, with every such tag inside the text escaped."""
    return f"<{tag}>\n{neutralize(text, (tag,))}\n</{tag}>"


def cut_middle(text: str, keep: int) -> str:
    """Return a text without its middle: at most `keep` characters, and a note that says how many are left out."""
    if len(text) <= keep:
        return text
    head, tail = keep - keep // 3, keep // 3
    return f"{text[:head]}\n[… {len(text) - head - tail:,} characters are left out here …]\n{text[len(text) - tail :]}"
