"""Naive Speculate: `speculative_sampling`, the verifier of its decoder.

    pip install --no-deps --ignore-requires-python naive-speculate==0.1.0

The package asks for Python 3.14, but the file of this function, `speculate/utils.py`, imports
nothing but torch. It is loaded alone from where it is installed, and nothing of it is replaced.
"""

from importlib.metadata import distribution
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import torch

from specref.gate.cases import Case

_PACKAGE = distribution("naive-speculate")


def _utils() -> Any:
    """Return the module of the function, without the packages around it."""
    file = _PACKAGE.locate_file("naive_speculate/speculate/utils.py")
    spec = spec_from_file_location("specref_naive_speculate", str(file))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_verify = _utils().speculative_sampling

name = f"naive-speculate {_PACKAGE.version}, speculative_sampling"
rules = ["token"]


def sample(case: Case, n: int, seed: int) -> Any:
    """Verify the case n times, one call each, on torch's global generator."""
    torch.default_generator.manual_seed(seed)
    p, q, x = case.logits(1)
    p, q = torch.softmax(p, -1)[0], torch.softmax(q, -1)[0]  # as its decoder does
    out = torch.full((n, case.gamma + 1), -1)
    for row in range(n):
        accepted, following = _verify(p, q, x[0])
        count = int(accepted)
        out[row, :count] = x[0, :count]
        out[row, count] = following
    return out
