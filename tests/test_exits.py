"""Draws that are used twice, or leave torch: what the tape alone would get wrong."""

import torch
from torch.utils import dlpack

from specref.gate import check
from tests.test_batches import Sampler


class ConstantSeed(Sampler):
    def sample(self, case, n, seed):
        return super().sample(case, n, 1234)


class Numpy(Sampler):
    """Takes one draw through `.numpy()`."""

    def sample(self, case, n, seed):
        out = super().sample(case, n, seed)
        u = torch.rand(n, generator=torch.Generator().manual_seed(seed + 1)).numpy()
        return torch.where(torch.from_numpy(u) < 2, out, 0)


class Hidden(Sampler):
    """Takes a decision of mass 1e-4 on a draw that went through DLPack."""

    def sample(self, case, n, seed):
        out = super().sample(case, n, seed)
        g = torch.Generator().manual_seed(seed + 1)
        u = dlpack.from_dlpack(dlpack.to_dlpack(torch.rand(n, generator=g)))
        out[u > 1 - 1e-4, 0] = 0
        return out


def test_a_constant_seed_fails_on_stream_although_the_law_is_right():
    report = check(ConstantSeed())
    assert {(f.claim, f.severity) for f in report.failures} == {("stream", "stream")}
    joint = next(f for f in report.findings if f.claim == "joint")
    assert (joint.depth, joint.verdict) == ("measured law", "pass")


def test_a_draw_through_numpy_is_logged_and_judged_on_samples():
    report = check(Numpy())
    assert any("numpy" in escape for escape in report.escapes)
    assert {f.depth for f in report.findings if f.claim == "joint"} == {"samples"}


def test_a_decision_hidden_behind_dlpack_is_caught_by_the_audit():
    report = check(Hidden())
    audit = next(f for f in report.findings if f.claim == "audit")
    assert audit.verdict == "inconclusive"
    assert report.verdict != "pass"
