"""The reading of `choose` for symbols: every way the choices can fall, with its weight.

Another reading of the programs that `specref.choice.law` enumerates. Options whose weight is the
zero function are left out; others are followed even if their weight is zero at some points of the
region, where they add nothing. What such a run does there does not count: if it fails, the region
is asked whether its weight is zero.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from proofs.symbolic.quantity import Quantity
from proofs.symbolic.region import Empty, Outside, Region, Restart


@dataclass(frozen=True)
class Raised:
    """The outcome of a program that raised an error with a positive chance."""

    error: str


class Follow:
    """Follow a prefix of picks, then always the first option."""

    def __init__(self, prefix: tuple[int, ...], weight: Quantity) -> None:
        self.prefix, self.weight = prefix, weight
        self.trail: list[tuple[int, int]] = []

    def __call__(self, weights: Sequence[Any], at: Any = None) -> int:
        """Return an index; the weights must be a law on the whole region."""
        if sum(weights) != 1 or any(w < 0 for w in weights):
            raise ValueError(f"choose needs weights >= 0 that sum to 1, got {tuple(weights)}")
        options = [i for i, w in enumerate(weights) if not is_zero(w)]
        here = len(self.trail)
        pick = self.prefix[here] if here < len(self.prefix) else 0
        self.trail.append((pick, len(options)))
        self.weight = self.weight * weights[options[pick]]
        return options[pick]

    def flip(self, chance: Any, at: Any = None) -> bool:
        """Return True with probability `chance`."""
        return self((chance, 1 - chance)) == 0


def law(program: Callable[[Any], Hashable], region: Region) -> dict[Hashable, Quantity]:
    """Return the law of a program's outcome on a region, one rational function per outcome.

    Raises:
        Empty, Restart: as for `Region.is_in`.
        Outside: as the program.
    """
    symbols = region.shared.symbols
    one = Quantity(symbols.one, symbols.one, region)
    out: defaultdict[Hashable, Quantity] = defaultdict(lambda: one * 0)
    todo: list[tuple[int, ...]] = [()]
    while todo:
        choose = Follow(todo.pop(), one)
        try:
            outcome: Hashable = program(choose)
        except (Empty, Outside, Restart):
            raise
        except Exception as error:
            outcome = Raised(f"{type(error).__name__}: {error}")
            if choose.weight == 0:
                outcome = None
        if outcome is not None:
            out[outcome] = out[outcome] + choose.weight
        picks = tuple(pick for pick, _ in choose.trail)
        for at in range(len(choose.prefix), len(picks)):
            for other in range(1, choose.trail[at][1]):
                todo.append((*picks[:at], other))
    return dict(out)


def is_zero(weight: Any) -> bool:
    """Say whether a weight is the zero function."""
    return weight.is_zero() if isinstance(weight, Quantity) else bool(weight == 0)
