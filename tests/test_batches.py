"""What goes wrong only in batches, or only in half precision, must not pass as exact."""

import pytest
import torch

from specref.gate import check


class Sampler:
    """An honest batched token sampler, with a fault in calls of many rows."""

    name, rules = "batched", ["token"]

    def __init__(self, fault="", dtype="float32"):
        self.fault, self.dtype = fault, dtype

    def sample(self, case, n, seed):
        if self.fault == "raises" and n > 16:
            raise RuntimeError("too many rows")
        g = torch.Generator().manual_seed(seed)
        p, q, x = (t.float() if t.is_floating_point() else t for t in case.tensors(n, self.dtype))
        k, rows = x.shape[1], torch.arange(n)
        u = torch.rand(n, 1 if self.fault == "shared" else k, generator=g)
        accept = u * q.gather(2, x[..., None])[..., 0] < p[:, :k].gather(2, x[..., None])[..., 0]
        kept = accept.long().cumprod(1).sum(1)
        left = (p - torch.nn.functional.pad(q, (0, 0, 0, 1)))[rows, kept].clamp(min=0)
        left = torch.where(left.sum(1, keepdim=True) > 0, left, p[rows, kept])
        out = torch.where(
            torch.arange(k + 1) < kept[:, None], torch.nn.functional.pad(x, (0, 1)), -1
        )
        out[rows, kept] = torch.multinomial(left, 1, generator=g)[:, 0]
        if self.fault == "wrong" and n > 2:
            out[:, 0] = x[:, 0]
        return out


def test_the_honest_one_passes():
    assert check(Sampler()).verdict == "pass"


@pytest.mark.parametrize(("fault", "severity"), [("wrong", "law"), ("raises", "crash")])
def test_a_fault_in_large_calls_alone_is_found(fault, severity):
    (failure,) = check(Sampler(fault)).failures
    assert (failure.claim, failure.severity) == ("audit", severity)
    assert (
        "in calls of 256 rows" in failure.message or "calls of 256 rows follow" in failure.message
    )


def test_half_precision_does_not_hide_a_shared_coin():
    report = check(Sampler("shared", "bfloat16"))
    assert report.verdict != "pass"


def test_float16_laws_are_judged():
    report = check(Sampler(dtype="float16"))
    assert report.failures == []
    assert report.escapes == []
