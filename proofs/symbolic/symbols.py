"""The symbols that a theorem is about, and the polynomials over them.

A law over V tokens is V - 1 free symbols, and its last entry is one minus their sum: so every
identity is checked modulo "sums are one" without being told.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from flint import fmpq, fmpq_mpoly_ctx

Polynomial = Any
"""A polynomial with rational coefficients (`flint.fmpq_mpoly`)."""

SAMPLES = 400
"""Points tried at a time, in search of evidence that a region is not empty."""


@dataclass
class Symbols:
    """Named symbols with their ranges; laws and numbers are declared, then polynomials made.

    Attributes:
        names: of the free symbols, in order.
        laws: places of the free symbols of each law, by name.
        numbers: (place, low, high) of each number, by name; `high` may be None.
    """

    names: list[str] = field(default_factory=list)
    laws: dict[str, range] = field(default_factory=dict)
    numbers: dict[str, tuple[int, Fraction, Fraction | None]] = field(default_factory=dict)
    _integers: dict[int, Polynomial] = field(default_factory=dict)

    def add_law(self, name: str, vocab: int) -> None:
        """Declare a law over `vocab` tokens: all entries >= 0, their sum 1."""
        self.laws[name] = range(len(self.names), len(self.names) + vocab - 1)
        self.names += [f"{name}[{x}]" for x in range(vocab - 1)]

    def add_number(self, name: str, low: int = 0, high: int | None = 1) -> None:
        """Declare a number in `low <= number <= high`."""
        top = None if high is None else Fraction(high)
        self.numbers[name] = len(self.names), Fraction(low), top
        self.names.append(name)

    @cached_property
    def ring(self) -> Any:
        """The ring of polynomials; nothing may be declared behind its first use."""
        return fmpq_mpoly_ctx.get(tuple(f"v{i}" for i in range(len(self.names))), "degrevlex")

    @cached_property
    def one(self) -> Polynomial:
        """The polynomial 1."""
        return self.ring.constant(1)

    def integer(self, value: int) -> Polynomial:
        """Return an integer as a polynomial."""
        if value not in self._integers:
            self._integers[value] = self.ring.constant(value)
        return self._integers[value]

    def constant(self, value: Any) -> Polynomial:
        """Return an exact number as a polynomial."""
        return self.ring.constant(fmpq(int(value.numerator), int(value.denominator)))

    def entries(self, name: str) -> list[Polynomial]:
        """Return the entries of a law, the last one as 1 minus the others."""
        free = [self.ring.gen(place) for place in self.laws[name]]
        return [*free, self.one - sum(free)]

    def bounds(self) -> Iterable[Polynomial]:
        """Yield the polynomials that are >= 0 by declaration."""
        for name in self.laws:
            yield from self.entries(name)
        for place, low, high in self.numbers.values():
            yield self.ring.gen(place) - self.constant(low)
            if high is not None:
                yield self.constant(high) - self.ring.gen(place)

    def sample(self, random: np.random.Generator, count: int = SAMPLES) -> np.ndarray:
        """Return points of the declared ranges [count, symbols], most of them inside."""
        points = np.zeros((count, len(self.names)))
        for places in self.laws.values():
            size = len(places) + 1
            spread = random.choice([0.4, 1.0, 3.0], size=(count, 1))
            weights = random.gamma(np.broadcast_to(spread, (count, size))) + 1e-6
            points[:, list(places)] = (weights / weights.sum(axis=1, keepdims=True))[:, :-1]
        for place, low, high in self.numbers.values():
            span = 4 if high is None else float(high - low)
            points[:, place] = float(low) + span * random.random(count)
        return points

    def show(self, polynomial: Polynomial) -> str:
        """Return a polynomial in the names that were declared."""
        text = str(polynomial)
        for at in reversed(range(len(self.names))):
            text = text.replace(f"v{at}", self.names[at])
        return text

    def point(self, values: Sequence[Fraction]) -> Mapping[str, tuple[Fraction, ...] | Fraction]:
        """Return the laws and numbers of a point, by name."""
        found: dict[str, tuple[Fraction, ...] | Fraction] = {}
        for name, places in self.laws.items():
            row = tuple(values[place] for place in places)
            found[name] = (*row, 1 - sum(row, Fraction(0)))
        for name, (place, _, _) in self.numbers.items():
            found[name] = values[place]
        return found


def key(polynomial: Polynomial) -> str:
    """Return what tells polynomials of one ring apart."""
    return str(polynomial)


@dataclass(frozen=True)
class Compiled:
    """A polynomial for fast evaluation in floats: coefficients and factors of each term."""

    coefficients: tuple[float, ...]
    powers: tuple[tuple[tuple[int, int], ...], ...]

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """Return the values at points [count, symbols]."""
        total = np.zeros(len(points))
        for coefficient, powers in zip(self.coefficients, self.powers, strict=True):
            term = np.full(len(points), coefficient)
            for place, exponent in powers:
                term *= points[:, place] if exponent == 1 else points[:, place] ** exponent
            total += term
        return total


def compiled(polynomial: Polynomial) -> Compiled:
    """Return a polynomial ready for evaluation in floats."""
    terms = list(polynomial.terms())
    return Compiled(
        tuple(float(Fraction(int(c.p), int(c.q))) for _, c in terms),
        tuple(tuple((i, int(e)) for i, e in enumerate(monomial) if e) for monomial, _ in terms),
    )
