"""FlashInfer: `flashinfer.sampling.chain_speculative_sampling`.

    tokens, accepted, emitted = chain_speculative_sampling(
        draft_probs, draft_token_ids, target_probs, seed=seed, offset=offset)

is the call as it is; with `target_logits` and `draft_logits` in place of the probabilities, the
softmax and the filters before it are not needed. Written against 0.7.4.
"""

from typing import Any

import torch

from gpu_impl.adapters.layout import as_logits, behind_roots, even, tell
from gpu_impl.call import verify
from gpu_impl.draws import Seeds, Uniforms
from gpu_impl.errors import need
from gpu_impl.laws import DraftLogits, DraftProbs
from gpu_impl.parameters import Parameters
from gpu_impl.status import Decision


def chain_speculative_sampling(
    draft_probs: Any,
    draft_token_ids: Any,
    target_probs: Any,
    maybe_output_accepted_token_num: Any = None,
    maybe_output_emitted_draft_token_num: Any = None,
    deterministic: bool = True,
    generator: Any = None,
    seed: Any = None,
    offset: Any = None,
    *,
    target_logits: Any = None,
    draft_logits: Any = None,
    draft_parameters: Parameters | None = None,
    draws: Uniforms | None = None,
    rule: str = "token",
    status: Any = None,
    **options: Any,
) -> tuple[Any, Any, Any]:
    """Verify a batch of chains of one length.

    Args:
        draft_probs: [B, K, V], or None with draft_logits.
        draft_token_ids: int [B, K].
        target_probs: [B, K + 1, V], or None with target_logits. Their logarithms are taken, so a
            row counts divided by its sum.
        maybe_output_accepted_token_num, maybe_output_emitted_draft_token_num: int32 [B]; counts are
            added to them.
        deterministic: not looked at; results always are.
        generator: draws the seeds if none is given.
        seed: an int, or int64 [1] or [B]. Where it is one for all, requests draw apart by their
            place; where each has its own, the place is not looked at.
        offset: an int, or int64 [1] or [B], below 2^40; no two calls with a seed may have the same.
        target_logits, draft_logits: raw, in place of the probabilities.
        draft_parameters: what made the draft laws of draft_logits.
        draws: in place of seed and offset.
        rule: "token" or "block".
        status, options: see `gpu_impl.adapters`; parameters are those of target_logits.

    Returns:
        tokens int32 [B, K + 1], padded with -1; int32 [B], how many drafted tokens pass, counted up
        to the first that does not; int32 [B], how many of them are emitted, which under "token" is
        the same. (FlashInfer counts in the first of them also those that would pass behind.)

    Raises:
        ValueError: counters that are not int32, probabilities and logits together, or as `verify`.
    """
    for name, count in (
        ("maybe_output_accepted_token_num", maybe_output_accepted_token_num),
        ("maybe_output_emitted_draft_token_num", maybe_output_emitted_draft_token_num),
    ):
        need(count is None or count.dtype == torch.int32, f"{name} is not int32; make it so")
    need(
        (draft_probs is None) != (draft_logits is None),
        "pass either draft_probs or draft_logits",
    )
    need(
        target_probs is None or "parameters" not in options,
        "parameters are in target_probs already; pass target_logits",
    )
    requests, drafts = draft_token_ids.shape
    device = draft_token_ids.device
    logits = as_logits(target_probs, target_logits, "target")
    draft: DraftLogits | DraftProbs
    if draft_probs is None:
        draft = DraftLogits(draft_logits.flatten(0, 1), draft_parameters or Parameters())
    else:
        draft = DraftProbs(draft_probs.flatten(0, 1))
    out = verify(
        logits.flatten(0, 1),
        behind_roots(draft_token_ids, -1),
        even(requests, drafts + 1, device),
        draft,
        draws=seeds(requests, device, generator, seed, offset) if draws is None else draws,
        rule=rule,
        max_depth=drafts,
        max_width=1,
        **{**options, "trace": True},
    )
    tell(status, out)
    assert out.trace is not None
    passed = (out.trace.tests.view(requests, -1) == int(Decision.ACCEPTED)).sum(1)
    return (
        out.tokens,
        _added(maybe_output_accepted_token_num, passed),
        _added(maybe_output_emitted_draft_token_num, out.counts - 1),
    )


def seeds(requests: int, device: Any, generator: Any, seed: Any, offset: Any) -> Seeds:
    """Return addresses for seed and offset, or for seeds that the generator draws."""
    if seed is None:
        drawn = torch.empty(requests, dtype=torch.int64, device=device)
        return Seeds(drawn.random_(generator=generator), torch.zeros_like(drawn))
    place = torch.arange(requests, device=device)
    own = isinstance(seed, torch.Tensor) and seed.numel() == requests and requests > 1
    start = _column(0 if offset is None else offset, place)
    return Seeds(_column(seed, place), start if own else start + (place << 40))


def _column(given: Any, place: Any) -> Any:
    if isinstance(given, torch.Tensor):
        return given.to(torch.int64).expand(len(place)).contiguous()
    return torch.full_like(place, given)


def _added(counter: Any, more: Any) -> Any:
    return more.int() if counter is None else counter.add_(more)
