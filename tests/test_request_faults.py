"""Wrong laws of a request deviate as computed by hand; the right law beside them not at all."""

import math
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest

from specref.choice import Seeded
from specref.decode import decode, sequence_law, target_law
from specref.dist import normalise
from specref.faults import FAULTS, Fault
from specref.faults.requests import masses_of
from specref.logits import Parameters, Process, law, weights
from specref.model import Model
from specref.stops import Stops
from tests.fixtures import P3, Q3, same

LAWS = {name: fault for name, fault in FAULTS.items() if fault.kind == "law"}
LOOPS = {
    name: fault
    for name, fault in FAULTS.items()
    if fault.kind == "loop" and fault.family == "requests"
}

Row = Sequence[Any]
Said = tuple[int, ...]


def after_zero(said: Said) -> list[int]:
    """A grammar of two tokens: behind 0 only 1 may come."""
    return [1] if said[-1:] == (0,) else [0, 1]


# Weights are exponentials of logits. Where masses are irrational, the TV is that of floats.
BY_HAND: list[tuple[str, Row, Parameters, Said, Said, F | int | float]] = [
    # 16/17 at temperature 1/2, 4/5 at 1, 2/3 at 2.
    ("temperature_ignored", weights([4, 1]), Parameters(temperature="1/2"), (), (), F(12, 85)),
    ("temperature_multiplied", weights([4, 1]), Parameters(temperature="1/2"), (), (), F(14, 51)),
    ("target_unfiltered", weights([4, 2, 1]), Parameters(top_p="1/2"), (), (), F(3, 7)),
    ("target_unfiltered", weights([4, 1]), Parameters(temperature="1/2"), (), (), F(12, 85)),
    # At 1/2 the first has 16/21 > 3/4; at 1 it has 4/7, and two stay, as 16 to 4.
    (
        "temperature_last", weights([4, 2, 1]), Parameters(temperature="1/2", top_p="3/4"),
        (), (), F(1, 5),
    ),
    ("sampled_greedily", weights([4, 1]), Parameters(), (), (), F(1, 5)),
    ("greedy_sampled", weights([4, 1]), Parameters(temperature=0), (), (), F(1, 5)),
    ("logits_softmaxed_twice", weights([9, 1]), Parameters(), (), (), .9 - 1 / (1 + math.exp(-.8))),
    ("masked_as_zero", [-math.inf, 0], Parameters(), (), (), F(1, 2)),
    ("bias_ignored", [0, 0], Parameters(bias={0: -math.inf}), (), (), F(1, 2)),
    # log 4 becomes log 2: 2/3 should be 1/2.
    ("penalties_ignored", weights([4, 2]), Parameters(repetition_penalty=2), (), (0,), F(1, 6)),
    ("penalties_lag", weights([4, 2]), Parameters(repetition_penalty=2), (), (0,), F(1, 6)),
    ("prompt_unpenalised", weights([4, 2]), Parameters(repetition_penalty=2), (0,), (), F(1, 6)),
    ("processors_ignored", [0, 0], Parameters(allowed=[1]), (), (), F(1, 2)),
    ("processors_ignored", [0, 0], Parameters(min_tokens=1, eos=[1]), (), (), F(1, 2)),
    ("grammar_lags", [0, 0], Parameters(allowed=after_zero), (), (1, 0), F(1, 2)),
    (
        "prompt_penalised", [0, 0], Parameters(presence_penalty=1), (0,), (),
        .5 - 1 / (1 + math.e),
    ),
    # log 1/4 becomes log 1/2 instead of log 1/16.
    (
        "penalty_divides_negative", weights(["1/4", 1]), Parameters(repetition_penalty=2),
        (), (0,), F(14, 51),
    ),
    (
        "frequency_counted_once", [0, 0], Parameters(frequency_penalty=1), (), (0, 0),
        1 / (1 + math.e) - 1 / (1 + math.e**2),
    ),
    ("filter_ascending", weights([6, 3, 1]), Parameters(top_k=1), (), (), 1),
    # 1/10 and 4/10 are less than half, so that all stay.
    ("filter_ascending", weights([6, 3, 1]), Parameters(top_p="1/2"), (), (), F(2, 5)),
    ("top_k_cuts_ties", [0, 0], Parameters(top_k=1), (), (), F(1, 2)),
    ("top_k_drops_the_last", weights([3, 2, 1]), Parameters(top_k=2), (), (), F(2, 5)),
    ("top_k_drops_the_last", weights([3, 2, 1]), Parameters(top_k=1), (), (), 0),
    ("nucleus_exceeds", weights([2, 1, 1]), Parameters(top_p="1/2"), (), (), F(1, 3)),
    ("nucleus_stays_below", weights([5, 3, 2]), Parameters(top_p="3/5"), (), (), F(3, 8)),
    # 461 of 512 tokens should stay; behind 1/2, bfloat16 does not see 1/1024.
    (
        "cumulative_sum_rounded", weights([512] + [1] * 512), Parameters(top_p="0.95"),
        (), (), F(51, 1024),
    ),
    # 3/5 of two tokens, but half of three.
    (
        "top_p_before_top_k", weights([3, 2, 1]), Parameters(top_k=2, top_p="3/5"),
        (), (), F(2, 5),
    ),
    ("min_p_absolute", weights([2, 1, 1]), Parameters(min_p="0.3"), (), (), F(1, 2)),
    # Half of log 2 is above log 1.
    ("min_p_of_logits", weights([4, 2, 1]), Parameters(min_p="1/4"), (), (), F(1, 7)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "logits", "asked", "prompt", "output", "exact"),
    BY_HAND,
    ids=[f"{at}-{name}" for at, (name, *_) in enumerate(BY_HAND)],
)
def test_laws_deviate_as_computed_by_hand(
    name: str, logits: Row, asked: Parameters, prompt: Said, output: Said, exact: F | float
) -> None:
    found = FAULTS[name].law_deviation(logits, asked, prompt, output)
    if isinstance(exact, float):
        assert abs(float(found) - exact) < 1e-12
    else:
        assert found == exact


def test_every_wrong_law_is_shown() -> None:
    assert {name for name, *_ in BY_HAND} == set(LAWS)


ASKED: list[Parameters] = [
    Parameters(),
    Parameters(temperature="1/2"),
    Parameters(temperature=2, top_p="0.7"),
    Parameters(temperature=0),
    Parameters(top_k=2),
    Parameters(top_k=1, top_p="0.6"),
    Parameters(top_k=3, top_p="1/2"),
    Parameters(top_p="0.9"),
    Parameters(top_p="0.34"),
    Parameters(min_p="0.3"),
    Parameters(min_p=1),
    Parameters(bias={0: -2, 3: -math.inf}),
    Parameters(allowed=lambda said: [1, 3] if said[-1:] == (2,) else [0, 2]),
    Parameters(repetition_penalty="1.3"),
    Parameters(min_tokens=5, eos=[0]),
]
PENALTIES = [
    Parameters(repetition_penalty=2),
    Parameters(presence_penalty=1),
    Parameters(frequency_penalty="1/2", presence_penalty=-1),
]
ROWS: list[Row] = [
    weights([8, 4, 4, 2, 2]),
    weights([9, 1, 0, 3, "1/3"]),
    [1, -1, 0.5, -math.inf, -3],
    [0, 0, 0, 0, 0],
]
PROMPT, OUTPUT = (4, 2), (0, 3, 3, 2)


def print_of(fault: Fault) -> tuple[object, ...]:
    """Return what a wrong law gives for all requests of its preset."""
    assert fault.law is not None
    asked = [*ASKED, *PENALTIES] if fault.preset == "vllm" else ASKED
    return tuple(
        masses_of(fault.law(row, ask, prompt=PROMPT, output=OUTPUT))
        for row in ROWS
        for ask in asked
    )


@pytest.mark.parametrize("fault", LAWS.values(), ids=LAWS)
def test_wrong_laws_are_laws(fault: Fault) -> None:
    for masses in print_of(fault):
        assert sum(masses) == 1
        assert min(masses) >= 0


def test_no_two_wrong_laws_are_the_same() -> None:
    found = defaultdict(list)
    for name, fault in LAWS.items():
        found[print_of(fault)].append(name)
    assert all(len(names) == 1 for names in found.values()), found


UNASKED = {"sampled_greedily", "logits_softmaxed_twice", "masked_as_zero"}


@pytest.mark.parametrize("fault", LAWS.values(), ids=LAWS)
def test_what_is_not_asked_for_cannot_go_wrong(fault: Fault) -> None:
    """All but those that change any law give the model's own, whatever was said."""
    apart = [fault.law_deviation(row, Parameters(), PROMPT, OUTPUT) for row in ROWS]
    assert (max(apart) > 0) == (fault.name in UNASKED)


def test_a_row_with_nan_has_a_law_only_where_nan_is_made_a_logit() -> None:
    row = np.array([np.nan, -5, -5], dtype=np.float32)
    with pytest.raises(ValueError, match="nan"):
        law(row)
    assert FAULTS["masked_as_zero"].law is not None
    masses = masses_of(FAULTS["masked_as_zero"].law(row, Parameters()))
    assert abs(float(masses[0]) - 1 / (1 + 2 * math.exp(-5))) < 1e-12
    for name, fault in LAWS.items():
        if name != "masked_as_zero":
            with pytest.raises(ValueError, match="nan"):
                fault.law_deviation(row, Parameters())


@pytest.mark.parametrize("fault", LAWS.values(), ids=LAWS)
def test_what_is_refused_stays_refused(fault: Fault) -> None:
    assert fault.law is not None
    for row, words in (([], "empty"), ([None, None], "forbid every token|at least one")):
        if words != "empty" and fault.name == "masked_as_zero":
            continue
        with pytest.raises(ValueError, match=words):
            fault.law(row, Parameters())
    with pytest.raises(ValueError, match=r"output\[0\] = 7"):
        fault.law_deviation([0, 0], Parameters(repetition_penalty=2), output=(7,))
    with pytest.raises(ValueError, match="no law of the next token"):
        FAULTS["limit_overrun"].law_deviation([0, 0], Parameters())


def test_many_logits_in_float32_are_read() -> None:
    row = np.random.default_rng(0).normal(size=300).astype(np.float32)
    asked = Parameters(temperature="0.7", top_k=50, top_p="0.9", min_p="0.02")
    for fault in LAWS.values():
        assert fault.law is not None
        assert sum(masses_of(fault.law(row, asked))) == 1


# Loops under parameters.

HALF = same(normalise([1, 1]))


def process(row: Row, asked: Parameters) -> Process:
    return Process(lambda context: row, asked)


SMALLEST: dict[str, tuple[Process, Model, Stops, F]] = {
    # The draft has mass 1/20 on the token that min_p forbids, and is accepted.
    "min_p_on_bonus_only": (
        process(weights([14, 5, 1]), Parameters(min_p="1/5")),
        same(normalise([14, 5, 1])), Stops(2), F(1, 20),
    ),
    # The bonus takes a forbidden token one time in two.
    "bonus_row_unmasked": (
        process([0, 0], Parameters(allowed=[0])), same(normalise([1, 0])), Stops(2), F(1, 2)
    ),
    # (0, 0) comes with 1/4.
    "grammar_asked_once_per_round": (
        process([0, 0], Parameters(allowed=after_zero)), HALF, Stops(2), F(1, 4)
    ),
    # Behind a 0, which has 4/5, the bonus is 0 with 4/5 instead of 2/3.
    "penalties_counted_once_per_round": (
        process(weights([4, 1]), Parameters(repetition_penalty=2)),
        same(normalise([4, 1])), Stops(2), F(8, 75),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_smallest_inputs_of_loops_under_parameters(name: str) -> None:
    p, q, stops, exact = SMALLEST[name]
    assert FAULTS[name].sequence_deviation(p, q, 1, stops) == exact
    assert sequence_law("token", p, q, 1, stops) == target_law(p, stops)


RICH = Process(
    lambda context: weights([[8, 4, 2], [2, 8, 4], [4, 2, 8], [2, 4, 8]][(sum(context) + 1) % 4]),
    Parameters(
        repetition_penalty=2, min_p="2/3", allowed=lambda said: [0, 1] if 2 in said else [0, 1, 2]
    ),
    prompt=(1,),
    digits=6,
)


def test_loops_under_parameters_deviate_each_in_its_own_way() -> None:
    stops = Stops(3, eos=1, min_tokens=1)
    right = target_law(RICH, stops)
    assert sequence_law("token", RICH, Q3, 2, stops) == right
    laws = {}
    for name, fault in LOOPS.items():
        laws[name] = sequence_law("token", RICH, Q3, 2, stops, loop=fault.loop)
        assert sum(laws[name].values()) == 1
    differ = {name for name, found in laws.items() if found != right}
    assert differ == set(LOOPS)
    assert len({frozenset(found.items()) for found in laws.values()}) == len(LOOPS)


@pytest.mark.parametrize("fault", LOOPS.values(), ids=LOOPS)
def test_targets_without_parameters_are_left_alone(fault: Fault) -> None:
    stops = Stops(3, eos=2)
    assert fault.sequence_deviation(P3, Q3, 2, stops) == 0
    assert fault.sequence_deviation(process([2, 1, 0], Parameters()), Q3, 1, 2) == 0
    assert fault.loop is not None
    for seed in range(10):
        ours = fault.loop("token", P3, Q3, 2, stops, Seeded(seed))
        assert ours == decode("token", P3, Q3, 2, stops, Seeded(seed))
