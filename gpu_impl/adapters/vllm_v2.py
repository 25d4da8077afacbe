"""vLLM's model runner V2: `rejection_sample` of `v1/worker/gpu/spec_decode`.

    sampled, num_sampled = rejection_sample(
        logits, draft_logits, draft_sampled, cu_num_logits, pos, idx_mapping, expanded_idx_mapping,
        expanded_local_pos, temperature, seeds, steps, raw=True, top_k=top_k, top_p=top_p)

on raw logits stands for `apply_sampling_params` too. Written against 0.32.
"""

from typing import Any

import torch

from gpu_impl.adapters.layout import tell
from gpu_impl.call import verify
from gpu_impl.draws import Seeds, Uniforms
from gpu_impl.errors import need
from gpu_impl.laws import DraftLogits, OneHot
from gpu_impl.parameters import FILTERS, Parameters


def rejection_sample(
    target_logits: Any,
    draft_logits: Any,
    draft_sampled: Any,
    cu_num_logits: Any,
    pos: Any,
    idx_mapping: Any,
    expanded_idx_mapping: Any,
    expanded_local_pos: Any,
    temperature: Any,
    seed: Any,
    num_speculative_steps: int,
    synthetic_conditional_rates: Any = None,
    use_fp64: bool = False,
    use_block_verification: bool = False,
    *,
    raw: bool = False,
    top_k: Any = None,
    top_p: Any = None,
    min_p: Any = None,
    draws: Uniforms | None = None,
    status: Any = None,
    **options: Any,
) -> tuple[Any, Any]:
    """Verify a batch of chains.

    Args:
        target_logits: [R, V]; with temperature and filters in them, as vLLM has them here, unless
            raw says that they are not.
        draft_logits: [requests, steps, V], before temperature; or None for certain drafts.
        draft_sampled: int [R], the token of each row; at a root it is not looked at, -1 ends a
            draft.
        cu_num_logits: int [B + 1], where the rows of each request begin.
        pos: int [R], the position of each row's token.
        idx_mapping: int [B], the state of each request, of which temperature and seed are.
        expanded_idx_mapping: int [R], that of each row.
        expanded_local_pos: int [R], its place in the request, 0 for the root.
        temperature: float32 [requests]; 0 is greedy.
        seed: int64 [requests].
        num_speculative_steps: most drafts of a request.
        synthetic_conditional_rates: refused, it is another law.
        use_fp64: not needed; decisions are in float64.
        use_block_verification: rule "block" instead of "token".
        raw: whether temperature and filters are still to act.
        top_k, top_p, min_p: [requests], int32 and float32; with raw.
        draws: in place of seed and pos.
        status, options: see `gpu_impl.adapters`.

    Returns:
        tokens int64 [B, steps + 1], padded with -1, and their number int32 [B].

    Raises:
        ValueError: filters without raw, draft rows that are not contiguous, or as `verify`.
    """
    need(synthetic_conditional_rates is None, "synthetic acceptance is not lossless; leave it out")
    asked = {
        name: value[idx_mapping]
        for name, value in zip(FILTERS, (top_k, top_p, min_p), strict=True)
        if value is not None
    }
    need(raw or not asked, "filters are in target_logits already; pass raw=True if they are not")
    heat = temperature[idx_mapping]
    draft: DraftLogits | OneHot = OneHot()
    vocab = target_logits.shape[1]
    if draft_logits is not None:
        steps = draft_logits.shape[1]
        need(draft_logits.is_contiguous(), "draft_logits is not contiguous; make it so")
        # The last row of a request has no draft behind it, so it may have that of the next one.
        row = expanded_idx_mapping.long() * steps + expanded_local_pos.long()
        row = row.clamp(max=len(draft_logits) * steps - 1)
        vocab = min(vocab, draft_logits.shape[2])
        # A greedy target takes the likeliest token whatever q is, so that q may be any.
        warm = Parameters(torch.where(heat == 0, 1.0, heat))
        draft = DraftLogits(draft_logits.flatten(0, 1)[:, :vocab], warm, row)
    if draws is None:
        root = cu_num_logits[:-1].long().clamp(max=max(len(pos) - 1, 0))
        given: Seeds | Uniforms = Seeds(seed[idx_mapping], pos[root].long() + 1)
    else:
        given = draws
    out = verify(
        target_logits,
        draft_sampled,
        cu_num_logits,
        draft,
        draws=given,
        rule="block" if use_block_verification else "token",
        parameters=Parameters(heat if raw else (heat != 0).float(), **asked),
        vocab=vocab,
        max_depth=num_speculative_steps,
        max_width=1,
        **options,
    )
    tell(status, out)
    return out.tokens.long(), out.counts
