"""Hugging Face transformers: `_speculative_sampling` of `transformers.generation.utils`.

    import transformers.generation.utils as utils
    utils._speculative_sampling = _speculative_sampling

makes assisted generation use it. Written against 5.24.
"""

from typing import Any

import torch

from gpu_impl.adapters.layout import behind_roots, even, tell
from gpu_impl.call import verify
from gpu_impl.draws import Seeds, Uniforms
from gpu_impl.errors import need
from gpu_impl.laws import DraftLogits


def _speculative_sampling(
    candidate_input_ids: Any,
    candidate_logits: Any,
    candidate_length: int,
    new_logits: Any,
    assistant_ensemble_weight: float | None = None,
    *,
    draws: Seeds | Uniforms | None = None,
    status: Any = None,
    **options: Any,
) -> tuple[Any, Any]:
    """Verify the draft of one request.

    Args:
        candidate_input_ids: int64 [1, L], of which the last ones are the drafted tokens.
        candidate_logits: [1, K, V], what the drafts were drawn from, after its processors.
        candidate_length: K.
        new_logits: [1, K + 1, V], of the target, after its processors.
        assistant_ensemble_weight: None or 1; another weight is another law.
        draws: left out, they come from torch's global generator, as in transformers.
        status, options: see `gpu_impl.adapters`; with parameters, new_logits can be raw.

    Returns:
        tokens int64 [1, n + 1] and n, an int64 tensor without dimensions.

    Raises:
        ValueError: more than one request, an ensemble weight, or as `verify`.
    """
    need(len(candidate_input_ids) == 1, "candidate_input_ids has more than one request")
    need(
        assistant_ensemble_weight in (None, 1),
        f"assistant_ensemble_weight = {assistant_ensemble_weight} is lossy; leave it out",
    )
    device = new_logits.device
    # Not [-K:], which is all of them for K = 0.
    first = candidate_input_ids.shape[1] - candidate_length
    if draws is None:
        coins = torch.rand(candidate_length + 1, dtype=torch.float64, device=device)
        draws = Uniforms(coins, torch.rand(1, dtype=torch.float64, device=device))
    out = verify(
        new_logits[0],
        behind_roots(candidate_input_ids[:, first:].to(device), -1),
        even(1, candidate_length + 1, device),
        DraftLogits(candidate_logits[0]),
        draws=draws,
        max_depth=candidate_length,
        max_width=1,
        **options,
    )
    tell(status, out)
    count = out.counts[0].long()
    return out.tokens[:, : int(count)].long(), count - 1
