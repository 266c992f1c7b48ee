"""Draw simulated runs as a picture in SVG or PNG: the tokens of each request, a line for each policy."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from longtalk.errors import MissingExtra

_COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e")
_WIDTH, _HEIGHT, _LEFT, _TOP, _LEGEND = 720, 320, 70, 40, 22


def to_svg(title: str, series: Sequence[tuple[str, Sequence[int]]]) -> str:
    """Return a picture of the requests of each series, given by its name and the tokens of its requests in order."""
    top = max((max(values, default=0) for _, values in series), default=0) or 1
    height = _TOP + _HEIGHT + 40 + _LEGEND * len(series)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 20} {height}" '
        'font-family="DejaVu Sans, Arial, sans-serif" font-size="13">',
        f'<rect width="100%" height="100%" fill="#fff"/><text x="{_LEFT}" y="22">{escape(title)}</text>',
    ]
    for quarter in range(5):
        y = _TOP + _HEIGHT - quarter * _HEIGHT / 4
        lines.append(f'<path d="M{_LEFT} {y:.0f}h{_WIDTH}" stroke="#ddd"/>')
        lines.append(f'<text x="{_LEFT - 8}" y="{y + 4:.0f}" text-anchor="end">{top * quarter // 4:,}</text>')
    for number, (name, values) in enumerate(series):
        colour = _COLOURS[number % len(_COLOURS)]
        step = _WIDTH / max(1, len(values) - 1)
        points = " ".join(
            f"{_LEFT + i * step:.1f},{_TOP + _HEIGHT - value * _HEIGHT / top:.1f}" for i, value in enumerate(values)
        )
        y = _TOP + _HEIGHT + 30 + _LEGEND * number
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        lines.append(f'<path d="M{_LEFT} {y - 4}h24" stroke="{colour}" stroke-width="4"/>')
        lines.append(f'<text x="{_LEFT + 34}" y="{y}">{escape(name)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def to_png(svg: str) -> bytes:
    """Return a picture in SVG as PNG, twice as large. Raise `MissingExtra` if `resvg_py` is not installed."""
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        raise MissingExtra("A picture in PNG needs resvg-py: pip install 'longtalk[plot]'.") from None
    return bytes(svg_to_bytes(svg_string=svg, zoom=2))
