"""speculative-decoding: the loop of that name, for a batch of sequences.

    pip install --no-deps speculative-decoding==0.2.0 einops==0.8.2 beartype==0.23.1

The loop drafts itself and keeps the caches of both networks. The networks here have one layer,
whose cache holds tokens: what they predict follows from what it holds, so a cache that is cut
wrongly gives wrong laws. The loop knows no end token; what stands behind one is cut off here.
"""

from importlib.metadata import version
from typing import Any

import torch
from speculative_decoding import speculative_decoding

from specref.stops import Stops
from specref.subjects.nets import DRAFTED, Rows, behind, predictions

name = f"speculative-decoding {version('speculative-decoding')}, speculative_decoding"
parameters = ("temperature",)


class _Network:
    """A network of one layer, whose cache [rows, 1, tokens, 1] holds tokens."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def __call__(self, tokens: Any, seq_start_pos: Any, cache: Any, return_cache: bool) -> Any:
        # As the library's networks do, it reads the tokens that the cache does not hold.
        held = tokens[:, :0] if cache is None else cache[0][:, 0, :, 0]
        held = torch.cat([held, tokens[:, held.shape[1] :]], 1)
        new = held.shape[1] - (0 if cache is None else cache[0].shape[2])
        logits = [
            predictions(self.rows, row[start:].tolist())[-new:]
            for row, start in zip(held, seq_start_pos, strict=True)
        ]
        return torch.stack(logits), (held[:, None, :, None], None)


def generate(model: Any, n: int, seed: int, max_tokens: int, eos: tuple[int, ...]) -> Any:
    """Run n sequences in one batch, on torch's global generator."""
    torch.default_generator.manual_seed(seed)
    done, _ = speculative_decoding(
        _Network(behind(model.prompt, model.vocab, model.logits)),
        _Network(behind(model.prompt, model.vocab, model.draft_logits)),
        torch.tensor([model.prompt] * n),
        len(model.prompt) + max_tokens,
        DRAFTED,
        temperature=model.parameters.get("temperature", 1.0),
        filter_thres=0.0,  # the share of the vocabulary that top-k drops
    )
    stops, out = Stops(max_tokens, eos), torch.full((n, max_tokens), -1)
    for row, text in enumerate(done.tolist()):
        emitted = stops.cut(tuple(text))
        out[row, : len(emitted)] = torch.tensor(emitted)
    return out
