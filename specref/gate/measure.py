"""Measure the exact law of a program: cover the cube of its draws with cells.

Each run on the tape gives one cell: a box of draws on which the output is the same. What is left of
the cube is a set of boxes; each is run in turn. The masses of all cells sum to exactly one, or the
program is not a function of its draws.

A guard looks for draws that the tape does not see: cells are run again under another ambient seed,
and must give the same output. The other guard is `gate.audit`.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction

from specref.gate.cell import Cell, Measured
from specref.gate.seeds import ambient, one_thread, seed_of, states_kept
from specref.gate.subject import Outcome, Problem
from specref.gate.tape import Tape
from specref.gate.variable import Box, Draw, Place

__all__ = ["Cell", "Measured", "Program", "measure"]

Program = Callable[[Tape, int], Outcome]
"""A function of a tape and of the seed that the subject is given, which must not matter."""

UNDRAWN = 24
"""Replays of a program with a single cell."""


def measure(program: Program, budget: int, replays: int = 2) -> Measured:
    """Read the law of `program(tape, seed)`.

    Args:
        program: a function of its draws; it may also draw from the tape itself (`tape.choose`).
        budget: largest number of runs.
        replays: how many of the first cells are run again under other seeds, before every eighth
            is; if there are fewer cells, the last one more often.
    """
    got = Measured()
    todo: list[Box] = [()]
    again = 0
    with states_kept(), one_thread():
        while todo:
            if got.calls >= budget:
                got.complete = False
                break
            box = todo.pop()
            tape, outcome = _play(program, box, got)
            cell = tape.run.cell
            for rest in _remainder(tape, box):
                todo.append(rest)
            mass = Fraction(1)
            for variable, (low, high) in zip(tape.run.variables, cell, strict=True):
                mass *= variable.mass(low, high)
            if not mass:
                continue  # a second race on the same noise never ends like this
            cuts = tuple(place for places in tape.run.cuts for place in places)
            got.cells.append(Cell(cell, outcome, mass, cuts, tuple(tape.run.variables)))
            if len(got.cells) <= replays or len(got.cells) % 8 == 0:
                again += _again(program, got.cells[-1], got)
            # What draws nothing may draw elsewhere, from few values: look more often.
            enough = replays if len(got.cells) > 1 else max(replays, UNDRAWN)
            while not todo and again < enough and not got.escapes:
                again += _again(program, got.cells[-1], got)
            if got.escapes:
                break  # the law is not to be had this way; leave the budget to the samples
    if got.exact and sum((c.mass for c in got.cells), Fraction(0)) != 1:
        _note(
            got, "the masses of the cells do not sum to one: the output depends on more than draws"
        )
    return got


def _again(program: Program, cell: Cell, got: Measured) -> int:
    """Run a cell once more under other seeds; the output must be the same."""
    if _play(program, cell.box, got)[1] != cell.outcome:
        _note(got, "the output changes although every draw on the tape is the same")
    return 1


def _play(program: Program, box: Box, got: Measured) -> tuple[Tape, Outcome]:
    got.calls += 1
    seed = seed_of(0, got.calls)
    ambient(seed)
    tape = Tape(box)
    with tape.playing():
        outcome = program(tape, seed)
    if isinstance(outcome, Problem) and tape.run.scalars:
        # The problem may be ours: code that cannot work with a followed number. Look without them.
        bare = Tape(box, scalars=False)
        with bare.playing():
            second = program(bare, seed)
        if second != outcome:
            for escape in bare.run.escapes or [Place("a draw leaves torch", "")]:
                _note(got, str(escape))
            return bare, second
    for escape in tape.run.escapes:
        _note(got, str(escape))
    return tape, outcome


def _note(got: Measured, escape: str) -> None:
    if escape not in got.escapes:
        got.escapes.append(escape)


def _remainder(tape: Tape, box: Box) -> Iterator[Box]:
    """Yield boxes that cover `box` without the cell, each up to the variable it differs in."""
    cell = tape.run.cell
    for at, variable in enumerate(tape.run.variables):
        low, high = cell[at]
        given = at < len(box)
        if isinstance(variable, Draw):
            first, last = box[at] if given else (0, variable.size)
            tail = box[at + 1 :]
            if first < low:
                yield (*cell[:at], (first, low), *tail)
            if high < last:
                yield (*cell[:at], (high, last), *tail)
        elif not given:
            for index, weight in enumerate(variable.weights):
                if index != low and weight > 0:
                    yield (*cell[:at], (index, index + 1))
