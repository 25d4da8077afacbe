"""SGLang: `tree_speculative_sampling_target_only` and `chain_speculative_sampling_triton`.

    sampling_fn(..., target_probs=None, target_logits=next_token_logits.view(bs, nodes, -1),
                draft_probs=draft_probs, parameters=Parameters(temperatures, top_ks, top_ps))

is the call in `verify` of `eagle_utils`, without the softmax, both renormalisations and the zeroed
draft tensor before it. Written against 0.5.23.
"""

from typing import Any

import torch

from gpu_impl.adapters.layout import as_logits, even, tell
from gpu_impl.call import verify
from gpu_impl.draws import Seeds, Uniforms
from gpu_impl.errors import need
from gpu_impl.laws import DraftLogits, DraftProbs, OneHot
from gpu_impl.lossy import Thresholds
from gpu_impl.verified import Verified


def tree_speculative_sampling_target_only(
    predicts: Any,
    accept_index: Any,
    accept_token_num: Any,
    candidates: Any,
    retrive_index: Any,
    retrive_next_token: Any,
    retrive_next_sibling: Any,
    uniform_samples: Any,
    uniform_samples_for_final_sampling: Any,
    target_probs: Any,
    draft_probs: Any = None,
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
    deterministic: bool = True,
    *,
    target_logits: Any = None,
    draws: Seeds | None = None,
    draft: DraftLogits | DraftProbs | None = None,
    rule: str = "target_only",
    status: Any = None,
    **options: Any,
) -> None:
    """Verify a batch of trees of one size; the first three arguments are written.

    Args:
        predicts: int32 [B * M]; at the place of each node on the path, the token behind it.
        accept_index: int32 [B, S]; places of the root and the accepted nodes. What lies behind
            them is left as it is, -1 in SGLang. Trees are at most S - 1 deep.
        accept_token_num: int32 [B]; how many drafted tokens were accepted.
        candidates: int64 [B, M], tokens; that of the root is not looked at.
        retrive_index: int64 [B, M], the place of each node in `predicts`.
        retrive_next_token, retrive_next_sibling: int64 [B, M], first child and next sibling of each
            node, -1 for none. Both stand behind the node, siblings are tried as they stand.
        uniform_samples: [B, M]; the draw of a node decides among its children.
        uniform_samples_for_final_sampling: [B].
        target_probs: [B, M, V], or None with target_logits. Their logarithms are taken, so a row
            counts divided by its sum.
        draft_probs: not looked at and left alone; SGLang's kernel works in it.
        threshold_single, threshold_acc: below 1 what is emitted does not follow the target.
        deterministic: not looked at; results always are.
        target_logits: [B, M, V], raw, in place of target_probs.
        draws: `Seeds` in place of both uniforms, which are None then.
        draft: laws that the nodes were drawn from, for a rule that looks at them.
        rule: one of those for trees.
        status, options: see `gpu_impl.adapters`; parameters are those of target_logits.

    Raises:
        ValueError: thresholds outside (0, 1] or with another rule, probabilities and logits
            together, or as `verify`.
    """
    lossless = threshold_single == 1 and threshold_acc == 1
    requests, nodes = candidates.shape
    parents = from_pointers(retrive_next_token, retrive_next_sibling)
    # What no pointer leads to is drafted by nobody: a placeholder below the root.
    loose = parents < 0
    loose[:, :1] = False
    tokens = torch.where(loose, -1, candidates)
    parents = torch.where(loose, 0, parents)
    given: Seeds | Uniforms
    if draws is None:
        # Its draw belongs to the parent, ours to the first child: each child has its parent's.
        coins = uniform_samples.double().gather(1, parents.clamp(min=0))
        given = Uniforms(coins.flatten(), uniform_samples_for_final_sampling.double())
    else:
        given = draws
    out = verify(
        _flat(target_probs, target_logits, options),
        tokens.flatten(),
        even(requests, nodes, candidates.device),
        draft or OneHot(),
        draws=given,
        parents=parents.flatten(),
        rule=rule,
        max_depth=accept_index.shape[1] - 1,
        max_width=max(nodes - 1, 1),
        lossy=None if lossless else Thresholds(threshold_single, threshold_acc),
        **options,
    )
    _write(out, predicts, accept_index, accept_token_num, retrive_index)
    tell(status, out)


def chain_speculative_sampling_triton(
    predicts: Any,
    accept_index: Any,
    accept_token_num: Any,
    candidates: Any,
    retrive_index: Any,
    retrive_next_token: Any,
    retrive_next_sibling: Any,
    uniform_samples: Any,
    uniform_samples_for_final_sampling: Any,
    target_probs: Any,
    draft_probs: Any,
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
    deterministic: bool = True,
    *,
    block_verification: bool = False,
    target_logits: Any = None,
    draft: DraftLogits | None = None,
    draws: Seeds | None = None,
    status: Any = None,
    **options: Any,
) -> None:
    """Verify a batch of chains of one length; the first three arguments are written.

    Args:
        predicts, accept_index, accept_token_num: as for trees.
        candidates: int64 [B, K + 1], the root's token first.
        retrive_index: int64 [B, K + 1], the place of each node in `predicts`.
        retrive_next_token, retrive_next_sibling: not looked at.
        uniform_samples: [B, >= K], that of each drafted token.
        uniform_samples_for_final_sampling: [B].
        target_probs: [B, K + 1, V], or None with target_logits.
        draft_probs: [B, K, V], or None with draft.
        threshold_single, threshold_acc, deterministic: not looked at, as in SGLang.
        block_verification: rule "block" instead of "token".
        target_logits: [B, K + 1, V], raw, in place of target_probs.
        draft: logits [B * K, V] of the drafts and their parameters, in place of draft_probs.
        draws: `Seeds` in place of both uniforms, which are None then.
        status, options: see `gpu_impl.adapters`; parameters are those of target_logits.

    Raises:
        ValueError: probabilities and logits together, or as `verify`.
    """
    need((draft_probs is None) != (draft is None), "pass either draft_probs or draft")
    requests, nodes = candidates.shape
    given: Seeds | Uniforms
    if draws is None:
        coins = torch.nn.functional.pad(uniform_samples[:, : nodes - 1].double(), (1, 0))
        given = Uniforms(coins.flatten(), uniform_samples_for_final_sampling.double())
    else:
        given = draws
    out = verify(
        _flat(target_probs, target_logits, options),
        candidates.flatten(),
        even(requests, nodes, candidates.device),
        DraftProbs(draft_probs.flatten(0, 1)) if draft is None else draft,
        draws=given,
        rule="block" if block_verification else "token",
        max_depth=nodes - 1,
        max_width=1,
        **options,
    )
    _write(out, predicts, accept_index, accept_token_num, retrive_index)
    tell(status, out)


def from_pointers(next_token: Any, next_sibling: Any) -> Any:
    """Return the parent of each node, -1 for the root and for nodes that no pointer leads to.

    Args:
        next_token: int [B, M], the first child of each node, -1 for none.
        next_sibling: int [B, M], the next child of its parent, -1 for none.

    >>> from_pointers(torch.tensor([[1, 3, -1, -1]]), torch.tensor([[-1, 2, -1, -1]])).tolist()
    [[-1, 0, 0, 1]]
    """
    nodes = next_token.shape[1]
    at = torch.arange(nodes, device=next_token.device).expand_as(next_token)

    def back(links: Any, none: Any) -> Any:
        """Return for each node which one links to it."""
        room = torch.nn.functional.pad(none, (0, 1))
        return room.scatter(1, torch.where(links < 0, nodes, links), at)[:, :nodes]

    none = torch.full_like(at, -1)
    above = back(next_token.long(), none)
    head = back(next_sibling.long(), at.clone())
    # Twice as far back along the siblings each time, until each node knows the first of them.
    for _ in range(max(nodes - 1, 1).bit_length()):
        head = head.gather(1, head)
    return above.gather(1, head)


def to_pointers(parents: Any) -> tuple[Any, Any]:
    """Return first child and next sibling of each node, int64 [B, M] each, -1 for none.

    Args:
        parents: int [B, M]; -1 for the root, and for nodes that are to be left out.

    >>> next_token, next_sibling = to_pointers(torch.tensor([[-1, 0, 0, 1]]))
    >>> next_token.tolist(), next_sibling.tolist()
    ([[1, 3, -1, -1]], [[-1, 2, -1, -1]])
    """
    parents = parents.long()
    nodes = parents.shape[1]
    # In the order of parents, siblings follow each other as they stand.
    order = parents.argsort(dim=1, stable=True)
    above = parents.gather(1, order)
    same = (above[:, 1:] == above[:, :-1]) & (above[:, 1:] >= 0)
    none = torch.full_like(parents, -1)
    next_sibling = none.scatter(1, order[:, :-1], torch.where(same, order[:, 1:], -1))
    first = torch.nn.functional.pad(~same, (1, 0), value=True) & (above >= 0)
    room = torch.nn.functional.pad(none, (0, 1))
    next_token = room.scatter(1, torch.where(first, above, nodes), order)[:, :nodes]
    return next_token, next_sibling


def _flat(probs: Any, logits: Any, options: dict[str, Any]) -> Any:
    need(
        probs is None or "parameters" not in options,
        "parameters are in target_probs already; pass target_logits",
    )
    return as_logits(probs, logits, "target").flatten(0, 1)


def _write(out: Verified, predicts: Any, accept_index: Any, count: Any, places: Any) -> None:
    """Write a round as SGLang reads it, and nothing else."""
    path = torch.nn.functional.pad(out.nodes.long(), (1, 0))
    on = torch.arange(path.shape[1], device=path.device) < out.counts[:, None]
    # What is behind the path writes once more what the root writes: no place is written twice.
    place = places.gather(1, torch.where(on, path, 0)).long()
    token = torch.where(on, out.tokens, out.tokens[:, :1])
    predicts.scatter_(0, place.flatten(), token.flatten().to(predicts.dtype))
    wide = accept_index[:, : path.shape[1]]
    wide.copy_(torch.where(on, place.to(wide.dtype), wide))
    count.copy_(out.counts - 1)
