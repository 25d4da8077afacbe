import itertools
import math
import random
from fractions import Fraction as F
from functools import partial

import numpy as np
import pytest

from specref.choice import (
    Choose,
    Enumerate,
    Proposal,
    Seeded,
    Trace,
    Uniforms,
    inverse_cdf,
    law,
)
from specref.draft import Node, nodes, tree
from specref.philox import Domain, uniform

P = (F(1, 2), F(3, 10), F(1, 5))
TINY = F(1, 10**30)


def coin(index):
    """Return the address of a coin."""
    return Node(P, P, index=index)


def geometric(choose):
    """Count heads until the first tail, three flips at most."""
    for heads in range(3):
        if not choose.flip(F(1, 3)):
            return heads
    return 3


def two_dice(choose):
    return choose((F(1, 6),) * 6) + choose((F(1, 6),) * 6)


SMALL = {
    "no choice": (lambda choose: "done", {"done": 1}),
    "a fair coin": (lambda choose: choose.flip(F(1, 2)), {True: F(1, 2), False: F(1, 2)}),
    "certainty": (lambda choose: choose.flip(1), {True: 1}),
    "impossibility": (lambda choose: choose.flip(0), {False: 1}),
    "a zero weight": (lambda choose: choose((0, F(1, 4), F(3, 4))), {1: F(1, 4), 2: F(3, 4)}),
    "early stops": (geometric, {0: F(2, 3), 1: F(2, 9), 2: F(2, 27), 3: F(1, 27)}),
    "two dice": (two_dice, {n: F(6 - abs(n - 5), 36) for n in range(11)}),
    "weights that depend on a choice": (
        lambda choose: choose(((F(1, 2), F(1, 2)), (F(1, 4), F(3, 4)))[choose.flip(F(1, 5))]),
        {0: F(9, 20), 1: F(11, 20)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("program", SMALL)
def test_the_law_of_a_small_program_is_exact(program):
    text, expected = SMALL[program]
    assert law(text) == expected


def test_the_law_of_a_float_program_is_close():
    out = law(lambda choose: choose((0.1, 0.2, 0.7)) + choose.flip(0.3))
    assert out.keys() == {0, 1, 2, 3}
    exact = F(0.2) * (1 - F(0.3)) + F(0.1) * F(0.3)
    # Four roundings: the complement of the chance, two products and their sum.
    assert abs(F(out[1]) - exact) <= 4 * F(math.ulp(out[1]))


def test_every_leaf_is_visited_once():
    seen = []

    def program(choose):
        leaf = tuple(choose((F(1, 3),) * 3) for _ in range(4))
        seen.append(leaf)
        return leaf

    law(program)
    assert sorted(seen) == list(itertools.product(range(3), repeat=4))


@pytest.mark.parametrize("reading", ["exact", "uniforms", "seed"])
@pytest.mark.parametrize(
    "weights",
    [(F(1, 2), F(1, 3)), (F(3, 2), F(-1, 2)), (), (0, 0), (0.5, 0.4), (1.5, -0.5), (math.nan, 0.5),
     (math.inf, 0.0), (F(1, 2), F(1, 2), F(1, 10**30))],
)  # fmt: skip
def test_weights_that_are_no_law_are_refused_by_every_reading(weights, reading):
    choose = {"exact": Enumerate(), "uniforms": Uniforms([F(1, 3)]), "seed": Seeded(0)}[reading]
    with pytest.raises(ValueError, match="choose needs weights >= 0 that sum to 1, got"):
        choose(weights)


@pytest.mark.parametrize("reading", ["exact", "uniforms", "seed"])
@pytest.mark.parametrize("chance", [F(-1, 5), F(6, 5), -0.2, 1.2, math.nan])
def test_a_chance_outside_zero_and_one_is_refused_by_every_reading(chance, reading):
    choose = {"exact": Enumerate(), "uniforms": Uniforms([F(1, 3)]), "seed": Seeded(0)}[reading]
    with pytest.raises(ValueError, match="choose needs weights >= 0 that sum to 1, got"):
        choose.flip(chance)


def test_float_weights_may_be_off_by_their_roundings_only():
    third = 1 / 3
    assert law(lambda choose: choose((third, third, third))).keys() == {0, 1, 2}
    with pytest.raises(ValueError, match="choose needs weights"):
        law(lambda choose: choose((third, third, third + 1e-12)))


ROWS = {
    **{np.dtype(dtype).name: partial(np.array, dtype=dtype) for dtype in (np.float32, np.float16)},
    "tensor": lambda row: pytest.importorskip("torch").tensor(row),
}


@pytest.mark.parametrize("make", ROWS.values(), ids=ROWS)
def test_rows_of_other_float_types_are_held_to_their_own_roundings(make):
    tenths = make([0.1] * 10)
    assert law(lambda choose: choose(tenths)).keys() == set(range(10))
    for row in ([0.5, 0.51], [0.5, float("nan")], [1.5, -0.5]):
        with pytest.raises(ValueError, match="choose needs weights >= 0 that sum to 1, got"):
            law(lambda choose, row=row: choose(make(row)))
    with pytest.raises(ValueError, match="choose needs one row of weights, got rows of shape"):
        law(lambda choose: choose(make([[0.5, 0.5]])))


def calls(per_run):
    """Return a program whose text changes from run to run, as `per_run(choose, run)` says."""
    run = itertools.count()
    return lambda choose: per_run(choose, next(run))


GENERATOR = random.Random(1)
IMPURE = {
    "more options when replayed": calls(lambda choose, run: choose((F(1, 2 + run),) * (2 + run))),
    "fewer choices when replayed": calls(
        lambda choose, run: [choose.flip(F(1, 2)) for _ in range(1 if run else 2)].count(True)
    ),
    "moving weights": calls(lambda choose, run: choose.flip(F(1, 2 + run))),
    "its own generator": lambda choose: choose.flip(F(GENERATOR.randrange(1, 10**6), 10**6)),
}


@pytest.mark.parametrize("program", IMPURE)
def test_a_program_that_is_no_function_of_its_choices_is_refused(program):
    with pytest.raises(RuntimeError, match=r"not a function of its choices.*remove state"):
        law(IMPURE[program])


def test_a_flip_succeeds_strictly_below_its_chance():
    chance = F(2, 7)
    assert Uniforms([chance - TINY]).flip(chance)
    assert not Uniforms([chance]).flip(chance)
    assert not Uniforms([0]).flip(F(0))
    assert Uniforms([1 - TINY]).flip(F(1))


def test_a_choice_is_the_inverse_cdf_in_token_order():
    for u, token in [
        (0, 0), (F(1, 2) - TINY, 0), (F(1, 2), 1), (F(4, 5) - TINY, 1), (F(4, 5), 2), (1 - TINY, 2),
    ]:  # fmt: skip
        assert Uniforms([u])(P) == inverse_cdf(P, u) == token


@pytest.mark.parametrize("u", [0, F(1, 3) - TINY, F(1, 3), F(1, 2), 1 - TINY])
def test_a_token_of_weight_zero_is_never_chosen(u):
    weights = (0, F(1, 3), 0, F(2, 3), 0)
    assert inverse_cdf(weights, u) == (1 if u < F(1, 3) else 3)


def test_a_sum_rounded_down_falls_to_the_last_token_of_positive_weight():
    assert inverse_cdf((0.5, 0.5 - 2**-54, 0.0), 1 - 2**-54) == 1
    with pytest.raises(ValueError, match="no token has positive weight"):
        inverse_cdf((0, 0), F(1, 2))


def test_coins_are_addressed_by_node_and_the_last_draw_is_terminal():
    choose = Uniforms([F(1, 10), F(2, 10), F(3, 10)])
    assert [choose.draw(coin(1)), choose.draw(coin(2)), choose.draw(None)] == [
        F(1, 10), F(2, 10), F(3, 10),
    ]  # fmt: skip


def three_coins(choose):
    return *(choose.flip(F(1, 2), at=coin(at)) for at in (1, 2, 3)), choose(P)


@pytest.mark.parametrize("changed", range(4))
def test_changing_one_draw_moves_no_other_decision(changed):
    low = [F(1, 10)] * 4
    high = [*low[:changed], F(9, 10), *low[changed + 1 :]]
    before, after = three_coins(Uniforms(low)), three_coins(Uniforms(high))
    assert [at for at in range(4) if before[at] != after[at]] == [changed]


def test_columns_that_a_path_does_not_need_are_ignored():
    def program(choose):
        return choose.flip(F(1, 2), at=coin(3)), choose(P)

    rows = itertools.product((0, F(9, 10)), repeat=2)
    assert {program(Uniforms([*row, F(1, 4), F(3, 4)])) for row in rows} == {(True, 1)}


@pytest.mark.parametrize("u", [1, 1.0, -TINY, F(3, 2), math.nan])
def test_a_draw_outside_the_unit_interval_is_refused_by_column(u):
    with pytest.raises(ValueError, match=r"uniforms\[1\] = .* is outside \[0, 1\)"):
        Uniforms([0, u])


@pytest.mark.parametrize("draws", [[F(1, 2)], np.array([0.5]), np.array([0.5], np.float32)])
def test_draws_may_be_arrays(draws):
    assert Uniforms(draws).flip(F(2, 3))
    assert not Uniforms(draws).flip(F(1, 2))


@pytest.mark.parametrize("at", [coin(3), coin(0)])
def test_a_missing_column_is_an_error(at):
    with pytest.raises(LookupError, match="uniforms has 2 draws but column"):
        Uniforms([0, 0]).flip(F(1, 2), at=at)
    with pytest.raises(LookupError, match="uniforms has 0 draws but column -1"):
        Uniforms([])(P)


def test_given_uniforms_propose_no_drafts():
    with pytest.raises(LookupError, match="drafts are given, or use a seed"):
        Uniforms([0, 0])(P, at=Proposal(1))


def test_a_seeded_draw_is_the_philox_draw_at_its_address():
    choose = Seeded(seed=11, start=6)
    assert choose.draw(None) == uniform(11, 6, 0, Domain.TERMINAL)
    assert choose.draw(coin(4)) == uniform(11, 6, 4, Domain.COIN)
    assert choose.draw(Proposal(4)) == uniform(11, 6, 4, Domain.DRAFT)
    u = choose.draw(coin(4))
    assert not choose.flip(u, at=coin(4))
    assert choose.flip(u + TINY, at=coin(4))


def test_the_draws_of_a_round_are_distinct_and_repeat_with_its_seed():
    def draws(seed, start):
        places = [None, *map(coin, range(1, 9)), *map(Proposal, range(1, 9))]
        return [Seeded(seed, start).draw(at) for at in places]

    assert draws(3, 0) == draws(3, 0)
    every = [u for seed, start in [(3, 0), (3, 1), (4, 0)] for u in draws(seed, start)]
    assert len(set(every)) == len(every) == 51


def test_a_trace_writes_down_each_step_and_changes_none():
    root = tree([P] * 3, [P] * 3, [0, 1], [0, 0])
    _, first, second = nodes(root)

    def program(choose):
        return choose.flip(F(1, 4), at=first), choose(P, at=second), choose(P)

    draws = [F(1, 2), F(3, 5), F(9, 10)]
    trace = Trace(Uniforms(draws))
    assert program(trace) == program(Uniforms(draws)) == (False, 1, 2)
    assert [tuple(step) for step in trace.steps] == [
        ("flip", (F(1, 4),), False, first, F(1, 2)),
        ("choose", P, 1, second, F(3, 5)),
        ("choose", P, 2, None, F(9, 10)),
    ]


def test_a_trace_of_the_exact_reading_has_no_draws():
    laws = {}

    def program(choose):
        trace = Trace(choose)
        out = trace.flip(F(1, 4)), trace(P)
        laws[out] = [step.u for step in trace.steps]
        return out

    assert law(program)[(True, 2)] == F(1, 20)
    assert all(draws == [None, None] for draws in laws.values())
    assert len(laws) == 6


def test_every_reading_is_a_source_of_choices():
    for reading in (Enumerate(), Uniforms([0]), Seeded(0), Trace(Uniforms([0]))):
        assert isinstance(reading, Choose)
