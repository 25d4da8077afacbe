"""The forest as a request's walk sees it; nothing that it says is believed unchecked."""

import triton
import triton.language as tl

from gpu_impl.triton_backend.tiles import LAST, some

NODES = tl.constexpr(64)
"""Nodes that are looked through at once."""


@triton.jit
def bounds(forest, request, live):
    """Return where requests begin (int64), how many nodes they have, and whether that is none.

    Those whose boundaries are none have one node, somewhere inside the batch.
    """
    begin = tl.load(forest.begin + request, mask=live, other=0).to(tl.int64)
    end = tl.load(forest.begin + request + 1, mask=live, other=1).to(tl.int64)
    broken = live & ((begin < 0) | (end > forest.nodes) | (end <= begin))
    base = tl.minimum(tl.maximum(begin, 0), tl.maximum(forest.nodes - 1, 0).to(tl.int64))
    size = tl.where(broken | ~live, 1, end - begin).to(tl.int32)
    if forest.parents is not None:
        index = tl.arange(0, NODES)[None, :]
        wrong = tl.zeros_like(size)
        for first in range(0, tl.max(size, 0), NODES):
            i = index + first
            inside = (i < size[:, None]) & (live & ~broken)[:, None]
            above = tl.load(forest.parents + base[:, None] + i, mask=inside, other=-1)
            bad = tl.where(i == 0, above != -1, (above < 0) | (above >= i))
            wrong = tl.maximum(wrong, tl.max((inside & bad).to(tl.int32), 1))
        broken = broken | (wrong > 0)
        size = tl.where(broken, 1, size)
    return base, size, broken


@triton.jit
def following(forest, base, size, node, after, live):
    """Return the first child of `node` behind `after`, -1 if there is none or not live."""
    if forest.parents is None:
        found = tl.where((after == node) & (node + 1 < size), node + 1, LAST)
    else:
        index = tl.arange(0, NODES)[None, :]
        found = tl.full([node.shape[0]], LAST, tl.int32)
        first = tl.min(tl.where(live, after + 1, LAST), 0)
        end = tl.max(tl.where(live, size, 0), 0)
        while (first < end) & some(live & (found == LAST)):
            i = index + first
            inside = live[:, None] & (i > after[:, None]) & (i < size[:, None])
            above = tl.load(forest.parents + base[:, None] + i, mask=inside, other=-1)
            hit = inside & (above == node[:, None])
            found = tl.minimum(found, tl.min(tl.where(hit, i, LAST), 1))
            first += NODES
    return tl.where(live & (found < LAST), found, -1)


@triton.jit
def repeats(forest, base, node, child, token, live):
    """Whether an earlier sibling of `child` has its token."""
    found = child < -1
    if forest.parents is not None:
        index = tl.arange(0, NODES)[None, :]
        first = tl.min(tl.where(live, node + 1, LAST), 0)
        end = tl.max(tl.where(live, child, 0), 0)
        while first < end:
            i = index + first
            inside = live[:, None] & (i > node[:, None]) & (i < child[:, None])
            above = tl.load(forest.parents + base[:, None] + i, mask=inside, other=-1)
            said = tl.load(forest.tokens + base[:, None] + i, mask=inside, other=-1)
            hit = inside & (above == node[:, None]) & (said == token[:, None])
            found = found | (tl.max(hit.to(tl.int32), 1) > 0)
            first += NODES
    return found


@triton.jit
def off_drafts(weights, column, forest, base, node, first, final, off):
    """Return weights with those of the tokens drafted behind `node` at 0, where `off`.

    The drafts are children from `first` to `final`, -1 if there are none.
    """
    wide = tl.max(tl.where(off, final - first + 1, 0), 0)
    for step in range(0, wide):
        i = first + step
        inside = off & (i <= final)
        said = tl.load(forest.tokens + base + i, mask=inside, other=-1)
        if forest.parents is not None:
            above = tl.load(forest.parents + base + i, mask=inside, other=-1)
            inside = inside & (above == node)
        weights = tl.where(inside[:, None] & (column == said[:, None]), 0.0, weights)
    return weights


@triton.jit
def draft_row(drafted, base, request, node, live):
    """Return the draft rows of nodes, int64, -1 where the batch has none."""
    if drafted.row is not None:
        row = tl.load(drafted.row + base + node, mask=live, other=-1)
    else:
        row = base + node - request * drafted.shift
    return tl.where(live & (row >= 0) & (row < drafted.count), row, -1)
