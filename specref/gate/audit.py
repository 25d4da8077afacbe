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
from specref.gate.subject import MOST_ROWS, Outcome
from specref.gate.tape import RANDOM, Call, limits
from specref.gate.uniform import uniform

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
            if self._want_states and op.base in UNIFORM and out.element_size() >= 4:
                self.uniforms.append(self.draws[-1].ravel().tolist())
        else:
            self.unknown.append(op.name)
        return out


UNIFORM = ("rand", "rand_like", "uniform")


def _state(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    given = kwargs.get("generator") or next(
        (a for a in args if isinstance(a, torch.Generator)), None
    )
    state = torch.get_rng_state() if given is None else given.get_state()
    return bytes(state.numpy().tobytes())


def _as_variables(call: Call, out: Any) -> Any:
    low, high = limits(call)
    if call.op.base in UNIFORM:
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
    """The cells of one program, as arrays: predicts the outcome of given draws."""

    def __init__(self, cells: list[Cell]) -> None:
        self.outcomes = [cell.outcome for cell in cells]
        self.width = max((len(cell.box) for cell in cells), default=0)
        shape = (len(cells), self.width)
        # A variable that a cell does not have must be absent from the draws: -1.
        self.low, self.high = np.full(shape, -1, np.int64), np.zeros(shape, np.int64)
        for row, cell in enumerate(cells):
            for at, (low, high) in enumerate(cell.box):
                self.low[row, at], self.high[row, at] = low, high

    def predict(self, draws: Any) -> list[Outcome | None]:
        """Return the predicted outcome of each row of draws [n, variables]; -1 marks no draw."""
        n, width = draws.shape
        padded = np.full((n, max(width, self.width)), -1, np.int64)
        padded[:, :width] = draws
        surplus = (padded[:, self.width :] >= 0).any(1)
        found = np.full(n, -1, np.int64)
        for row in range(len(self.outcomes)):
            inside = (
                (padded[:, : self.width] >= self.low[row])
                & (padded[:, : self.width] < self.high[row])
            ).all(1)
            found[inside & ~surplus] = row
        return [None if row < 0 else self.outcomes[row] for row in found]


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

    def bound(self, risk: float = 1e-6) -> float | None:
        """Return b with: if no row missed, the law is off by at most b in TV, but for `risk`."""
        return log(1 / risk) / self.rows if self.rows and not self.misses else None


def audit(
    measured: Measured,
    sample: Sample,
    rows: int,
    single: int,
    seed: int,
) -> Audit:
    """Compare real runs with the measured cells.

    Args:
        measured: cells of `sample(1, seed)`.
        sample: (n, seed) to n outcomes, on the subject's own random numbers.
        rows: rows of batched calls, tried first.
        single: calls of one row each, if the batch does not draw row by row.
        seed: of the first call.
    """
    atlas = Atlas(measured.cells)
    with states_kept(), one_thread():
        ambient(seed)
        return _in_batches(atlas, sample, rows, single, seed) or _singly(
            atlas, sample, single, seed
        )


def _in_batches(atlas: Atlas, sample: Sample, rows: int, single: int, seed: int) -> Audit | None:
    """Compare rows of batched calls; None if their draws do not fall to the rows one by one."""
    few, more = (_recorded(sample, n, seed)[0] for n in (16, 32))
    # What a call does for each row on its own is as slow as calls of one row: do less of it.
    own_work = max(0, more.operations - few.operations) // 16
    rows = max(single, rows // (1 + own_work))
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
    missed = [(a, b) for a, b in zip(predicted, seen, strict=True) if a != b]
    example = f"predicted {missed[0][0]}, saw {missed[0][1]}" if missed else ""
    return Audit(len(seen), len(missed), example)
