"""sequential-speculative-decoding: its rounds, standard and hierarchical.

    pip install --no-deps sequential-speculative-decoding==0.1.1    # it imports transformers

The package drafts itself, so that whole sequences are asked of it: its rounds, one after the other.
The module is the subject for the standard method; `naive` and `capped` are those for hierarchical
speculative decoding. What a round emits beyond the end of a text is cut off, as its loop does.
"""

from collections.abc import Callable
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import torch
from seqspecdecod.capped_hsd import capped_hsd_step
from seqspecdecod.naive_hsd import naive_hsd_step
from seqspecdecod.standard_sd import standard_speculative_step

from specref.stops import Stops
from specref.subjects.nets import Rows, behind, decoded, predictions

_NAME = f"sequential-speculative-decoding {version('sequential-speculative-decoding')}"

name = f"{_NAME}, standard_speculative_step"
parameters = ("temperature",)


def generate(model: Any, n: int, seed: int, max_tokens: int, eos: tuple[int, ...]) -> Any:
    """Run n sequences of the standard method, on torch's global generator."""
    return _sequences(standard_speculative_step, model, n, seed, Stops(max_tokens, eos))


class Hierarchical:
    """A method of hierarchical speculative decoding."""

    parameters = ("temperature",)

    def __init__(self, step: Callable[..., Any]) -> None:
        self.step, self.name = step, f"{_NAME}, {step.__name__}"

    def generate(self, model: Any, n: int, seed: int, max_tokens: int, eos: tuple[int, ...]) -> Any:
        """Run n sequences."""
        return _sequences(self.step, model, n, seed, Stops(max_tokens, eos))


naive, capped = Hierarchical(naive_hsd_step), Hierarchical(capped_hsd_step)


def _sequences(method: Callable[..., Any], model: Any, n: int, seed: int, stops: Stops) -> Any:
    torch.default_generator.manual_seed(seed)
    target, draft = (
        _network(behind(model.prompt, model.vocab, rows))
        for rows in (model.logits, model.draft_logits)
    )
    temperature = model.parameters.get("temperature", 1.0)

    def step(text: tuple[int, ...], drafted: int) -> list[int]:
        done, _, _ = method(draft, target, torch.tensor([text]), drafted, temperature, temperature)
        return list(done[0, len(text) :].tolist())

    return decoded(step, n, stops, model.prompt)


def _network(rows: Rows) -> Any:
    """Return a model as the library calls one: from tokens [1, T] to an answer with logits."""
    return lambda tokens: SimpleNamespace(logits=predictions(rows, tokens[0].tolist())[None])
