"""The gate on samplers that the learner reads: what it finds, and what it admits."""

import numpy as np
import pytest

from specref.gate import cases, check, exact
from specref.gate.learned import Learned
from tests.related import session_of


class Chain:
    """A faithful chain sampler in NumPy, with a place for mistakes."""

    name, rules = "chain", ["token"]

    def sample(self, case, n, seed):
        p, q, x = case.arrays(n)
        rng = np.random.default_rng(seed)
        out = np.full((n, case.gamma + 1), -1)
        for row in range(n):
            for at in range(case.gamma + 1):
                last = at == case.gamma
                if not last and self.accepts(rng, p[row, at], q[row, at], x[row, at]):
                    out[row, at] = x[row, at]
                    continue
                left = p[row, at] if last else residual(p[row, at], q[row, at])
                edges = left.cumsum()
                out[row, at] = np.searchsorted(edges, rng.random() * edges[-1], "right")
                break
        return out

    def accepts(self, rng, p, q, x):
        return rng.random() * q[x] < p[x]


def residual(p, q):
    left = np.maximum(p - q, 0)
    return left if left.any() else p


class TwoIntervals(Chain):
    """Accepts on two intervals that lie apart; the law is the same."""

    def accepts(self, rng, p, q, x):
        return (rng.random() + 0.3) % 1.0 * q[x] < p[x]


class Band(Chain):
    """Accepts in a band of draws where it should not."""

    def __init__(self, width):
        self.width = width

    def accepts(self, rng, p, q, x):
        u = rng.random()
        return u * q[x] < p[x] or u > 1 - self.width


class ReusedCoin(Chain):
    """Draws the correction with the coin that refused."""

    def accepts(self, rng, p, q, x):
        state = rng.bit_generator.state
        accepted = super().accepts(rng, p, q, x)
        if not accepted:
            rng.bit_generator.state = state
        return accepted


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Take one pair of models: more are for users who can wait."""
    monkeypatch.setattr(exact, "fixtures", lambda *_: cases.sampled_fixtures("chain")[:1])
    monkeypatch.setattr(exact, "parameter_fixtures", lambda *_: [])


def depths(report):
    return {f.depth for f in report.findings if f.claim in ("support", "acceptance", "joint")}


def test_a_search_that_runs_past_the_last_token_is_seen_at_its_edge():
    class PastTheEnd(Chain):
        def sample(self, case, n, seed):
            p, _, _ = case.arrays(n)
            out = super().sample(case, n, seed)
            u = np.random.default_rng(seed + 1).random(n)
            out[u > p[:, 0].sum(-1), 0] = case.vocab
            return out

    found = {(f.claim, f.severity) for f in check(PastTheEnd()).failures}
    assert found == {("support", "edge")}


def test_intervals_that_lie_apart_are_measured():
    report = check(TwoIntervals())
    assert report.verdict == "pass", [f.message for f in report.failures]
    assert depths(report) == {"measured law"}


def test_a_reused_coin_is_measured_and_named():
    report = check(ReusedCoin())
    assert depths(report) == {"measured law"}
    wrong = [f for f in report.failures if f.severity == "law"]
    assert wrong
    assert all("coin_reused" in f.nearest_fault["matches"] for f in wrong)
    assert {f.claim for f in report.failures if f.severity == "stream"} == {"stream"}


def test_a_narrow_band_is_measured_as_wide_as_it_is():
    report = check(Band(1e-3))
    failure = next(f for f in report.failures if f.claim == "acceptance")
    assert depths(report) == {"measured law"}
    assert failure.tv == pytest.approx(1e-3, rel=0.01)


def test_a_band_beyond_the_probes_is_never_stated_as_absent():
    report = check(Band(1e-5))
    audit = next(f for f in report.findings if f.claim == "audit")
    found = any(f.claim == "acceptance" for f in report.failures)
    assert found or report.verdict == "inconclusive" or audit.bound >= 1e-5


class Decided:
    """One draft that is certain, on given draws."""

    name, rules = "decided", ["one_hot"]

    def decide(self, case, u):
        (p, behind), (x,) = np.array(case.p), case.tokens
        without = np.where(np.arange(len(p)) == x, 0, p).cumsum()
        kept = u[:, 0] < p[x]
        last = [
            np.searchsorted(edges, u[:, 1] * edges[-1], "right")
            for edges in (without, behind.cumsum())
        ]
        first = np.where(kept, x, last[0])
        return np.stack([first, np.where(kept, last[1], -1)], 1)

    def sample(self, case, n, seed):
        return self.decide(case, np.random.default_rng(seed).random((n, 2)))


@pytest.mark.parametrize(("profile", "missed"), [("quick", 0.0036), ("ci", 0.00012)])
def test_every_profile_has_questions_enough_for_its_probes(profile, missed):
    row = (0.5, 0.25, 0.25)
    case = cases.Case(p=(row, row), q=(row,), tokens=(2,), parents=(0,), rule="one_hot")
    found = Learned(session_of(Decided(), profile)).law(case, 0)
    assert found.exact, found.escapes
    assert found.missed < missed
