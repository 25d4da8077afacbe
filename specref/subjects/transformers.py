"""Hugging Face transformers: `_speculative_sampling`, the verifier of assisted generation.

The function takes logits and verifies one chain per call. It is private, and called as its library
calls it; nothing of it is replaced.
"""

from typing import Any

import torch
import transformers
from transformers.generation.utils import _speculative_sampling

from specref.gate.cases import Case

name = f"transformers {transformers.__version__}, _speculative_sampling"
rules = ["token"]


def sample(case: Case, n: int, seed: int) -> Any:
    """Verify the case n times, one call each, on torch's global generator."""
    torch.default_generator.manual_seed(seed)
    p, q, x = case.logits(1)
    out = torch.full((n, case.gamma + 1), -1)
    for row in range(n):
        tokens, _ = _speculative_sampling(x, q, case.gamma, p)
        out[row, : tokens.shape[1]] = tokens[0]
    return out
