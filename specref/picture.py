"""Pictures in files: one way to write them, and the same bytes for the same picture."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

KINDS = (".svg", ".png")
"""Endings of files that can be written."""

_STYLE = {
    "svg.hashsalt": "specref",
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "hatch.linewidth": 0.8,
}


def drawable(path: str | Path) -> None:
    """Refuse what `picture` could not write.

    Raises:
        ValueError: a name that does not end in .svg or .png, or matplotlib is missing.
    """
    if Path(path).suffix not in KINDS:
        raise ValueError(f"{path} does not end in {' or '.join(KINDS)}; pictures are such files")
    if find_spec("matplotlib") is None:
        raise ValueError("a picture needs matplotlib; pip install 'specref[map]'")


@contextmanager
def picture(path: str | Path, size: tuple[float, float]) -> Iterator[Any]:
    """Give an empty figure of a size in inches, and write what was drawn on it.

    Raises:
        ValueError: as `drawable`.
        OSError: the file cannot be written.
    """
    drawable(path)
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    kind = Path(path).suffix
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        undated: dict[str, Any] = {"Date": None} if kind == ".svg" else {"Software": None}
        figure.savefig(path, format=kind[1:], dpi=120, metadata=undated)
