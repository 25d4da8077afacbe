"""How far rounding can move the laws of `token` and `block`: bounds, and verifiers in floats.

The bounds are derived in `pages/rounding.md`, for the verifiers that stand here: one operation of
the type at a time, rounded to nearest, and draws that are multiples of 1/grid. All laws are exact
fractions, so the bounds can be held to them.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import ceil, log
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


def block_bound(vocab: int, tokens: int, dtype: str, sums: Fraction) -> Fraction:
    """Return the bound of `token_bound` for block verification.

    >>> print(float(block_bound(4, 2, "float32", Fraction(0))))
    3.4570693969726562e-06
    """
    precision = PRECISIONS[dtype]
    unit, step = precision.unit, Fraction(1, precision.grid)
    node = vocab * (3 * unit + step) + 7 * unit + 4 * sums
    return tokens * (1 + sums) / (1 - sums) * node + vocab * (2 * unit + step)


def logits_bound(vocab: int, tokens: int, dtype: str) -> Fraction:
    """Return what either bound grows by where p and q are computed from rounded logarithms.

    The text is then held to the laws that the logarithms were taken of, and `sums` is 0. For small
    V, where the products of two errors do not count.

    >>> print(float(logits_bound(4, 2, "float32")))
    1.0728836059570312e-05
    """
    softmax = vocab + ceil(4 * log(vocab)) + 10
    return (4 * tokens + 1) * softmax * PRECISIONS[dtype].unit


def accepted(p: Any, q: Any, precision: Precision) -> Fraction:
    """Return the chance of `u < p / q`, the ratio computed in floats; q > 0."""
    return below(ratio(p, q), precision)


def ratio(p: Any, q: Any) -> Any:
    """Return p / q in floats, infinite where it overflows."""
    with np.errstate(over="ignore"):
        return p / q


def below(chance: Any, precision: Precision) -> Fraction:
    """Return the probability of `u < chance`."""
    return min(Fraction(1), Fraction(ceil(exact(chance) * precision.grid), precision.grid))


def drawn(weights: Row, precision: Precision, instead: Row = ()) -> list[Fraction]:
    """Return the law of the first token whose running sum is above u times the last one.

    Where rounding lifts that product to the last sum itself, the first token that reaches it.

    Args:
        weights: at least one is positive, or others stand in.
        precision: of the sums and the draw.
        instead: weights that stand in where all are 0.
    """
    if not any(weights):
        weights = instead
    sums = running(weights, precision)
    total = sums[-1]

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


def running(weights: Row, precision: Precision) -> list[Any]:
    """Return the running sums of weights, in floats."""
    sums, total = [], precision.kind(0)
    for weight in weights:
        total = total + weight
        sums.append(total)
    return sums


def position(p: Row, q: Row, precision: Precision) -> tuple[list[Fraction], list[Fraction]]:
    """Return the masses with which each token is accepted, and is the correction; x from q."""
    scale = sum(map(exact, q))
    kept = [
        exact(b) / scale * accepted(a, b, precision) if b > 0 else Fraction(0)
        for a, b in zip(p, q, strict=True)
    ]
    refused = 1 - sum(kept)
    rest = drawn(difference(p, q, precision), precision, instead=p)
    return kept, [refused * mass for mass in rest]


def difference(p: Row, q: Row, precision: Precision) -> list[Any]:
    """Return max(p - q, 0) in floats."""
    return [max(a - b, precision.kind(0)) for a, b in zip(p, q, strict=True)]


def token_law(
    p: Callable[[Text], Row], q: Callable[[Text], Row], tokens: int, dtype: str
) -> Mapping[Text, Fraction]:
    """Return the law of `tokens + 1` tokens: a round in floats, continued by the exact target."""
    precision, texts = PRECISIONS[dtype], Texts(p, tokens + 1)
    reached: dict[Text, Fraction] = {(): Fraction(1)}
    for _ in range(tokens):
        deeper: dict[Text, Fraction] = {}
        for text, mass in reached.items():
            kept, put = position(p(text), q(text), precision)
            texts.add(text, mass, put)
            deeper |= {(*text, x): mass * chance for x, chance in enumerate(kept)}
        reached = deeper
    for text, mass in reached.items():
        texts.add(text, mass, drawn(p(text), precision))
    return texts.law


def block_law(
    p: Callable[[Text], Row], q: Callable[[Text], Row], tokens: int, dtype: str
) -> Mapping[Text, Fraction]:
    """Return the law of `token_law` for block verification."""
    precision, texts = PRECISIONS[dtype], Texts(p, tokens + 1)
    one = precision.kind(1)

    def kept(text: Text, weight: Any) -> Fraction:
        """Add what is emitted if this much of the draft is kept, or more; return its chance.

        The mass is that given the draft up to here: `reached` is how likely that is.
        """
        row = [weight * a for a in p(text)]
        if len(text) == tokens:
            chance = below(weight, precision) if text else Fraction(1)
            texts.add(text, reached[text] * chance, drawn(p(text), precision))
            return chance
        behind, draft = Fraction(0), normalised(q(text))
        for x, (a, b) in enumerate(zip(row, q(text), strict=True)):
            if b > 0:
                reached[*text, x] = reached[text] * draft[x]
                behind += draft[x] * kept((*text, x), min(one, ratio(a, b)))
        left = difference(row, q(text), precision)
        chance = below(coin(weight, left, precision), precision) if text else Fraction(1)
        last = drawn(left, precision, instead=p(text))
        texts.add(text, reached[text] * (1 - behind) * chance, last)
        return behind + (1 - behind) * chance

    reached: dict[Text, Fraction] = {(): Fraction(1)}
    kept((), one)
    return texts.law


def coin(weight: Any, left: Row, precision: Precision) -> Any:
    """Return h = S / (S + (1 - P)) in floats, S the running sum of what is left; 1 if P is 1."""
    one = precision.kind(1)
    if weight == one:
        return one
    spare = running(left, precision)[-1]
    return spare / (spare + (one - weight))


class Texts:
    """Masses of texts of one length: what a round emits is continued by the exact target.

    Attributes:
        law: mass by text.
    """

    def __init__(self, p: Callable[[Text], Row], length: int) -> None:
        self._p, self._length = p, length
        self.law = dict[Text, Fraction]()

    def add(self, text: Text, mass: Fraction, last: Sequence[Fraction]) -> None:
        """Add a text with its mass, and what follows it with the law `last`."""
        for x, chance in enumerate(last):
            longer, share = (*text, x), mass * chance
            if not share:
                continue
            if len(longer) < self._length:
                self.add(longer, share, normalised(self._p(longer)))
            else:
                self.law[longer] = self.law.get(longer, Fraction(0)) + share


def normalised(row: Row) -> list[Fraction]:
    """Return the law that a row of floats stands for: its values over their exact sum."""
    values = [exact(w) for w in row]
    return [w / sum(values) for w in values]


def exact(value: Any) -> Fraction:
    """Return a float as a fraction; an infinite ratio, of an overflow, as a large one."""
    return Fraction(float(value)) if np.isfinite(value) else Fraction(2) ** 1024
