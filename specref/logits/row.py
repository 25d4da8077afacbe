"""A row of weights: the tokens that may come, and what can be decided about them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from types import MappingProxyType
from typing import Any

from specref.dist import Law, Number, rational
from specref.logits.balls import Arithmetic, arithmetic
from specref.logits.score import Score

FEW = 64
"""Sums of at most so many terms are first looked at exactly, larger ones are first enclosed."""


ONE = rational(1)


class Sum(dict[int, Any]):
    """A sum of weights times rationals, or times scores: the factor by class of weights.

    It is not changed once it is complete, so its enclosures are kept.
    """

    def __init__(self, factors: Mapping[int, Any] = MappingProxyType({})) -> None:
        super().__init__(factors)
        self.balls: dict[int, Any] = {}


class Undecided(ArithmeticError):
    """A comparison that the precision allowed does not decide."""


@dataclass(frozen=True)
class Enclosure:
    """A law that has irrational masses, between two rows of rationals.

    Attributes:
        lower, upper: bounds of every token's mass [V]; both are 0 for tokens that were filtered.
    """

    lower: Law
    upper: Law

    @property
    def width(self) -> Number:
        """The largest distance of two bounds."""
        return max(b - a for a, b in zip(self.lower, self.upper, strict=True))

    def inside(self) -> Law:
        """Return an exact law that lies between the bounds, so no mass is off by more than width.

        >>> half = rational("1/2")
        >>> print(*Enclosure((half, rational("1/4")), (half, half)).inside())
        1/2 1/2
        """
        room = sum(self.upper) - sum(self.lower)
        share = (1 - sum(self.lower)) / room
        return tuple(a + (b - a) * share for a, b in zip(self.lower, self.upper, strict=True))


class Row:
    """Weights exp(score) of the tokens that may still come.

    Tokens whose weights have a rational ratio form a class, so that a sum of weights is one
    rational factor per class. By Lindemann and Weierstrass (different rational exponents) and
    Besicovitch (roots of rationals) the classes are linearly independent over the rationals: a sum
    is zero just where all its factors are, and enclosing finely enough finds any other sign.

    Args:
        scores: by token.
        vocab: V.
        limit: the most bits that a comparison may take.
        numbers: the arithmetic of enclosures; the installed one if left out.
    """

    def __init__(
        self,
        scores: Mapping[int, Score],
        vocab: int,
        limit: int,
        numbers: Arithmetic | None = None,
    ) -> None:
        self.scores, self.vocab, self.limit = dict(scores), vocab, limit
        self._numbers = numbers
        self._order: list[list[int]] | None = None
        self._bases: list[Score] = []
        self._places: dict[int, tuple[int, Number]] = {}
        self._balls: dict[int, dict[int, Any]] = {}
        self._top: Score | None = None

    @property
    def numbers(self) -> Arithmetic:
        """The arithmetic of enclosures."""
        if self._numbers is None:
            self._numbers = arithmetic()
        return self._numbers

    def keep(self, tokens: Iterable[int]) -> "Row":
        """Return the row with these tokens only."""
        kept = set(tokens)
        row = self._like({x: score for x, score in self.scores.items() if x in kept})
        if self._places:
            row._bases, row._places = self._bases, self._places
            row._balls, row._top = self._balls, self._top
        if self._order is not None:
            groups = ([x for x in group if x in kept] for group in self._order)
            row._order = [group for group in groups if group]
        return row

    def changed(self, change: Callable[[int, Score], Score]) -> "Row":
        """Return the row with other scores."""
        return self._like({x: change(x, score) for x, score in self.scores.items()})

    def _like(self, scores: Mapping[int, Score]) -> "Row":
        return Row(scores, self.vocab, self.limit, self._numbers)

    @property
    def places(self) -> dict[int, tuple[int, Number]]:
        """The class of every token, and its weight as a multiple of the first of its class."""
        if not self._places:
            found: dict[Score, tuple[int, Number]] = {}
            plain = not any(score.logs for score in self.scores.values())
            for x, score in self.scores.items():
                if score not in found:
                    found[score] = self._new_place(score, plain)
                self._places[x] = found[score]
        return self._places

    def _new_place(self, score: Score, plain: bool) -> tuple[int, Number]:
        if not plain:
            for k, base in enumerate(self._bases):
                ratio = (score - base).exponential()
                if ratio is not None:
                    return k, ratio
        self._bases.append(score)
        return len(self._bases) - 1, ONE

    def sum(self, tokens: Iterable[int]) -> Sum:
        """Return the sum of the weights of tokens."""
        sums = Sum()
        for x in tokens:
            k, factor = self.places[x]
            sums[k] = sums[k] + factor if k in sums else factor
        return sums

    def moment(self) -> Sum:
        """Return the sum of weight times score of all tokens."""
        sums = Sum()
        for x, score in self.scores.items():
            k, factor = self.places[x]
            part = score.times(factor)
            sums[k] = sums[k] + part if k in sums else part
        return sums

    def order(self) -> list[list[int]]:
        """Return the tokens by falling weight, those of equal weight together, by rising id."""
        if self._order is None:
            equal: dict[Any, list[int]] = {}
            plain = not any(score.logs for score in self.scores.values())
            for x in sorted(self.scores):
                key: Any = self.scores[x].plain if plain else self.places[x]
                equal.setdefault(key, []).append(x)
            groups = list(equal.values())
            if plain:
                groups.sort(key=lambda group: -self.scores[group[0]].plain)
            else:
                groups.sort(key=cmp_to_key(self._compare))
            self._order = groups
        return self._order

    def _compare(self, a: list[int], b: list[int]) -> int:
        """Order groups of equal tokens by falling weight; scores tell it without exponentials."""
        sign = self._sign(self.scores[b[0]] - self.scores[a[0]])
        if sign is None:
            raise Undecided(
                f"the order of tokens {a[0]} and {b[0]} is undecided at {self.limit} bits; "
                "pass more bits, or move the logits or the parameter apart"
            )
        return sign

    def sign(self, a: Sum, b: Sum, factor: Any, what: str, pair: tuple[int, int]) -> int:
        """Return the sign of `a - factor * b`: -1, 0 or 1.

        Args:
            a, b: sums of weights.
            factor: a rational; or a score, where the factors in `a` are scores too.
            what: what hangs on it.
            pair: the tokens between which it decides.

        Raises:
            Undecided: the bits that are allowed do not tell.
        """
        few = len(a) + len(b) <= FEW
        if few and (sign := _known(minus(a, b, factor))) is not None:
            return sign
        for bits in self._precisions():
            with self.numbers.at(bits):
                value = self._enclosed(a, bits) - self._ball(factor) * self._enclosed(b, bits)
                if value > 0 or value < 0:
                    return 1 if value > 0 else -1
            if not few and (sign := _known(minus(a, b, factor))) is not None:
                return sign
            few = True
        raise Undecided(
            f"{what} of tokens {pair[0]} and {pair[1]} is undecided at {self.limit} bits; "
            "pass more bits, or move the logits or the parameter apart"
        )

    def positive(self, x: int) -> bool:
        """Whether a token's score is above zero.

        Raises:
            Undecided: the bits that are allowed do not tell.
        """
        sign = self._sign(self.scores[x])
        if sign is None:
            raise Undecided(f"the sign of the logit of token {x} is undecided at {self.limit} bits")
        return sign > 0

    def _sign(self, score: Score) -> int | None:
        """Return the sign of a score, or None if the bits that are allowed do not tell."""
        if (sign := score.sign()) is not None:
            return sign
        for bits in self._precisions():
            with self.numbers.at(bits):
                value = self._ball(score)
                if value > 0 or value < 0:
                    return 1 if value > 0 else -1
        return None

    def quotient(self, a: Sum, b: Sum) -> tuple[Number, Number] | None:
        """Return bounds of a / b, tight to many digits, or None; `b` is positive."""
        bits = min(128, self.limit)
        with self.numbers.at(bits):
            return self.numbers.bounds(self._enclosed(a, bits) / self._enclosed(b, bits))

    def _precisions(self) -> Iterator[int]:
        bits = min(64, self.limit)
        while bits < self.limit:
            yield bits
            bits *= 2
        yield self.limit

    def _enclosed(self, sums: Sum, bits: int) -> Any:
        if bits not in sums.balls:
            weight = self._weights(sums, bits)
            terms = (
                weight[k] if factor == 1 else weight[k] * self._ball(factor)
                for k, factor in sums.items()
            )
            sums.balls[bits] = sum(terms, self.numbers.number(rational(0)))
        return sums.balls[bits]

    def _weights(self, classes: Iterable[int], bits: int) -> dict[int, Any]:
        """Return the enclosed weights of classes at least, up to a factor that all share."""
        found = self._balls.setdefault(bits, {})
        if self._top is None:
            self._top = self._largest()
        exp, number, top = self.numbers.exp, self.numbers.number, self._top
        for k in classes:
            if k not in found:
                base = self._bases[k]
                plain = not (base.logs or top.logs)  # rows of 128k logits are
                found[k] = exp(number(base.plain - top.plain) if plain else self._ball(base - top))
        return found

    def _largest(self) -> Score:
        """Return the largest base, or one that the bits that are allowed do not tell from it.

        Weights relative to it are at most about 1: those of powers such as 3^(10^30), which stand
        behind a low temperature, are too large for any arithmetic.
        """
        if not any(base.logs for base in self._bases):
            return Score(max(base.plain for base in self._bases))
        largest = self._bases[0]
        for base in self._bases[1:]:
            if self._sign(base - largest) == 1:
                largest = base
        return largest

    def _ball(self, value: Any) -> Any:
        """Enclose a rational or a score."""
        number = self.numbers.number
        if not isinstance(value, Score):
            return number(value)
        logs = (number(r) * self.numbers.log(number(w)) for w, r in value.logs)
        return sum(logs, number(value.plain))

    def law(self, width: Number) -> Law | Enclosure:
        """Return the law: exact where all masses are rational, else enclosed.

        Args:
            width: the bounds of a mass are no farther apart.

        Raises:
            Undecided: the bits that are allowed do not do.
        """
        parts = self.sum(self.scores)
        if len(parts) == 1:
            ((k, whole),) = parts.items()
            exact = {x: self.places[x][1] / whole for x in self.scores}
            return tuple(exact.get(x, rational(0)) for x in range(self.vocab))
        for bits in self._precisions():
            with self.numbers.at(bits):
                whole = self._enclosed(parts, bits)
                weight = self._weights(parts, bits)
                known = {k: self.numbers.bounds(weight[k] / whole) for k in parts}
            found = {k: ends for k, ends in known.items() if ends is not None}
            if len(found) < len(known):
                continue
            bounds = {}
            for x in self.scores:
                k, factor = self.places[x]
                low, high = found[k]
                bounds[x] = max(low, 0) * factor, min(high * factor, rational(1))
            if all(high - low <= width for low, high in bounds.values()):
                none = rational(0), rational(0)
                low, high = zip(*(bounds.get(x, none) for x in range(self.vocab)), strict=True)
                return Enclosure(low, high)
        raise Undecided(
            f"{self.limit} bits do not enclose the law to {float(width):g}; pass more bits"
        )


def minus(a: Sum, b: Sum, factor: Any = 1) -> Sum:
    """Return the sum `a - factor * b`; `factor` may be a score where `b` has rational factors."""
    sums = Sum(a)
    for k, value in b.items():
        part = factor.times(-value) if isinstance(factor, Score) else value * -factor
        sums[k] = sums[k] + part if k in sums else part
    return sums


def _known(sums: Sum) -> int | None:
    """Return the sign of a sum if its factors tell it: all zero, or all of one sign."""
    signs = {_sign_of(factor) for factor in sums.values()} - {0}
    if not signs:
        return 0
    return signs.pop() if len(signs) == 1 else None


def _sign_of(factor: Any) -> int | None:
    return factor.sign() if isinstance(factor, Score) else (factor > 0) - (factor < 0)


def first(count: int, holds: Callable[[int], bool]) -> int:
    """Return the first number from 1 for which a condition holds, by bisection; else `count`."""
    low, high = 1, count
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def flat(groups: Sequence[Sequence[int]]) -> list[int]:
    """Return the tokens of groups in one list."""
    return [x for group in groups for x in group]
