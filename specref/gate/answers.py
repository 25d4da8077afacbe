"""What a subject's `law` makes of requests, and how that compares with the exact law."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from specref.dist import Number, as_fraction, rational
from specref.gate.asks import STABLE, Ask
from specref.gate.limit import TimeLimit, limited
from specref.gate.subject import Problem, Subject, describe

Masses = tuple[float, ...]
"""Probabilities [V] that a subject returned for one row."""

SMALLEST = 2.0**-125
"""Masses below this may be 0 for float32, which flushes exponentials below 2^-126."""


@dataclass
class Answer:
    """What the subject made of one request.

    Attributes:
        ask: the request.
        got: its masses, or what went wrong instead.
    """

    ask: Ask
    got: Masses | Problem

    @cached_property
    def fault(self) -> tuple[str, str]:
        """Severity of what is wrong, and a sentence on it; ("", "") if nothing is.

        Requests that are not firm are held only to what no rounding excuses.
        """
        ask = self.ask
        if isinstance(self.got, Problem):
            return "crash", str(self.got)
        loss = math.fsum(self.got) - 1
        if abs(loss) > ask.band:
            return "law", f"the masses sum to {1 + loss:.9g}"
        if ask.firm:
            return self._against()
        dead = [x for x, s in enumerate(ask.logits) if s == -math.inf and self.got[x]]
        if dead:
            severity = "law" if math.fsum(self.got[x] for x in dead) > ask.band else "edge"
            return severity, f"token {dead[0]} has logit -inf and mass {self.got[dead[0]]:.3g}"
        if ask.edge and not any(agrees(self.got, way) for way in (ask, *ask.beyond())):
            return self._against()
        return "", ""

    def _against(self) -> tuple[str, str]:
        assert not isinstance(self.got, Problem)
        ask = self.ask
        got, law = paired(self.got, ask)
        apart = distance(got, law)
        severity = "law" if apart > ask.band else "edge"
        preset = f"preset {ask.preset.name!r}"
        for x, (a, b) in enumerate(zip(got, law, strict=True)):
            name = f"token {x}" if ask.vocab <= STABLE else "a token"
            if a and not b:
                return severity, f"{name} has mass {a:.3g}, and {preset} rules it out"
            if not a and b > SMALLEST:
                return severity, f"{name} never comes, and {preset} gives it {float(b):.3g}"
        return ("law", f"TV {apart:.3g} from {preset}") if severity == "law" else ("", "")

    @property
    def tv(self) -> float | None:
        """The distance from the exact law, where masses came."""
        return None if isinstance(self.got, Problem) else distance(*paired(self.got, self.ask))

    @property
    def reached(self) -> bool:
        """Whether the masses are those of the exact law, up to rounding."""
        return not isinstance(self.got, Problem) and agrees(self.got, self.ask)


def paired(
    got: Masses, ask: Ask, law: Sequence[Number] | None = None
) -> tuple[Sequence[Number], Sequence[Number]]:
    """Return measured and exact masses side by side.

    In long rows it is open which of equal logits stay, so these are compared by rank.

    Args:
        got: measured masses.
        ask: the request.
        law: what they are compared with, if not its exact law.
    """
    exact = ask.law if law is None else law
    if ask.vocab <= STABLE:
        return got, exact
    left: list[Number] = []
    right: list[Number] = []
    places = sorted(range(ask.vocab), key=lambda x: ask.origins[x])
    for _, group in groupby(places, key=lambda x: ask.origins[x]):
        tied = list(group)
        left += sorted(got[x] for x in tied)
        right += sorted(exact[x] for x in tied)
    return left, right


def distance(a: Sequence[Number], b: Sequence[Number]) -> float:
    """Return the total variation between two rows of masses, whatever they sum to."""
    return math.fsum(abs(float(x) - float(y)) for x, y in zip(a, b, strict=True)) / 2


def agrees(got: Masses, ask: Ask, law: Sequence[Number] | None = None) -> bool:
    """Whether measured masses are those of a law, up to rounding, and on the same tokens.

    Arguments are those of `paired`.
    """
    pairs = paired(got, ask, law)
    same = all((not a or b) and (a or b <= SMALLEST) for a, b in zip(*pairs, strict=True))
    return same and distance(*pairs) <= ask.band


def shown(got: Masses) -> dict[str, str]:
    """Return measured masses for a report, by outcome."""
    return {f"({x},)": str(as_fraction(rational(mass))) for x, mass in enumerate(got) if mass}


class Caller:
    """Speaks to the `law` of a subject, with care.

    Attributes:
        calls: how often it was called.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject, self.calls = subject, 0

    def alone(self, ask: Ask) -> Answer:
        """Return what comes of a request that is made alone."""
        return self.together([ask])[0]

    def together(self, asks: Sequence[Ask]) -> list[Answer]:
        """Return what comes of requests in one call: all ask the same of rows of one length."""
        got = self._called(asks)
        found = [got] * len(asks) if isinstance(got, Problem) else [_masses(row) for row in got]
        return [Answer(ask, masses) for ask, masses in zip(asks, found, strict=True)]

    def _called(self, asks: Sequence[Ask]) -> Any:
        subject = self.subject
        assert subject.law is not None
        self.calls += 1
        logits = np.array([ask.logits for ask in asks], np.float32)
        params, before = asks[0].handed(), logits.copy()
        try:
            with limited(subject.time_limit):
                masses = _array(subject.law(logits, params))
        except TimeLimit:
            return Problem("time", f"law ran longer than {subject.time_limit:g} s")
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return Problem("exception", describe(error))
        if not np.array_equal(logits, before) or params != asks[0].handed():
            return Problem("inputs", "law writes to what it is given; work on copies")
        if masses.shape != before.shape:
            what = f"law returned {masses.shape}; expected {before.shape}, probabilities [n, V]"
            return Problem("shape", what)
        return masses


def _array(raw: Any) -> Any:
    """Return an array of floats of what a subject returned: a tensor, an array or nested lists."""
    if hasattr(raw, "detach"):
        raw = raw.detach().cpu().double().numpy()
    return np.asarray(raw, np.float64)


def _masses(row: Any) -> Masses | Problem:
    if np.isnan(row).any():
        return Problem("NaN", "law returned NaN")
    if not np.isfinite(row).all() or (row < 0).any():
        return Problem("range", f"law returned {row.min():g} to {row.max():g}, no probabilities")
    return tuple(row.tolist())
