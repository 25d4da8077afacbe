"""Races: the largest of several scores that each hang on a draw of their own.

Engines draw a token as `argmax(p / E)` with exponential noise E, or `argmax(log p + G)` with Gumbel
noise G = -log E: token i arrives at the time E_i / p_i, and the first to arrive wins. It is i with
probability p_i / sum(p), whatever the monotone function that turns arrival times into scores.

Nothing of that is taken from the names of the operations. The scores are recomputed for other draws
(a local chain, as for a comparison). Rates c are read off where all noise is the same, and then it
is tested that they are rates: at quantiles t of the winner's time the scores of all at noise
E_i = c_i t must be one and the same, and be strictly monotone there. They may be as far from it as
rounding explains: so much that each token's mass is off by a few units of 2^-24, like the numerics
band of the checks. What fails this test is no race in scale form, and not guessed at.

A race becomes a variable of the tape: the winner, with exact weights. The noise keeps its whole
range, and a winner that nobody looks at is left open, so that engines may race at all positions on
one row of noise and use one winner. Two races on the same noise that are both looked at are
measured by their joint law; what else is decided on the noise of a race is an escape.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from math import log, prod
from typing import TYPE_CHECKING, Any

import torch

from specref.gate.taint import OPAQUE, Operand
from specref.gate.variable import Draw, Race, Run, Runner

if TYPE_CHECKING:
    from specref.gate.tape import Call, Tape

UNIT = 2.0**-24
"""Rounding error of float32, and the grid of its uniforms."""

FINEST = 1 << 23
"""Noise from draws of fewer values than this ties too often."""

TIMES = torch.cat(
    [
        -torch.log1p(-(torch.arange(32, dtype=torch.float64) + 0.5) / 32),
        2.0 ** -torch.arange(7.0, 24.0, 3.0, dtype=torch.float64),
        torch.tensor([6.0, 9.0, 13.0], dtype=torch.float64),
    ]
)
"""Times of the winner, in units of its mean, at which scores are compared."""


PROBES = torch.cat(
    [
        torch.tensor([0.0, 1.0, 0.25, 0.75], dtype=torch.float64),
        (torch.arange(32, dtype=torch.float64) + 0.5) / 32,
        2.0 ** -torch.arange(6.0, 25.0, dtype=torch.float64),
        1 - 2.0 ** -torch.arange(6.0, 25.0, dtype=torch.float64),
    ]
)
"""Values of u at which contests are compared: what bends or rounds scores shows at some of them."""

MOST_KNOWN = 1 << 12
"""How many contests are remembered."""


class NoRace(Exception):
    """Why scores are not a race in scale form."""


_KNOWN: dict[bytes, tuple[tuple[Runner, ...], bool]] = {}


@dataclass
class Contest:
    """One row of scores, of which the largest wins; among equals the first.

    Attributes:
        scores: from grid integers [m, n], one for each contestant, to scores [m, n].
        seen: those where the draws of all are at `PROBES` [probes, n].
        owner: the variable of each contestant [n], -1 for a constant.
        size: the number of values of each variable [n].
    """

    scores: Callable[[Any], Any]
    seen: Any
    owner: Any
    size: Any
    apart: bool = True  # no constant score beats any that moves

    def runners(self) -> tuple[Runner, ...]:
        """Return those of positive weight."""
        key = self._look()
        if key not in _KNOWN:
            if len(_KNOWN) >= MOST_KNOWN:
                _KNOWN.clear()
            _KNOWN[key] = self._work_out(), self.apart
        known, self.apart = _KNOWN[key]
        owner = self.owner.tolist()
        return tuple(replace(r, noise=owner[r.noise] if r.noise >= 0 else -1) for r in known)

    def _work_out(self) -> tuple[Runner, ...]:
        """Return the runners, with their own number in place of their variable's."""
        moving = self.moves.nonzero().flatten().tolist()
        rates = self._rates() if len(moving) > 1 else torch.ones(len(moving), dtype=torch.float64)
        exact = [Fraction(rate) for rate in rates.tolist()]
        found = [
            Runner(
                at,
                weight / sum(exact),
                float(weight / sum(exact)),
                at,
                int(self.size[at]),
                bool(self.falls[at]),
            )
            for at, weight in zip(moving, exact, strict=True)
        ]
        found = self._with_constant(found)
        return tuple(sorted(self._with_nan(found), key=lambda runner: runner.index))

    def _look(self) -> bytes:
        """Tell which scores move with their draw, and which way; return what contests go by."""
        low, high, quarter, rest = self.seen[:4]
        live = self.owner >= 0
        self.moves = live & (quarter != rest)
        self.falls = rest < quarter
        self.values = quarter
        still = live & ~self.moves
        odd = self.seen.isnan()
        bends = still & (self.seen != quarter) & ~odd
        if bool((bends | (self.moves & odd)).any()):
            raise NoRace("scores that are flat over a part of their noise, or NaN")
        # 0 / E is NaN where E is 0, and NaN wins.
        self.nan_low, self.nan_high = still & low.isnan(), still & high.isnan()
        fixed = ~self.moves
        if bool(odd[2:, fixed].any()):
            raise NoRace("a score that is NaN")
        best = self.values[fixed].max() if bool(fixed.any()) else None
        self.tied = best is not None and int((self.values[fixed] == best).sum()) > 1
        if bool((self.moves & (self.size < FINEST)).any()):
            raise NoRace("noise from draws of few values")
        owners = self.owner[self.moves]
        if len(owners.unique()) < len(owners):
            raise NoRace("two scores on the same noise")
        key: bytes = (
            torch.cat([self.seen, self.size[None].double(), live[None].double()]).numpy().tobytes()
        )
        return key

    def _at(self, noise: Any, shift: Any = 0.0) -> Any:
        """Return scores where exponential noise is [m, n]; `shift` of probability to the better."""
        down = torch.exp(-noise)
        unit = torch.where(self.falls, -torch.expm1(-noise) - shift, down + shift)
        k = (unit * self.size).floor().clamp(min=0).long()
        got = self.scores(torch.minimum(k, self.size - 1))
        best = torch.where(self.falls, unit <= 0, unit >= 1)
        worst = torch.where(self.falls, unit >= 1, unit <= 0)
        infinite = torch.full_like(got, float("inf"))
        # Beyond the last draw anything may be.
        return torch.where(best, infinite, torch.where(worst, -infinite, got))

    def _rates(self) -> Any:
        """Return the rates of those that move."""
        for rates in self._guesses():
            if bool(((rates > 0) & rates.isfinite()).all()) and self._hold(rates):
                return rates
        raise NoRace("scores that are no weights over exponential noise")

    def _guesses(self) -> Iterator[Any]:
        """Yield what rates may be: scores are x, -1/x or log x for x = c / E, or anything else."""
        one = torch.ones((3, len(self.owner)), dtype=torch.float64)
        same, early, late = self._at(one * torch.tensor([[1.0], [1 / 16], [4.0]]))[:, self.moves]
        yield same
        yield -1 / same
        yield (same - same.max()).exp()
        slope = (early - late).median() / log(64)
        yield ((same - same.max()) / slope).exp()
        # Noise at which each score is what the best is at E = 1.
        best, low, high = same.max(), one[0] * -30, one[0] * 0
        for _ in range(60):
            middle = (low + high) / 2
            early = self._at(middle.exp()[None])[0] >= best
            low, high = torch.where(early, middle, low), torch.where(early, high, middle)
        # Where there was none, the rate is no rate.
        yield torch.where(low > -30, high.exp(), 0.0)[self.moves]

    def _hold(self, rates: Any) -> bool:
        """Whether all scores are the same function of the arrival time, strictly monotone."""
        share = torch.ones(len(self.owner), dtype=torch.float64)
        share[self.moves] = rates / rates.sum()
        noise = TIMES[:, None] * share
        # In probability: a few steps of the grid, with its ends kept off 0 and 1 by an epsilon; and
        # the rounding of some operations on the noise, of its logarithm and of the weight's.
        rounding = UNIT * (6 + 4 * noise.log().abs() + 2 * share.log().abs())
        slack = 4 * UNIT + noise * torch.exp(-noise) * rounding
        better = self._at(noise, slack)[:, self.moves]
        worse = self._at(noise, -slack)[:, self.moves]
        agree = worse.amax(1) <= better.amin(1)
        return bool(agree.all() and (worse < better).all())

    def _with_constant(self, found: list[Runner]) -> list[Runner]:
        """Let the best of the constant scores run: it wins if no other arrives early enough."""
        fixed = ~self.moves
        if not bool(fixed.any()):
            return found
        values = torch.where(fixed, self.values, -float("inf"))
        best = int((fixed & (values == values.max())).nonzero()[0])
        if not found:
            return [Runner(best, Fraction(1))]
        late = [self._late(runner, float(values[best]), best) for runner in found]
        weight = prod(late, start=Fraction(1))
        self.apart = not any(late)
        if not weight:
            return found
        # In scale form the winner and its time are independent.
        rest = [replace(r, weight=r.weight * (1 - weight)) for r in found]
        rate = 1 / max(log(weight.denominator) - log(weight.numerator), 1e-300)
        return [r for r in [*rest, Runner(best, weight, rate)] if r.weight]

    def others(self, count: int) -> list[int]:
        """Return the largest of the constant scores."""
        fixed = (~self.moves).nonzero().flatten()
        values, order = self.values[fixed].sort(descending=True, stable=True)
        if bool((values[1 : count + 1] == values[:count][: max(0, len(values) - 1)]).any()):
            raise NoRace("scores among which equal ones decide")
        found: list[int] = fixed[order][:count].tolist()
        return found

    def _late(self, runner: Runner, floor: float, best: int) -> Fraction:
        """Return the mass on which a runner does not beat a constant score."""
        tied = runner.index < best

        def beats(scores: Any) -> Any:
            return (scores >= floor) if tied else (scores > floor)

        return self._before(runner.index, not runner.falls, beats)

    def _with_nan(self, found: list[Runner]) -> list[Runner]:
        """Let scores run that are NaN at an end of their noise."""
        free = Fraction(1)
        out = []
        for at in (self.nan_low | self.nan_high).nonzero().flatten().tolist():
            ends = [end for end, bad in ((True, self.nan_low), (False, self.nan_high)) if bad[at]]
            share = sum((self._before(at, end, _is_number) for end in ends), Fraction(0))
            out.append(Runner(at, free * share))
            free *= 1 - share
        return [*out, *(replace(r, weight=r.weight * free) for r in found)]

    def _before(self, at: int, from_below: bool, good: Callable[[Any], Any]) -> Fraction:
        """Return the share of a contestant's draws that come before its first good score."""
        size = int(self.size[at])

        def ask(steps: list[int]) -> list[bool]:
            rows = (self.size // 2).repeat(len(steps), 1)
            rows[:, at] = torch.tensor([k if from_below else size - 1 - k for k in steps])
            found: list[bool] = good(self.scores(rows)[:, at]).tolist()
            return found

        steps = [0, *(1 << j for j in range((size - 1).bit_length())), size - 1]
        answers = ask(steps)
        if True not in answers:
            return Fraction(1)
        first = answers.index(True)
        bad, fine = steps[max(0, first - 1)], steps[first]
        while fine - bad > 1:
            middle = (bad + fine) // 2
            if ask([middle])[0]:
                fine = middle
            else:
                bad = middle
        return Fraction(fine, size)


class Ledger:
    """Keeps account of what was decided on noise: races on the same noise are not independent.

    Args:
        run: its variables and their cell.
        escape: is told what is not followed.
    """

    def __init__(self, run: Run, escape: Callable[[str], None]) -> None:
        self.run, self.escape = run, escape
        self.known: dict[tuple[Runner, ...], int] = {}
        self._groups: dict[int, int] = {}  # noise: the group of races that it has decided
        self._looked: dict[int, list[int]] = {}  # group: those of its races that were looked at
        self._compared: set[int] = set()

    def look(self, v: int) -> None:
        """Note that something is decided on a variable, unless its whole range is left."""
        race = self.run.variables[v]
        if isinstance(race, Draw) and self._width(v) == race.size:
            return
        if not isinstance(race, Race):
            self._compared.add(v)
            if v in self._groups:
                self.escape("the noise of a race is also compared")
            return
        noise = {runner.noise for runner in race.runners} - {-1}
        if noise & self._compared:
            self.escape("the noise of a race is also compared")
        for group in {self._groups[n] for n in noise & self._groups.keys()} - {race.group}:
            race = self.run.variables[v] = self._given(group, race)
        self._groups.update(dict.fromkeys(noise, race.group))
        looked = self._looked.setdefault(race.group, [])
        if v not in looked:
            looked.append(v)

    def _given(self, group: int, race: Race) -> Race:
        """Return a race as it is after another on the same noise."""
        first, found = self.run.variables[group], None
        if isinstance(first, Race) and self._looked[group] == [group] and self._width(group) == 1:
            found = conditional(first, self.run.low[group], race)
        if found is None:
            self.escape("races share noise, in a way that is not followed")
        return found or race

    def _width(self, v: int) -> int:
        return self.run.high[v] - self.run.low[v]


def conditional(first: Race, place: int, second: Race) -> Race | None:
    """Return the second race given the winner of the first, where they share noise.

    Let the first have rates c_i that sum to one, and let a win it at the time w. Then w is
    exponential of rate 1, E_a = c_a w, and every other E_i = c_i w + e_i with fresh e_i. In a
    second race of rates d_i, a arrives at w r_a, where r = c / d, and others at w r_i + e_i / d_i.
    With h(y) = sum_i d_i (y - r_i)+ over the others, integrating w out leaves

        P(a) = 1 / (1 + h(r_a))        P(b) = integral from r_b to r_a of d_b / (1 + h(y))^2 dy

    and h is linear between the r_i. Noise that was not in the first race has c = 0; if a does not
    run again, r_a is infinite.

    Returns:
        the race in the group of the first, or None if one of them does not go by rates alone.
    """
    if any(runner.noise < 0 or not runner.rate for r in (first, second) for runner in r.runners):
        return None
    c = {runner.noise: runner.weight for runner in first.runners}
    d = {runner.noise: runner.weight for runner in second.runners}
    a = first.runners[place].noise
    start = {n: c.get(n, Fraction(0)) / rate for n, rate in d.items()}
    end = start.pop(a, None)
    weights = dict.fromkeys(d, Fraction(0))
    marks: list[Fraction | None] = [
        *sorted({y for y in start.values() if end is None or y < end}),
        end,
    ]
    height = Fraction(1)  # 1 + h(y)
    for y, after in pairwise(marks):
        assert y is not None
        running = [n for n, begin in start.items() if begin <= y]
        slope = sum((d[n] for n in running), Fraction(0))
        left = Fraction(0) if after is None else 1 / (height + slope * (after - y))
        for n in running:
            weights[n] += d[n] / slope * (1 / height - left)
        height = 1 / left if left else height
    if end is not None:
        weights[a] = 1 / height
    runners = tuple(replace(r, weight=weights[r.noise]) for r in second.runners)
    return Race(second.size, runners, first.group)


def _is_number(scores: Any) -> Any:
    return ~scores.isnan()


# Operations that find the largest or the smallest.

RACES = frozenset("argmax argmin max min topk sort".split())


def raced(tape: "Tape", call: "Call") -> Any:
    """Run one of `RACES` with winners drawn; NotImplemented if it tells no winners."""
    given = _named(call)
    x = given["self"]
    if "dim" not in given or not x.is_floating_point() or not x.numel():
        return NotImplemented
    out = call.real()
    indices = out if isinstance(out, torch.Tensor) else out[1]
    dim = given["dim"]
    least = call.op.base in ("argmin", "min") or not given.get("largest", True)
    count = given.get("k", 1)
    if call.op.base == "sort":
        least, count = not given["descending"], x.shape[dim]

    # Rows of scores, each with the places of its winners in the output.
    at = torch.arange(indices.numel()).reshape(indices.shape)
    if dim is None:
        shape, at = (1, x.numel()), at.reshape(1, 1)
        scores, ids = x.reshape(shape), tape.taint.ids_or_clean(x).reshape(shape)
    else:
        scores, ids = (
            t.movedim(dim, -1).reshape(-1, x.shape[dim]) for t in (x, tape.taint.ids_or_clean(x))
        )
        at = (at if at.dim() == x.dim() else at.unsqueeze(dim)).movedim(dim, -1)
        at = at.reshape(-1, count)
    line = _Line(tape, call.op.name, -1 if least else 1, scores, ids)
    owners, tables = [-1] * indices.numel(), [[i] for i in indices.flatten().tolist()]
    for row in range(len(scores)):
        if bool((ids[row] == OPAQUE).any()):
            tape.blind(call.op.name, call.args)
        elif bool(ids[row].any()):
            try:
                winners = line.winners(row, count)
            except NoRace as reason:
                tape.escape(f"{call.op.name} of {reason}")
                continue
            for place, (owner, table) in zip(at[row].tolist(), winners, strict=True):
                owners[place], tables[place] = owner, table
    won = tape.born(owners, _reader(tables), indices.shape, torch.int64)
    if isinstance(out, torch.Tensor):
        return won
    tape.blur(call, out[0])
    return out[0], won


class _Line:
    """Where the rows of one operation finish.

    Args:
        tape: that the operation is on.
        what: its name.
        sign: 1 if the largest score wins, -1 if the smallest.
        scores, ids: rows of them.
    """

    def __init__(self, tape: "Tape", what: str, sign: int, scores: Any, ids: Any) -> None:
        self.tape, self.what, self.sign = tape, what, sign
        self.scores, self.ids = scores, ids
        self.owner = tape.taint.owners(ids)
        self.point = torch.tensor(tape.run.point)
        drawn = self.owner[self.owner >= 0].unique()
        self.size = torch.ones_like(self.point)
        self.size[drawn] = torch.tensor(
            # A race among races is none; that is said where the row is looked at.
            [getattr(tape.run.variables[v], "size", 1) for v in drawn.tolist()]
        )
        k = self.point.repeat(len(PROBES), 1)
        probes = (PROBES[:, None] * self.size[drawn]).long()
        k[:, drawn] = torch.minimum(probes, self.size[drawn] - 1)
        self.seen = Operand(tape.taint, ids, scores).values(k, {}).double() * sign

    def winners(self, row: int, count: int) -> list[tuple[int, list[int]]]:
        """Return the variables of the first `count` winners, with the indices behind them."""
        contest = self._contest(row)
        runners = contest.runners()
        if contest.tied and self.what == "topk" and any(r.noise < 0 for r in runners):
            raise NoRace("scores among which equal ones decide")
        if count == 1:
            return [(self._drawn(runners), [runner.index for runner in runners])]
        if not contest.apart or any(runner.rate == 0 for runner in runners):
            raise NoRace("several winners, of which some may not hang on their noise")
        won: list[int] = []
        group = None
        while runners and len(won) < count:
            owner = self._drawn(runners, group, pinned=True)
            group = owner if group is None else group
            won.append(runners[self.tape.run.point[owner] if owner >= 0 else 0].index)
            # What is left of an exponential after any time is as it was: memoryless.
            rest = [runner for runner in runners if runner.index != won[-1]]
            total = sum(runner.weight for runner in rest)
            runners = tuple(replace(r, weight=r.weight / total) for r in rest)
        won += contest.others(count - len(won))
        return [(-1, [index]) for index in won]

    def _drawn(
        self, runners: tuple[Runner, ...], group: int | None = None, pinned: bool = False
    ) -> int:
        """Return the variable of the winner, -1 if there is but one runner."""
        return self.tape.race(runners, self.what, group, pinned) if len(runners) > 1 else -1

    def _contest(self, row: int) -> Contest:
        owner = self.owner[row]
        live = owner >= 0
        if any(type(self.tape.run.variables[v]) is not Draw for v in owner[live].tolist()):
            raise NoRace("scores that hang on other draws than uniforms")

        def values(k: Any) -> Any:
            rows = self.point.repeat(len(k), 1)
            rows[:, owner[live]] = k[:, live]
            operand = Operand(self.tape.taint, self.ids[row], self.scores[row])
            return operand.values(rows, {}).double() * self.sign

        size = torch.where(live, self.size[owner], 1)
        return Contest(values, self.seen[:, row], owner, size)


def _reader(tables: list[list[int]]) -> Callable[[Any], Any]:
    """Return the map from winners' places among the runners to their indices."""
    width = max(len(table) for table in tables)
    padded = torch.tensor([table + table[-1:] * (width - len(table)) for table in tables])

    def value(k: Any) -> Any:
        return padded.expand(*k.shape, width).gather(-1, k.clamp(0, width - 1)[..., None])[..., 0]

    return value


def _named(call: "Call") -> dict[str, Any]:
    """Return the arguments of an operation by name."""
    arguments = call.func._schema.arguments
    given = {a.name: a.default_value for a in arguments if a.has_default_value()}
    return given | dict(zip((a.name for a in arguments), call.args, strict=False)) | call.kwargs
