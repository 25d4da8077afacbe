"""Every rule's last law: the mass of max(a p - c q, 0), and a draw from it."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from gpu_impl.triton_backend.links import off_drafts
from gpu_impl.triton_backend.tiles import LAST, masses, read, some, spread


class Place(NamedTuple):
    """Where requests are, [ROWS].

    Attributes:
        request, base: int64, the request and where it begins.
        node: int32, in the request.
        row: int64, the draft row of the node.
        first, final: int32, the children of the node, which are between; -1 for none.
    """

    request: Any
    base: Any
    node: Any
    row: Any
    first: Any
    final: Any


@triton.jit
def tile(
    target, p, draft, q, forest, at, a, c, off, column, live,
    PROBS: tl.constexpr, OFF: tl.constexpr,
):  # fmt: skip
    """Return max(a p - c q, 0), float64 [ROWS, BLOCK]; drafts are off where `off`."""
    inside = live[:, None] & (column < target.width)
    x = read(target, (at.base + at.node)[:, None], at.request[:, None], column, inside)
    weight = tl.where(inside, a[:, None] * masses(x, column, spread(p), False), 0.0)
    if draft.x is not None:
        minus = inside & (c > 0.0)[:, None]
        behind = column
        if draft.place is not None:
            behind = tl.load(draft.place + column, mask=minus, other=-1)
            minus = minus & (behind >= 0)
        y = read(draft, at.row[:, None], at.request[:, None], behind, minus)
        taken = c[:, None] * masses(y, behind, spread(q), PROBS)
        weight = tl.maximum(weight - tl.where(minus, taken, 0.0), 0.0)
    if OFF:
        weight = off_drafts(weight, column, forest, at.base, at.node, at.first, at.final, off)
    return weight


@triton.jit
def mass(
    target, p, draft, q, forest, at, a, c, off, live,
    PROBS: tl.constexpr, OFF: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Return the mass of max(a p - c q, 0), float64 [ROWS]."""
    total = tl.zeros_like(a)
    for start in range(0, target.width, BLOCK):
        column = start + tl.arange(0, BLOCK)[None, :]
        weight = tile(target, p, draft, q, forest, at, a, c, off, column, live, PROBS, OFF)
        total += tl.sum(weight, 1)
    return total


@triton.jit
def draw(
    target, p, draft, q, forest, at, a, c, off, whole, u, live,
    PROBS: tl.constexpr, OFF: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Return the first token at which the mass from token 0 on exceeds u * whole.

    If rounding leaves none, the last token that has mass; -1 if none has.
    """
    goal = u * whole
    total = tl.zeros_like(a)
    found = tl.full(at.node.shape, -1, tl.int32)
    last = tl.full(at.node.shape, -1, tl.int32)
    start = 0
    while (start < target.width) & some(live & (found < 0)):
        column = start + tl.arange(0, BLOCK)[None, :]
        weight = tile(target, p, draft, q, forest, at, a, c, off, column, live, PROBS, OFF)
        here = tl.sum(weight, 1)
        here_last = tl.max(tl.where(weight > 0.0, column, -1), 1)
        ends = live & (found < 0) & (total + here > goal) & (here_last >= 0)
        if some(ends):
            # The scan rounds otherwise than the sum, and may fall short of it.
            over = (total[:, None] + tl.cumsum(weight, 1) > goal[:, None]) & (weight > 0.0)
            first = tl.min(tl.where(over, column, LAST), 1)
            found = tl.where(ends, tl.where(first < LAST, first, here_last), found)
        last = tl.where(here_last >= 0, here_last, last)
        total += here
        start += BLOCK
    return tl.where(found < 0, last, found)
