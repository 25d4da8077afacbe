"""mini-infer: `speculative_step`, one round with a draft model.

    pip install --no-deps mini-infer==0.2.5

It drafts itself, so that whole sequences are asked of it: its rounds, one after the other. It knows
no end of a text; what it emits beyond one is cut off here.
"""

from importlib.metadata import version
from typing import Any

import torch
from mini_infer.speculative import speculative_step

from specref.stops import Stops
from specref.subjects.nets import Rows, behind, decoded, predictions

name = f"mini-infer {version('mini-infer')}, speculative_step"
parameters = ("temperature",)


def generate(model: Any, n: int, seed: int, max_tokens: int, eos: tuple[int, ...]) -> Any:
    """Run n sequences, on torch's global generator."""
    torch.default_generator.manual_seed(seed)
    target, draft = (
        _network(behind(model.prompt, model.vocab, rows))
        for rows in (model.logits, model.draft_logits)
    )
    temperature = model.parameters.get("temperature", 1.0)

    def step(text: tuple[int, ...], drafted: int) -> list[int]:
        emitted, _ = speculative_step(target, draft, torch.tensor([text]), drafted, temperature)
        return list(emitted)

    return decoded(step, n, Stops(max_tokens, eos), model.prompt)


def _network(rows: Rows) -> Any:
    """Return a model as the library calls one: from tokens [1, T] to logits, and no cache."""
    return lambda tokens: (predictions(rows, tokens[0].tolist())[None], None)
