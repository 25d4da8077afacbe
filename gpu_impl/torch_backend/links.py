"""The forest as links: first child and next sibling of each node, and what cannot be a draft."""

from typing import Any, NamedTuple

import torch

from gpu_impl.forest import Forest, owners
from gpu_impl.status import Status


class Links(NamedTuple):
    """Nodes as places in the batch.

    Attributes:
        request: int64 [R], which request a node is of.
        local: int64 [R], its index in the request.
        root: int64 [B], the place of each root.
        child: int64 [R], the first child of each node, -1 if it has none.
        sibling: int64 [R], the next child of its parent, -1 behind the last.
        token: int64 [R], drafted tokens; -1 where none can have been drafted.
        equal: bool [R], whether an earlier sibling has the same token.
        flags: int32 [R], what is wrong with each token.
        broken: bool [B], requests whose nodes make no tree.
    """

    request: Any
    local: Any
    root: Any
    child: Any
    sibling: Any
    token: Any
    equal: Any
    flags: Any
    broken: Any


def links(forest: Forest, vocab: int) -> Links:
    """Return the links of a forest; requests that are none have no drafts."""
    tokens, nodes = forest.tokens.long(), forest.nodes
    begin = forest.begin.long()
    at = torch.arange(nodes, device=tokens.device)
    broken = (begin[1:] <= begin[:-1]) | (begin[:-1] < 0) | (begin[1:] > nodes)
    root = begin[:-1].clamp(0, max(nodes - 1, 0))
    request = owners(begin, nodes)
    local = at - begin[request] if forest.requests else at
    none = torch.full_like(at, -1)
    is_root = local == 0
    if forest.parents is None:
        above = torch.where(is_root, none, at - 1)
    else:
        parents = forest.parents.long()
        wrong = torch.where(is_root, parents != -1, (parents < 0) | (parents >= local))
        broken = broken | (torch.zeros_like(root).index_add(0, request, wrong.long()) > 0)
        above = torch.where(is_root | wrong, none, parents + begin[request])
    # In the order of parents, siblings follow each other as they were drawn.
    order = above.argsort(stable=True)
    ordered = above[order]
    begins = torch.ones_like(ordered, dtype=torch.bool)
    begins[1:] = ordered[1:] != ordered[:-1]
    follows = ~begins[1:] & (ordered[1:] >= 0)
    sibling = none.scatter(0, order[:-1], torch.where(follows, order[1:], -1))
    heads = begins & (ordered >= 0)
    child = torch.full((nodes + 1,), -1, dtype=torch.int64, device=at.device)
    child = child.scatter(0, torch.where(heads, ordered, nodes), order)[:-1]
    child = torch.where(broken[request], -1, child) if forest.requests else child
    outside = (tokens < -1) | (tokens >= vocab)
    token = torch.where(outside, -1, tokens)
    # Equal siblings stand together in the order of (parent, token).
    pair = above * (vocab + 1) + token + 1
    by_pair = pair.argsort(stable=True)
    same = torch.zeros_like(begins)
    same[1:] = (pair[by_pair][1:] == pair[by_pair][:-1]) & (token[by_pair][1:] >= 0)
    equal = torch.zeros_like(same).scatter(0, by_pair, same)
    flags = torch.where(outside, int(Status.BAD_TOKEN), 0).int()
    return Links(request, local, root, child, sibling, token, equal, flags, broken)
