"""Streams: a law can be right as a function of its draws, and the draws wrong.

One generator for all rows, a state repeated between rounds, requests or operations, a constant
seed: each leaves the law of a single call perfect. So the generator and its state are noted at each
draw, over several calls with different seeds: two draws from the same state are the same draw. And
each draw of a batch is moved by itself: it may decide one row, not several.
"""

from collections.abc import Callable, Iterator

import torch

from specref.gate.audit import Recorder
from specref.gate.cases import Case
from specref.gate.seeds import ambient, states_kept
from specref.gate.subject import Outcome, Problem, Subject
from specref.gate.tape import Tape
from specref.gate.variable import Box, Draw, Run

ROWS, CALLS = 4, 6
"""Rows of a call and number of calls in which states are noted."""


def repeated_states(call: Callable[[int, int], object], seed: int) -> str:
    """Return how a subject uses a generator's state twice, or "" if it does not.

    Args:
        call: makes one call of the subject, given a number of rows and the number of the call,
            which seeds it.
        seed: of what the subject does not seed itself.
    """
    seen: dict[bytes, tuple[int, int]] = {}
    values: dict[tuple[int, ...], tuple[int, int]] = {}
    with states_kept():
        ambient(seed)
        for number in range(CALLS):
            recorder = Recorder(states=True)
            with torch.no_grad(), recorder:
                call(ROWS, number)
            for draw, state in enumerate(recorder.states):
                first = seen.setdefault(state, (number, draw))
                if first != (number, draw):
                    return _says(first, (number, draw), "starts from the generator state of")
            for draw, numbers in enumerate(recorder.uniforms):
                for at in range(len(numbers) - 1):
                    pair = (numbers[at], numbers[at + 1])
                    first = values.setdefault(pair, (number, draw))
                    if first != (number, draw):
                        return _says(first, (number, draw), "repeats the numbers of")
    return ""


def shared_draws(subject: Subject, case: Case, rows: int = 8) -> str:
    """Return how one draw of a batched call decides several rows, or "" if none does.

    All draws but one are held at what they are by default, so that draws which come later, and may
    be other ones, are the same for every row. Nothing is said of a call that the tape cannot
    follow, nor of one that fails, which takes all rows with it.
    """
    with states_kept():
        run, plain = _played(subject, case, rows, ())
        for at in range(len(run.variables)):
            for box in _moved(run, at):
                moved, outcomes = _played(subject, case, rows, box)
                if run.escapes or moved.escapes:
                    return ""
                hit = [r for r in range(rows) if outcomes[r] != plain[r]]
                if len(hit) > 1 and not isinstance(outcomes[0], Problem):
                    listed = ", ".join(str(r) for r in hit)
                    return f"draw {at + 1} of a call of {rows} rows decides rows {listed}"
    return ""


def _played(subject: Subject, case: Case, rows: int, box: Box) -> tuple[Run, list[Outcome]]:
    ambient(0)
    tape = Tape(box)
    with tape.playing() as run:
        return run, subject.sample(case, rows, 0)


def _moved(run: Run, at: int) -> Iterator[Box]:
    """Yield boxes in which one variable lies outside of the cell, and those before it stay."""
    held = tuple((k, k + 1) for k in run.point[:at])
    variable, low, high = run.variables[at], run.low[at], run.high[at]
    if isinstance(variable, Draw):
        for first, last in ((0, low), (high, variable.size)):
            if first < last:
                yield (*held, (first, last))
    else:
        for index, weight in enumerate(variable.weights):
            if weight > 0 and index != low:
                yield (*held, (index, index + 1))


def _says(first: tuple[int, int], second: tuple[int, int], how: str) -> str:
    if first[0] == second[0]:
        return f"draw {second[1] + 1} of a call {how} draw {first[1] + 1} of the same call"
    return (
        f"draw {second[1] + 1} of call {second[0] + 1} {how} draw {first[1] + 1} of call "
        f"{first[0] + 1}, although the calls were given different seeds"
    )
