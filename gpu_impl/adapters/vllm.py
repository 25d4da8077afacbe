"""vLLM's model runner V1: `RejectionSampler.forward` of `vllm.v1.sample.rejection_sampler`.

    sampled_token_ids = forward(metadata, draft_probs, logits, sampling_metadata, draws=draws)

stands for the whole of it: the sampler of the bonus, the copies, temperature, top-k and top-p, the
softmax, and the three kernels. Written against 0.32.
"""

from typing import Any

import torch

from gpu_impl.adapters.layout import behind_ragged_roots, tell
from gpu_impl.call import verify
from gpu_impl.draws import Seeds, Uniforms
from gpu_impl.errors import need
from gpu_impl.laws import DraftProbs, OneHot
from gpu_impl.parameters import Parameters


def forward(
    metadata: Any,
    draft_probs: Any,
    logits: Any,
    sampling_metadata: Any,
    *,
    draws: Seeds | Uniforms,
    rule: str = "token",
    status: Any = None,
    **options: Any,
) -> Any:
    """Verify a batch of chains.

    Args:
        metadata: has draft_token_ids int [N] (-1 is a placeholder), cu_num_draft_tokens int [B],
            inclusive, without a 0 before it, and max_spec_len, a number.
        draft_probs: float32 [N, V], or None for drafts that are certain.
        logits: [N + B, V], raw; for each request the rows of its drafts and then that of its bonus.
        sampling_metadata: has temperature (None where all are greedy), top_k and top_p: [B] or
            None. Logits have to be changed for penalties, bad words and masks before.
        draws: in place of its generators; `Uniforms` by node, as `uniforms` makes them.
        rule: "token" or "block".
        status, options: see `gpu_impl.adapters`.

    Returns:
        int32 [B, max_spec_len + 1], padded with -1.

    Raises:
        ValueError: requests that ask for what changes logits, or as `verify`.
    """
    ends = metadata.cu_num_draft_tokens
    _plain(sampling_metadata)
    out = verify(
        logits,
        behind_ragged_roots(metadata.draft_token_ids, ends, -1),
        boundaries(ends),
        OneHot() if draft_probs is None else DraftProbs(draft_probs),
        draws=draws,
        rule=rule,
        parameters=_parameters(sampling_metadata),
        max_depth=metadata.max_spec_len,
        max_width=1,
        **options,
    )
    tell(status, out)
    return out.tokens


def boundaries(ends: Any) -> Any:
    """Return the boundaries of nodes, int32 [B + 1], from where the drafts of requests end, [B].

    >>> boundaries(torch.tensor([2, 2, 5])).tolist()
    [0, 3, 4, 8]
    """
    roots = torch.arange(len(ends) + 1, device=ends.device)
    return (torch.nn.functional.pad(ends.long(), (1, 0)) + roots).int()


def uniforms(coins: Any, ends: Any, terminal: Any) -> Uniforms:
    """Return given draws by node.

    Args:
        coins: [N], that of each drafted token.
        ends: int [B], `cu_num_draft_tokens`.
        terminal: [B].
    """
    return Uniforms(behind_ragged_roots(coins.double(), ends, 0), terminal.double())


def _parameters(asked: Any) -> Parameters:
    given: dict[str, Any] = {
        "temperature": 0.0 if asked.temperature is None else asked.temperature,
        "top_k": asked.top_k,
        "top_p": asked.top_p,
    }
    return Parameters(**{name: value for name, value in given.items() if value is not None})


def _plain(asked: Any) -> None:
    for name, none in (
        ("no_penalties", True), ("bad_words_token_ids", None), ("allowed_token_ids_mask", None),
    ):  # fmt: skip
        value = getattr(asked, name, none)
        need(
            value is none or (name == "bad_words_token_ids" and not value),
            f"sampling_metadata.{name} changes the logits; apply it to them before",
        )
