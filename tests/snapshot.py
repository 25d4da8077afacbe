"""Texts that are compared exactly with files under tests/snapshots, and texts in pictures.

To rewrite them after a change that is meant, set SPECREF_SNAPSHOTS=write, run the tests, and read
the difference in version control.
"""

import io
import os
import re
from pathlib import Path

from rich.console import Console

PLACE = Path(__file__).with_name("snapshots")


def check(name, text):
    """Compare a text with its file, or write the file."""
    path = PLACE / f"{name}.txt"
    if os.environ.get("SPECREF_SNAPSHOTS") == "write":
        PLACE.mkdir(exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == path.read_text(encoding="utf-8")


def check_picture(path, lines, title, width):
    """Compare what a picture of a terminal says with lines of rich text, or write the picture."""
    console = Console(
        record=True, width=width, file=io.StringIO(), force_terminal=True,
        color_system="truecolor", _environ={},
    )  # fmt: skip
    for line in lines:
        console.print(line, highlight=False)
    picture = console.export_svg(title=title)
    if os.environ.get("SPECREF_SNAPSHOTS") == "write":
        path.write_text(picture, encoding="utf-8")
    said = re.compile(r"<text[^>]*>(.*?)</text>")  # the rest changes with the version of rich
    assert said.findall(path.read_text(encoding="utf-8")) == said.findall(picture)


def left_over(names):
    """Return the files that no test asks for."""
    return sorted({path.stem for path in PLACE.iterdir()} - set(names))
