"""Sampling parameters: presets part where they should, and real libraries agree with theirs."""

import itertools
import math
import random
import re
import sys
from dataclasses import replace
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specref import cli, lossless
from specref.logits import (
    PRESETS,
    Enclosure,
    Parameters,
    Preset,
    Process,
    Undecided,
    filtered,
    law,
    parting,
    same_law,
    weights,
)
from specref.logits.balls import arithmetic
from specref.logits.row import Row
from specref.logits.score import Score, logarithm

if not find_spec("flint") and not find_spec("mpmath"):
    pytest.skip("python-flint or mpmath is not installed", allow_module_level=True)

needs_transformers = pytest.mark.skipif(
    not (find_spec("torch") and find_spec("transformers")), reason="transformers is not installed"
)

CONVENTIONS = Path(__file__).parent.parent.joinpath("CONVENTIONS.md").read_text(encoding="utf-8")
TINY = Fraction(1, 10**9)

STABLE = 16
"""Rows up to which torch.sort, which promises nothing, keeps equal elements in order on a CPU."""


def kept(logits, preset="transformers", **asked):
    return sorted(filtered(logits, Parameters(**asked), preset).scores)


def fractions(row):
    return tuple(Fraction(int(m.numerator), int(m.denominator)) for m in row)


def bounds(found):
    """Return lower and upper masses of an exact law or an enclosure."""
    return (found.lower, found.upper) if isinstance(found, Enclosure) else (found, found)


# Presets


def test_every_pair_of_presets_is_separated_by_a_smallest_input():
    found = parting.smallest()
    assert set(found) == set(itertools.combinations(PRESETS, 2))
    assert all(one.parts(*pair) for pair, one in found.items())


def test_the_page_of_conventions_shows_these_inputs():
    shown = re.findall(r"^\| (\w+) \| (\w+) \| `(.*?)` \|$", CONVENTIONS, re.MULTILINE)
    found = parting.smallest()
    assert {(a, b): text for a, b, text in shown} == {p: str(one) for p, one in found.items()}


def test_the_page_of_conventions_shows_the_presets():
    for preset in PRESETS.values():
        steps = (
            step if isinstance(step, str) else f"({' & '.join(step)})" for step in preset.steps
        )
        order = " → ".join(step for step in steps)
        assert f"| {preset.name} | {order} |" in CONVENTIONS, preset.name
        ties = f"| {preset.name} | {preset.top_k_ties} | {preset.top_p_ties} |"
        assert ties in CONVENTIONS, preset.name
        assert f"- {preset.name}: {preset.source}." in CONVENTIONS


def test_five_presets_and_more_part_on_the_shipped_logits():
    ask = Parameters(temperature="0.7", top_k=50, top_p="0.9")
    rows = {name: filtered(parting.SHIPPED, ask, name) for name in PRESETS}
    different = [
        pair for pair in itertools.combinations(PRESETS, 2) if not same_law(*map(rows.get, pair))
    ]
    assert len(different) == math.comb(len(PRESETS), 2) - 1
    assert ("transformers", "vllm_sort") not in different


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"top_k_ties": "all"}, [0, 1, 2, 3]),
        ({"top_k_ties": "lowest"}, [0, 1]),
        ({"top_k_ties": "highest"}, [0, 3]),
    ],
)
def test_ties_at_the_kth_value_are_an_argument(change, expected):
    assert kept([2, 1, 1, 1], replace(PRESETS["vllm"], **change), top_k=2) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, [0]),
        ({"nucleus": "exceeds"}, [0, 1]),
        ({"nucleus": "exceeds", "top_p_ties": "highest"}, [0, 2]),
        ({"nucleus": "exceeds", "top_p_ties": "all"}, [0, 1, 2]),
    ],
)
def test_the_boundary_of_the_nucleus_is_an_argument(change, expected):
    assert kept(weights([2, 1, 1]), replace(PRESETS["vllm"], **change), top_p="1/2") == expected


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"steps": ("temperature", "top_q")}, "steps has 'top_q'"),
        ({"steps": ("temperature", "top_k", ("top_k", "top_p"))}, "has a step twice"),
        ({"steps": ("top_k",)}, 'steps has no "temperature"'),
        ({"steps": ("temperature",), "top_k_ties": "first"}, "top_k_ties = 'first'"),
        ({"steps": ("temperature",), "nucleus": "touches"}, "nucleus = 'touches'"),
        ({"steps": ("temperature",), "top_p_zero": "all"}, "top_p_zero = 'all' is unknown; pass"),
        ({"steps": ("temperature",), "counted": "prompt"}, "counted = 'prompt' is unknown; pass"),
        ({"steps": ("temperature",), "window": -1}, "window = -1 is negative; pass a number of"),
        ({"steps": ("temperature",), "coldest": 2, "hottest": 1}, "coldest = 2 and hottest = 1"),
        ({"steps": ("temperature",), "hottest": math.nan}, "pass 0 <= coldest <= hottest"),
    ],
)
def test_a_preset_that_contradicts_itself_is_refused(fields, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        Preset("mine", **fields)


# Real libraries


def blocks(seed, vocab):
    """Return logits with planted ties, near-ties and -inf, exact in float64."""
    draw = random.Random(seed)
    values = [draw.randint(-24, 24) / 8 for _ in range(max(1, vocab // 2))]
    row = [draw.choice(values) for _ in range(vocab)]
    for _ in range(vocab // 4):
        x, y = draw.randrange(vocab), draw.randrange(vocab)
        row[x] = draw.choice([-math.inf, row[y] + 2.0**-40 if row[y] > -math.inf else 1.0])
    return row if max(row) > -math.inf else [*row[:-1], 0.0]


def real(logits, ask, context=()):
    """Return what the processors of transformers keep, and their law, in float64."""
    import torch
    from transformers import generation as g

    made = [
        ("repetition_penalty", g.RepetitionPenaltyLogitsProcessor),
        ("temperature", g.TemperatureLogitsWarper),
        ("top_k", g.TopKLogitsWarper),
        ("top_p", g.TopPLogitsWarper),
        ("min_p", g.MinPLogitsWarper),
        ("typical_p", g.TypicalLogitsWarper),
        ("epsilon", g.EpsilonLogitsWarper),
        ("eta", g.EtaLogitsWarper),
    ]
    scores = torch.tensor([logits], dtype=torch.float64)
    ids = torch.tensor([context or [0]])
    for name, processor in made:
        if name in ask:
            extra = {"device": "cpu"} if name == "eta" else {}
            scores = processor(ask[name], **extra)(ids, scores)
    probabilities = scores.softmax(-1)[0].tolist()
    return [x for x, s in enumerate(scores[0].tolist()) if s > -math.inf], probabilities


THRESHOLDS = ("top_p", "min_p", "typical_p", "epsilon", "eta")


def near(logits, ask):
    """Return what stays for thresholds a little lower and higher: what float64 may also answer."""
    for sign in (-1, 1):
        moved = {
            n: min(1, Fraction(v) + sign * TINY) if n in THRESHOLDS else v for n, v in ask.items()
        }
        yield kept(logits, **moved)


def alike(logits, there, exact):
    """Whether the same logits are kept: torch.sort leaves open which of equal ones."""
    if len(logits) <= STABLE:
        return there == exact
    return sorted(logits[x] for x in there) == sorted(logits[x] for x in exact)


@needs_transformers
@pytest.mark.parametrize("seed", range(150))
def test_the_processors_of_transformers_agree(seed):
    draw = random.Random(seed)
    logits = blocks(seed, draw.choice([1, 2, 3, 5, 8, 13, 40]))
    grid = {
        "temperature": [0.25, 0.7, 1.0, 2.0],
        "top_k": [1, 2, 3, 5, 100],
        "top_p": [0.1, 0.5, 0.75, 0.9, 0.99],
        "min_p": [0.05, 0.2, 0.5, 1.0],
        "typical_p": [0.1, 0.5, 0.9],
        "epsilon": [0.01, 0.1, 0.3],
        "eta": [0.01, 0.1, 0.5],
    }
    ask = {name: draw.choice(grid[name]) for name in draw.sample(list(grid), draw.randint(1, 3))}
    there, probabilities = real(logits, ask)
    exact = kept(logits, **ask)
    assert any(alike(logits, there, way) for way in (exact, *near(logits, ask))), ask
    if there == exact:
        low, high = bounds(law(logits, Parameters(**ask)))
        for got, least, most in zip(probabilities, low, high, strict=True):
            assert float(least) - 1e-12 <= got <= float(most) + 1e-12


@needs_transformers
@pytest.mark.parametrize(
    ("row", "ask"),
    [
        ([0.0] * 4, {"top_p": 0.5}),
        ([0.0] * 8, {"top_p": 0.25}),
        ([0.0] * 4, {"min_p": 1.0}),
        ([0.0] * 4, {"epsilon": 0.25}),
        ([0.0] * 4, {"typical_p": 0.5}),
        ([0.0, -math.inf] * 2, {"top_p": 0.5}),
    ],
)
def test_where_float64_is_exact_transformers_has_the_same_boundary(row, ask):
    assert real(row, ask)[0] == kept(row, **ask)


@needs_transformers
def test_a_vocabulary_of_128k_agrees_with_transformers():
    torch = pytest.importorskip("torch")
    made = torch.Generator().manual_seed(1)
    logits = (3 * torch.randn(128_256, generator=made)).bfloat16().double().tolist()
    assert len(set(logits)) < 5000, "bfloat16 plants the ties"
    for ask in ({"temperature": 0.7, "top_k": 50, "top_p": 0.9}, {"top_p": 0.6}, {"min_p": 0.02}):
        there, _ = real(logits, ask)
        assert alike(logits, there, kept(logits, **ask))
        assert 1 < len(there) < 100_000


@needs_transformers
def test_the_repetition_penalty_of_transformers_agrees():
    logits, context = [1.5, -0.5, 0.0, 0.75], [0, 1, 1, 2]
    _, probabilities = real(logits, {"repetition_penalty": 1.5}, context)
    found = law(logits, Parameters(repetition_penalty=1.5), prompt=context[:2], output=context[2:])
    assert max(abs(float(a) - b) for a, b in zip(found.lower, probabilities, strict=True)) < 1e-12


def test_the_torch_fall_back_of_vllm_agrees():
    sampler = pytest.importorskip("vllm.v1.sample.ops.topk_topp_sampler", reason="vLLM is not here")
    import torch

    for seed in range(40):
        logits = blocks(seed, 13)
        k, p = 1 + seed % 6, (0.3, 0.5, 0.9)[seed % 3]
        scores = sampler.apply_top_k_top_p_pytorch(
            torch.tensor([logits], dtype=torch.float64),
            torch.tensor([k]),
            torch.tensor([p]).double(),
        )
        there = [x for x, s in enumerate(scores[0].tolist()) if s > -math.inf]
        moved = (0, -TINY, TINY)
        ways = [kept(logits, "vllm_sort", top_k=k, top_p=Fraction(p) + d) for d in moved]
        assert any(alike(logits, there, way) for way in ways), seed


def test_the_filters_of_mlx_agree():
    mx = pytest.importorskip("mlx.core", reason="mlx is not here")
    sampling = pytest.importorskip("mlx_lm.sample_utils", reason="mlx-lm is not here")
    for seed in range(40):
        draw = random.Random(seed)
        row = [draw.randint(1, 6) for _ in range(9)]
        p, m, k = (0.3, 0.55, 0.9)[seed % 3], (0.15, 0.35)[seed % 2], 1 + seed % 5
        scores = mx.log(mx.array([row], dtype=mx.float32)) - math.log(sum(row))
        scores = sampling.apply_top_k(sampling.apply_min_p(sampling.apply_top_p(scores, p), m), k)
        there = [x for x, s in enumerate(scores[0].tolist()) if s > -1e30]
        single = Fraction(1, 10**6)  # what float32 may blur
        ways = [
            kept(weights(row), "mlx", top_p=Fraction(p) + d, min_p=m, top_k=k)
            for d in (0, -single, single)
        ]
        assert there in ways, seed


def documented(name, row, k, mass, share):
    """Return what stays, written down from the documented rules, on positive weights."""

    def count(x, tokens):
        return sum(row[y] > row[x] for y in tokens)

    def above(x, tokens):
        return Fraction(sum(row[y] for y in tokens if row[y] > row[x]), sum(map(row.get, tokens)))

    def prefix(tokens, sign=1):
        ranked = sorted(tokens, key=lambda x: (-row[x], sign * x))
        total = sum(map(row.get, tokens))
        before = itertools.accumulate((row[x] for x in ranked), initial=0)
        return {x for x, sofar in zip(ranked, before, strict=False) if sofar < mass * total}

    def exactly(tokens):
        return set(sorted(tokens, key=lambda x: (-row[x], x))[:k])

    def large(tokens):
        return {x for x in tokens if row[x] >= share * max(map(row.get, tokens))}

    def at_least(tokens):
        return {x for x in tokens if count(x, tokens) < k}

    def nucleus(tokens):
        return {x for x in tokens if above(x, tokens) < mass}

    every = set(row)
    ways = {
        "transformers": lambda: large(prefix(at_least(every), -1)),
        "vllm": lambda: prefix(exactly(large(every))),
        "vllm_sort": lambda: prefix(at_least(large(every)), -1),
        "flashinfer": lambda: large(nucleus(at_least(every))),
        "flashinfer_joint": lambda: large(at_least(every) & nucleus(every)),
        "llama_cpp": lambda: large(prefix(exactly(every))),
        "mlx": lambda: exactly(large(nucleus(every))),
        "trt_llm": lambda: prefix(at_least(every)),
        "eagle": lambda: at_least(prefix(every, -1)),
    }
    return sorted(ways[name]())


@given(
    st.lists(st.integers(1, 5), min_size=2, max_size=7),
    st.integers(1, 6),
    st.sampled_from([Fraction(1, 3), Fraction(1, 2), Fraction(2, 3), Fraction(3, 4)]),
    st.sampled_from([Fraction(1, 4), Fraction(1, 2), Fraction(1)]),
)
@settings(max_examples=150, deadline=None)
def test_every_preset_follows_its_documented_rule(row, k, mass, share):
    k = min(k, len(row) - 1)
    for name, preset in PRESETS.items():
        ask = {"top_k": k, "top_p": mass} | ({"min_p": share} if "min_p" in preset.names else {})
        expected = documented(name, dict(enumerate(row)), k, mass, share)
        assert kept(weights(row), name, **ask) == expected, name


# Numbers


def test_powers_that_are_rational_stay_exact():
    assert fractions(law(weights([2, 8]), Parameters(temperature=2))) == (
        Fraction(1, 3),
        Fraction(2, 3),
    )
    assert fractions(law(weights([4, 9, 0]), Parameters(temperature="2"))) == (
        Fraction(2, 5),
        Fraction(3, 5),
        0,
    )
    assert isinstance(law(weights([2, 3]), Parameters(temperature=2)), Enclosure)
    assert fractions(law([5, 5, -math.inf])) == (Fraction(1, 2), Fraction(1, 2), 0)


def test_scores_that_are_equal_are_seen_to_be_equal():
    two, four, eight = (logarithm(Fraction(w)) for w in (2, 4, 8))
    assert (two.times(3) - eight).sign() == 0
    assert (four.times(Fraction(1, 2)) - two).sign() == 0
    assert (four.times(Fraction(1, 3)) - two).sign() == -1
    assert (two + Score(Fraction(1))).exponential() is None
    assert two.times(Fraction(3, 2)).exponential() is None
    assert four.times(Fraction(3, 2)).exponential() == 8


def test_huge_powers_are_enclosed_and_not_written_out():
    ask = Parameters(temperature=0.7, repetition_penalty=1.1)  # floats: denominators of 2^52
    found = law(weights([2, 3, 3]), ask, output=(1,))
    assert isinstance(found, Enclosure)
    assert sum(found.lower) < 1 < sum(found.upper)
    assert found.width < 1e-30


def with_arithmetic(monkeypatch, name):
    monkeypatch.setattr("specref.logits.row.arithmetic", lambda: arithmetic(name))


def test_both_arithmetics_enclose_the_same_law(monkeypatch):
    for name in ("flint", "mpmath"):
        pytest.importorskip(name)
    import mpmath

    for seed in range(12):
        logits = [x for x in blocks(seed, 9) if x > -math.inf]
        ask = Parameters(temperature="0.7", top_p="0.8", typical_p="0.9", eta="0.01")
        found = []
        for name in ("flint", "mpmath"):
            with_arithmetic(monkeypatch, name)
            row = filtered(logits, ask)
            found.append((sorted(row.scores), bounds(row.law(Fraction(1, 10**30)))))
        (tokens, (low, high)), (others, (least, most)) = found
        assert tokens == others
        with mpmath.workdps(60):
            powers = [mpmath.exp(mpmath.mpf(logits[x]) / mpmath.mpf("0.7")) for x in tokens]
            for x, power in zip(tokens, powers, strict=True):
                mass = power / mpmath.fsum(powers)
                for a, b in ((low[x], high[x]), (least[x], most[x])):
                    assert mpmath.mpf(int(a.numerator)) / int(a.denominator) <= mass + 1e-50
                    assert mpmath.mpf(int(b.numerator)) / int(b.denominator) >= mass - 1e-50


@pytest.mark.parametrize("name", ["flint", "mpmath"])
@pytest.mark.parametrize("temperature", ["1e-25", "1e-1000"])
def test_powers_too_large_for_any_arithmetic_are_enclosed(name, temperature, monkeypatch):
    pytest.importorskip(name)
    with_arithmetic(monkeypatch, name)
    ask = Parameters(temperature=temperature)
    low, high = bounds(law(weights([3, 2, 3]), ask))
    assert all(low[x] <= Fraction(1, 2) <= high[x] for x in (0, 2))
    assert 0 <= low[1] < high[1] < TINY, "the mass is positive, however small"
    for asked in ({"top_p": "0.9"}, {"min_p": "1e-9"}, {"typical_p": "0.9"}):
        found = filtered(weights([3, 2, 3]), Parameters(temperature=temperature, **asked))
        assert sorted(found.scores) == [0, 2]


@pytest.mark.parametrize("name", ["flint", "mpmath"])
def test_what_is_not_bounded_is_not_taken_for_bounds(name):
    pytest.importorskip(name)
    numbers = arithmetic(name)
    with numbers.at(2):
        zero = numbers.number(1) - numbers.number(Fraction(1, 3)) * 3
        for ball in (1 / zero, 1 / zero - 1 / zero):
            assert numbers.bounds(ball) is None
        assert numbers.bounds(numbers.number(0)) == (0, 0)


def test_without_either_exact_laws_remain_and_the_error_names_the_extra(monkeypatch):
    arithmetic.cache_clear()
    for name in ("flint", "mpmath", "mpmath.ctx_iv"):
        monkeypatch.setitem(sys.modules, name, None)
    assert fractions(law(weights([2, 1]), Parameters(temperature="1/2"))) == (
        Fraction(4, 5),
        Fraction(1, 5),
    )
    assert kept([2, 1, 0], top_k=2) == [0, 1]
    with pytest.raises(ImportError, match=r"specref\[exact\]"):
        law([1, 0])
    arithmetic.cache_clear()


def test_a_comparison_that_is_too_close_is_undecided_until_more_bits_decide():
    found = law([1, 0], digits=60)
    for mass, expected in ((found.lower[0], [0]), (found.upper[0], [0, 1])):
        ask = Parameters(top_p=mass)
        with pytest.raises(Undecided, match="top_p of tokens 0 and 1 is undecided at 64 bits"):
            filtered([1, 0], ask, bits=64)
        assert sorted(filtered([1, 0], ask).scores) == expected


def test_an_enclosure_holds_an_exact_law_inside():
    found = law([2, 1, 0, 0])
    inside = found.inside()
    assert sum(inside) == 1
    assert all(a <= b <= c for a, b, c in zip(found.lower, inside, found.upper, strict=True))


def test_extreme_logits_are_no_overflow():
    low, high = bounds(law([1e300, 0, -1e300]))
    assert low[0] > 1 - TINY
    assert 0 <= low[1] < high[1] < TINY, "the mass is positive, however small"
    assert kept([1e300, 1e300, 0], top_p="0.9") == [0, 1]


# Metamorphic

LOGITS = st.lists(st.integers(-12, 12).map(lambda n: Fraction(n, 4)), min_size=1, max_size=6)
ASKED = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([Fraction(1, 2), 2, Fraction(7, 10)]),
        "top_k": st.integers(1, 4),
        "top_p": st.sampled_from([Fraction(1, 4), Fraction(1, 2), Fraction(9, 10)]),
        "min_p": st.sampled_from([Fraction(1, 10), Fraction(1, 2)]),
        "typical_p": st.sampled_from([Fraction(1, 2), Fraction(9, 10)]),
    },
)


def able(asked, vocab):
    """Yield the presets that take these parameters."""
    for name, preset in PRESETS.items():
        whole = preset.whole_top_k or asked.get("top_k", 0) < vocab
        if set(asked) <= set(preset.names) and whole:
            yield name


@given(LOGITS, ASKED, st.integers(-50, 50))
@settings(max_examples=60, deadline=None)
def test_a_constant_added_to_logits_changes_nothing(logits, asked, constant):
    for name in able(asked, len(logits)):
        rows = (
            filtered([a + shift for a in logits], Parameters(**asked), name)
            for shift in (0, constant)
        )
        assert same_law(*rows)


@given(LOGITS, ASKED)
@settings(max_examples=60, deadline=None)
def test_minus_infinity_at_the_end_changes_nothing(logits, asked):
    for name in able(asked, len(logits)):
        rows = [filtered(row, Parameters(**asked), name) for row in (logits, [*logits, "-inf"])]
        assert same_law(*rows)


@given(LOGITS, ASKED)
@settings(max_examples=60, deadline=None)
def test_logits_over_the_temperature_are_logits_at_one(logits, asked):
    warm = asked.get("temperature", 1)
    rest = {name: value for name, value in asked.items() if name != "temperature"}
    for name in able(asked, len(logits)):
        if PRESETS[name].steps[-1] == "temperature":
            continue  # there filters look at the logits as they came
        scaled = filtered([a / warm for a in logits], Parameters(**rest), name)
        assert same_law(scaled, filtered(logits, Parameters(**asked), name))


@given(LOGITS, ASKED)
@settings(max_examples=60, deadline=None)
def test_filters_never_empty_a_row_and_laws_sum_to_one(logits, asked):
    for name in able(asked, len(logits)):
        low, high = bounds(law(logits, Parameters(**asked), name))
        assert 0 < sum(low) <= 1 <= sum(high)


@pytest.mark.parametrize("preset", PRESETS)
def test_top_k_of_one_is_greedy_where_the_likeliest_is_alone(preset):
    logits = [0, 3, 1, 3 - Fraction(1, 10**40)]
    assert kept(logits, preset, top_k=1) == kept(logits, preset, temperature=0) == [1]
    tied = kept([3, 3, 1], preset, top_k=1)
    assert tied == ([0, 1] if PRESETS[preset].top_k_ties == "all" else [0])


@pytest.mark.parametrize("preset", PRESETS)
def test_greedy_is_the_limit_of_low_temperatures(preset):
    logits = [0, 1, Fraction(1, 2)]
    low, _ = bounds(law(logits, Parameters(temperature="1/100"), preset))
    assert low[1] > 1 - TINY
    assert fractions(law(logits, Parameters(temperature=0), preset)) == (0, 1, 0)


@pytest.mark.parametrize(("ties", "expected"), [("lowest", [0]), ("highest", [2]), ("all", [0, 2])])
def test_the_ties_of_greedy_are_stated(ties, expected):
    preset = replace(PRESETS["vllm"], greedy_ties=ties)
    assert kept([1, 0, 1], preset, temperature=0) == expected


def ordered(*names):
    return replace(PRESETS["flashinfer"], steps=("temperature", *names))


@given(LOGITS, st.integers(1, 4), st.sampled_from([Fraction(1, 10), Fraction(1, 2)]))
@settings(max_examples=40, deadline=None)
def test_top_k_and_min_p_commute(logits, k, share):
    ask = {"top_k": k, "min_p": share}
    assert kept(logits, ordered("top_k", "min_p"), **ask) == kept(
        logits, ordered("min_p", "top_k"), **ask
    )


@pytest.mark.parametrize(
    ("row", "ask"),
    [
        ([4, 2, 1], {"top_k": 2, "top_p": "2/3"}),
        ([6, 5, 1], {"top_p": "8/15", "min_p": "1/3"}),
        ([4, 1], {"temperature": 2, "min_p": "1/2"}),
    ],
)
def test_others_do_not(row, ask):
    names = [name for name in ask if name != "temperature"]
    if len(names) == 1:
        names.append("temperature")
        ways = [replace(ordered(), steps=order) for order in (names, names[::-1])]
    else:
        ways = [ordered(*order) for order in (names, names[::-1])]
    assert kept(weights(row), ways[0], **ask) != kept(weights(row), ways[1], **ask)


def test_typical_may_drop_the_likeliest_token():
    row = weights([4, 1, 1, 1, 1, 1])  # mean of logs: 4/9 log(4), which is nearer 0
    assert kept(row, typical_p="1/3") == [1, 2, 3, 4, 5]
    assert kept(row, "llama_cpp", typical_p="1/3") == [1, 2, 3, 4], "it has to exceed 3/9"
    reaching = replace(PRESETS["llama_cpp"], typical="reaches")
    assert kept(row, reaching, typical_p="1/3") == [1, 2, 3]


def test_tokens_on_both_sides_of_the_mean_can_be_equally_typical():
    row = weights([2, 1, 1])  # mean of logs: log(2)/2, as far from log 2 as from log 1
    assert kept(row, typical_p="1/10") == [0, 1, 2]


def test_a_mass_that_just_meets_the_cut_off_stays():
    row = weights([2, 1, 1])
    assert kept(row, epsilon="1/4") == [0, 1, 2]
    assert kept(row, epsilon="0.2500001") == [0]
    assert kept(row, eta="1/4") == [0, 1, 2]


def test_top_n_sigma_keeps_logits_near_the_largest():
    logits = [4, 2, 0, "-inf"]  # deviation: sqrt(8/3)
    assert kept(logits, "llama_cpp", top_n_sigma=1) == [0]
    assert kept(logits, "llama_cpp", top_n_sigma="1.3") == [0, 1]
    assert kept([1, -1], "llama_cpp", top_n_sigma=2) == [0, 1], "exactly two deviations"


# What depends on the text


def test_penalties_count_what_the_library_counts():
    ask = Parameters(presence_penalty=1)
    prompt, output = (0,), (1,)
    vllm = filtered([0, 0, 0], ask, "vllm", prompt=prompt, output=output)
    llama = filtered([0, 0, 0], ask, "llama_cpp", prompt=prompt, output=output)
    assert [int(vllm.scores[x].plain) for x in range(3)] == [0, -1, 0]
    assert [int(llama.scores[x].plain) for x in range(3)] == [-1, -1, 0]
    often = filtered(
        [0, 0], Parameters(frequency_penalty="1/2", presence_penalty=1), "vllm", output=(1, 1, 1)
    )
    assert often.scores[1].plain == Fraction(-5, 2)


def test_penalties_forget_what_is_out_of_their_window():
    ask = Parameters(presence_penalty=1)
    output = (0, *[1] * 20)
    assert filtered([0, 0], ask, "mlx", output=output).scores[0].plain == 0
    assert filtered([0, 0], ask, "llama_cpp", output=output).scores[0].plain == -1
    wide = replace(ask, penalty_window=21)
    assert filtered([0, 0], wide, "mlx", output=output).scores[0].plain == -1
    assert filtered([0, 0], replace(ask, penalty_window=0), "mlx", output=output).scores[1] == (
        Score()
    )


def test_repetition_of_weights_looks_at_the_sign_of_their_logarithms():
    row = filtered(
        weights([4, "1/4", 1]), Parameters(repetition_penalty=2), "vllm", output=(0, 1, 2)
    )
    assert [fractions([row.scores[x].exponential()])[0] for x in range(3)] == [
        2,
        Fraction(1, 16),
        1,
    ]


def test_a_grammar_is_asked_anew_at_every_position():
    def grammar(context):
        return [0, 1, 2] if 2 not in context else [0]

    process = Process(lambda context: [0, 0, 0], Parameters(allowed=grammar), "vllm")
    assert fractions(process((1,))) == (Fraction(1, 3),) * 3
    assert fractions(process((1, 2))) == (1, 0, 0)


def test_the_end_is_forbidden_before_min_tokens():
    process = Process(lambda context: [0, 0, 5], Parameters(min_tokens=2, eos=(2,)), "vllm")
    assert [process(context)[2] > 0 for context in ((), (0,), (0, 1))] == [False, False, True]


def test_speculation_keeps_a_law_with_penalties_bias_and_a_grammar():
    """The whole of F: what the drafted prefix changes is looked up position by position."""
    ask = Parameters(
        frequency_penalty="1/2", bias={0: 1}, min_tokens=1, eos=(2,), top_k=2, temperature="1/2",
        allowed=lambda context: [0, 1, 2] if context[-1:] != (1,) else [0, 2],
    )  # fmt: skip
    target = Process(lambda context: [len(context), 1, 0], ask, "vllm", prompt=(0,), digits=6)
    draft = Process(lambda context: [0, 1, 1], ask, "vllm", prompt=(0,), digits=6)
    assert lossless("token", target, draft, shape=2, length=3)


# Bad input


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"temperature": -1}, "temperature = -1 is out of range; pass a finite temperature >= 0"),
        ({"temperature": math.nan}, "temperature = nan is out of range"),
        ({"temperature": math.inf}, "temperature = inf is out of range"),
        ({"top_p": 1.5}, "top_p = 1.5 is out of range; pass 0 <= top_p <= 1"),
        ({"top_p": -0.1}, "top_p = -0.1 is out of range"),
        ({"top_p": math.nan}, "top_p = nan is out of range"),
        ({"min_p": 1.1}, "min_p = 1.1 is out of range; pass 0 <= min_p <= 1"),
        ({"typical_p": 0}, "typical_p = 0 is out of range"),
        ({"epsilon": 1}, "epsilon = 1 is out of range"),
        ({"eta": -1}, "eta = -1 is out of range"),
        ({"top_n_sigma": -1}, "top_n_sigma = -1 is out of range"),
        ({"repetition_penalty": 0}, "repetition_penalty = 0 is out of range"),
        ({"presence_penalty": math.inf}, "presence_penalty = inf is out of range"),
        ({"top_k": 1.5}, "top_k = 1.5 is not an integer"),
        ({"min_tokens": 1}, "min_tokens = 1 forbids no token"),
        ({"min_tokens": -1, "eos": (0,)}, "min_tokens = -1 is negative"),
        ({"penalty_window": -1}, "penalty_window = -1 is negative"),
        ({"bias": {0: math.nan}}, "bias[0] = nan is out of range"),
        ({"bias": {0: math.inf}}, "bias[0] = inf is out of range"),
        ({"bias": [1]}, "bias = [1] is no mapping"),
        ({"allowed": [False, True]}, "allowed[0] = False is no token; list the tokens, not a mask"),
        ({"allowed": "01"}, "allowed = '01' is a str"),
        ({"allowed": 1}, "allowed = 1 is no list"),
    ],
)
def test_parameters_out_of_range_name_themselves_and_the_range(asked, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        Parameters(**asked)


@pytest.mark.parametrize(
    ("preset", "asked", "said"),
    [
        ("transformers", {"top_k": -1}, "top_k = -1 is out of range; transformers takes >= 1"),
        ("vllm", {"top_k": -2}, "vllm takes >= 1, or None or -1 to 0: off"),
        ("flashinfer", {"top_k": 0}, "flashinfer takes >= 1, or None: off"),
        ("mlx", {"top_k": 3}, "mlx takes top_k < V = 3"),
        ("vllm", {"top_p": 0}, "top_p = 0 is out of range; vllm takes 0 < top_p <= 1"),
        ("vllm", {"temperature": "1/1000"}, "vllm takes 0, which is greedy, and temperatures >= "),
        ("vllm", {"temperature": 3}, "temperature = 3 is out of range"),
        ("trt_llm", {"min_p": "1/2"}, "trt_llm has no min_p; presets that do: transformers, "),
        ("eagle", {"repetition_penalty": 2}, "eagle has no repetition_penalty"),
        ("vllm", {"bias": {3: 1}}, "bias[3] is out of range; pass 0 <= token < V = 3"),
        ("vllm", {"allowed": [0, -1]}, "allowed[1] = -1 is out of range"),
        ("vllm", {"min_tokens": 1, "eos": (7,)}, "eos[0] = 7 is out of range"),
        ("vllm", {"allowed": []}, "allowed forbids every token"),
        ("vllm", {"bias": dict.fromkeys(range(3), -math.inf)}, "bias forbids every token"),
        ("vllm", {"min_tokens": 1, "eos": (0, 1, 2)}, "min_tokens forbids every token"),
        ("vllm", {"allowed": lambda said: None}, "allowed = None is no list"),
        ("vllm", {"allowed": lambda said: [True]}, "allowed[0] = True is no token"),
        ("vlm", {}, "there is no preset 'vlm'; presets: transformers, vllm"),
        (["vllm"], {}, "there is no preset ['vllm']; presets: transformers, vllm"),
    ],
)
def test_what_a_preset_refuses_is_an_error(preset, asked, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        law([2, 1, 0], Parameters(**asked), preset)


@pytest.mark.parametrize(
    ("preset", "asked"),
    [
        ("transformers", {"top_k": 0}),
        ("vllm", {"top_k": -1}),
        ("llama_cpp", {"top_k": -7}),
        ("mlx", {"top_k": 0}),
        ("trt_llm", {"top_k": 0}),
        ("vllm", {"top_k": 99}),
        ("mlx", {"top_p": 0}),
        ("eagle", {"top_p": 0}),
    ],
)
def test_documented_off_switches_change_nothing(preset, asked):
    assert same_law(
        filtered([2, 1, 0], Parameters(**asked), preset), filtered([2, 1, 0], preset=preset)
    )


@pytest.mark.parametrize("preset", ["transformers", "llama_cpp"])
def test_top_p_of_zero_keeps_one_token_where_it_is_taken(preset):
    assert len(kept([1, 1, 0], preset, top_p=0)) == 1


@pytest.mark.parametrize(
    ("logits", "said"),
    [
        ([], "logits are empty"),
        ([math.nan], "logits[0] = nan is out of range"),
        ([0, math.inf], "logits[1] = inf is out of range"),
        (["-inf", -math.inf], "logits forbid every token"),
    ],
)
def test_logits_that_are_none_are_refused(logits, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        law(logits)


def test_weights_and_tokens_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"weights\[1\] = -1 is negative"):
        weights([1, -1])
    for none in ([], [0, 0]):
        with pytest.raises(ValueError, match="weights forbid every token"):
            weights(none)
    with pytest.raises(ValueError, match=r"output\[1\] = 2 is out of range"):
        law([0, 0], Parameters(repetition_penalty=2), output=(0, 2))
    with pytest.raises(ValueError, match=r"prompt\[0\] = -1 is out of range"):
        law([0, 0], prompt=(-1,))
    with pytest.raises(ValueError, match="top_n_sigma measures logits"):
        law(weights([2, 1]), Parameters(top_n_sigma=1), "llama_cpp")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: law([0, 0], {"temperature": 1}), "parameters = {'temperature': 1} are none; pass"),
        (lambda: Process([0, 0]), "logits = [0, 0] is no model; pass a callable from a context"),
        (lambda: Process(weights, {"top_k": 1}), "parameters = {'top_k': 1} are none; pass"),
        (lambda: Process(weights, prompt=None), "prompt = None is no list"),
    ],
)
def test_arguments_of_another_kind_are_refused_by_name(call, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        call()


@pytest.mark.parametrize("tokens", [iter([0, 2]), np.array([0, 2]), range(0, 3, 2)])
def test_allowed_tokens_may_be_any_list_and_are_kept(tokens):
    model = Process(lambda context: [0, 0, 0], Parameters(allowed=tokens))
    for context in ((), (0,)):
        assert fractions(model(context)) == (Fraction(1, 2), 0, Fraction(1, 2))


def test_a_row_refines_no_further_than_it_may():
    row = Row({0: Score(Fraction(1)), 1: Score(Fraction(0))}, 2, 64)
    with pytest.raises(Undecided, match="64 bits do not enclose the law to 1e-30"):
        row.law(Fraction(1, 10**30))
    with pytest.raises(Undecided, match="2 bits do not enclose the law to 1e-30"):
        law([2, 1, 0], bits=2)


# The command line


@pytest.fixture
def run(capsys):
    def go(*args):
        with pytest.raises(SystemExit) as ended:
            cli.main(["law", *args])
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return go


def test_the_command_prints_exact_laws_and_enclosures(run):
    ask = ("--logits", "2,1,0", "--temperature", "0.5", "--preset", "vllm")
    assert run(*ask, "--top-p", "0.6") == (0, "token  mass\n0      1\n1-2    0\n", "")
    code, out, _ = run(*ask, "--top-p", "0.9")
    assert code == 0
    assert "0      0.880797077977882444059729141302 ± 1e-30" in out
    code, out, _ = run("--weights", "4,2,1/3", "--temperature", "1/2")
    assert out.split() == "token mass 0 144/181 1 36/181 2 1/181".split()


def test_the_command_compares_all_presets_and_marks_where_they_part(run):
    ask = ("--temperature", "0.7", "--top-k", "50", "--top-p", "0.9", "--compare")
    code, out, _ = run("--logits", "shipped", *ask)
    assert code == 0
    laws = re.findall(r"^([A-H])  (.*)$", out, re.MULTILINE)
    assert laws[0] == ("A", "transformers, vllm_sort")
    assert len(laws) == 8
    rows = [line for line in out.splitlines() if line[0].isdigit()]
    assert [line.endswith("*") for line in rows] == [True] * (len(rows) - 1) + [False]
    code, out, _ = run("--logits", "1,0", "--min-p", "0.1", "--compare")
    assert "-  eagle has no min_p" in out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "pass either --logits 2,1,0 or --weights 4,2,1"),
        (("--logits", ""), "logits are empty"),
        (("--weights", ""), "weights forbid every token"),
        (("--weights", "0,0"), "weights forbid every token; at least one has to be above 0"),
        (("--logits", "1,0", "--preset", ""), "there is no preset ''"),
        (("--logits", "1,0", "--compare", "--preset", "mlx"), "--compare shows all presets"),
        (("--logits", "1,nan", "--compare"), "specref: logits[1] = nan is out of range; logits "),
        (("--logits", "1,0", "--compare", "--epsilon", "0.1", "--top-n-sigma", "1"), "no epsilon"),
        (("--logits", "1", "--weights", "1"), "pass either --logits"),
        (("--logits", "1,x"), "logits[1] = x is out of range"),
        (("--logits", "1,0", "--temperature", "hot"), "temperature = hot is out of range"),
        (("--logits", "1,0", "--preset", "vlm"), "there is no preset 'vlm'"),
        (("--logits", "1,0", "--prompt", "-1"), "--prompt -1 is not a list of tokens"),
    ],
)
def test_the_command_refuses_what_it_cannot_read(run, args, said):
    code, _, err = run(*args)
    assert code == cli.USAGE
    assert said in err
