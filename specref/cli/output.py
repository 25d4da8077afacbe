"""What the commands print, and where: reports on stdout, what is wrong on stderr."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specref.gate.errors import UsageError
from specref.picture import drawable


def complain(text: str) -> None:
    """Tell what is wrong, on stderr."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"specref: {text}\n")
        sys.stderr.flush()
    except OSError:  # the exit code still tells
        drop(sys.stderr)


def drop(stream: TextIO) -> None:
    """Let what is left in a buffer go nowhere, lest Python fail with it when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def say(text: str) -> None:
    """Print a line to stdout."""
    write(text + "\n")


def write(text: str) -> None:
    """Write to stdout; a reader that has gone is no error, and the exit code still tells."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        drop(sys.stdout)


def print_all(things: Iterable[Any], width: int | None = None) -> None:
    """Print Text and tables to stdout, with colour if it is a terminal that has some."""
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        for thing in things:
            console.print(thing, soft_wrap=isinstance(thing, Text))
    write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; piped or on a narrow terminal, one line per row, with nothing cut off."""
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for at, head in enumerate(heads):
        grid.add_column(head, overflow="fold", no_wrap=at + 1 < len(heads))
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    columns = list(zip(heads, *rows, strict=True))[:-1]
    beside = sum(max(map(len, column)) + 2 for column in columns)
    fits = sys.stdout.isatty() and Console().width >= beside + 20
    print_all([grid], None if fits else 1000)


def fraction(value: Any) -> str:
    """Write a number as a fraction, where it is short, and as a decimal."""
    exact = str(value)
    if "/" not in exact:
        return exact
    return f"{exact} = {float(value):.4f}" if len(exact) <= 16 else f"{float(value):.6g}"


def writable_file(option: str, name: str) -> None:
    """Refuse a file that cannot be written, before the work is done."""
    place = Path(name)
    if place.is_dir():
        raise UsageError(f"{option} {name} is a directory; name a file")
    if not os.access(place.parent, os.W_OK):
        why = "is not writable" if place.parent.exists() else "does not exist"
        raise UsageError(f"{option} {name} cannot be written; {place.parent} {why}")


def drawable_file(option: str, name: str) -> None:
    """Refuse a picture that cannot be written, before the work is done."""
    try:
        drawable(name)
    except ValueError as error:
        raise UsageError(f"{option} {error}") from None
    writable_file(option, name)


@contextmanager
def writing(option: str, place: str) -> Iterator[None]:
    """Name the option whose file cannot be written."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{option} {place} cannot be written: {error.strerror}") from None
