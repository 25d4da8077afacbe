"""specdec: `SpecDecoder.verify`.

    pip install --no-deps specdec==0.2.0        # it imports transformers

It takes the drafted tokens with the laws that they were drawn from, and asks the large model
itself: here one that answers with the logits of the case. Everything else is the library's.
"""

from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import torch
from specdec import SpecDecoder

from specref.gate.cases import Case

name = f"specdec {version('specdec')}, SpecDecoder.verify"
rules = ["token"]


def sample(case: Case, n: int, seed: int) -> Any:
    """Verify the case n times, one call each, on torch's global generator."""
    torch.default_generator.manual_seed(seed)
    p, q, x = case.logits(1)
    decoder = SpecDecoder.__new__(SpecDecoder)  # its __init__ would load models
    decoder.device = "cpu"
    decoder.big_model = lambda ids: SimpleNamespace(logits=p)
    laws = list(torch.softmax(q, -1).unbind(1))  # as its generate_small returns them
    prompt = torch.zeros((1, 1), dtype=torch.int64)
    out = torch.full((n, case.gamma + 1), -1)
    for row in range(n):
        tokens = decoder.verify(prompt, x[0].tolist(), laws)
        out[row, : len(tokens)] = torch.tensor(tokens)
    return out
