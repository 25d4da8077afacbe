"""Samplers as engines write them: each gets the verdict that `tests.twins` says it deserves."""

import random
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from specref.gate import batches, check, exact, relations, samples, seeding
from specref.gate.cases import Fixture
from specref.gate.session import PROFILES
from tests.twins import TWINS

P = {
    (): (0.5, 0.375, 0.125),
    (0,): tuple(float(np.float32(w / 19)) for w in (1, 12, 6)),
    (1,): (0.0, 0.375, 0.625),
    (2,): (0.375, 0.625, 0.0),
}
Q = {
    (): (0.125, 0.125, 0.75),
    (0,): (0.75, 0.125, 0.125),
    (1,): (0.625, 0.0, 0.375),
    (2,): (0.125, 0.25, 0.625),
}
"""Laws that differ after every token, with zeros in p and in q, and residuals of two tokens; after
token 0, p sums to 1 - 2^-24 in float32."""

LEARNED = ("numpy_clock", "python_random", "seeds_from_a_seed")
"""Twins that answer for one row at a time, thousands of times."""


def few(shape, *_):
    """Return the only fixture there is time for."""
    return [Fixture("mixed", P, Q, 2 if shape == "chain" else (2,))]


def pair(shape, depth=1):
    """Return a smaller one, for what takes several draws more."""
    p = {(): (0.75, 0.25), (0,): (0.25, 0.75), (1,): (0.5, 0.5)}
    q = {(): (0.25, 0.75), (0,): (0.75, 0.25), (1,): (0.25, 0.75)}
    return Fixture("mixed", p, q, depth if shape == "chain" else (2,))


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_gets_its_verdict(name, monkeypatch):
    twin = TWINS[name]
    quick = replace(PROFILES["quick"], audit_rows=1 << 10, audit_calls=1 << 5, tv=0.2)
    monkeypatch.setitem(PROFILES, "quick", replace(quick, probes=1 << 7, runs=6_000))
    slow = twin.propose or name in LEARNED
    made = (lambda shape, *_: [pair(shape, 2)]) if slow else few
    monkeypatch.setattr(exact, "fixtures", made)
    for module in (exact, samples):
        monkeypatch.setattr(module, "sampled_fixtures", made)
        monkeypatch.setattr(module, "parameter_fixtures", lambda *_: [])
    for module in (relations, batches, seeding):
        monkeypatch.setattr(module, "sampled_fixtures", made)
    for module in (relations, batches):
        monkeypatch.setattr(module, "rounds_fixture", lambda shape, *_, **__: pair(shape))
    monkeypatch.setattr(samples, "CALLS", 32)
    monkeypatch.setattr(exact, "rounds_fixture", lambda shape, *_: pair(shape))
    monkeypatch.setattr(exact, "near_ties", lambda *_: ())
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    report = check(twin)
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    assert after == before

    told = [f"{f.id}: {f.message}" for f in report.findings if f.verdict != "pass"]
    assert report.verdict == twin.verdict, told
    assert {f.claim: f.severity for f in report.failures} == twin.fails, told
    if twin.escape:
        assert any(re.search(twin.escape, escape) for escape in report.escapes), report.escapes
    else:
        assert report.escapes == []
    if twin.depth:
        (judged,) = {f.depth for f in report.findings if f.claim == "joint"}
        assert judged == twin.depth
    if twin.fault:
        named = [f.nearest_fault["matches"] for f in report.failures if f.nearest_fault]
        assert named
        assert all(twin.fault in matches for matches in named)
    assert any(twin.says in text for text in told) or not twin.says, told
