"""Learn the law of a function of draws by asking it: nothing is known of how it is written.

The draws are integers k, column j uniform on 0 <= k < sizes[j]. Samplers cut the cube of all draws
into boxes, so boxes are looked for. Points are asked in a box: spread over it, at its corners, on
its faces. Where two of them disagree, some coordinate that parts them is moved alone, the place
where the output changes is bisected down to neighbouring integers, and the box is split there. All
boxes that wait are asked in one call. What is never needed is that a column matters only once, or
that the output is monotone in it.

What probes can miss. Once no box is left to split, the cells are fixed, and `probes` fresh points
are drawn, uniform and independent of them. Let m be the chance that such a point gives another
output than its cell, also through randomness that is not among the draws. If m > b, all points
agree with probability below (1-b)^probes < exp(-b probes). The law of the cells is off by at most m
in TV, since both outputs can be read off the same point. A pass in which a point disagreed opens
its cell again, and the next one starts afresh; the r-th has a share 1/(r (r+1)) of the risk, and
these sum to at most one. So the pass that ends it states

    TV(measured, true) <= ln(r (r+1) / RISK) / probes

with confidence 1 - RISK, however often it was tried.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import log, prod
from typing import Any

import numpy as np

from specref.gate.cell import Cell, Measured
from specref.gate.evidence import RISK
from specref.gate.subject import Outcome
from specref.gate.variable import Draw

Run = Callable[[Any], list[Outcome]]
"""From points [m, columns] of integers to m outcomes."""

CHANGES = "the output changes although every draw that is controlled is the same"

MOST = 1 << 62
"""Largest size of a column: sums of two numbers of it still fit."""

DUST = 2.0**-64
"""A box of less mass is not split: it is a cell, and all of its mass counts as missed."""

INSIDE = 16
"""Points that are asked in the inside of a box before it counts as a cell."""


def learn(
    run: Run,
    sizes: tuple[int, ...],
    budget: int,
    seed: int,
    probes: int = 1 << 12,
    spread: int = 1 << 11,
    wide: int = 1,
) -> Measured:
    """Learn the law of `run` from its outcomes on points that it is given.

    A piece of the cube whose width is more than 2/spread in one column is found for certain if the
    other columns do not hide it; smaller ones by luck, and `missed` of the result admits them.

    Args:
        run: evaluates points; columns that a path does not need are ignored by it.
        sizes: how many integers each column has, at most 2^62.
        budget: largest number of points; exhausted, the result is not `complete`.
        seed: of the points.
        probes: independent points that must agree with the cells in the end.
        spread: points that are asked first, one in each `spread`-th part of every column.
        wide: how many points may be asked where one would do, if that makes for fewer calls.
    """
    learner = _Learner(run, sizes, budget, seed, wide)
    got = Measured(missed=1.0)
    try:
        learner.explore(spread)
        got.missed = min(1.0, learner.confirm(probes) + learner.dust)
    except _Exhausted:
        got.complete = False
    except _Escape as escape:
        got.escapes.append(str(escape))
    got.calls = learner.asked
    got.cells = [learner.cell(box) for box in learner.done]
    return got


def outcome_at(cells: list[Cell], point: Sequence[int]) -> Outcome | None:
    """Return the outcome of the cell that a point lies in, None if there is no such cell."""
    for cell in cells:
        if all(low <= k < high for k, (low, high) in zip(point, cell.box, strict=True)):
            return cell.outcome
    return None


class _Exhausted(Exception):
    """The budget does not reach."""


class _Escape(Exception):
    """The outcomes are no function of the points."""


@dataclass
class _Box:
    """A box low <= k < high, the points known in it and the codes of their outcomes."""

    low: Any
    high: Any
    points: Any
    codes: Any
    probed: bool = False

    @property
    def pure(self) -> bool:
        return bool((self.codes == self.codes[:1]).all())

    @property
    def single(self) -> bool:
        return bool((self.high - self.low == 1).all())

    def inside(self, points: Any) -> Any:
        """Return a mask of the points in the box."""
        return ((points >= self.low) & (points < self.high)).all(1)

    def learned(self, points: Any, codes: Any) -> None:
        """Add points whose outcomes are known now."""
        self.points = np.concatenate([self.points, points])
        self.codes = np.concatenate([self.codes, codes])

    def halves(self, column: int, cut: int) -> Iterator["_Box"]:
        """Yield the part below a cut, and the part from it on."""
        below = self.points[:, column] < cut
        low, high = self.low.copy(), self.high.copy()
        low[column] = high[column] = cut
        yield _Box(self.low, high, self.points[below], self.codes[below])
        yield _Box(low, self.high, self.points[~below], self.codes[~below])


@dataclass
class _Line:
    """Two points that differ in one column and in their outcomes, drawn together by bisection.

    `base` gives the other columns; outcomes at `first` have the code `here`, at `last` another.
    """

    base: Any
    column: int
    first: int
    last: int
    here: int

    @property
    def open(self) -> bool:
        return abs(self.last - self.first) > 1

    def at(self, k: int) -> Any:
        """Return the point of the line at k."""
        point = self.base.copy()
        point[self.column] = k
        return point

    def drawn_together(self, places: list[int], codes: list[int]) -> None:
        """Keep the part in which the outcome first changes, given outcomes on the way."""
        for k, code in zip(places, codes, strict=True):
            if code != self.here:
                self.last = k
                return
            self.first = k


class _Learner:
    """The boxes of one function.

    Attributes:
        asked: points asked so far.
        done: boxes in which no two points disagree.
        dust: mass of those in which some do, but which are too small to be split.
    """

    def __init__(self, run: Run, sizes: tuple[int, ...], budget: int, seed: int, wide: int) -> None:
        self._run, self._budget, self._wide = run, budget, wide
        self._sizes = np.array(sizes, np.int64)
        self._random = np.random.Generator(np.random.PCG64(seed))
        self._codes: dict[Outcome, int] = {}
        self._ends: list[int] = []
        self.asked = 0
        self.done: list[_Box] = []
        self.dust = 0.0

    def cell(self, box: _Box) -> Cell:
        """Return a finished box as a cell."""
        low, high = box.low.tolist(), box.high.tolist()
        outcome = list(self._codes)[int(box.codes[0])]
        draws = tuple(map(Draw, self._sizes.tolist()))
        return Cell(tuple(zip(low, high, strict=True)), outcome, self._mass(box), variables=draws)

    def _mass(self, box: _Box) -> Fraction:
        return Fraction(prod((box.high - box.low).tolist()), prod(self._sizes.tolist()))

    def ask(self, points: Any) -> Any:
        """Return the codes of the outcomes of some points."""
        if self.asked + len(points) > self._budget:
            raise _Exhausted
        self.asked += len(points)
        outcomes = self._run(points) if len(points) else []
        codes = [self._codes.setdefault(outcome, len(self._codes)) for outcome in outcomes]
        return np.array(codes, np.int64)

    def ask_all(self, groups: list[Any]) -> list[Any]:
        """Return the codes of each group of points, asked in one call."""
        if not groups:
            return []
        codes = self.ask(np.concatenate(groups))
        return np.split(codes, np.cumsum([len(group) for group in groups])[:-1])

    # Boxes

    def explore(self, spread: int) -> None:
        """Cover the cube with cells."""
        points = self._strata(spread)
        whole = _Box(np.zeros_like(self._sizes), self._sizes, points, self.ask(points))
        self.cover([whole])

    def cover(self, boxes: list[_Box]) -> None:
        """Split boxes until no two points in one disagree; the result goes to `done`."""
        while boxes:
            self._probe([box for box in boxes if box.pure and not box.probed])
            mixed = [box for box in boxes if not box.pure]
            small = [box for box in mixed if self._mass(box) < DUST]
            self.dust += sum(float(self._mass(box)) for box in small)
            mixed = [box for box in mixed if self._mass(box) >= DUST]
            waiting = [box for box in boxes if box.pure and not box.probed]
            self.done += small + [box for box in boxes if box.pure and box.probed]
            boxes = waiting + self._split(mixed)

    def _strata(self, count: int) -> Any:
        """Return points of which each column has one in each of `count` equal parts of it."""
        columns = []
        for size in self._sizes.tolist():
            parts = min(count, size)
            order = np.concatenate(
                [self._random.permutation(parts) for _ in range(-(-count // parts))]
            )[:count]
            step = size // parts
            columns.append(order * step + self._random.integers(0, step, count))
        return np.array(columns, np.int64).reshape(len(columns), count).T

    def _uniform(self, box: _Box, count: int) -> Any:
        return self._random.integers(box.low, box.high, (count, len(self._sizes)))

    def _probe(self, boxes: list[_Box]) -> None:
        """Ask, in one call, where boxes that look like cells may be none."""
        suspects = [self._suspects(box) for box in boxes]
        for box, points, codes in zip(boxes, suspects, self.ask_all(suspects), strict=True):
            box.learned(points, codes)
            box.probed = True

    def _suspects(self, box: _Box) -> Any:
        """Return points of a box: two corners, two on each pair of faces, and some inside."""
        if box.single:
            return box.points[:0]
        columns = len(self._sizes)
        corners = np.stack([box.low, box.high - 1])
        faces = self._uniform(box, 2 * columns)
        for column in range(columns):
            faces[2 * column, column] = box.low[column]
            faces[2 * column + 1, column] = box.high[column] - 1
        inside = self._uniform(box, max(0, INSIDE - len(box.points)))
        return np.concatenate([corners, faces, inside])

    def _split(self, boxes: list[_Box]) -> list[_Box]:
        """Split boxes in which points disagree, each exactly where an outcome changes."""
        lines = self._lines(boxes)
        while moving := [line for line in lines if line.open]:
            count = max(1, self._wide // len(moving))
            stations = [self._between(line, count) for line in moving]
            points = [
                np.array([line.at(k) for k in ks])
                for line, ks in zip(moving, stations, strict=True)
            ]
            for line, ks, codes in zip(moving, stations, self.ask_all(points), strict=True):
                line.drawn_together(ks, codes.tolist())
        parts: list[_Box] = []
        for box, line in zip(boxes, lines, strict=True):
            cut = max(line.first, line.last)
            for k in (cut - 1, cut):
                insort(self._ends, k)
            parts += box.halves(line.column, cut)
        bare = [box for box in parts if not len(box.points)]
        corners = [box.low[None] for box in bare]
        for box, points, codes in zip(bare, corners, self.ask_all(corners), strict=True):
            box.learned(points, codes)
        return parts

    def _between(self, line: _Line, count: int) -> list[int]:
        """Return where to ask next, at most `count` places, on the way from `first` to `last`.

        At the ends of cuts found before, as long as there are any: the same numbers cut many boxes,
        a chance of acceptance, a running sum of a law. Elsewhere evenly.
        """
        low, high = sorted((line.first, line.last))
        ends = self._ends[bisect_right(self._ends, low) : bisect_left(self._ends, high)]
        if len(ends) >= count:
            places = {ends[at * len(ends) // (count + 1)] for at in range(1, count + 1)}
        else:
            parts = count - len(set(ends)) + 1
            places = {low + at * (high - low) // parts for at in range(1, parts)}
            places = (places | set(ends)) - {low}
        return sorted(places, reverse=line.first > line.last)

    def _lines(self, boxes: list[_Box]) -> list[_Line]:
        """Return for each box a line on which its outcome changes, along a telling column if so.

        Points on either side of the most telling cut are moved across it. Where that changes none,
        the columns of one point become those of another, of different outcome, one by one:
        somewhere on this walk the outcome must change.
        """
        moves = [_moved(box) for box in boxes]
        codes = self.ask_all([move.after for move in moves])
        found = [move.line(part) for move, part in zip(moves, codes, strict=True)]
        lost = [box for box, line in zip(boxes, found, strict=True) if line is None]
        walked = iter(self._walked(lost))
        return [line or next(walked) for line in found]

    def _walked(self, boxes: list[_Box]) -> list[_Line]:
        lines = []
        ends = [(0, int((box.codes != box.codes[0]).argmax())) for box in boxes]
        walks = [_steps(*box.points[[*pair]]) for box, pair in zip(boxes, ends, strict=True)]
        asked = self.ask_all(walks)
        for box, pair, walk, codes in zip(boxes, ends, walks, asked, strict=True):
            if (codes[[0, -1]] != box.codes[[*pair]]).any():
                raise _Escape(CHANGES)
            at = int((codes[1:] != codes[:-1]).argmax())
            lines.append(
                _Line(walk[at], at, int(walk[at, at]), int(walk[at + 1, at]), int(codes[at]))
            )
        return lines

    # Confirmation

    def confirm(self, probes: int) -> float:
        """Ask fresh points until `probes` in a row agree with the cells; return the bound."""
        tries, agreed = 1, 0
        while agreed < probes:
            count = min(256 * self._wide, probes - agreed)
            points = self._random.integers(0, self._sizes, (count, len(self._sizes)))
            codes = self.ask(points)
            wrong = self._disagreeing(points, codes)
            agreed += count
            if wrong:
                self.done = [box for box in self.done if all(box is not other for other in wrong)]
                self.cover(wrong)
                tries, agreed = tries + 1, 0
        return log(tries * (tries + 1) / RISK) / probes

    def _disagreeing(self, points: Any, codes: Any) -> list[_Box]:
        """Return the cells that some points disagree with, and let them know these points."""
        found = []
        for box in self.done:
            inside = box.inside(points)
            if (codes[inside] != box.codes[0]).any():
                wrong = points[inside][codes[inside] != box.codes[0]]
                if (self.ask(wrong) == box.codes[0]).any():
                    raise _Escape(CHANGES)
                box.learned(points[inside], codes[inside])
                found.append(box)
        return found


@dataclass
class _Moves:
    """Points of known outcomes that are moved along one column.

    Attributes:
        before: the points, and `known` the codes of their outcomes.
        after: where they are moved.
    """

    column: int
    before: Any
    known: Any
    after: Any

    def line(self, codes: Any) -> _Line | None:
        """Return the first move that changes the outcome, given the codes after, or None."""
        for at in np.flatnonzero(codes != self.known):
            first, last = int(self.before[at, self.column]), int(self.after[at, self.column])
            return _Line(self.before[at], self.column, first, last, int(self.known[at]))
        return None


def _moved(box: _Box, near: int = 2) -> _Moves:
    """Return points next to the most telling cut of a box, moved across it."""
    column, below, above = _best_cut(box)
    chosen = np.concatenate([below[-near:], above[:near]])
    after = box.points[chosen]
    count = len(below[-near:])
    after[:count, column] = box.points[above[0], column]
    after[count:, column] = box.points[below[-1], column]
    return _Moves(column, box.points[chosen], box.codes[chosen], after)


def _steps(a: Any, b: Any) -> Any:
    """Return the points on the way from a to b, one column after the other."""
    return np.where(np.tri(len(a) + 1, len(a), -1, dtype=bool), b, a)


def _best_cut(box: _Box, most: int = 48) -> tuple[int, Any, Any]:
    """Return the column that tells outcomes apart best, and who lies below and above its best cut.

    Both are indices of points, ordered by that column. Of each outcome at most `most` points count,
    so that rare ones are heard.
    """
    kept = np.concatenate([np.flatnonzero(box.codes == c)[:most] for c in np.unique(box.codes)])
    kinds = np.unique(box.codes[kept], return_inverse=True)[1]
    ones = np.eye(kinds.max() + 1)[kinds]
    count = np.arange(1, len(kept))
    best: tuple[float, int, Any, int] = (-1.0, 0, kept, 0)
    for column in range(box.points.shape[1]):
        values = box.points[kept, column]
        order = np.argsort(values, kind="stable")
        left = np.cumsum(ones[order], 0)
        right = left[-1] - left
        score = (left[:-1] ** 2).sum(1) / count + (right[:-1] ** 2).sum(1) / count[::-1]
        score[values[order][1:] == values[order][:-1]] = -1
        at = int(score.argmax())
        if score[at] > best[0] + 1e-9:
            best = (float(score[at]), column, kept[order], at + 1)
    _, column, ordered, cut = best
    if not cut:
        raise _Escape(CHANGES)  # all of these points are the same
    return column, ordered[:cut], ordered[cut:]
