"""Texts that are compared exactly with files under tests/snapshots.

To rewrite them after a change that is meant, set SPECREF_SNAPSHOTS=write, run the tests, and read
the difference in version control.
"""

import os
from pathlib import Path

PLACE = Path(__file__).with_name("snapshots")


def check(name, text):
    """Compare a text with its file, or write the file."""
    path = PLACE / f"{name}.txt"
    if os.environ.get("SPECREF_SNAPSHOTS") == "write":
        PLACE.mkdir(exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == path.read_text(encoding="utf-8")


def left_over(names):
    """Return the files that no test asks for."""
    return sorted({path.stem for path in PLACE.iterdir()} - set(names))
