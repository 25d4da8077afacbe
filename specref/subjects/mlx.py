"""mlx-lm: `speculative_generate_step`, the loop of its speculative decoding, on a CPU.

    pip install --no-deps mlx==0.32.4 mlx-cpu==0.32.4 mlx-lm==0.32.2    # it imports transformers

A drafted token is kept if the target's own sampler draws it too, so any drafts will do. The module
is the subject for the whole loop, and `one_round` that for one round of it, on a draft model that
is certain of the case's tokens. The models have one layer, the library's own KV cache, which holds
their tokens: what they predict follows from what it holds, so a cache that is trimmed wrongly gives
wrong laws. mlx draws by itself, so that laws are judged by samples.
"""

from collections.abc import Generator
from importlib.metadata import version
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.generate import speculative_generate_step
from mlx_lm.models.cache import KVCache
from mlx_lm.sample_utils import make_sampler

from specref.gate.cases import Case
from specref.stops import Stops
from specref.subjects.nets import DRAFTED, Rows, behind

_NAME = f"mlx-lm {version('mlx-lm')}, speculative_generate_step (mlx {version('mlx')})"

name = _NAME
time_limit = 600
"""Seconds: a sequence takes some 5 ms, and a call may ask for 4,096."""

parameters = ("temperature", "top_k", "top_p", "min_p")
preset = "mlx"


class _Model:
    """A model of one layer, whose cache holds tokens.

    Args:
        rows: from a text, what the cache holds, to the logits of its next token.
    """

    layers = (None,)

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def __call__(self, tokens: Any, cache: list[KVCache]) -> Any:
        new = tokens[:, None, :, None].astype(mx.float32)
        held, _ = cache[0].update_and_fetch(new, new)
        text = tuple(int(token) for token in held.flatten().tolist())
        ends = range(len(text) - tokens.shape[1] + 1, len(text) + 1)
        return mx.array(np.array([[self.rows(text[:end]) for end in ends]], np.float32))


def generate(model: Any, n: int, seed: int, max_tokens: int, eos: tuple[int, ...]) -> Any:
    """Run n sequences, one loop each; an end token ends them here, as `stream_generate` does."""
    mx.random.seed(seed)
    stops = Stops(max_tokens, eos)
    target, draft = (
        _Model(behind(model.prompt, model.vocab, rows))
        for rows in (model.logits, model.draft_logits)
    )
    out = np.full((n, max_tokens), -1)
    for row in range(n):
        emitted: tuple[int, ...] = ()
        loop = _tokens(model.prompt, target, draft, DRAFTED, model.parameters, max_tokens)
        while not stops.over(emitted):
            emitted = (*emitted, next(loop)[0])
        loop.close()
        out[row, : len(emitted)] = emitted
    return out


class Round:
    """One round of the loop."""

    name = f"{_NAME}, one round"
    rules = ("match",)
    time_limit = 600

    def sample(self, case: Case, n: int, seed: int) -> Any:
        """Run n rounds, one loop each, on mlx's global generator."""
        mx.random.seed(seed)
        p = case.logits(1)[0][0].tolist()
        certain = np.where(np.eye(case.vocab)[list(case.tokens)], 0.0, -np.inf).tolist()
        target = _Model(lambda text: p[len(text) - 1])
        draft = _Model(lambda text: certain[len(text) - 1])
        out = np.full((n, case.gamma + 1), -1)
        for row in range(n):
            # As many as one round can give, which ends with the first token that is not a draft.
            for at, (token, drafted) in enumerate(_tokens((0,), target, draft, case.gamma, {})):
                out[row, at] = token
                if not drafted:
                    break
        return out


one_round = Round()


def _tokens(
    prompt: tuple[int, ...],
    target: _Model,
    draft: _Model,
    drafted: int,
    asked: dict[str, Any],
    max_tokens: int | None = None,
) -> Generator[tuple[int, bool], None, None]:
    """Run the loop; give each token, and whether it was drafted."""
    sampler = make_sampler(
        temp=asked.get("temperature", 1.0),
        top_p=asked.get("top_p", 0.0),
        min_p=asked.get("min_p", 0.0),
        top_k=asked.get("top_k", 0),
    )
    steps = speculative_generate_step(
        mx.array(prompt),
        target,
        draft,
        num_draft_tokens=drafted,
        max_tokens=drafted + 1 if max_tokens is None else max_tokens,
        sampler=sampler,
    )
    for token, _, from_draft in steps:
        yield int(token), bool(from_draft)
