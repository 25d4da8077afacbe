"""Learning laws by asking: cells with exact masses, and what is said where they are not found."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from specref.choice import Uniforms, law
from specref.dist import as_fraction, tv
from specref.gate.cases import fixtures
from specref.gate.checks import band_of
from specref.gate.evidence import RISK
from specref.gate.learn import CHANGES, learn, outcome_at
from specref.gate.loading import load
from specref.gate.opaque import measure_opaque
from specref.gate.subject import Problem
from specref.rules import RULES

GRID = 1 << 24
"""The grid of float32 uniforms."""

FINE = 1 << 53
"""The grid of float64 uniforms."""


def by_point(function):
    """Return the run of a function of one point."""
    return lambda points: [function(*point) for point in points.tolist()]


def counted(run):
    """Return a run and the list of how many points each call of it had."""
    sizes = []

    def counting(points):
        sizes.append(len(points))
        return run(points)

    return counting, sizes


def learned(function, sizes, budget=50_000, seed=0, **more):
    return learn(by_point(function), sizes, budget, seed, **more)


def of_total(got):
    return sum((cell.mass for cell in got.cells), Fraction(0))


def apart(cells):
    """Whether no two boxes share a point."""
    return all(
        any(a[1] <= b[0] or b[1] <= a[0] for a, b in zip(one.box, other.box, strict=True))
        for one, other in product(cells, repeat=2)
        if one is not other
    )


@pytest.mark.parametrize("size", [GRID, FINE])
def test_a_cut_is_found_to_the_last_integer(size):
    cut = size // 3
    got = learned(lambda k: k < cut, (size,))
    assert got.exact
    assert got.law == {True: Fraction(cut, size), False: Fraction(size - cut, size)}
    assert len(got.cells) == 2


def test_cells_are_apart_and_cover_the_cube():
    size = 1000

    def function(a, b, c):
        return (a < 137, b < 412 if a < 137 else None, c < 500 if a >= 137 else None)

    got = learned(function, (size,) * 3)
    assert got.exact
    assert of_total(got) == 1
    assert apart(got.cells)
    first, second = Fraction(137, 1000), Fraction(412, 1000)
    assert got.law == {
        (True, True, None): first * second, (True, False, None): first * (1 - second),
        (False, None, True): (1 - first) / 2, (False, None, False): (1 - first) / 2,
    }  # fmt: skip
    for point in ([0, 0, 0], [136, 411, 999], [137, 0, 499], [999, 999, 999]):
        assert outcome_at(got.cells, point) == function(*point)
    assert outcome_at(got.cells, [1000, 0, 0]) is None


def test_whole_frontiers_are_asked_in_one_call():
    run, sizes = counted(by_point(lambda a, b, c: (a * 4 // GRID, b * 5 // GRID, c * 3 // GRID)))
    got = learn(run, (GRID,) * 3, 50_000, 0)
    assert got.exact
    assert len(got.cells) == 60
    assert got.calls == sum(sizes)
    assert len(sizes) < 400  # a bisection alone has 24 steps, and there are 59 cuts


def test_the_same_outcome_on_two_intervals():
    got = learned(lambda k, _: k < FINE // 8 or FINE // 2 <= k < FINE // 4 * 3, (FINE, FINE))
    assert got.exact
    assert got.law[True] == Fraction(3, 8)
    assert len(got.cells) == 4


def test_a_reused_coin():
    # The coin that rejected decides again: 0.3 <= u < 0.5 gives one token, what is above another.
    def function(coin, terminal):
        if coin * 10 < 3 * FINE:
            return (0, int(terminal * 2 >= FINE))
        return (1 + int(coin * 2 >= FINE),)

    got = learned(function, (FINE, FINE))
    cut = -(-3 * FINE // 10)
    assert got.exact
    assert got.law == {
        (0, 0): Fraction(cut, 2 * FINE), (0, 1): Fraction(cut, 2 * FINE),
        (1,): Fraction(FINE // 2 - cut, FINE), (2,): Fraction(1, 2),
    }  # fmt: skip


def test_a_band_of_a_thousandth_is_found_exactly():
    low = int(0.7123 * FINE)
    high = low + FINE // 1000
    for seed in range(20):
        got = learned(
            lambda u, _: u < FINE // 4 or low <= u < high, (FINE, FINE), 9_000, seed, probes=1000
        )
        assert got.exact
        assert got.law[True] == Fraction(FINE // 4 + FINE // 1000, FINE)


def test_a_band_below_what_probes_see_is_admitted_or_found():
    width = Fraction(1, 100_000)
    low = GRID // 2
    high = low + int(width * GRID)
    found = 0
    for seed in range(30):
        got = learned(lambda u: low <= u < high, (GRID,), seed=seed, probes=2000, spread=500)
        missed = Fraction(high - low, GRID) - got.law.get(True, 0)
        assert got.complete
        assert of_total(got) == 1
        assert 0 <= missed <= got.missed
        assert got.missed > 0
        found += missed == 0
    assert 0 < found < 30  # so that both ways are seen


def test_a_point_of_the_grid_that_lies_on_a_face():
    # u <= 0: one number in 2^53, but it is the first.
    got = learned(lambda u, v: (u <= 0, v < FINE // 2), (FINE, FINE))
    assert got.exact
    assert got.law[True, True] == Fraction(1, 2 * FINE)


def test_a_slanted_border_ends_with_the_budget():
    got = learned(lambda u, v: u * v < GRID * GRID // 3, (GRID, GRID), 20_000)
    assert not got.complete
    assert not got.exact
    assert not got.escapes
    assert got.missed == 1
    assert got.calls <= 20_000
    assert of_total(got) < 1


@pytest.mark.parametrize("budget", [0, 1, 2047, 2048, 3000, 6000])
def test_no_budget_is_exceeded(budget):
    got = learned(lambda u: u < GRID // 3, (GRID,), budget)
    assert got.calls <= budget
    assert not got.complete
    assert got.missed == 1


def test_a_program_without_draws_has_one_cell():
    got = learn(lambda points: [(1,)] * len(points), (), 10_000, 0)
    assert got.exact
    assert [(cell.box, cell.mass) for cell in got.cells] == [((), 1)]


@pytest.mark.parametrize("chance", [0.5, 0.01, 0.001])
@pytest.mark.parametrize("columns", [0, 1, 3])
def test_noise_is_no_function_of_the_draws(chance, columns):
    hidden = np.random.default_rng(columns)
    got = learned(lambda *point: bool(hidden.random() < chance), (GRID,) * columns)
    assert got.escapes == [CHANGES]
    assert not got.exact


def test_what_noise_escapes_is_within_the_bound():
    for seed in range(20):
        chance = np.random.default_rng(seed).random
        got = learned(
            lambda u, chance=chance: chance() < 1e-4, (GRID,), seed=seed, probes=2000, spread=100
        )
        assert got.escapes or got.missed >= 1e-4


def test_the_bound_is_that_of_agreeing_probes():
    got = learned(lambda u: u < GRID // 3, (GRID,), probes=1000)
    assert got.missed == pytest.approx(np.log(2 / RISK) / 1000)
    assert learned(lambda u: 0, (GRID,), probes=3).missed == 1


def test_boxes_of_no_account_are_not_split():
    # A thousand outcomes where both draws start: masses below 2^-64.
    size = 1 << 62

    def function(u, v, w):
        return w % 7 if u < 8 and v < 8 else -1

    got = learned(function, (size,) * 3)
    assert got.exact
    assert of_total(got) == 1
    assert len(got.cells) < 20
    assert got.missed < 0.01


def test_columns_of_different_sizes():
    got = learned(lambda a, b, c: (a, b < 5, c < 1 << 61), (3, 10, 1 << 62))
    assert got.exact
    assert set(got.law.values()) == {Fraction(1, 12)}


def test_the_same_seed_learns_the_same():
    def function(u, v):
        return (u < GRID // 3, v < GRID // 5 if u < GRID // 3 else None)

    one, two, other = (learned(function, (GRID, GRID), seed=seed) for seed in (4, 4, 5))
    assert one == two
    assert one.law == other.law


# decide


class Decides:
    """The reference sampler on given draws."""

    def __init__(self, rule, change=None):
        self.rules = (rule,)
        self.verify = RULES[rule].verify
        self.change = change or (lambda u: u)
        self.rows = []

    def sample(self, case, n, seed):
        draws = np.random.default_rng(seed).integers(0, GRID, (n, len(case.tokens) + 1))
        return self.decide(case, draws / GRID)

    def decide(self, case, u):
        assert u.dtype == np.float64
        assert u.shape[1] == len(case.tokens) + 1
        assert ((u * GRID == np.floor(u * GRID)) & (u >= 0) & (u < 1)).all()
        self.rows.append(len(u))
        root = case.root()
        out = np.full((len(u), case.gamma + 1), -1)
        for row, draws in zip(out, self.change(u).tolist(), strict=True):
            text = self.verify(root, Uniforms(Fraction(x) for x in draws))
            row[: len(text)] = text
        return out


def small_cases(rule, name="small"):
    fixture = next(f for f in fixtures(RULES[rule].shape, False) if f.name == name)
    return [fixture.case(d, rule) for d in fixture.drafts(RULES[rule].draft)]


@pytest.mark.parametrize("rule", ["token", "rrs_with", "rrs_without"])
def test_decide_has_the_law_of_its_rule(rule):
    subject = load(Decides(rule))
    for case in small_cases(rule)[:3]:
        got = measure_opaque(subject, case, 20_000, 1, probes=300, spread=300)
        wanted = law(lambda choose, case=case: RULES[rule].verify(case.root(), choose))
        wanted = {out: as_fraction(mass) for out, mass in wanted.items()}
        assert got.exact
        assert of_total(got) == 1
        assert tv(got.law, wanted) <= band_of(case)  # the grid of the draws
        assert len(got.cells[0].box) == len(case.tokens) + 1


def test_decide_is_asked_many_rows_at_a_time():
    subject = Decides("token")
    got = measure_opaque(load(subject), small_cases("token")[0], 20_000, 1)
    assert got.exact
    assert sum(subject.rows) == got.calls + 16
    assert len(subject.rows) < 300


def test_a_subject_that_decides_is_not_sampled():
    subject = Decides("token")
    subject.sample = lambda case, n, seed: pytest.fail("sampled")
    assert measure_opaque(load(subject), small_cases("token")[0], 20_000, 1).exact


def test_an_exception_in_a_row_takes_only_that_row():
    def change(u):
        if (u[:, 0] < 0.125).any():
            raise ArithmeticError("a coin that it does not like")
        return u

    subject = load(Decides("token", change))
    got = measure_opaque(subject, small_cases("token")[0], 20_000, 1, probes=100, spread=100)
    assert got.exact
    (problem,) = (out for out in got.law if isinstance(out, Problem))
    assert got.law[problem] == Fraction(1, 8)


@pytest.mark.parametrize(
    "change",
    [
        lambda u: np.roll(u, 1, 0),
        lambda u: np.broadcast_to(u[:1], u.shape),
        lambda u: np.random.random(u.shape),
        lambda u: u if len(u) > 1 else 1 - 2.0**-24 - u,
    ],
)
def test_decide_must_depend_on_the_draws_of_the_row(change):
    subject = load(Decides("token", change))
    got = measure_opaque(subject, small_cases("token")[0], 20_000, 1, probes=300, spread=300)
    assert got.escapes
    assert not got.exact


def test_what_decide_returns_is_told_apart():
    subject = Decides("token")
    subject.decide = lambda case, u: np.zeros((len(u), 7), int)
    got = measure_opaque(load(subject), small_cases("token")[0], 20_000, 1, probes=10, spread=4)
    (problem,) = got.law
    assert str(problem) == "shape: decide returned (1, 7); expected (1, 3)"
