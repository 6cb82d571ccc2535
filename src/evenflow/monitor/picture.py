"""The live view as a picture: SVG text that looks the same in every renderer."""

from __future__ import annotations

import io
import re
from typing import Final

from rich.console import Console, RenderableType

WIDTH: Final = 112
"""Characters."""

_SPAN: Final = re.compile(r'<text class="([^"]*)" x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)"([^>]*)>((?:&#160;)+)([^<]*)</text>')


def picture(view: RenderableType, title: str, width: int = WIDTH) -> str:
    """What a terminal of `width` characters shows, as SVG."""
    console = Console(
        width=width, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor", markup=False, emoji=False
    )
    console.print(view)
    return _SPAN.sub(_moved, console.export_svg(title=title))


def _moved(span: re.Match[str]) -> str:
    """Some renderers drop blanks at the start of a text: move the text instead."""
    style, x, y, length, more, blanks, text = span.groups()
    lead, rest = blanks.count("&#160;"), len(re.sub(r"&#?\w+;", "x", text))
    if rest == 0:
        return span.group()
    cell = float(length) / (lead + rest)
    start, long = float(x) + lead * cell, rest * cell
    return f'<text class="{style}" x="{start:g}" y="{y}" textLength="{long:g}"{more}>{text}</text>'
