"""Measuring: cells that cover the cube, the guards, and torch's uniforms as they really are."""

import random
import time
from fractions import Fraction

import numpy as np
import pytest
import torch

from specref.gate.audit import Atlas, Audit, Recorder, audit, bound, row_work
from specref.gate.measure import measure
from specref.gate.seeds import states_kept
from specref.gate.subject import MOST_ROWS, Problem
from specref.gate.uniform import Uniform

MANY = 1 << 20


def drawn(make, seed=5):
    """Return what a generator of a fixed seed gives."""
    return make(torch.Generator().manual_seed(seed))


def integers():
    """Return the low 24 bits behind the same draws, which torch hands out as integers."""
    whole = torch.empty(MANY, dtype=torch.int64)
    return drawn(lambda g: whole.random_(0, 1 << 24, generator=g))


def long_integers():
    """Return the low 53 bits behind the same draws of float64."""
    whole = torch.empty(MANY, dtype=torch.int64)
    return drawn(lambda g: whole.random_(-(2**63), None, generator=g)) & ((1 << 53) - 1)


# The maps from integers to uniforms, against the generator itself.


@pytest.mark.parametrize(
    ("dtype", "wrapped"),
    [(torch.float32, 0), (torch.float16, 1 << 12), (torch.bfloat16, 1 << 15)],
)
def test_a_uniform_is_an_integer_of_the_grid(dtype, wrapped):
    k = integers()
    kind = Uniform(dtype)
    assert kind.wrapped == wrapped
    expected = torch.where(k < kind.size, kind.value(k), 0)
    for make in (
        lambda g: torch.rand(MANY, dtype=dtype, generator=g),
        lambda g: torch.empty(MANY, dtype=dtype).uniform_(generator=g),
        lambda g: torch.empty(2, MANY // 2, dtype=dtype).uniform_(generator=g).flatten(),
    ):
        assert torch.equal(drawn(make), expected)
    assert int((k >= kind.size).sum()) > 100 or not wrapped


def test_a_float64_uniform_is_an_integer_of_the_finer_grid():
    k = long_integers()
    real = drawn(lambda g: torch.rand(MANY, dtype=torch.float64, generator=g))
    assert torch.equal(real, k.double() * 2.0**-53)
    assert torch.equal(Uniform(torch.float64).value(k), real)
    assert Uniform(torch.float64).wrapped == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("span", [(0, 2), (-1, 1), (1e-10, 1), (0.1, 0.7), (3, 4), (-0.3, 0.9)])
def test_a_uniform_of_a_range_is_scaled_and_rounded_as_torch_does(dtype, span):
    k = integers()
    kind = Uniform(dtype, *span)
    start = torch.tensor(span[0]).to(dtype)
    real = drawn(lambda g: torch.empty(MANY, dtype=dtype).uniform_(*span, generator=g))
    assert torch.equal(torch.where(k < kind.size, kind.value(k), start), real)
    # An integer that the number hides gives the number back.
    assert torch.equal(kind.value(kind.nearest(real)), real)


def test_a_float64_uniform_of_a_range_is_within_its_last_place():
    real = drawn(lambda g: torch.empty(MANY, dtype=torch.float64).uniform_(0.1, 0.7, generator=g))
    ours = Uniform(torch.float64, 0.1, 0.7).value(long_integers())
    assert float((real - ours).abs().max()) <= 2.0**-53


def test_an_empty_range_has_one_number():
    kind = Uniform(torch.float32, 0.5, 0.5)
    assert kind.wrapped == 0
    assert set(kind.value(torch.tensor([0, 77])).tolist()) == {0.5}


# Covering the cube.


def two_coins(tape, seed):
    u = torch.rand(2)
    return bool(u[0] < 0.25), bool(u[1] < 0.5) if bool(u[0] < 0.75) else None


def test_cells_cover_the_cube_and_their_masses_sum_to_one():
    got = measure(two_coins, 50)
    assert got.exact
    assert sum(cell.mass for cell in got.cells) == 1
    assert got.law == {
        (True, True): Fraction(1, 8), (True, False): Fraction(1, 8),
        (False, True): Fraction(1, 4), (False, False): Fraction(1, 4),
        (False, None): Fraction(1, 4),
    }  # fmt: skip
    for one in got.cells:
        for other in got.cells:
            apart = any(
                a[1] <= b[0] or b[1] <= a[0] for a, b in zip(one.box, other.box, strict=True)
            )
            assert apart or one is other


def test_a_budget_that_runs_out_leaves_the_law_incomplete():
    whole = measure(two_coins, 50)
    for budget in range(1, whole.calls):
        got = measure(two_coins, budget)
        assert got.calls <= budget + 2
        if got.complete:
            assert got.law == whole.law
        else:
            assert not got.exact
            assert sum(cell.mass for cell in got.cells) < 1
    assert not measure(two_coins, 1).complete


def test_where_names_the_comparisons_behind_an_outcome():
    got = measure(two_coins, 50)
    text = got.where({(True, True)})
    assert text.startswith("lt at ")
    assert __file__ in text
    assert got.where(set()) == ""


def test_the_order_of_draws_may_depend_on_draws():
    def program(tape, seed):
        kinds = []
        while len(kinds) < 3 and bool(torch.rand(()) < 0.5):
            kinds.append(int(torch.multinomial(torch.tensor([1.0, 3.0]), 1)))
        return tuple(kinds)

    got = measure(program, 200)
    assert got.exact
    assert got.law[()] == Fraction(1, 2)
    assert got.law[1, 0] == Fraction(1, 4) * Fraction(3, 16) * Fraction(1, 2)
    assert got.law[1, 1, 1] == Fraction(1, 8) * Fraction(27, 64)


def test_an_exception_is_an_outcome_with_a_mass():
    def program(tape, seed):
        return Problem("exception", "x") if bool(torch.rand(()) < 0.125) else 1

    assert measure(program, 20).law == {
        Problem("exception", "x"): Fraction(1, 8),
        1: Fraction(7, 8),
    }


# Draws that the tape does not see.


def counter():
    seen = [0]

    def program(tape, seed):
        seen[0] += 1
        return seen[0] % 2

    return program


HIDDEN = {
    "NumPy": lambda tape, seed: np.random.random(),
    "Python": lambda tape, seed: random.random(),
    "the seed": lambda tape, seed: seed,
    "a NumPy generator": lambda tape, seed: np.random.default_rng(seed).random(),
    "the clock": lambda tape, seed: time.perf_counter_ns(),
    "history": counter(),
    "another generator after a draw": lambda tape, seed: (
        bool(torch.rand(()) < 0.5),
        np.random.random(),
    ),
}


@pytest.mark.parametrize("source", HIDDEN)
def test_an_output_that_changes_by_itself_is_noticed(source):
    got = measure(HIDDEN[source], 50)
    assert not got.exact
    assert "the output changes although every draw on the tape is the same" in got.escapes


def test_draws_that_come_and_go_are_noticed():
    calls = [0]

    def program(tape, seed):
        calls[0] += 1
        u = torch.rand(1 + (calls[0] > 3))
        return bool(u[-1] < 0.5)

    assert not measure(program, 50).exact


def test_measuring_leaves_every_global_generator_as_it_was():
    torch.manual_seed(11)
    np.random.seed(12)
    random.seed(13)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()

    def program(tape, seed):
        torch.manual_seed(seed)
        np.random.seed(1)
        random.seed(2)
        return bool(torch.rand(()) < 0.5)

    assert measure(program, 20).exact
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (np.random.get_state()[1].tolist(), random.getstate())


# The audit.


def one_coin(n, seed):
    g = torch.Generator().manual_seed(seed)
    return outcomes(torch.rand(n, 1, generator=g) < 0.25)


def outcomes(rows):
    return [tuple(row) for row in rows.long().tolist()]


def audited(sample, rows=2000, calls=50):
    got = measure(lambda tape, seed: sample(1, seed)[0], 200)
    assert got.exact
    with states_kept():
        return audit(got, sample, rows, calls, 1)


def test_an_honest_batch_is_audited_row_by_row():
    found = audited(one_coin)
    assert (found.rows, found.misses) == (2000, 0)
    assert bound(found.rows) == pytest.approx(13.8155 / 2000, rel=1e-4)
    assert bound(found.rows, 50) == pytest.approx((13.8155 + 3.9120) / 2000, rel=1e-4)


def test_large_audits_are_cut_into_calls():
    sizes = []

    def noted(n, seed):
        sizes.append(n)
        return one_coin(n, seed)

    assert audited(noted, rows=2 * MOST_ROWS + 5).rows == 2 * MOST_ROWS + 5
    assert max(sizes) == MOST_ROWS


def test_work_done_for_each_row_is_counted():
    def slow(n, seed):
        return [(int(x + 0 * sum(torch.ones(3))),) for (x,) in one_coin(n, seed)]

    def in_a_loop(n, seed):
        return [one_coin(1, seed + row)[0] for row in range(n)]

    assert row_work(one_coin, 1) == 0
    assert 3 <= row_work(slow, 1) <= 20
    assert row_work(in_a_loop, 1) is None


@pytest.mark.parametrize("kind", ["in a loop", "transposed", "some rows only", "surplus"])
def test_draws_that_do_not_fall_to_rows_are_audited_one_by_one(kind):
    def sample(n, seed):
        g = torch.Generator().manual_seed(seed)
        if kind == "in a loop":
            return [(int(torch.rand(1, generator=g) < 0.25),) for _ in range(n)]
        if kind == "transposed":
            return outcomes(torch.rand(1, n, generator=g).T < 0.25)
        first = torch.rand(n, 1, generator=g)[:, 0] < 0.25
        second = torch.zeros(n, dtype=torch.int64)
        if kind == "some rows only":
            if first.any():
                second[first] = torch.randint(2, (int(first.sum()),), generator=g)
        elif first.any():  # drawn for every row of a batch, and used where it is needed
            second = torch.where(first, torch.randint(2, (n,), generator=g), 0)
        return outcomes(torch.stack([first, second], 1))

    found = audited(sample)
    assert (found.rows, found.misses) == (50, 0)


def test_a_decision_that_leaves_no_trace_is_missed_by_the_tape_and_seen_by_the_audit():
    def sample(n, seed):
        u = torch.rand(n, 1, generator=torch.Generator().manual_seed(seed))
        behind = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(u.clone()))
        return outcomes(behind < 0.01)

    got = measure(lambda tape, seed: sample(1, seed)[0], 50)
    assert got.exact
    assert got.law == {(0,): 1}
    found = audited(sample, rows=20_000)
    assert 100 < found.misses < 300
    assert found.example == "predicted (0,), saw (1,)"


@pytest.mark.parametrize(
    "draw",
    [
        lambda n: torch.rand(n, 1) < 0.3,
        lambda n: torch.rand(n, 1, dtype=torch.float64) < 0.3,
        lambda n: torch.rand(n, 1, dtype=torch.bfloat16) < 0.3,
        lambda n: torch.rand(n, 1, dtype=torch.float16) <= 0,
        lambda n: torch.empty(n, 1).uniform_(1, 3) < 1.7,
        lambda n: torch.randint(5, 9, (n, 1)) % 3 == 0,
        lambda n: torch.empty(n, 1).random_(2, 6) > 4,
        lambda n: torch.bernoulli(torch.full((n, 1), 0.3)),
        lambda n: torch.zeros(n, 1).bernoulli_(0.3),
        lambda n: torch.multinomial(torch.tensor([[0.1, 0.2, 0.7]]).expand(n, 3), 2),
    ],
)
def test_recorded_draws_are_those_of_the_tape(draw):
    def sample(n, seed):
        torch.manual_seed(seed)
        return outcomes(draw(n))

    found = audited(sample, rows=4000)
    assert (found.rows, found.misses) == (4000, 0)


def test_a_recorded_permutation_is_that_of_the_tape():
    def sample(n, seed):
        torch.manual_seed(seed)
        return [tuple(torch.randperm(3).tolist()) for _ in range(n)]

    found = audited(sample)
    assert (found.rows, found.misses) == (50, 0)


def test_the_recorder_notes_states_and_unknown_operations():
    g = torch.Generator().manual_seed(1)
    before = g.get_state().numpy().tobytes()
    with Recorder(states=True) as recorder:
        torch.rand(2, 3, generator=g)
        torch.rand(0)
        torch.randn(2)
    assert recorder.states[0] == before
    assert len(recorder.states) == 2
    assert [d.shape for d in recorder.draws] == [(2, 3)]
    assert recorder.unknown == ["randn"]
    assert recorder.operations == 3


def test_an_atlas_predicts_nothing_outside_of_its_cells():
    atlas = Atlas(measure(two_coins, 50).cells)
    low, high = 0, (1 << 24) - 1
    assert atlas.predict(np.array([[low, low], [low, high], [high, high]])) == [
        (True, True), (True, False), (False, None),
    ]  # fmt: skip
    assert atlas.predict(np.array([[low, low, low]])) == [None]
    assert atlas.predict(np.array([[low]])) == [None]
    assert atlas.predict(np.array([[low, -1]])) == [None]


def test_audits_add_up():
    total = Audit()
    total.add(Audit(10, 0, ""))
    total.add(Audit(5, 2, "predicted a, saw b"))
    assert (total.rows, total.misses, total.example) == (15, 2, "predicted a, saw b")
