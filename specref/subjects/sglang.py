"""SGLang: the Triton kernel that verifies chains, on coins that it is given.

    pip install --no-deps sglang==0.5.23 triton==3.7.1

Without `--no-deps`, SGLang asks for another torch and for gigabytes that this kernel does not need:
its file, `kernels/ops/speculative/reject_sampling.py`, imports nothing but triton. It is loaded
from where SGLang is installed, and nothing of it is replaced.

The kernel runs in Triton's interpreter, on the CPU. That is chosen when a kernel is decorated, so
importing this module sets TRITON_INTERPRET=1, in this process alone. The kernel has one program for
each row, and the interpreter needs 20 to 40 ms for a program, however small: ten seconds and more
for the law on one draft with few probes, but hours for all 550,000 questions of a quick run.
"""

import os
from importlib.metadata import distribution
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import torch

from specref.gate.cases import Case

_PACKAGE = distribution("sglang")
_TRITON = distribution("triton")


def _kernels() -> Any:
    """Return the module of the kernel, without the packages around it."""
    os.environ["TRITON_INTERPRET"] = "1"
    file = _PACKAGE.locate_file("sglang/kernels/ops/speculative/reject_sampling.py")
    spec = spec_from_file_location("specref_sglang", str(file))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_verify = _kernels().chain_speculative_sampling_triton

name = f"sglang {_PACKAGE.version}, chain_speculative_sampling_triton (triton {_TRITON.version})"
rules = ["token"]
time_limit = 3600
"""Seconds: the interpreter needs minutes for the 4,096 rows of one call."""


def sample(case: Case, n: int, seed: int) -> Any:
    """Verify n rows in one call, on coins of torch's global generator, as SGLang draws them."""
    torch.default_generator.manual_seed(seed)
    coins = torch.rand((n, case.gamma), dtype=torch.float32)
    return _round(case, coins, torch.rand((n,), dtype=torch.float32))


def decide(case: Case, u: Any) -> Any:
    """Verify one row for each row of u: a coin per drafted token, then the terminal draw."""
    coins = torch.from_numpy(u).to(torch.float32)  # exact: u has 24 bits
    return _round(case, coins[:, :-1].contiguous(), coins[:, -1].contiguous())


def _round(case: Case, coins: Any, final: Any) -> Any:
    n, slots = len(coins), case.gamma + 1
    p, q, x = case.tensors(n)
    # Slot 0 is the last token of the text, which is verified already; nobody reads it.
    candidates = torch.cat([x.new_zeros((n, 1)), x], 1)
    index = torch.arange(n * slots).view(n, slots)
    none = torch.full((n, slots), -1, dtype=torch.int32)
    predicts, accepted, count = none.clone(), none.clone(), none[:, 0].clone()
    _verify(
        predicts=predicts.view(-1),
        accept_index=accepted,
        accept_token_num=count,
        candidates=candidates,
        retrive_index=index,
        retrive_next_token=none,
        retrive_next_sibling=none,
        uniform_samples=coins,
        uniform_samples_for_final_sampling=final,
        target_probs=p,
        draft_probs=q,
        threshold_single=1.0,
        threshold_acc=1.0,
        deterministic=True,
    )
    # As SGLang reads it: what is predicted at each slot of the accepted path.
    out = predicts.view(-1)[accepted.clamp_min(0).long()]
    return torch.where(accepted >= 0, out, -1)
