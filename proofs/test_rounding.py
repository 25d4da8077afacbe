"""Laws of verifiers in floats stay inside the bounds that were derived for them."""

import itertools
from fractions import Fraction as F
from functools import partial

import numpy as np
import pytest

from proofs.rounding import (
    PRECISIONS,
    accepted,
    block_bound,
    block_law,
    drawn,
    exact,
    logits_bound,
    normalised,
    token_bound,
    token_law,
)
from specref.dist import tv
from specref.gate.cases import Fixture, fixtures
from specref.gate.checks import Reading, joint
from specref.gate.loading import load, wrap
from specref.gate.measure import measure
from specref.gate.opaque import measure_opaque
from specref.rules import RULES
from tests.related import Chain

VERIFIERS = {"token": (token_law, token_bound), "block": (block_law, block_bound)}


def contexts(vocab, tokens):
    return [t for n in range(tokens + 1) for t in itertools.product(range(vocab), repeat=n)]


def rows(rng, vocab, tokens, kind):
    """Return a table of rows at random: some flat, some peaked, some with zeros, in floats."""
    table = {}
    for text in contexts(vocab, tokens):
        weights = np.exp(rng.choice([0.1, 2, 6]) * rng.standard_normal(vocab))
        weights[rng.integers(vocab)] *= rng.integers(2)
        table[text] = [kind(w) for w in weights / weights.sum()]
    return table


def gap(rule, p, q, tokens, dtype):
    """Return (TV, bound) of a round in floats; p and q are tables of rows."""
    verifier, bound = VERIFIERS[rule]
    vocab = len(p[()])
    off = max(abs(sum(map(exact, row)) - 1) for model in (p, q) for row in model.values())
    target = {}
    for text in itertools.product(range(vocab), repeat=tokens + 1):
        mass = F(1)
        for at, x in enumerate(text):
            mass *= normalised(p[text[:at]])[x]
        target[text] = mass
    law = verifier(p.__getitem__, q.__getitem__, tokens, dtype)
    assert sum(law.values()) == 1
    return tv(law, target), bound(vocab, tokens, dtype, off)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("rule", VERIFIERS)
def test_the_law_in_floats_is_inside_the_bound(rule, dtype):
    rng = np.random.default_rng(5)
    kind = PRECISIONS[dtype].kind
    moved = 0
    for vocab, tokens in [(2, 1), (3, 2), (5, 1), (2, 3)] * 4:
        p, q = (rows(rng, vocab, tokens, kind) for _ in range(2))
        found, bound = gap(rule, p, q, tokens, dtype)
        assert found <= bound
        moved += found > 0
    assert moved  # rounding does show, so the floats are floats


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("rule", VERIFIERS)
def test_rows_that_are_equal_up_to_rounding_are_inside_it_too(rule, dtype):
    """Here residuals and 1 - P are a few units in the last place, or nothing."""
    rng = np.random.default_rng(6)
    kind = PRECISIONS[dtype].kind
    for vocab, tokens in [(4, 1), (3, 2)] * 3:
        p = rows(rng, vocab, tokens, kind)
        q = {t: [np.nextafter(w, kind(rng.integers(2))) for w in row] for t, row in p.items()}
        found, bound = gap(rule, p, q, tokens, dtype)
        assert found <= bound


def test_chances_are_counted_on_the_grid():
    half = PRECISIONS["float16"]
    kind = half.kind
    draws = [kind(k / half.grid) for k in range(half.grid)]
    p, q = kind(0.3), kind(0.7)
    assert accepted(p, q, half) == F(sum(u < p / q for u in draws), half.grid)
    weights = [kind(w) for w in (0.1, 0, 0.33, 0.21)]
    total = ((weights[0] + weights[1]) + weights[2]) + weights[3]
    sums = np.cumsum(np.array(weights, dtype=kind), dtype=kind)
    counts = [0] * 4
    for u in draws:
        is_taken = sums > u * total if u * total < total else sums == total
        counts[int(np.argmax(is_taken))] += 1
    assert drawn(weights, half) == [F(count, half.grid) for count in counts]


def test_block_verification_is_counted_on_the_grid():
    """Draft by draft: its coins and its draws are asked for at every point of the grid."""
    half, one = PRECISIONS["float16"], np.float16(1)
    draws = np.arange(half.grid).astype(np.float16) / np.float16(half.grid)

    def model(*weights):
        return {t: np.float16([w, 1 - w]) for t, w in zip(contexts(2, 2), weights, strict=True)}

    p = model(0.3, 0.6, 0.45, 0.8, 0.1, 0.7, 0.2)
    q = model(0.7, 0.2, 0.9, 0.5, 0.5, 0.5, 0.5)

    def share(coin):
        return F(int((draws < coin).sum()), half.grid)

    def last(weights):
        """Return the law of a draw among two tokens."""
        total = weights[0] + weights[1]
        first = F(int((draws * total < weights[0]).sum()), half.grid) if weights[1] else F(1)
        return first, 1 - first

    law = dict.fromkeys(itertools.product(range(2), repeat=3), F(0))

    def emit(kept, mass, weights):
        ends = {(*kept, x): mass * chance for x, chance in enumerate(last(weights))}
        while len(kept) < 2:
            kept = (*kept, 0)
            ends = {
                (*text, x): mass * chance
                for text, mass in ends.items()
                for x, chance in enumerate(normalised(p[text]))
            }
        for text, mass in ends.items():
            law[text] += mass

    for draft in itertools.product(range(2), repeat=2):
        mass, weights = F(1), [one]
        for at, x in enumerate(draft):
            a, b = p[draft[:at]], q[draft[:at]]
            mass *= normalised(b)[x]
            weights.append(min(one, weights[-1] * a[x] / b[x]))
        emit(draft, mass * share(weights[2]), p[draft])
        mass *= 1 - share(weights[2])
        for at in (1, 0):
            left = np.maximum(weights[at] * p[draft[:at]] - q[draft[:at]], np.float16(0))
            spare = left[0] + left[1]
            coin = share(one if weights[at] == one else spare / (spare + (one - weights[at])))
            emit(draft[:at], mass * coin, left if spare else p[draft[:at]])
            mass *= 1 - coin
        assert mass == 0
    assert block_law(p.__getitem__, q.__getitem__, 2, "float16") == law


@pytest.mark.parametrize("bound", [token_bound, block_bound])
def test_a_wider_type_has_a_smaller_bound(bound):
    bounds = [bound(100, 3, dtype, F(0)) for dtype in ("float16", "float32", "float64")]
    assert bounds == sorted(bounds, reverse=True)


# Samplers of others, by their measured laws


def joint_gap(fixture, rule, law):
    """Return (TV, bound) of a round over all drafts; `law(case)` is measured."""
    readings = [
        Reading(case, weight, law(case))
        for draft, weight in fixture.drafts(RULES[rule].draft).items()
        for case in [fixture.case(draft, rule)]
    ]
    assert all(reading.measured.exact for reading in readings)
    vocab, tokens = fixture.vocab, fixture.gamma
    bound = VERIFIERS[rule][1](vocab, tokens, "float32", F(0))
    found = joint(fixture, readings, "float32").tv
    return found, bound + logits_bound(vocab, tokens, "float32")


def taped(subject, case):
    """Return the law that is read off the operations of one round."""
    return measure(lambda _, seed: subject.sample(case, 1, seed)[0], 1_000)


def mixed():
    return next(f for f in fixtures("chain", False) if f.name == "mixed")


def few_drafts():
    """Return models with V = 4 that make three drafts of two tokens."""
    q = {(): (0.0, 0.75, 0.0, 0.25), (1,): (0.5, 0.0, 0.5, 0.0), (3,): (0.0, 0.0, 0.0, 1.0)}
    return Fixture("few drafts", mixed().p, {**mixed().q, **q}, 2)


def test_transformers_is_inside_the_bound(record_property):
    found, bound = joint_gap(mixed(), "token", partial(taped, load("transformers")))
    assert 0 < found <= bound
    record_property("drafts", 16)


@pytest.mark.parametrize("rule", VERIFIERS)
def test_gpu_impl_is_inside_the_bound(rule):
    pytest.importorskip("gpu_impl")
    from gpu_impl.subject import Chains

    chains = Chains()
    chains.grid = 1 << 24  # fewer questions find an edge
    subject = wrap(chains, "gpu_impl")
    law = partial(measure_opaque, subject, budget=5_000, seed=0, probes=64, spread=64)
    found, bound = joint_gap(few_drafts(), rule, law)
    assert 0 < found <= bound


@pytest.mark.parametrize("lenience", [1, 1 - 1e-3])
def test_a_coin_that_is_off_by_a_thousandth_is_not(lenience):
    chain = Chain()
    chain.lenience = lenience
    found, bound = joint_gap(few_drafts(), "token", partial(taped, wrap(chain, "chains")))
    assert (found <= bound) == (lenience == 1)
