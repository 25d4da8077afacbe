"""The law of a verifier in floats stays inside the bound that was derived for it."""

import itertools
from fractions import Fraction as F

import numpy as np
import pytest

from proofs.rounding import PRECISIONS, accepted, drawn, exact, normalised, token_bound, token_law
from specref.dist import tv


def rows(rng, vocab, tokens, kind):
    """Return a model of rows at random: some flat, some peaked, some with zeros, in floats."""
    texts = [t for n in range(tokens + 1) for t in itertools.product(range(vocab), repeat=n)]
    table = {}
    for text in texts:
        weights = np.exp(rng.choice([0.1, 2, 6]) * rng.standard_normal(vocab))
        weights[rng.integers(vocab)] *= rng.integers(2)
        table[text] = [kind(w) for w in weights / weights.sum()]
    return table.__getitem__


def gap(p, q, vocab, tokens, dtype):
    """Return (TV, bound) of a round in floats."""
    texts = [t for n in range(tokens + 1) for t in itertools.product(range(vocab), repeat=n)]
    off = max(abs(sum(map(exact, model(text))) - 1) for model in (p, q) for text in texts)
    target = {}
    for text in itertools.product(range(vocab), repeat=tokens + 1):
        mass = F(1)
        for at, x in enumerate(text):
            mass *= normalised(p(text[:at]))[x]
        target[text] = mass
    law = token_law(p, q, tokens, dtype)
    assert sum(law.values()) == 1
    return tv(law, target), token_bound(vocab, tokens, dtype, off)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_the_law_in_floats_is_inside_the_bound(dtype):
    rng = np.random.default_rng(5)
    kind = PRECISIONS[dtype].kind
    moved = 0
    for vocab, tokens in [(2, 1), (3, 2), (5, 1)] * 4:
        p, q = (rows(rng, vocab, tokens, kind) for _ in range(2))
        found, bound = gap(p, q, vocab, tokens, dtype)
        assert found <= bound
        moved += found > 0
    assert moved  # rounding does show, so the floats are floats


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_rows_that_are_equal_up_to_rounding_are_inside_it_too(dtype):
    rng = np.random.default_rng(6)
    kind = PRECISIONS[dtype].kind
    for _ in range(6):
        p = rows(rng, 4, 1, kind)
        table = {
            text: [np.nextafter(w, kind(rng.integers(2))) for w in p(text)]
            for text in [(), (0,), (1,), (2,), (3,)]
        }
        found, bound = gap(p, table.__getitem__, 4, 1, dtype)
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


def test_a_wider_type_has_a_smaller_bound():
    bounds = [token_bound(100, 3, dtype, F(0)) for dtype in ("float16", "float32", "float64")]
    assert bounds == sorted(bounds, reverse=True)
