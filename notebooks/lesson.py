"""What the notebooks share: one look, tables of exact numbers, and sliders."""

import os
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import Any

import matplotlib.pyplot as plt
from IPython.display import Markdown, display

BLUE, ORANGE, GREEN, PINK = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
SKY, RED, YELLOW, GREY = "#56B4E9", "#D55E00", "#F0E442", "#7F7F7F"
"""Colours that most colour-blind readers can tell apart (Okabe and Ito 2008), and a grey."""

plt.rcParams.update(
    {
        "figure.figsize": (8, 3.6),  # inches: the width of a notebook's column
        "figure.dpi": 100,
        "figure.constrained_layout.use": True,
        "font.family": "DejaVu Sans",  # comes with matplotlib, so the picture is the same anywhere
        "font.size": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": plt.cycler(color=[BLUE, ORANGE, GREEN, PINK, SKY, RED]),
        "legend.frameon": False,
    }
)


def table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> Markdown:
    """Return a table; fractions are shown as fractions.

    >>> from fractions import Fraction
    >>> print(table(["token", "p"], [["A", Fraction(1, 2)]]).data)
    | token | p |
    |---|---|
    | A | 1/2 |

    Raises:
        ValueError: a row that is longer or shorter than the header.
    """
    lines = [[str(cell) for cell in line] for line in (header, ["---"] * len(header), *rows)]
    for line in lines:
        if len(line) != len(header):
            raise ValueError(f"the row {line} has {len(line)} cells; the header has {len(header)}")
    rule = "|" + "|".join(lines.pop(1)) + "|"
    text = ["| " + " | ".join(line) + " |" for line in lines]
    return Markdown("\n".join([text[0], rule, *text[1:]]))


def slider(draw: Callable[..., object], **values: Sequence[Any]) -> None:
    """Draw for the first of the values, and again for those that a slider is moved to.

    `draw` is called with one value of each name, and shows what it draws. Without ipywidgets, or
    with NOTEBOOK_STATIC=1, there is only the first picture: this is what is committed.

    >>> slider(lambda gamma: print(f"gamma = {gamma}"), gamma=[4, 1, 2])  # doctest: +SKIP
    gamma = 4
    """
    if os.environ.get("NOTEBOOK_STATIC") == "1" or find_spec("ipywidgets") is None:
        draw(**{name: options[0] for name, options in values.items()})
        return
    import ipywidgets

    sliders = {
        name: ipywidgets.SelectionSlider(
            options=sorted(options), value=options[0], description=name, continuous_update=False
        )
        for name, options in values.items()
    }
    display(ipywidgets.interactive(draw, **sliders))
