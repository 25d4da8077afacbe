"""What a rule does at one node: which of its children is accepted, or what law remains.

- `ratio`, recursive rejection: token, rrs_with, rrs_without;
- `certain`, drafts of any origin: one_hot, target_only;
- `match`, the target draws: match, greedy.

`block` looks at whole chains (`walk`).
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from gpu_impl.triton_backend.codes import (
    ACCEPTED,
    BAD_TOKEN,
    EQUAL_SIBLINGS,
    REFUSED,
    ZERO_DRAFT,
)
from gpu_impl.triton_backend.draws import coin
from gpu_impl.triton_backend.links import following, repeats
from gpu_impl.triton_backend.residual import mass
from gpu_impl.triton_backend.tiles import added, mass_of, some


class Step(NamedTuple):
    """What came out, [ROWS].

    Attributes:
        taken: int32, the accepted child, -1 if none.
        won: float64, its target mass.
        tried: bool, whether any child could have been accepted and was not.
        c: float64, of the residual max(p - c q, 0).
        final: int32, the last child.
        status: int32.
    """

    taken: Any
    won: Any
    tried: Any
    c: Any
    final: Any
    status: Any


@triton.jit
def said(forest, base, child, live, vocab):
    """Return the tokens of children (int64), which of them are tokens, and what is wrong."""
    token = tl.load(forest.tokens + base + child, mask=live, other=-1).to(tl.int64)
    flags = tl.where(live & ((token < -1) | (token >= vocab)), BAD_TOKEN, 0)
    return token, live & (token >= 0) & (token < vocab), flags


@triton.jit
def judge(out, base, child, tested, accepted):
    """Write tests into the trace."""
    if out.tests is not None:
        result = tl.where(accepted, ACCEPTED, REFUSED).to(tl.uint8)
        tl.store(out.tests + base + child, result, mask=tested)


@triton.jit
def ratio(
    target, p, draft, q, forest, size, draws, out, at, no_draft, live, lenience,
    WITHOUT: tl.constexpr, PROBS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Test children one after the other, each against what the target lacks by then.

    `lenience` is that of `gpu_impl.Lenience`, or None.
    """
    child = at.first
    taken, final = tl.full(child.shape, -1, tl.int32), child
    status = tl.zeros_like(child)
    c = tl.zeros_like(p.share)
    left, rest, won = c + 1.0, c + 1.0, c
    tried = child < -1
    trying = live & (child >= 0)
    while some(trying):
        token, fine, flags = said(forest, at.base, child, trying, target.width)
        status = status | flags
        fine = fine & ~no_draft
        if WITHOUT:
            equal = fine & repeats(forest, at.base, at.node, child, token, fine)
            status = status | tl.where(equal, EQUAL_SIBLINGS, 0)
            fine = fine & ~equal
        share = mass_of(draft, q, at.row, at.request, token, fine, PROBS)
        status = status | tl.where(fine & ~(share > 0.0), ZERO_DRAFT, 0)
        fine = fine & (share > 0.0)
        mine = mass_of(target, p, at.base + at.node, at.request, token, fine, False)
        step = left / rest if WITHOUT else left
        u = coin(draws, at.base, at.request, child, fine)
        if lenience is not None:
            u *= added(lenience, child)
        accepts = fine & (u * step * share < mine - c * share)
        judge(out, at.base, child, fine, accepts)
        taken = tl.where(accepts, child, taken)
        won = tl.where(accepts, mine, won)
        refuses = fine & ~accepts
        tried = tried | refuses
        c = tl.where(refuses, c + step, c)
        if WITHOUT:
            # A rest of 0 ends the loop, and stays 1 so that no row divides by it.
            rest = tl.where(refuses, rest - share, rest)
        trying = trying & ~accepts
        behind = following(forest, at.base, size, at.node, child, trying)
        if forest.parents is not None:
            again = refuses & (behind >= 0)
            if some(again):
                found = mass(
                    target, p, draft, q, forest, at, tl.full(c.shape, 1.0, tl.float64), c,
                    tried, again, PROBS, False, BLOCK,
                )  # fmt: skip
                left = tl.where(again, found, left)
        exhausted = ~(left > 0.0) | ~(rest > 0.0)
        if WITHOUT:
            rest = tl.where(rest > 0.0, rest, 1.0)
        child = tl.where(trying & ~exhausted, behind, -1)
        trying = trying & (child >= 0)
    return Step(taken, won, tried, c, final, status)


@triton.jit
def certain(target, p, forest, size, draws, out, at, live, thresholds):
    """Look up the coin of the first child among the masses of all.

    `thresholds` are those of `gpu_impl.Thresholds`, or None.
    """
    child = at.first
    taken, final = tl.full(child.shape, -1, tl.int32), child
    status = tl.zeros_like(child)
    sums = tl.zeros_like(p.share)
    won = sums
    tried = child < -1
    trying = live & (child >= 0)
    u = coin(draws, at.base, at.request, child, trying)
    while some(trying):
        token, fine, flags = said(forest, at.base, child, trying, target.width)
        status = status | flags
        fine = fine & ~repeats(forest, at.base, at.node, child, token, fine)
        tried = tried | fine
        mine = mass_of(target, p, at.base + at.node, at.request, token, fine, False)
        sums += mine
        if thresholds is not None:
            kept = u * added(thresholds[1], child) < sums
            kept = (mine > 0.0) & (kept | (mine >= added(thresholds[0], child)))
        else:
            kept = u < sums
        falls = fine & (taken < 0) & kept
        judge(out, at.base, child, fine & (taken < 0), falls)
        taken = tl.where(falls, child, taken)
        won = tl.where(falls, mine, won)
        final = tl.where(trying, child, final)
        child = following(forest, at.base, size, at.node, child, trying)
        trying = trying & (child >= 0)
    return Step(taken, won, tried, tl.zeros_like(sums), final, status)


@triton.jit
def match(target, p, forest, size, out, at, drawn, live):
    """Look up the token that the target drew among the children."""
    child = at.first
    taken, final = tl.full(child.shape, -1, tl.int32), child
    status = tl.zeros_like(child)
    trying = live & (child >= 0)
    while some(trying):
        token, fine, flags = said(forest, at.base, child, trying, target.width)
        status = status | flags
        fine = fine & ~repeats(forest, at.base, at.node, child, token, fine)
        hits = fine & (taken < 0) & (token == drawn)
        judge(out, at.base, child, fine & (taken < 0), hits)
        taken = tl.where(hits, child, taken)
        child = following(forest, at.base, size, at.node, child, trying)
        trying = trying & (child >= 0)
    token = drawn.to(tl.int64)
    won = mass_of(target, p, at.base + at.node, at.request, token, taken >= 0, False)
    return Step(taken, won, at.first >= 0, tl.zeros_like(won), final, status)
