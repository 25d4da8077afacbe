"""How far rounding can move the law of `token`: a bound, and the exact law of a verifier in floats.

The bound is derived in `pages/rounding.md`, for the verifier that stands here: one operation of the
type at a time, rounded to nearest, and draws that are multiples of 1/grid. Both laws are exact
fractions, so the bound can be held to them.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import ceil
from typing import Any, TypeAlias

import numpy as np

Row: TypeAlias = Sequence[Any]
"""Numbers of one floating type, one per token; they need not sum to 1 exactly."""

Text: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Precision:
    """A floating type and the grid of its draws.

    Attributes:
        kind: the numpy type.
        unit: u, the largest relative error of an operation.
        grid: draws are k / grid, 0 <= k < grid.
    """

    kind: Any
    unit: Fraction
    grid: int


PRECISIONS = {
    "float16": Precision(np.float16, Fraction(1, 2**11), 2**11),
    "float32": Precision(np.float32, Fraction(1, 2**24), 2**24),
    "float64": Precision(np.float64, Fraction(1, 2**53), 2**53),
}
"""Types, with draws that fill their significand."""


def token_bound(vocab: int, tokens: int, dtype: str, sums: Fraction) -> Fraction:
    """Return a bound on the TV between the text of a round in floats and the target's.

    Args:
        vocab: V.
        tokens: gamma, the drafted tokens; the bonus is one more.
        dtype: a key of `PRECISIONS`.
        sums: how far the sum of any row is from 1, at most; below 1.

    >>> print(float(token_bound(4, 2, "float32", Fraction(0))))
    2.384185791015625e-06
    """
    precision = PRECISIONS[dtype]
    unit, step = precision.unit, Fraction(1, precision.grid)
    draw = vocab * (2 * unit + step)
    return tokens * (2 * sums / (1 - sums) + unit + step + draw) + draw


def accepted(p: Any, q: Any, precision: Precision) -> Fraction:
    """Return the chance of `u < p / q`, the ratio computed in floats; q > 0."""
    with np.errstate(over="ignore"):
        ratio = p / q
    return min(Fraction(1), Fraction(ceil(exact(ratio) * precision.grid), precision.grid))


def drawn(weights: Row, precision: Precision) -> list[Fraction]:
    """Return the law of the first token whose running sum is above u times the last one.

    Where rounding lifts that product to the last sum itself, the first token that reaches it.
    """
    sums, total = [], precision.kind(0)
    for weight in weights:
        total = total + weight
        sums.append(total)

    def is_above(k: int, bound: Any) -> bool:
        # k / grid is a float: grid is a power of 2 and k < grid fits the significand.
        return bool(precision.kind(k / precision.grid) * total >= bound)

    draws = range(precision.grid)
    ends = [
        Fraction(bisect_left(draws, True, key=partial(is_above, bound=c)), precision.grid)
        if c < total
        else Fraction(1)
        for c in sums
    ]
    return [high - low for low, high in zip([Fraction(0), *ends], ends, strict=False)]


def position(p: Row, q: Row, precision: Precision) -> tuple[list[Fraction], list[Fraction]]:
    """Return the masses with which each token is accepted, and is the correction; x from q."""
    scale = sum(map(exact, q))
    kept = [
        exact(b) / scale * accepted(a, b, precision) if b > 0 else Fraction(0)
        for a, b in zip(p, q, strict=True)
    ]
    left = [max(a - b, precision.kind(0)) for a, b in zip(p, q, strict=True)]
    refused = 1 - sum(kept)
    rest = drawn(left if any(left) else p, precision)
    return kept, [refused * mass for mass in rest]


def token_law(
    p: Callable[[Text], Row], q: Callable[[Text], Row], tokens: int, dtype: str
) -> Mapping[Text, Fraction]:
    """Return the law of `tokens + 1` tokens: a round in floats, continued by the exact target."""
    precision, done = PRECISIONS[dtype], dict[Text, Fraction]()

    def go_on(text: Text, mass: Fraction) -> None:
        if len(text) > tokens:
            done[text] = done.get(text, Fraction(0)) + mass
            return
        for x, chance in enumerate(normalised(p(text))):
            go_on((*text, x), mass * chance)

    reached: dict[Text, Fraction] = {(): Fraction(1)}
    for _ in range(tokens):
        deeper: dict[Text, Fraction] = {}
        for text, mass in reached.items():
            kept, put = position(p(text), q(text), precision)
            for x, (a, b) in enumerate(zip(kept, put, strict=True)):
                deeper[*text, x] = mass * a
                go_on((*text, x), mass * b)
        reached = deeper
    for text, mass in reached.items():
        for x, chance in enumerate(drawn(p(text), precision)):
            go_on((*text, x), mass * chance)
    return done


def normalised(row: Row) -> list[Fraction]:
    """Return the law that a row of floats stands for: its values over their exact sum."""
    values = [exact(w) for w in row]
    return [w / sum(values) for w in values]


def exact(value: Any) -> Fraction:
    """Return a float as a fraction; an infinite ratio, of an overflow, as a large one."""
    return Fraction(float(value)) if np.isfinite(value) else Fraction(2) ** 1024
