"""`gpu_impl.verify` held to the reference, decision by decision, on generated batches.

With GPU_REPLAY=full in the environment, a million decisions and more are judged; those of Triton's
interpreter are in test_gpu_triton.py.
"""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch

from gpu_impl import Verified
from gpu_impl.call import NEED_Q, RULES
from gpu_impl.torch_backend import native
from specref.logits import PRESETS
from specref.philox import Domain, uniform
from tests import gpu_exact
from tests.gpu_cases import batches
from tests.gpu_judge import judge

FULL = os.environ.get("GPU_REPLAY") == "full"
BAND = 0.01
"""So much of a run may be in band, or it judges too little: 99 in 100 decisions are made again. A
random draw is in band with a chance of 2^-18 or so; the rest are rows of equal logits that meet
top_p exactly, residuals that are next to nothing, and draws put at the ends of [0, 1)."""


@pytest.fixture(params=["native", "plain"])
def implementation(request, monkeypatch):
    """Run the torch backend with its native rows, or in plain torch."""
    reason = native.why_not()
    if request.param == "plain":
        monkeypatch.setattr(native, "why_not", lambda: "the test asks for plain torch")
    elif reason is not None:
        pytest.skip(reason)
    return request.param


def judged(made, record, backend="torch", **options):
    """Judge batches; return the number of decisions, and of those in band."""
    decisions = band = 0
    for batch in made:
        found = judge(batch, batch.verify(backend=backend, **options))
        assert found.wrong == [], (batch.rule, batch.parameters.preset, batch.vocab)
        decisions, band = decisions + found.decisions, band + found.band
    record("cases", decisions)
    print(f"{decisions:,} decisions, {band:,} in band")
    assert band <= BAND * decisions
    return decisions


# The judge.


def reported(made, out, **changes):
    """Return whether the judge finds something in an output that was changed."""
    return bool(judge(made, out._replace(**changes)).wrong)


def test_float64_laws_are_those_of_the_reference(record_property):
    """Rows whose kept tokens do not hang on rounding: the same tokens, and masses to 2^-44."""
    rows = 0
    for made in batches(11, len(PRESETS) * len(RULES), 3, vocabs=(2, 3, 5, 9)):
        laws = [(made.p, gpu_exact.target, made.p.open)]
        if made.q is not None:
            laws.append((made.q, gpu_exact.draft, made.q.open | (made.kids < 0).all(1)))
        for found, exact, left_out in laws:
            for node in np.flatnonzero(~left_out)[::4]:
                wanted = np.array([float(w) for w in exact(made, int(node))])
                assert ((found.p[node] > 0) == (wanted > 0)).all()
                assert np.abs(found.p[node] - wanted).max() < 2.0**-44
                rows += 1
    record_property("cases", rows)


@pytest.mark.parametrize("rule", RULES)
def test_the_judge_sees_every_kind_of_fault(rule):
    made = next(iter(batches(3, 1, 200, rules=(rule,), vocabs=(9,), filters=False)))
    out = made.verify()
    assert not reported(made, out)
    at, last = torch.arange(200), (out.counts - 1).long()
    other = out.tokens.clone()
    other[at, last] = (other[at, last] + 1) % 9
    assert reported(made, out, tokens=other)
    assert reported(made, out, terminal=(out.terminal + 1) % 3)
    assert reported(made, out, status=out.status | 4)
    assert reported(made, out, nodes=out.nodes.flip(1))
    assert reported(made, out, logprobs=out.logprobs + 1e-4)
    tests = out.trace.tests.flip(0)
    assert reported(made, out, trace=out.trace._replace(tests=tests))
    coins = out.trace.coins.flip(0)
    assert reported(made, out, trace=out.trace._replace(coins=coins))


@pytest.mark.parametrize(
    ("rule", "as_rule"),
    [("rrs_with", "rrs_without"), ("rrs_without", "rrs_with"), ("token", "block"),
     ("match", "target_only"), ("target_only", "match")],
)  # fmt: skip
def test_the_judge_tells_rules_apart(rule, as_rule):
    made = next(iter(batches(4, 1, 400, rules=(rule,), vocabs=(9,), filters=False)))
    assert judge(replace(made, rule=as_rule), made.verify()).wrong


def test_the_judge_sees_a_temperature_that_is_off_by_a_thousandth():
    """At 200 requests: the logprobs tell it, which the draws at this size do not."""
    made = next(iter(batches(4, 1, 200, rules=("match",), vocabs=(9,), filters=False)))
    warm = replace(made.parameters, temperature=float(made.parameters.temperature) * 1.001)
    assert judge(made, replace(made, parameters=warm).verify()).wrong


# The backends.


def test_every_decision_is_right(implementation, record_property):
    made = batches(1, len(PRESETS) * len(RULES), 25)
    judged(made, record_property)


def test_every_decision_on_broken_inputs_is_right(implementation, record_property):
    made = batches(2, len(PRESETS) * len(RULES), 25, faults=True)
    judged(made, record_property)


def test_every_decision_in_large_vocabularies_is_right(record_property):
    made = batches(6, 2 * len(RULES), 6, vocabs=(1000, 1025))
    judged(made, record_property)


def test_emitted_tokens_are_those_of_the_exact_reference(record_property):
    """On exact laws and the same draws; only decisions in band may part."""
    cases = 0
    for made in batches(5, len(PRESETS) * len(RULES), 3, vocabs=(2, 3, 5, 8)):
        out = made.verify()
        found = judge(made, out)
        for b in range(made.requests):
            wanted = gpu_exact.decided(made, b, out.trace.coins, out.trace.terminal[b])
            got = tuple(out.tokens[b, : out.counts[b]].tolist())
            assert wanted in (None, got) or found.in_band[b], (made.rule, b)
            cases += wanted is not None
    record_property("cases", cases)
    assert cases > 200


def test_draws_from_seeds_are_those_of_philox():
    for made in batches(7, 12, 20):
        if not hasattr(made.draws, "seed"):
            continue
        trace = made.verify().trace
        local = np.arange(len(made.tokens)) - made.starts[made.request]
        for row in range(0, len(made.tokens), 7):
            b = made.request[row]
            seed, start = (int(part[b]) % 2**64 for part in (made.draws.seed, made.draws.start))
            coin = uniform(seed, start, int(local[row]), Domain.COIN)
            assert trace.coins[row].item() == coin
            assert trace.terminal[b].item() == uniform(seed, start, 0, Domain.TERMINAL)


@pytest.mark.skipif(not FULL, reason="GPU_REPLAY=full asks for it: it takes minutes")
def test_a_million_decisions_are_right(record_property):
    made = batches(21, 4 * len(PRESETS) * len(RULES), 1200)
    assert judged(made, record_property) > 10**6


# What must not change a request.


def same(one: Verified, other: Verified, pick=None) -> bool:
    """Whether requests came out the same, bit by bit."""
    rows = slice(None) if pick is None else pick
    return all(
        torch.equal(getattr(one, name)[rows].nan_to_num(7.0), getattr(other, name).nan_to_num(7.0))
        if name == "logprobs"
        else torch.equal(getattr(one, name)[rows], getattr(other, name))
        for name in ("tokens", "counts", "nodes", "terminal", "status", "logprobs")
    )


@pytest.mark.parametrize("faults", [False, True])
def test_a_request_does_not_depend_on_its_batch(implementation, faults):
    """Alone, in parts, permuted, beside copies; read lazily or at once: the same bits."""
    for at, made in enumerate(batches(8 + faults, 3 * len(RULES), 12, faults=faults)):
        rng = np.random.default_rng(at)
        whole = made.verify(lazy=True)
        assert same(whole, made.verify(lazy=False)), made.rule
        order = rng.permutation(12)
        ways = [order, order[:5], order[5:], np.repeat(order[:3], 2), order[:1]]
        for way in ways:
            part = made.chosen(way).verify(lazy=bool(rng.integers(2)))
            assert same(whole, part, torch.as_tensor(way)), (made.rule, way)


def test_the_rows_on_the_path_alone_decide(implementation):
    """Rows off the path may hold anything, and the rows of other requests."""
    for made in batches(10, 2 * len(RULES), 12):
        out = made.verify(lazy=True)
        on = np.zeros(len(made.tokens), bool)
        on[made.starts] = True
        rows = np.where(out.nodes.numpy() >= 0, made.starts[:, None] + out.nodes.numpy(), 0)
        on[rows.ravel()] = True
        if made.rule == "block":
            continue  # it looks down the whole chain first
        logits = made.logits.clone()
        logits[torch.as_tensor(~on)] = torch.nan
        assert same(out, replace(made, logits=logits).verify(lazy=True)), made.rule


def test_drafts_that_are_not_looked_at_need_no_laws():
    for rule in set(RULES) - set(NEED_Q):
        made = next(iter(batches(12, 1, 20, rules=(rule,))))
        assert same(made.verify(), replace(made, draft=None).verify()), rule
