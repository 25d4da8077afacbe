"""What a run on the tape is made of: its draws, their values and the cell around them."""

from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(frozen=True)
class Draw:
    """A uniform variable on the integers 0 <= k < size."""

    size: int

    def mass(self, low: int, high: int) -> Fraction:
        return Fraction(high - low, self.size)


@dataclass(frozen=True)
class Pick:
    """A categorical variable with exact weights that sum to one."""

    weights: tuple[Fraction, ...]

    def mass(self, low: int, high: int) -> Fraction:
        return sum(self.weights[low:high], Fraction(0))


@dataclass(frozen=True)
class Runner:
    """One that may win a race: it arrives at E / rate, where E is exponential noise.

    Attributes:
        index: what the race gives if it wins.
        weight: the probability of that.
        rate: its weight before normalising; 0 if its arrival follows no rate.
        noise: the variable that E comes from, E = -log(u) or, if `falls`, -log(1 - u) with
            u = (k + 1/2) / size; -1 if E is 1.
    """

    index: int
    weight: Fraction
    rate: float = 0.0
    noise: int = -1
    size: int = 1
    falls: bool = False


@dataclass(frozen=True)
class Race(Draw):
    """The winner of a race, as its place among the runners.

    It is a function of noise whose variables are on the tape already, and stands for them: they
    keep their whole range. So races on the same noise are not independent.

    Attributes:
        runners: those of positive weight, in the order of their indices.
        group: races of one group are conditional on each other, and may share noise.
    """

    runners: tuple[Runner, ...]
    group: int

    def mass(self, low: int, high: int) -> Fraction:
        return sum((runner.weight for runner in self.runners[low:high]), Fraction(0))


Variable = Draw | Pick
Box = tuple[tuple[int, int], ...]
"""Half-open interval of each variable, in the order the variables appear."""


@dataclass(frozen=True)
class Place:
    """An operation, and the line of the subject's code that called it."""

    what: str
    where: str

    def __str__(self) -> str:
        return f"{self.what} at {self.where}" if self.where else self.what


@dataclass
class Run:
    """What one run on the tape gave.

    Attributes:
        variables: the draws in the order they were made.
        point: the value that each was given.
        low, high: the cell; the run's output is the same for all values in it.
        cuts: the comparisons that each variable took part in.
        escapes: why the cell proves nothing; empty if it does.
        scalars: whether Python numbers were handed out.
    """

    variables: list[Variable] = field(default_factory=list)
    point: list[int] = field(default_factory=list)
    low: list[int] = field(default_factory=list)
    high: list[int] = field(default_factory=list)
    cuts: list[list[Place]] = field(default_factory=list)
    escapes: list[Place] = field(default_factory=list)
    scalars: bool = False

    @property
    def cell(self) -> Box:
        return tuple(zip(self.low, self.high, strict=True))
