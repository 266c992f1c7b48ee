"""Draw what `longtalk demo` prints as a picture for the README.

python tools/demo_picture.py
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

from longtalk.cli.demo import list_lines

TARGET = Path(__file__).parents[1] / "docs/images/demo.svg"
STYLES = {"title": "bold", "user": "cyan", "note": "green"}


def draw() -> str:
    """Return the picture as SVG: the title, the last scenes and the sum."""
    lines = list(list_lines(79))
    console = Console(record=True, width=80, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    # The last two scenes, each of which begins after an empty line, and the sum.
    blanks = [i for i, line in enumerate(lines) if not line.text]
    for line in [*lines[:1], *lines[blanks[-4] :]]:
        console.print(Text(line.text, STYLES.get(line.style, "")))
    picture = console.export_svg(title="longtalk demo", unique_id="demo")
    # A page that shows the picture must not load fonts from elsewhere.
    return re.sub(r"@font-face {.*?}\s*", "", picture, flags=re.DOTALL)


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(draw())
    print(f"{TARGET.name}: {TARGET.stat().st_size:,} bytes")
