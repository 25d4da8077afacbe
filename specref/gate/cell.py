"""Cells: boxes of draws on which a program gives one output, and the law that they add up to."""

from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction

from specref.gate.subject import Outcome
from specref.gate.variable import Box, Place, Race, Variable


@dataclass
class Cell:
    """A box of draws and what the program gives on it.

    Attributes:
        cuts: the operations that bound it, in the order of the draws.
        variables: what its intervals are of.
    """

    box: Box
    outcome: Outcome
    mass: Fraction
    cuts: tuple[Place, ...] = ()
    variables: tuple[Variable, ...] = ()

    @property
    def races(self) -> dict[int, Race]:
        """The races among its variables, by position."""
        return {at: v for at, v in enumerate(self.variables) if isinstance(v, Race)}


@dataclass
class Measured:
    """The law of a program as far as it was read.

    Attributes:
        cells: they cover the cube unless the budget ran out.
        escapes: why the cells prove nothing; empty if they do.
        calls: runs of the program.
        complete: whether the whole cube is covered.
        missed: the law is off by at most this in TV, but for a risk of 1e-6; 0 if every cell was
            read off the program, positive if it was learned from probes.
    """

    cells: list[Cell] = field(default_factory=list)
    escapes: list[str] = field(default_factory=list)
    calls: int = 0
    complete: bool = True
    missed: float = 0.0

    @property
    def law(self) -> dict[Outcome, Fraction]:
        """Mass by outcome."""
        out: defaultdict[Outcome, Fraction] = defaultdict(Fraction)
        for cell in self.cells:
            out[cell.outcome] += cell.mass
        return dict(out)

    @property
    def exact(self) -> bool:
        """Whether the law is the program's: as far as probes of it were asked, if any were."""
        return self.complete and not self.escapes

    def where(self, outcomes: set[Outcome], last: bool = False) -> str:
        """Return the operations behind some outcomes, those of the smallest cell first.

        Args:
            outcomes: whose cells are looked at.
            last: only where the last draw was decided: that of a correction or bonus.
        """
        found: dict[str, None] = {}
        for cell in sorted(self.cells, key=lambda cell: cell.mass):
            if cell.outcome in outcomes:
                found |= dict.fromkeys(str(cut) for cut in cell.cuts[-last:])
        return "; ".join(list(found)[:2])
