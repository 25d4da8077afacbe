"""The scalars of a law: one pass over its row, in blocks of one fixed order, and its cut."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from gpu_impl.triton_backend.cut import cuts, says
from gpu_impl.triton_backend.tiles import LAST, Law, added, read, some


class Sum(NamedTuple):
    """A part of a row, [ROWS]: see `Parts`."""

    top: Any
    total: Any
    best: Any
    wrong: Any


@triton.constexpr_function
def is_tensor(given):
    """Whether an argument is a tensor, not a number."""
    return not hasattr(given, "values") and not isinstance(given, tuple)


@triton.jit
def asked_for(given, request, live):
    """Return a parameter of requests, float64 [ROWS]."""
    if is_tensor(given):
        value = tl.load(given + request, mask=live, other=0).to(tl.float64)
    else:
        value = added(given, request)
    return value


@triton.jit
def temperature_of(asked, request, live, GREEDY: tl.constexpr):
    """Return temperatures and their float32 inverses, 1 where there is none; [ROWS]."""
    zero = tl.zeros_like(request).to(tl.float64)
    temperature = zero if GREEDY else asked_for(asked.temperature, request, live)
    heats = (temperature > 0.0) & (temperature < float("inf"))
    scale = (1.0 / tl.where(heats, temperature, 1.0)).to(tl.float32)
    # Below 2^-127, the inverse is no float32 number.
    return temperature, tl.minimum(scale, 3.4028234663852886e38)


@triton.jit
def part(x, column, inside, scale, PROBS: tl.constexpr):
    """Sum up a tile."""
    wrong = inside & ((x != x) | (x == float("inf")))
    if PROBS:
        wrong = wrong | (inside & (x < 0.0))
    fine = tl.where(inside & ~wrong, x, float("-inf"))
    top = tl.max(fine, 1)
    best = tl.min(tl.where(inside & (fine == top[:, None]), column, LAST), 1)
    if PROBS:
        weight = tl.where(fine > 0.0, fine, 0.0)
    else:
        middle = tl.where(top == float("-inf"), 0.0, top)
        weight = tl.exp((fine - middle[:, None]) * scale[:, None])
    return Sum(
        top,
        tl.sum(weight.to(tl.float64), 1),
        tl.where(top == float("-inf"), -1, best),
        tl.max(wrong.to(tl.int32), 1),
    )


@triton.jit
def joined(a, b, scale, PROBS: tl.constexpr):
    """Join the sums of two parts, the first of which has the lower tokens."""
    top = tl.maximum(a.top, b.top)
    if PROBS:
        total = a.total + b.total
    else:
        middle = tl.where(top == float("-inf"), 0.0, top).to(tl.float64)
        heat = scale.to(tl.float64)
        total = a.total * tl.exp((a.top.to(tl.float64) - middle) * heat)
        total += b.total * tl.exp((b.top.to(tl.float64) - middle) * heat)
    return Sum(top, total, tl.where(b.top > a.top, b.best, a.best), tl.maximum(a.wrong, b.wrong))


@triton.jit
def summed(rows, parts, row, request, slot, live, scale, PROBS: tl.constexpr, BLOCK: tl.constexpr):
    """Sum up rows, or join what `statistics` found of them."""
    none = tl.full(scale.shape, float("-inf"), tl.float32)
    zero = tl.zeros_like(scale).to(tl.int32)
    all_ = Sum(none, tl.zeros_like(scale).to(tl.float64), zero - 1, zero)
    blocks = tl.cdiv(rows.width, BLOCK)
    for block in range(0, blocks):
        if parts is not None:
            at = slot * blocks + block
            new = Sum(
                tl.load(parts.top + at, mask=live, other=float("-inf")),
                tl.load(parts.total + at, mask=live, other=0.0),
                tl.load(parts.best + at, mask=live, other=-1),
                tl.load(parts.wrong + at, mask=live, other=0),
            )
        else:
            column = block * BLOCK + tl.arange(0, BLOCK)[None, :]
            inside = live[:, None] & (column < rows.width)
            x = read(rows, row[:, None], request[:, None], column, inside)
            new = part(x, column, inside, scale, PROBS)
        all_ = joined(all_, new, scale, PROBS)
    return all_


@triton.jit
def law_of(
    rows, asked, held, parts, row, request, slot, live,
    PROBS: tl.constexpr, GREEDY: tl.constexpr, FILTERS: tl.constexpr, READING: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Return the laws of rows.

    Args:
        rows, asked: where they are, and under what parameters.
        held: scalars that somebody has computed already, `gpu_impl.Laws`; or None.
        parts: what `statistics` found of them, or None.
        row, request, slot: int64 [ROWS]; `slot` is the node, which is where `parts` are.
        live: which of them are wanted.
    """
    if held is not None:
        law = held_of(held, row, live)
    else:
        law = read_of(
            rows, asked, parts, row, request, slot, live, PROBS, GREEDY, FILTERS, READING, BLOCK
        )
    return law


@triton.jit
def held_of(held, row, live):
    """Return laws of which somebody has the scalars."""
    flaw = tl.load(held.bad + row, mask=live, other=0).to(tl.int32)
    flaw += 2 * tl.load(held.lawless + row, mask=live, other=0).to(tl.int32)
    total = tl.load(held.total + row, mask=live, other=1.0)
    return Law(
        tl.load(held.top + row, mask=live, other=0.0),
        tl.load(held.scale + row, mask=live, other=1.0),
        tl.load(held.cut + row, mask=live, other=0.0),
        tl.load(held.low + row, mask=live, other=0),
        tl.load(held.high + row, mask=live, other=0),
        1.0 / tl.where(total > 0.0, total, 1.0),
        tl.load(held.best + row, mask=live, other=-1),
        flaw,
    )


@triton.jit
def read_of(
    rows, asked, parts, row, request, slot, live,
    PROBS: tl.constexpr, GREEDY: tl.constexpr, FILTERS: tl.constexpr, READING: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Return laws from their rows."""
    zero = tl.zeros_like(request).to(tl.int32)
    if PROBS:
        scale = tl.full(zero.shape, 1.0, tl.float32)
    else:
        temperature, scale = temperature_of(asked, request, live, GREEDY)
    whole = summed(rows, parts, row, request, slot, live, scale, PROBS, BLOCK)
    bad = (whole.wrong > 0) | (whole.best < 0)
    top = tl.where(whole.best < 0, 0.0, whole.top)
    total = whole.total
    flaw = zero
    cut = tl.full(top.shape, float("-inf"), tl.float32)
    low, high = zero, zero + rows.width - 1
    if PROBS:
        bad = bad | ~(total > 0.0)
    elif GREEDY:
        flaw = zero
    else:
        greedy = temperature == 0.0
        top_k = asked_for(asked.top_k, request, live)
        top_p = asked_for(asked.top_p, request, live)
        min_p = asked_for(asked.min_p, request, live)
        fine = (temperature >= says(READING, "coldest")) & (temperature < float("inf"))
        fine = fine & (temperature <= says(READING, "hottest"))
        fine = greedy | (fine & (temperature > 0.0))
        fine = fine & (top_k >= 0.0) & (top_p >= 0.0) & (top_p <= 1.0)
        fine = fine & (min_p >= 0.0) & (min_p <= 1.0)
        if not says(READING, "whole_top_k"):
            fine = fine & (top_k < rows.width)
        if says(READING, "top_p_zero") == "refused":
            fine = fine & (top_p > 0.0)
        if says(READING, "top_p_zero") == "off":
            top_p = tl.where(top_p == 0.0, 1.0, top_p)
        flaw = tl.where(fine, 0, 2)
        if FILTERS:
            acts = ((top_k > 0.0) & (top_k < rows.width)) | (top_p < 1.0) | (min_p > 0.0)
            acts = acts & live & fine & ~greedy & ~bad
            if some(acts):
                cut2, low2, high2, kept = cuts(
                    rows, row, request, acts, top, scale, top_k, top_p, min_p, READING, BLOCK
                )
                cut = tl.where(acts, cut2, cut)
                low = tl.where(acts, low2, low)
                high = tl.where(acts, high2, high)
                total = tl.where(acts, kept, total)
        cut = tl.where(greedy, top, cut)
        low = tl.where(greedy, whole.best, low)
        high = tl.where(greedy, whole.best, high)
        total = tl.where(greedy, 1.0, total)
    if GREEDY:
        cut, low, high = top, whole.best, whole.best
        total = tl.full(top.shape, 1.0, tl.float64)
    flaw += bad.to(tl.int32)
    share = 1.0 / tl.where(total > 0.0, total, 1.0)
    return Law(top, scale, cut, low, high, share, whole.best, flaw)
