"""Regions of the space of all laws, and the signs that polynomials have on them.

A region is where some polynomials have some signs. A program that runs on symbols compares numbers;
the region answers, and where both answers occur on it, it is split: the run goes on with one part,
and the others are kept for later (`search.explore`). So every comparison has one answer on each of
the regions that are left in the end, and they cover the whole space.

Comparisons are answered factor by factor, since the sign of a product follows from its factors.
An equation is solved for one of its symbols, which is replaced everywhere.

A part is dropped only if a certificate says that it is empty (`certificate`). Parts that are empty
without a certificate stay: then more is proved than is needed.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from flint import fmpq

from proofs.symbolic.certificate import Condition, refuted
from proofs.symbolic.symbols import Compiled, Polynomial, Symbols, compiled, key

Signs: TypeAlias = frozenset[int]
Part: TypeAlias = tuple[str, Polynomial, int]
NEGATIVE, ZERO, POSITIVE = -1, 0, 1
ANY = frozenset((-1, 0, 1))
FEW = 40
"""Fewer points than this are topped up."""
CLEAR = 1e-9
"""A value further from zero than this has a sign, whatever was rounded."""


class Empty(Exception):
    """The region has a certificate that no point is in it."""


class Restart(Exception):
    """An equation holds on the whole region; solved, it has to be run from the start."""


class Outside(Exception):
    """Raised by a claim where its hypothesis does not hold: nothing is claimed there."""


class Shared:
    """What all regions of one theorem share: symbols, remembered factors, points, counts."""

    def __init__(self, symbols: Symbols, seed: int = 0) -> None:
        self.symbols = symbols
        self.random = np.random.default_rng(seed)
        self.base = symbols.sample(self.random, 3000)
        self.certificates = 0
        self.remembered: dict[Any, bool] = {}
        self._factors: dict[str, tuple[int, list[Part]]] = {}
        self._compiled: dict[str, Compiled] = {}

    def factors(self, polynomial: Polynomial) -> tuple[int, list[Part]]:
        """Return the sign of the constant, and (key, factor, exponent) of every other factor."""
        name = key(polynomial)
        if name not in self._factors:
            constant, parts = polynomial.factor()
            named = [(key(factor), factor, int(exponent)) for factor, exponent in parts]
            self._factors[name] = (1 if constant > 0 else -1), named
        return self._factors[name]

    def values(self, name: str, polynomial: Polynomial, points: np.ndarray) -> np.ndarray:
        """Return the values of a polynomial at points [count]."""
        if name not in self._compiled:
            self._compiled[name] = compiled(polynomial)
        return self._compiled[name](points)


class Region:
    """A part of the space: symbols replaced by others, and factors of known sign.

    Attributes:
        at: the value of every symbol, (numerator, denominator), in the symbols that are left.
        signs: the signs that a factor can have, by key of the factor.
        known: the factors that stand in `signs`, by key.
        points: points inside, in floats [count, symbols].
    """

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        symbols = shared.symbols
        self.at = [(symbols.ring.gen(i), symbols.one) for i in range(len(symbols.names))]
        self.signs: dict[str, Signs] = {}
        self.known: dict[str, Polynomial] = {}
        self.loose: list[Condition] = []
        self.points = shared.base
        self.later: list[Region] = []
        self.tight: dict[str, int] = {}
        self.replaced: list[tuple[int, Any, Any]] = []
        for bound in symbols.bounds():
            self.learn(bound, frozenset((ZERO, POSITIVE)))

    def copy(self) -> "Region":
        """Return a region that can be narrowed without narrowing this one."""
        other = object.__new__(Region)
        other.__dict__.update(self.__dict__)
        other.at, other.signs, other.known = list(self.at), dict(self.signs), dict(self.known)
        other.loose, other.later, other.tight = list(self.loose), [], dict(self.tight)
        other.replaced = list(self.replaced)
        return other

    def law(self, name: str) -> tuple[Any, ...]:
        """Return a law of symbols as numbers on this region."""
        return tuple(self.quantity(entry) for entry in self.shared.symbols.entries(name))

    def number(self, name: str) -> Any:
        """Return a number that was declared."""
        symbols = self.shared.symbols
        return self.quantity(symbols.ring.gen(symbols.numbers[name][0]))

    def quantity(self, polynomial: Polynomial) -> Any:
        """Return a polynomial of the symbols as a number on this region."""
        from proofs.symbolic.quantity import Quantity

        top, bottom = substituted(polynomial, self)
        one = self.shared.symbols.one
        return Quantity(top, one if bottom == 1 else bottom, self)

    # What is known of the signs

    def learn(self, polynomial: Polynomial, signs: Signs) -> None:
        """Add the knowledge that a polynomial has one of these signs.

        Raises:
            Empty: it has none of them here.
        """
        if polynomial.is_constant():
            if _sign(polynomial) not in signs:
                raise Empty
            return
        constant, parts = self.shared.factors(polynomial)
        open_ = [part for part in parts if len(self.of(part)) > 1]
        rest = constant
        for part in parts:
            if part not in open_:
                rest *= next(iter(self.of(part))) ** part[2]
        if not open_:
            if rest not in signs:
                raise Empty
        elif len(open_) == 1 and rest:
            self.narrow(open_[0], frozenset(s for s in ANY if rest * s ** open_[0][2] in signs))
        else:
            if ZERO not in signs:
                for part in open_:
                    self.narrow(part, frozenset((NEGATIVE, POSITIVE)))
            if NEGATIVE not in signs and rest:
                self.loose.append((polynomial, ZERO not in signs))
            elif POSITIVE not in signs and rest:
                self.loose.append((-polynomial, ZERO not in signs))

    def of(self, part: Part) -> Signs:
        """Return the signs that a factor can have, as far as is known."""
        return self.signs.get(part[0], ANY)

    def narrow(self, part: Part, signs: Signs) -> None:
        """Keep of the signs of a factor those in `signs`.

        Raises:
            Empty: none is left.
        """
        name, factor, _ = part
        left = self.of(part) & signs
        if not left:
            raise Empty
        if left != self.of(part):
            self.signs[name], self.known[name] = left, factor
            if len(self.points):
                values = self.shared.values(name, factor, self.points)
                fits = np.zeros(len(values), dtype=bool)
                if POSITIVE in left:
                    fits |= values > CLEAR
                if NEGATIVE in left:
                    fits |= values < -CLEAR
                self.points = self.points[fits]

    def conditions(self) -> list[Condition]:
        """Return everything known, as polynomials that are >= 0 or > 0."""
        out: list[Condition] = list(self.loose)
        for name, signs in self.signs.items():
            factor = self.known[name]
            if NEGATIVE not in signs:
                out.append((factor, ZERO not in signs))
            elif POSITIVE not in signs:
                out.append((-factor, ZERO not in signs))
        return out

    def show(self) -> tuple[str, ...]:
        """Return what is special about the region: equations, and signs that are not declared."""
        symbols = self.shared.symbols
        lines = [
            f"{symbols.names[place]} = {_shown(symbols, *self.at[place])}"
            for place in sorted({step[0] for step in self.replaced})
        ]
        declared = {key(factor) for bound in symbols.bounds() for factor in (bound, -bound)}
        words = {
            frozenset((POSITIVE,)): "> 0",
            frozenset((NEGATIVE,)): "< 0",
            frozenset((ZERO, POSITIVE)): ">= 0",
            frozenset((NEGATIVE, ZERO)): "<= 0",
            frozenset((NEGATIVE, POSITIVE)): "!= 0",
        }
        for name, signs in self.signs.items():
            if len(signs) == 1 or name not in declared:
                lines.append(f"{symbols.show(self.known[name])} {words[signs]}")
        return tuple(lines)

    # Questions

    def is_in(self, polynomials: Sequence[Polynomial], wanted: Signs) -> bool:
        """Say whether a product has one of these signs, splitting the region if need be.

        Raises:
            Empty: the region turned out to be empty.
            Restart: it is described by fewer symbols, and has to be run from the start.
        """
        constant = 1
        parts: list[Part] = []
        for polynomial in polynomials:
            if polynomial.is_constant():
                constant *= _sign(polynomial)
            else:
                sign, more = self.shared.factors(polynomial)
                constant, parts = constant * sign, parts + more
        if not constant:
            return ZERO in wanted
        while True:
            possible = self._product(constant, parts)
            if possible <= wanted:
                return True
            if not possible & wanted:
                return False
            for part in parts:
                if len(self.of(part)) > 1:
                    self._tighten(part)
            possible = self._product(constant, parts)
            if possible <= wanted or not possible & wanted:
                continue
            self._split(constant, parts, wanted)

    def _product(self, constant: int, parts: Iterable[Part]) -> Signs:
        signs = {constant}
        for part in parts:
            signs = {a * b ** part[2] for a in signs for b in self.of(part)}
        return frozenset(signs)

    def _tighten(self, part: Part, restart: bool = True) -> None:
        """Drop the signs of a factor that a certificate excludes.

        Raises:
            Empty: it has none.
            Restart: it is zero.
        """
        name, factor, _ = part
        if self.tight.get(name) == len(self.signs):
            return
        signs = self.of(part)
        self.top_up()
        values = self.shared.values(name, factor, self.points)
        seen = {POSITIVE} if (values > CLEAR).any() else set()
        seen |= {NEGATIVE} if (values < -CLEAR).any() else set()
        unseen = set(signs) - seen
        if len(seen) == 2:
            unseen -= {ZERO}
        if unseen:
            conditions = self.conditions()
            for sign in sorted(unseen):
                # -f >= 0 covers both f < 0 and f = 0.
                both = {ZERO, sign} <= unseen and sign != ZERO
                if both and self._refuted(conditions, [(factor * sign, False)]):
                    signs = signs - {ZERO, sign}
                elif sign in signs:
                    added = [(factor * sign, True)] if sign else [(factor, False), (-factor, False)]
                    if self._refuted(conditions, added):
                        signs = signs - {sign}
        self.narrow(part, signs)
        if restart and self.of(part) == {ZERO}:
            self.later.append(self)
            raise Restart
        self.tight[name] = len(self.signs)

    def _refuted(
        self,
        conditions: Sequence[Condition],
        about: Sequence[Condition] = (),
        thorough: bool = False,
    ) -> bool:
        found = refuted(conditions, about, self.shared.remembered, thorough)
        self.shared.certificates += found
        return found

    def _split(self, constant: int, parts: list[Part], wanted: Signs) -> None:
        """Go on with one part of the region; leave the others for later."""
        part = next(part for part in parts if len(self.of(part)) > 1)
        others = self._product(constant, [other for other in parts if other is not part])
        groups: list[Signs] = [frozenset((sign,)) for sign in self.of(part)]
        if len(others) == 1 and others != {ZERO}:
            (rest,) = others
            inside = frozenset(s for s in self.of(part) if rest * s ** part[2] in wanted)
            groups = [inside, self.of(part) - inside]
        groups.sort(key=lambda signs: (signs == {ZERO}, sorted(signs)))
        for signs in groups[1:]:
            self.later += self.part(part, signs)
        self.narrow(part, groups[0])

    def part(self, part: Part, signs: Signs) -> list["Region"]:
        """Return the region where a factor has one of these signs; in parts, if it must be."""
        try:
            if signs == {ZERO}:
                return self._where_zero(part[1])
            other = self.copy()
            other.narrow(part, signs)
        except Empty:
            return []
        return [other]

    # Equations

    def is_thin(self) -> bool:
        """Say whether some condition >= 0 turned out to be an equation; it is then `solved`.

        Raises:
            Empty: no point is in the region.
        """
        self.top_up()
        if len(self.points):
            return False
        if self._refuted(self.conditions(), thorough=True):
            raise Empty
        for name, signs in list(self.signs.items()):
            if ZERO in signs and len(signs) == 2:
                sign = next(iter(signs - {ZERO}))
                factor = self.known[name]
                if self._refuted(self.conditions(), [(factor * sign, True)], thorough=True):
                    self.narrow((name, factor, 1), frozenset((ZERO,)))
                    return True
        return False

    def solved(self) -> list["Region"] | None:
        """Return the region with its equations solved; None if there are none."""
        for name, signs in self.signs.items():
            if signs == {ZERO}:
                try:
                    return self._where_zero(self.known[name])
                except Empty:
                    return []
        return None

    def _where_zero(self, factor: Polynomial) -> list["Region"]:
        """Return the region where a factor is zero, with one symbol less."""
        place, slope, rest = _linear(factor)
        if slope.is_constant():
            return self._replace(place, -rest, slope)
        _, parts = self.shared.factors(slope)
        for part in parts:
            if ZERO in self.of(part):
                self._tighten(part, restart=False)
        out: list[Region] = []
        if ZERO not in self._product(1, parts):
            return self._replace(place, -rest, slope)
        for part in parts:  # the slope is zero iff one of these is, and then the rest is zero too
            if ZERO in self.of(part):
                for region in self.part(part, frozenset((ZERO,))):
                    out += region.where(rest)
        try:
            other = self.copy()
            other.learn(slope, frozenset((NEGATIVE, POSITIVE)))
        except Empty:
            return out
        return out + other._replace(place, -rest, slope)

    def where(self, polynomial: Polynomial) -> list["Region"]:
        """Return the parts of the region where a polynomial of the full symbols is zero."""
        numerator, _ = substituted(polynomial, self)
        if numerator.is_constant():
            return [self] if numerator == 0 else []
        _, parts = self.shared.factors(numerator)
        out: list[Region] = []
        for part in parts:
            if ZERO in self.of(part):
                out += self.part(part, frozenset((ZERO,)))
        return out

    def _replace(
        self, place: int, numerator: Polynomial, denominator: Polynomial
    ) -> list["Region"]:
        """Return the region with a symbol replaced by numerator / denominator."""
        other = self.copy()
        other.signs, other.known, other.loose, other.tight = {}, {}, [], {}
        step = (place, numerator, denominator)
        other.replaced.append(step)
        other.at = [_over(top, bottom, step) for top, bottom in self.at]
        points = self.points if len(self.points) > FEW else self.shared.base
        try:
            conditions = [
                *((self.known[name], signs) for name, signs in self.signs.items()),
                *((p, frozenset((POSITIVE,) if s else (ZERO, POSITIVE))) for p, s in self.loose),
            ]
            other.points = points[:0]
            # Twice: the sign of one factor may be what the sign of another product needs.
            for _ in range(2):
                other.loose = []
                for polynomial, signs in conditions:
                    top, bottom = _over(polynomial, self.shared.symbols.one, step)
                    other.learn(top * bottom, signs)
        except Empty:
            return []
        other.points = other._inside(points)
        return [other]

    # Points

    def top_up(self) -> None:
        """Look for more points of the region where there are few."""
        if len(self.points) < FEW and self.tight.get("") != len(self.signs):
            self.tight[""] = len(self.signs)
            fresh = self._inside(self.shared.symbols.sample(self.shared.random, 3000))
            self.points = np.concatenate([self.points, fresh])

    def exactly(self, values: Sequence[Fraction]) -> list[Fraction] | None:
        """Return the point that has these values of the symbols left; None if it is not inside."""
        point = [fmpq(v.numerator, v.denominator) for v in values]
        full = list(point)
        for place in {step[0] for step in self.replaced}:
            top, bottom = (part(*point) for part in self.at[place])
            if bottom == 0:
                return None
            full[place] = top / bottom
        for name, signs in self.signs.items():
            value = self.known[name](*full)
            if (value > 0) - (value < 0) not in signs:
                return None
        for polynomial, strict in self.loose:
            value = polynomial(*full)
            if value < 0 or (strict and value == 0):
                return None
        return [Fraction(int(v.p), int(v.q)) for v in full]

    def _inside(self, points: np.ndarray) -> np.ndarray:
        """Return those of some points that, with the symbols replaced, are in the region."""
        points = points.copy()
        for place, (top, bottom) in enumerate(self.at):
            if any(step[0] == place for step in self.replaced):
                values = self.shared.values(key(top), top, points)
                scale = self.shared.values(key(bottom), bottom, points)
                fine = np.abs(scale) > CLEAR
                points, values, scale = points[fine], values[fine], scale[fine]
                points[:, place] = values / scale
        for polynomial, strict in self.conditions():
            values = self.shared.values(key(polynomial), polynomial, points)
            points = points[values > CLEAR if strict else values > -CLEAR / 10]
        return points


def _shown(symbols: Symbols, top: Polynomial, bottom: Polynomial) -> str:
    text = symbols.show(top)
    return text if bottom.is_constant() else f"({text}) / ({symbols.show(bottom)})"


def substituted(polynomial: Polynomial, region: Region) -> tuple[Polynomial, Polynomial]:
    """Return a polynomial as numerator and denominator in the symbols that are left."""
    top, bottom = polynomial, region.shared.symbols.one
    for step in region.replaced:
        top, bottom = _over(top, bottom, step)
    return top, bottom


def _over(
    top: Polynomial, bottom: Polynomial, step: tuple[int, Polynomial, Polynomial]
) -> tuple[Polynomial, Polynomial]:
    """Return top / bottom with a symbol replaced by a quotient."""
    place, numerator, denominator = step
    a, m = _homogeneous(top, place, numerator, denominator)
    b, n = _homogeneous(bottom, place, numerator, denominator)
    # a / d^m over b / d^n
    if n >= m:
        a = a * denominator ** (n - m)
    else:
        b = b * denominator ** (m - n)
    common = a.gcd(b)
    a, b = a / common, b / common
    return (-a, -b) if b.leading_coefficient() < 0 else (a, b)


def _homogeneous(
    polynomial: Polynomial, place: int, numerator: Polynomial, denominator: Polynomial
) -> tuple[Polynomial, int]:
    """Return denominator^m times the polynomial with the symbol replaced, and m."""
    degree = int(polynomial.degrees()[place])
    if degree == 0:
        return polynomial, 0
    ring = polynomial.context()
    by_power: list[dict[tuple[int, ...], Any]] = [{} for _ in range(degree + 1)]
    for monomial, c in polynomial.terms():
        rest = list(monomial)
        power, rest[place] = int(rest[place]), 0
        by_power[power][tuple(rest)] = c
    total = ring.constant(0)
    for power, terms in enumerate(by_power):
        if terms:
            total += ring.from_dict(terms) * numerator**power * denominator ** (degree - power)
    return total, degree


def _linear(factor: Polynomial) -> tuple[int, Polynomial, Polynomial]:
    """Return a symbol in which a factor is linear, its slope and the rest; the simplest slope."""
    degrees = factor.degrees()
    choices = []
    for place, degree in enumerate(degrees):
        if degree == 1:
            slope = factor.derivative(place)
            rest = factor - slope * factor.context().gen(place)
            choices.append((not slope.is_constant(), len(slope), -place, slope, rest))
    if not choices:
        raise NotImplementedError(f"the equation {factor} = 0 is linear in no symbol")
    _, _, place, slope, rest = min(choices, key=lambda choice: choice[:3])
    return -place, slope, rest


def _sign(constant: Polynomial) -> int:
    value = constant.leading_coefficient() if constant != 0 else 0
    return (value > 0) - (value < 0)
