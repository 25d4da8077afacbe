"""Measured laws of subjects that the tape cannot follow: their cells are learned.

The draws are the argument of `decide` where the subject has it; elsewhere they go to `sample`
through the generators that it uses. Either way the program is a function of given integers, and
`gate.learn` finds its cells. Randomness that is not under control shows: every run has another seed
and other states of the global generators, and where the same draws give two outcomes, nothing that
was measured counts.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import zip_longest
from math import lcm
from typing import Any

import numpy as np

from specref.choice import Uniforms
from specref.gate.cases import Case
from specref.gate.cell import Measured
from specref.gate.inject import Plan, Played, Program, controlled, play
from specref.gate.learn import MOST, learn, outcome_at
from specref.gate.seeds import ambient, one_thread, seed_of, states_kept
from specref.gate.subject import MOST_ROWS, Outcome, Problem, Subject

MOST_COLUMNS = 24
"""Draws of one run that are learned; a loop that draws until it likes a number has no largest."""

TOGETHER = 64
"""Runs that start from the same states of the global generators, one after the other."""

WIDE = 16
"""Questions to `decide` that cost little more than one: a call is what takes time."""

WHOLE = ("exception", "shape", "dtype")
"""Problems that all rows of a call share."""

UNRESOLVED = Problem("draws", f"more than {MOST_COLUMNS} draws in one run")


def measure_opaque(
    subject: Subject,
    case: Case,
    budget: int,
    seed: int,
    probes: int = 1 << 12,
    spread: int = 1 << 11,
) -> Measured:
    """Learn the law of one round on a case.

    Args:
        subject: whose `decide` is asked, or else its `sample` for one row at a time.
        case: what it is called on.
        budget: largest number of rounds.
        seed: of all points; 0 <= seed < 2^31.
        probes, spread: as in `learn`.
    """
    if subject.decide is None:
        return measure_program(
            lambda given: subject.sample(case, 1, given)[0], budget, seed, probes, spread
        )
    decisions = _Decisions(subject, case, seed)
    with states_kept(), one_thread():
        sizes = (decisions.size,) * (len(case.tokens) + 1)
        got = learn(decisions, sizes, budget, seed, probes, spread, WIDE)
        if got.exact:
            _check_rows(decisions, got, seed)
    return got


def measure_program(
    program: Program,
    budget: int,
    seed: int,
    probes: int = 1 << 12,
    spread: int = 1 << 11,
) -> Measured:
    """Learn the law of `program(seed)`, whose draws come from generators under control.

    Args:
        program: of one round, or of several; may draw for itself from `Drawn(seed)`.
        budget: largest number of runs.
        seed: of all points and of the seeds that the program gets; 0 <= seed < 2^31.
        probes, spread: as in `learn`; an eighth as many runs on real draws are compared too.
    """
    with states_kept(), one_thread(), controlled():
        runs = _Runs(program, seed)
        got = Measured()
        try:
            got = _learned(runs, budget, seed, probes, spread)
            if got.exact:
                _settle(got)
        except _Uncontrolled as reason:
            got.escapes.append(str(reason))
        got.calls = runs.calls
    return got


def repeated_draws(program: Program, seed: int, calls: int = 6) -> str:
    """Return how a program uses a generator's state twice, or "" if it does not.

    Args:
        program: of a call of several rows, say, which should have draws of their own.
        seed: of the first call; each call has another.
        calls: how many calls.
    """
    seen: dict[Any, int] = {}
    with states_kept(), controlled():
        ambient(seed)
        for call in range(calls):
            played = play(program, seed_of(seed, call))
            if played.repeats:
                return f"draw {played.repeats[0] + 1} of a call is drawn twice, from one state"
            for at, address in enumerate(played.addresses):
                first = seen.setdefault(address, call)
                if first != call:
                    return (
                        f"draw {at + 1} of call {call + 1} starts from a generator state of call "
                        f"{first + 1}, although the calls were given different seeds"
                    )
    return ""


class Drawn(Uniforms):
    """The reading of `choose` for programs to measure: every draw is a new one."""

    def __init__(self, seed: int) -> None:
        super().__init__(())
        self._random = random.Random(seed)

    def draw(self, at: Any) -> Fraction:
        return Fraction(self._random.random())


class _Uncontrolled(Exception):
    """The draws of a program are not all under control; the text says why."""


class _Wider(Exception):
    """A run asks for more draws, or finer ones, than there are columns for."""


class _Runs:
    """Runs of a program on given draws.

    Attributes:
        plan: what the columns are for.
        calls: runs so far.
    """

    def __init__(self, program: Program, seed: int) -> None:
        self._program = program
        self._seeds = np.random.Generator(np.random.PCG64(seed))
        self.plan = Plan()
        self.calls = 0

    def __call__(self, points: Any) -> list[Outcome]:
        """Return the outcomes of points [m, columns].

        Raises:
            _Wider: columns are missing; the plan has them now.
            _Uncontrolled: see there.
        """
        return [outcome for outcome, _ in map(self.run, points.tolist())]

    def run(self, point: Sequence[int]) -> tuple[Outcome, list[int]]:
        """Return the outcome of a point, and the point as it was drawn."""
        if self.calls % TOGETHER == 0:
            ambient(self._seed())
        self.calls += 1
        played = play(self._program, self._seed(), point, self.plan)
        for escape in played.escapes:
            raise _Uncontrolled(escape)
        sizes = self.plan.sizes
        if len(played.drawn) > MOST_COLUMNS <= len(sizes):
            return UNRESOLVED, []
        self.plan = self._fitting(played)
        if self.plan.sizes != sizes:
            raise _Wider
        pairs = zip(played.drawn, sizes, strict=False)
        return played.outcome, [k * (whole // size) for (k, size), whole in pairs]

    def look(self) -> None:
        """Find the columns: of real runs, and of runs with the least and the greatest numbers."""
        for end in (*[None] * 32, 0, 1):
            while True:
                try:
                    sizes = self.plan.sizes
                    self.run(() if end is None else [end * (size - 1) for size in sizes])
                except _Wider:
                    continue
                break

    def _seed(self) -> int:
        return int(self._seeds.integers(1 << 31))

    def _fitting(self, played: Played) -> Plan:
        """Return a plan that has the columns of a run; with some to spare, if it had too few."""
        used = zip_longest(self.plan.blocks, played.blocks, fillvalue=0)
        blocks = tuple(max(pair) for pair in used)
        if blocks != self.plan.blocks:
            if sum(blocks) > MOST_COLUMNS:
                raise _Uncontrolled(f"more than {MOST_COLUMNS} numbers of torch are used in a run")
            if any(blocks):  # they shift the columns of all other draws
                return replace(self.plan, blocks=blocks, sizes=(1,))
        sizes = list(self.plan.sizes)
        for at, (_, size) in enumerate(played.drawn):
            if at < len(sizes):
                sizes[at] = lcm(sizes[at], size)
            else:
                sizes.append(size)
        if max(sizes, default=1) > MOST:
            raise _Uncontrolled("the sizes of a draw on different paths have no common multiple")
        if self.plan.sizes and len(sizes) > len(self.plan.sizes):
            sizes += sizes[-1:] * len(self.plan.sizes)  # do not ask for one at a time
        return replace(self.plan, blocks=blocks, sizes=tuple(sizes[:MOST_COLUMNS]))


def _learned(runs: _Runs, budget: int, seed: int, probes: int, spread: int) -> Measured:
    """Learn the cells; where torch's words are no float32 uniforms, once more as float64."""
    runs.look()
    words = any(runs.plan.blocks)
    got = _compared(runs, budget // 2 if words else budget, seed, probes, spread)
    if got.exact or not words:
        return got
    runs.plan = Plan(pairs=True)
    runs.look()
    return _compared(runs, budget, seed, probes, spread)


def _compared(runs: _Runs, budget: int, seed: int, probes: int, spread: int) -> Measured:
    """Learn the cells and compare them with real runs; once more if columns were missing."""
    while True:
        try:
            left = budget - runs.calls
            got = learn(runs, runs.plan.sizes, left, seed, probes, spread)
            if got.exact:
                _audit(runs, got, max(16, probes // 8))
        except _Wider:
            continue
        return got


def _audit(runs: _Runs, got: Measured, count: int) -> None:
    """Compare runs on real draws with the cells."""
    for _ in range(count):
        seen, point = runs.run(())
        wanted = outcome_at(got.cells, [*point, *[0] * (len(runs.plan.sizes) - len(point))])
        if seen not in (wanted, UNRESOLVED):
            got.escapes.append(f"a run on real draws gave {seen}, where its draws give {wanted}")
            return


def _settle(got: Measured) -> None:
    """Give runs of too many draws to the likeliest outcome, and admit that they are not known."""
    lost = [cell for cell in got.cells if cell.outcome is UNRESOLVED]
    likeliest = max(got.cells, key=lambda cell: cell.mass).outcome
    for cell in lost:
        cell.outcome = likeliest
    got.missed = min(1.0, got.missed + float(sum(cell.mass for cell in lost)))


class _Decisions:
    """Rounds of `decide` on given draws, many at a time."""

    def __init__(self, subject: Subject, case: Case, seed: int) -> None:
        self._subject, self._case, self._seed = subject, case, seed
        self._calls = 0
        self.size = subject.grid

    def __call__(self, points: Any) -> list[Outcome]:
        """Return the outcomes of points [m, columns]."""
        found: list[Outcome] = []
        for start in range(0, len(points), MOST_ROWS):
            found += self.call(points[start : start + MOST_ROWS])
        return found

    def call(self, points: Any) -> list[Outcome]:
        """Return the outcomes of one call; if that fails, of calls of fewer rows."""
        self._calls += 1
        ambient(seed_of(self._seed, self._calls))
        found = self._subject.decided(self._case, points / self.size)
        whole = isinstance(found[0], Problem) and found[0].kind in WHOLE
        if not whole or len(points) == 1:
            return found  # an exception takes all rows of a call with it: find whose it is
        half = len(points) // 2
        return self.call(points[:half]) + self.call(points[half:])


def _check_rows(decisions: _Decisions, got: Measured, seed: int, count: int = 16) -> None:
    """Compare calls of one row with cells that calls of many rows gave."""
    shape = (count, len(got.cells[0].box))
    points = np.random.Generator(np.random.PCG64(seed)).integers(0, decisions.size, shape)
    for point in points:
        (seen,) = decisions.call(point[None])
        if seen != outcome_at(got.cells, point.tolist()):
            got.escapes.append("decide gives a row alone another outcome than among others")
            return
