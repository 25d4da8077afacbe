"""The only source of randomness: a program asks `choose`, and a *reading* answers.

A program takes one argument `choose` and uses it in two ways:

    choose(weights, at=...)       an index, with probability weights[index]; weights sum to one
    choose.flip(chance, at=...)   True with probability chance

The same text then has several readings: `Enumerate` (behind `law`) visits every way the choices
can fall, with its exact weight; `Uniforms` spends given uniforms; `Seeded` computes them from a
seed; `Trace` writes down what another reading did.

Draws are addressed, not "the next one": `at=child` is the coin of a drafted node, a choice without
`at` is the terminal draw of the round, `at=Proposal(i)` is the draw that proposes node `i`.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from specref.dist import Number, is_exact
from specref.philox import Domain, uniform

Outcome = TypeVar("Outcome", bound=Hashable)


@dataclass(frozen=True)
class Proposal:
    """Address of the draw that proposes the token of node `index`."""

    index: int


@runtime_checkable
class Choose(Protocol):
    """What a program may ask of its source of randomness."""

    def __call__(self, weights: Sequence[Number], at: Any = None) -> int: ...

    def flip(self, chance: Number, at: Any = None) -> bool: ...


class Enumerate:
    """The exact reading: follow a prefix of picks, then always the first possible one."""

    def __init__(self, prefix: tuple[int, ...] = (), widths: tuple[int, ...] = ()) -> None:
        self.prefix, self.widths = prefix, widths
        self.trail: list[tuple[int, int]] = []
        self.weight: Number = 1

    def __call__(self, weights: Sequence[Number], at: Any = None) -> int:
        _check_sum(weights)
        support = [i for i, w in enumerate(weights) if w > 0]
        here = len(self.trail)
        if here < len(self.widths) and len(support) != self.widths[here]:
            raise RuntimeError(
                "the program is not a function of its choices: replayed, it offered "
                f"{len(support)} options where it had offered {self.widths[here]}; "
                "remove state and other randomness from it"
            )
        pick = self.prefix[here] if here < len(self.prefix) else 0
        self.trail.append((pick, len(support)))
        self.weight = self.weight * weights[support[pick]]
        return support[pick]

    def flip(self, chance: Number, at: Any = None) -> bool:
        return self((chance, 1 - chance)) == 0


def law(program: Callable[[Any], Outcome]) -> dict[Outcome, Number]:
    """Return the exact output law of `program(choose)`, by visiting every leaf of its choice tree.

    >>> from fractions import Fraction
    >>> law(lambda choose: choose.flip(Fraction(1, 3)) and choose.flip(Fraction(1, 2)))
    {True: Fraction(1, 6), False: Fraction(5, 6)}

    Raises:
        ValueError: weights that do not sum to one, or are negative.
        RuntimeError: the program keeps state between runs, or has randomness of its own that
            moves the chances.
    """
    out: defaultdict[Outcome, Number] = defaultdict(int)
    todo: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((), ())]
    while todo:
        choose = Enumerate(*todo.pop())
        outcome = program(choose)
        out[outcome] = out[outcome] + choose.weight
        picks = tuple(pick for pick, _ in choose.trail)
        widths = tuple(width for _, width in choose.trail)
        for at in range(len(choose.prefix), len(picks)):
            for other in range(1, widths[at]):
                todo.append(((*picks[:at], other), widths[: at + 1]))
    total = sum(out.values())
    if is_exact(total) and total != 1:
        raise RuntimeError(
            f"the leaves sum to {total}, not 1: the program is not a function of its choices; "
            "remove state and other randomness from it"
        )
    return dict(out)


def inverse_cdf(weights: Sequence[Number], u: Number) -> int:
    """Return the first token whose cumulative weight exceeds `u`; frozen convention.

    If rounding leaves the sum at or below `u`, the last token of positive weight is taken: a token
    of weight zero is never returned.
    """
    total: Number = 0
    last = -1
    for x, w in enumerate(weights):
        if w > 0:
            total, last = total + w, x
            if u < total:
                return x
    if last < 0:
        raise ValueError("no token has positive weight")
    return last


class Uniforms:
    """The reading that spends given uniforms: accept iff `u < chance`, inverse CDF in token order.

    Args:
        draws: the coins of the drafted nodes 1, 2, ... and then the terminal draw, each in [0, 1).
            Columns that a path does not need are ignored.

    Raises:
        ValueError: a draw outside [0, 1).
        LookupError: the program asks for a draw that the row does not hold.
    """

    def __init__(self, draws: Iterable[Number]) -> None:
        self.draws = tuple(draws)
        for column, u in enumerate(self.draws):
            if not 0 <= u < 1:
                raise ValueError(f"uniforms[{column}] = {u} is outside [0, 1)")

    def draw(self, at: Any) -> Number:
        if isinstance(at, Proposal):
            raise LookupError(
                "these uniforms hold coins and the terminal draw; drafts are given, or use a seed"
            )
        column = len(self.draws) - 1 if at is None else at.index - 1
        if not 0 <= column < len(self.draws):
            raise LookupError(
                f"uniforms has {len(self.draws)} draws but column {column} is asked for; "
                "pass one per drafted node and one terminal draw"
            )
        return self.draws[column]

    def __call__(self, weights: Sequence[Number], at: Any = None) -> int:
        _check_sum(weights)
        return inverse_cdf(weights, self.draw(at))

    def flip(self, chance: Number, at: Any = None) -> bool:
        _check_sum((chance, 1 - chance))
        return bool(self.draw(at) < chance)


class Seeded(Uniforms):
    """The reading that computes every draw from a seed and the start of the round (`philox`)."""

    def __init__(self, seed: int, start: int = 0) -> None:
        super().__init__(())
        self.seed, self.start = seed, start

    def draw(self, at: Any) -> Number:
        if at is None:
            return uniform(self.seed, self.start, 0, Domain.TERMINAL)
        domain = Domain.DRAFT if isinstance(at, Proposal) else Domain.COIN
        return uniform(self.seed, self.start, at.index, domain)


class Step(NamedTuple):
    """One recorded choice: the chance of a flip or the weights of a choice, and what came out."""

    kind: str
    weights: tuple[Number, ...]
    outcome: int | bool
    at: Any
    u: Number | None


@dataclass
class Trace:
    """The reading for people: let `inner` answer and write each step down in `steps`."""

    inner: Any
    steps: list[Step] = field(default_factory=list)

    def __call__(self, weights: Sequence[Number], at: Any = None) -> int:
        pick: int = self.inner(weights, at=at)
        self.steps.append(Step("choose", tuple(weights), pick, at, self._draw(at)))
        return pick

    def flip(self, chance: Number, at: Any = None) -> bool:
        accepted: bool = self.inner.flip(chance, at=at)
        self.steps.append(Step("flip", (chance,), accepted, at, self._draw(at)))
        return accepted

    def _draw(self, at: Any) -> Number | None:
        return self.inner.draw(at) if isinstance(self.inner, Uniforms) else None


def at_start(choose: Choose, start: int) -> Choose:
    """Return the reading of the round that starts after `start` tokens.

    Only draws from a seed depend on it: left at one start, every round would meet the same draws.
    """
    if isinstance(choose, Seeded):
        return Seeded(choose.seed, start)
    if isinstance(choose, Trace):
        return Trace(at_start(choose.inner, start), choose.steps)
    return choose


def _check_sum(weights: Sequence[Number]) -> None:
    """Refuse weights that are no law: a program that passes them has a wrong rule, not noise."""
    total = sum(weights)
    if is_exact(total):
        fits = total == 1
    else:
        unit = _unit(total)
        if unit is None:
            return  # symbols: whoever reads them decides
        # One rounding for each division and one for each addition.
        fits = abs(float(total) - 1) <= 2 * len(weights) * unit
    if not fits or any(w < 0 for w in weights):
        shown = ", ".join(str(w) for w in weights)
        raise ValueError(f"choose needs weights >= 0 that sum to 1, got ({shown})")


def _unit(number: Number) -> float | None:
    """Return the distance from 1 to the next float of this type, or None for a symbol."""
    if not hasattr(number, "dtype"):
        try:
            float(number)
        except TypeError:
            return None
        return sys.float_info.epsilon
    if getattr(number, "shape", ()):
        raise ValueError(f"choose needs one row of weights, got rows of shape {number.shape}")
    one = number * 0 + 1
    step = one
    while one + step / 2 > one:  # never for NaN, whose sum is no law
        step = step / 2
    return float(step)
