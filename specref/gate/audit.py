"""Audit a measured law: run the subject on its own random numbers and compare.

The tape sees what goes through torch's dispatcher. A decision that is taken elsewhere (a buffer
read through DLPack, say) leaves no trace there. So real draws are recorded, the cell they fall in
is looked up, and the output must be the cell's. After N draws without a miss the measured law is
off by at most ln(1/b)/N in TV, but for a risk b.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from specref.gate.measure import Cell, Measured
from specref.gate.seeds import ambient, one_thread, seed_of, states_kept
from specref.gate.subject import MOST_ROWS, Outcome, Problem
from specref.gate.tape import RANDOM, Call, limits, rate_of
from specref.gate.uniform import exponential, uniform
from specref.gate.variable import Race

Sample = Callable[[int, int], list[Outcome]]
"""From (n, seed) to n outcomes."""


class Recorder(TorchDispatchMode):
    """Let random operations run and write down what they drew, in the variables of the tape.

    Attributes:
        draws: one int64 array [rows of the operation's output, variables per row] per operation.
        states: the generator's state before each draw, if asked for.
        uniforms: the grid integers of each uniform draw, flat, if states are asked for.
        unknown: random operations that the tape does not know.
        operations: how many operations of any kind there were.
    """

    def __init__(self, states: bool = False) -> None:
        super().__init__()
        self.draws: list[Any] = []
        self.states: list[bytes] = []
        self.uniforms: list[list[int]] = []
        self.unknown: list[str] = []
        self.operations = 0
        self._want_states = states

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Spare every operation the guard against compilation; nothing is compiled here."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        self.operations += 1
        call = Call(func, args, kwargs)
        op = call.op
        known = op.name in RANDOM
        if not known and not op.random:
            return func(*args, **kwargs)
        state = _state(args, kwargs) if self._want_states else b""
        out = func(*args, **kwargs)
        if isinstance(out, torch.Tensor) and not out.numel():
            return out  # nothing was drawn
        if self._want_states:
            self.states.append(state)
        if known:
            self.draws.append(_as_variables(call, out))
            # Half precision has too few numbers for a repeated pair to mean anything.
            fine = op.base in (*UNIFORM, "exponential") and out.element_size() >= 4
            if self._want_states and fine:
                self.uniforms.append(self.draws[-1].ravel().tolist())
        else:
            self.unknown.append(op.name)
        return out


UNIFORM = ("rand", "rand_like", "uniform")

UNSURE = Problem("unsure", "two runners of a race arrive together, but for rounding")
"""In place of a predicted outcome: the row is not compared."""


def _state(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    given = kwargs.get("generator") or next(
        (a for a in args if isinstance(a, torch.Generator)), None
    )
    state = torch.get_rng_state() if given is None else given.get_state()
    return bytes(state.numpy().tobytes())


def _as_variables(call: Call, out: Any) -> Any:
    low, high = limits(call)
    if call.op.base == "exponential":
        k = exponential(out.dtype, rate_of(call)).nearest(out)
    elif call.op.base in UNIFORM:
        kind = uniform(out.dtype, low, high)
        k = kind.nearest(out)
        if kind.wrapped:  # not wrapped, and then the draw; both ways to the start are alike
            k = torch.stack([torch.zeros_like(k), k], -1)
    elif call.op.base == "randperm":
        k = _lehmer(out)
    else:
        k = out.long() - low
    return k.reshape(k.shape[0] if k.dim() else 1, -1).numpy()


def _lehmer(permutation: Any) -> Any:
    left = sorted(permutation.tolist())
    code = []
    for x in permutation.tolist():
        code.append(left.index(x))
        left.remove(x)
    return torch.tensor([code])


class Atlas:
    """The cells of one program, as arrays: predicts the outcome of given draws.

    A race is no draw. Who wins it follows from its noise, and is worked out from that.
    """

    def __init__(self, cells: list[Cell]) -> None:
        self.outcomes = [cell.outcome for cell in cells]
        races = [cell.races for cell in cells]
        drawn = [
            [at for at in range(len(cell.box)) if at not in among]
            for cell, among in zip(cells, races, strict=True)
        ]
        self.width = max(map(len, drawn), default=0)
        shape = (len(cells), self.width)
        # A variable that a cell does not have must be absent from the draws: -1.
        self.low, self.high = np.full(shape, -1, np.int64), np.zeros(shape, np.int64)
        self.finishes: list[list[Finish]] = []
        for row, (cell, found) in enumerate(zip(cells, drawn, strict=True)):
            for column, at in enumerate(found):
                self.low[row, column], self.high[row, column] = cell.box[at]
            column_of = {at: column for column, at in enumerate(found)}
            self.finishes.append(
                [
                    (_lanes(race, column_of), *cell.box[at])
                    for at, race in races[row].items()
                    if cell.box[at] != (0, race.size)
                ]
            )

    def predict(self, draws: Any) -> list[Outcome | None]:
        """Return the predicted outcome of each row of draws [n, variables]; -1 marks no draw."""
        n, width = draws.shape
        padded = np.full((n, max(width, self.width)), -1, np.int64)
        padded[:, :width] = draws
        surplus = (padded[:, self.width :] >= 0).any(1)
        found = np.full(n, -1, np.int64)
        unsure = np.zeros(n, bool)
        ran: dict[tuple[Lane, ...], Any] = {}
        for row in range(len(self.outcomes)):
            inside = (
                (padded[:, : self.width] >= self.low[row])
                & (padded[:, : self.width] < self.high[row])
            ).all(1) & ~surplus
            for lanes, low, high in self.finishes[row]:
                if lanes not in ran:
                    ran[lanes] = _run(lanes, padded)
                first, close = ran[lanes]
                unsure |= inside & close
                inside &= (first >= low) & (first < high)
            found[inside] = row
        told = [None if row < 0 else self.outcomes[row] for row in found]
        return [UNSURE if doubt else outcome for outcome, doubt in zip(told, unsure, strict=True)]


Lane = tuple[int, int, bool, float]
"""A runner of a race: the column of its noise or -1, its size, whether it falls, the rate."""

Finish = tuple[tuple[Lane, ...], int, int]
"""A race, and the interval in which the place of its winner lies."""


def _lanes(race: Race, column_of: dict[int, int]) -> tuple[Lane, ...]:
    return tuple((column_of.get(r.noise, -1), r.size, r.falls, r.rate) for r in race.runners)


def _run(lanes: tuple[Lane, ...], draws: Any) -> tuple[Any, Any]:
    """Return the place of each row's winner, and whether another arrives close behind."""
    times = np.full((len(draws), len(lanes)), np.inf)
    blur = np.zeros(times.shape)
    with np.errstate(all="ignore"):  # rows without these draws come out as anything
        for place, (column, size, falls, rate) in enumerate(lanes):
            if not rate:
                continue
            noise = np.ones(len(draws))
            if column >= 0:
                unit = (draws[:, column] + 0.5) / size
                noise = -np.log1p(-unit) if falls else -np.log(unit)
            times[:, place] = noise / rate
            # Rounding of the scores, and steps of the grid.
            blur[:, place] = 2.0**-19 * times[:, place] + 2.0**-22 / rate
        first = times.argmin(1)
        best = np.take_along_axis(times + blur, first[:, None], 1)
        close = (times - blur <= best).sum(1) > 1
    return first, close


@dataclass
class Audit:
    """Real draws compared with predicted cells.

    Attributes:
        rows: how many draws of the whole program were compared.
        misses: how many of them gave another outcome than predicted.
        example: one of those: predicted and seen.
    """

    rows: int = 0
    misses: int = 0
    example: str = ""

    def add(self, other: "Audit") -> None:
        """Count another audit in."""
        self.rows += other.rows
        self.misses += other.misses
        self.example = self.example or other.example


def bound(rows: float, laws: int = 1, risk: float = 1e-6) -> float:
    """Return b with: if none of `rows` draws missed, a law is off by at most b in TV.

    Args:
        rows: draws from each law.
        laws: how many laws this is said of at once.
        risk: that it is wrong for any of them.
    """
    return min(1.0, log(laws / risk) / rows)


def row_work(sample: Sample, seed: int) -> int | None:
    """Return how many operations a batched call runs for each row on its own.

    Such rows are as slow as calls of one row, so fewer of them are compared. None if the draws do
    not fall to the rows one by one, so that only calls of one row can be compared.
    """
    with states_kept(), one_thread():
        ambient(seed)
        few, more = (_recorded(sample, n, seed)[0] for n in (16, 32))
    if any(len(d) != 32 for d in more.draws):
        return None
    return max(0, more.operations - few.operations) // 16


def audit(measured: Measured, sample: Sample, rows: int, calls: int, seed: int) -> Audit:
    """Compare real runs with the measured cells.

    Args:
        measured: cells of `sample(1, seed)`.
        sample: (n, seed) to n outcomes, on the subject's own random numbers.
        rows: rows of batched calls, tried first; 0 if these are known not to draw row by row.
        calls: calls of one row each, if the batch does not draw row by row.
        seed: of the first call.
    """
    atlas = Atlas(measured.cells)
    with states_kept(), one_thread():
        ambient(seed)
        found = _in_batches(atlas, sample, rows, seed) if rows else None
        return found or _singly(atlas, sample, calls, seed)


def _in_batches(atlas: Atlas, sample: Sample, rows: int, seed: int) -> Audit | None:
    """Compare rows of batched calls; None if their draws do not fall to the rows one by one."""
    total = Audit()
    for start in range(0, rows, MOST_ROWS):
        n = min(MOST_ROWS, rows - start)
        recorder, seen = _recorded(sample, n, seed_of(seed, start))
        if not recorder.draws or recorder.unknown or any(len(d) != n for d in recorder.draws):
            return None
        predicted = atlas.predict(np.concatenate(recorder.draws, 1))
        # More or fewer draws than a row has alone (a correction for all, if any needs one), or
        # rows that disagree in bulk: the draws belong to the batch, not to the rows.
        found = _compare(predicted, seen)
        if None in predicted or found.misses * 20 >= n:
            return None
        total.add(found)
    return total


def _singly(atlas: Atlas, sample: Sample, calls: int, seed: int) -> Audit:
    """Compare calls of one row."""
    drawn: list[Any] = []
    seen: list[Outcome] = []
    for at in range(calls):
        recorder, outcomes = _recorded(sample, 1, seed_of(seed, at))
        seen += outcomes
        drawn.append(np.concatenate([np.zeros(0, np.int64), *map(np.ravel, recorder.draws)]))
    table = np.full((calls, max(map(len, drawn), default=0)), -1, np.int64)
    for row, values in zip(table, drawn, strict=True):
        row[: len(values)] = values
    return _compare(atlas.predict(table), seen)


def _recorded(sample: Sample, n: int, seed: int) -> tuple[Recorder, list[Outcome]]:
    recorder = Recorder()
    with torch.no_grad(), recorder:
        return recorder, sample(n, seed)


def _compare(predicted: list[Outcome | None], seen: list[Outcome]) -> Audit:
    sure = [(a, b) for a, b in zip(predicted, seen, strict=True) if a is not UNSURE]
    missed = [(a, b) for a, b in sure if a != b]
    example = f"predicted {missed[0][0]}, saw {missed[0][1]}" if missed else ""
    return Audit(len(sure), len(missed), example)
