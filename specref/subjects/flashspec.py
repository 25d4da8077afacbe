"""FlashSpec: `rejection_step`, the verifier of its loop for one request.

    pip install --no-deps flashspec==0.3.1      # it imports transformers

It takes log-probabilities and verifies a batch of chains per call. They are computed as the
library's models do, by its own `scaled_log_softmax`. Where the package flashspec-asm-kernel is
installed as well, the residual is computed by that kernel.
"""

from importlib.metadata import version
from typing import Any

import torch
from flashspec.engine.hf_drafter import scaled_log_softmax
from flashspec.sampling.rejection import active_residual_backend, rejection_step

from specref.gate.cases import Case

name = f"flashspec {version('flashspec')}, rejection_step ({active_residual_backend()} residual)"
rules = ["token"]


def sample(case: Case, n: int, seed: int) -> Any:
    """Verify n rows in one call, on torch's global generator."""
    torch.default_generator.manual_seed(seed)
    p, q, x = case.logits(n)
    step = rejection_step(x, scaled_log_softmax(q, 1.0), scaled_log_softmax(p, 1.0))
    accepted, following = step[:, :1], step[:, 1:]
    out = torch.where(torch.arange(case.gamma) < accepted, x, -1)
    out = torch.cat([out, torch.full_like(following, -1)], 1)
    return out.scatter(1, accepted, following)
