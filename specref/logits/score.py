"""Exact logarithms: rational logits, and logits that are logarithms of rational weights."""

import math
from dataclasses import dataclass
from functools import lru_cache

from specref.dist import Number, rational

ZERO = rational(0)

LARGEST = 1 << 16
"""Bits up to which a power of a rational is written out; larger ones are enclosed instead."""


@dataclass(slots=True, unsafe_hash=True)  # frozen ones take three times as long to make
class Score:
    """The real number `plain + sum of r log(w)`, exactly: the logarithm of a token's weight.

    Sums and rational multiples are scores again, so temperature, bias and penalties never round.

    Args:
        plain: a rational.
        logs: pairs (w, r) of rationals, w > 0; no w twice.

    >>> half = Score(logs=((rational(4), rational("1/2")),))
    >>> print(half.exponential())
    2
    >>> (half - Score(logs=((rational(2), rational(1)),))).sign()
    0
    """

    plain: Number = ZERO
    logs: tuple[tuple[Number, Number], ...] = ()

    def __add__(self, other: "Score") -> "Score":
        if not self.logs and not other.logs:
            return Score(self.plain + other.plain)
        powers = dict(self.logs)
        for w, r in other.logs:
            powers[w] = powers.get(w, 0) + r
        return Score(self.plain + other.plain, tuple((w, r) for w, r in powers.items() if r))

    def __sub__(self, other: "Score") -> "Score":
        return self + other.times(-1)

    def times(self, factor: Number) -> "Score":
        """Return the score multiplied by a rational."""
        if not self.logs or not factor:
            return Score(self.plain * factor)
        return Score(self.plain * factor, tuple((w, r * factor) for w, r in self.logs))

    def exponential(self) -> Number | None:
        """Return exp(score) where it is rational and can be written out, else None.

        By Lindemann's theorem exp(a) w^r with rational a, w, r is irrational unless a = 0, and then
        it is rational just where a perfect power says so.
        """
        if self.plain:
            return None
        power = self._power()
        if power is None:
            return None
        base, numerator, degree = power
        root = _root(base, degree)
        if root is None or (root != 1 and _bits(root) * numerator > LARGEST):
            return None
        return root if root == 1 else root**numerator

    def sign(self) -> int | None:
        """Return -1, 0 or 1; None where only an enclosure of logarithms can tell."""
        if not self.logs:
            return _sign(self.plain)
        power = self._power()
        if power is None:
            return None
        base = power[0]
        if base == 1:
            return _sign(self.plain)
        if self.plain:
            return None
        return 1 if base > 1 else -1

    def _power(self) -> tuple[Number, int, int] | None:
        """Return W, n, d with `sum of r log(w) = n/d log(W)`; None if W is too large to write out.

        n and d are positive and have no common divisor; W is as small as rationals allow.
        """
        if not self.logs:
            return rational(1), 1, 1
        degree = math.lcm(*(int(r.denominator) for _, r in self.logs))
        times = [int(r.numerator) * (degree // int(r.denominator)) for _, r in self.logs]
        common = math.gcd(*times)
        if (
            sum(_bits(w) * abs(n) // common for (w, _), n in zip(self.logs, times, strict=True))
            > LARGEST
        ):
            return None
        base = rational(1)
        for (w, _), n in zip(self.logs, times, strict=True):
            base *= w ** (n // common)
        shared = math.gcd(common, degree)
        return base, common // shared, degree // shared


def logarithm(weight: Number) -> Score:
    """Return log(weight) of a positive rational."""
    return Score() if weight == 1 else Score(rational(0), ((weight, rational(1)),))


def _sign(value: Number) -> int:
    return int(value > 0) - int(value < 0)


def _bits(value: Number) -> int:
    return int(value.numerator).bit_length() + int(value.denominator).bit_length()


@lru_cache(maxsize=1 << 12)
def _root(value: Number, degree: int) -> Number | None:
    """Return the positive root of a rational where it is rational."""
    if degree == 1 or value == 1:
        return value
    above, below = int(value.numerator), int(value.denominator)
    if degree > max(above.bit_length(), below.bit_length()):
        return None
    roots = _integer_root(above, degree), _integer_root(below, degree)
    if roots[0] ** degree != above or roots[1] ** degree != below:
        return None
    return rational(*roots)


def _integer_root(value: int, degree: int) -> int:
    """Return the largest integer whose power is at most `value`."""
    low, high = 0, 1 << (value.bit_length() // degree + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**degree <= value else (low, middle)
    return low
