"""The chart of a law of whole sequences: what an engine emits, beside plain decoding.

One row of axes per request: the masses of all texts, plain decoding's as bars and the engine's as
dots, and below them the differences, with the band that rounding explains.
"""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from specref.gate.errors import UsageError
from specref.gate.generated import Reader, Reading
from specref.gate.loading import load
from specref.gate.models import requests
from specref.gate.report import MEASURED, Report
from specref.gate.session import Session
from specref.gate.subject import Subject
from specref.picture import picture

MOST_TEXTS = 256
"""Laws of more texts are not drawn."""

EXACT, WRONG = "#009E73", "#D55E00"


def sequence_charts(subject: Any, profile: str = "quick") -> tuple[str, list[Reading]]:
    """Read the laws of whole sequences that a subject generates.

    Args:
        subject: a name, a path or an object (`gate.loading.load`) that has `generate`.
        profile: whose requests.

    Returns:
        The subject's name, and what was read of each request that asks for tokens.

    Raises:
        UsageError: an unknown subject, one without `generate`, or one that cannot answer.
    """
    loaded = subject if isinstance(subject, Subject) else load(subject)
    if loaded.generate is None:
        raise UsageError(f"{loaded.spec} has no generate; there are no sequences to draw")
    report = Report(loaded.spec, loaded.name, loaded.source, profile, 0)
    session = Session(loaded, None, report, lambda text: None)
    asked = [r for r in requests(loaded, session.profile.thorough) if r.max_tokens]
    reader = Reader(session, len(asked))
    with closing(loaded):
        return loaded.name, [reader.read(request, at) for at, request in enumerate(asked)]


def save(name: str, readings: Sequence[Reading], path: str | Path) -> None:
    """Write charts as a picture (`specref.picture`).

    Raises:
        UsageError: more texts than can be drawn.
    """
    for reading in readings:
        if len(reading.wanted) > MOST_TEXTS:
            raise UsageError(
                f"{reading.request.name} has {len(reading.wanted)} texts, more than {MOST_TEXTS}"
            )
    with picture(path, (10, 3.6 * len(readings))) as figure:
        figure.suptitle(name, fontsize=12)
        parts = figure.subfigures(len(readings), 1, squeeze=False)
        for part, reading in zip(parts[:, 0], readings, strict=True):
            _draw(part, reading)


def _draw(figure: Any, reading: Reading) -> None:
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1.4])
    texts = sorted(reading.wanted.keys() | reading.got.keys(), key=str)
    wanted = [float(reading.wanted.get(text, 0)) for text in texts]
    got = [float(reading.got.get(text, 0)) for text in texts]
    places = range(len(texts))
    above.bar(places, wanted, color="#BBBBBB", width=0.8, label="plain decoding, exact")
    measured = reading.depth == MEASURED
    what = f"{reading.calls:,} {'runs' if measured else 'samples'}"
    above.plot(places, got, ".", color=EXACT, markersize=5, label=f"the engine, {what}")
    above.set(ylabel="mass of the text", title=f"{reading.request.name}: TV {reading.tv:.2g}")
    above.legend(frameon=False, fontsize=9)
    gaps = [b - a for a, b in zip(wanted, got, strict=True)]
    limit = reading.limit(reading.wanted)
    colours = [EXACT if abs(gap) <= limit else WRONG for gap in gaps]
    below.bar(places, gaps, color=colours, width=0.8)
    below.axhline(0, color="black", linewidth=0.6)
    below.set(ylabel="difference", xlabel=f"the {len(texts)} texts, in order")
    below.set_xticks(places, ["".join(map(str, t)) for t in texts], rotation=90, fontsize=6)
    note = f"rounding explains a TV of {limit:.1g}" if measured else f"chance explains {limit:.1g}"
    below.set_title(note, loc="right", fontsize=8)
