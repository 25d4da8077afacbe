"""Tiles of rows: reading them, and the mass of their entries under a law.

Every program serves ROWS requests. In a batch that is served, ROWS is 1; with more, one program of
Triton's interpreter, whose cost is by operation and not by entry, serves thousands of requests of a
small vocabulary. Results do not depend on it: no operation mixes rows.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

LAST = tl.constexpr(2**31 - 1)


class Law(NamedTuple):
    """The scalars of `gpu_impl.Laws`, [ROWS].

    `share` is 1 / total, and `flaw` is 0, or 1 for a row that is no law, 2 for parameters that are
    none, 3 for both.
    """

    top: Any
    scale: Any
    cut: Any
    low: Any
    high: Any
    share: Any
    best: Any
    flaw: Any


@triton.jit
def blank(ROWS: tl.constexpr):
    """Return laws that are none."""
    zero = tl.zeros([ROWS], tl.float32)
    whole = tl.zeros([ROWS], tl.int32)
    one = tl.full([ROWS], 1.0, tl.float64)
    return Law(zero, zero + 1.0, zero, whole, whole, one, whole - 1, whole + 1)


@triton.jit
def choose(where, yes, no):
    """Return the laws of `yes` where it holds, elsewhere those of `no`."""
    return Law(
        tl.where(where, yes.top, no.top),
        tl.where(where, yes.scale, no.scale),
        tl.where(where, yes.cut, no.cut),
        tl.where(where, yes.low, no.low),
        tl.where(where, yes.high, no.high),
        tl.where(where, yes.share, no.share),
        tl.where(where, yes.best, no.best),
        tl.where(where, yes.flaw, no.flaw),
    )


@triton.jit
def added(three, like):
    """Return a number that comes as three float32 (`launch`), float64 in the shape of `like`."""
    return tl.zeros_like(like).to(tl.float64) + three[0] + three[1] + three[2]


@triton.jit
def spread(law):
    """Return laws in the shape [ROWS, 1]."""
    return Law(
        law.top[:, None], law.scale[:, None], law.cut[:, None], law.low[:, None],
        law.high[:, None], law.share[:, None], law.best[:, None], law.flaw[:, None],
    )  # fmt: skip


@triton.jit
def some(where):
    """Whether it holds for any of [ROWS]."""
    return tl.max(where.to(tl.int32), 0) > 0


@triton.jit
def read(rows, row, request, column, inside):
    """Return entries as the filters see them: float32, -inf where not `inside`.

    Rows are int64: R * V may exceed 2^31.
    """
    x = tl.load(rows.x + row * rows.stride + column, mask=inside, other=float("-inf"))
    x = x.to(tl.float32)
    if rows.bias is not None:
        x += tl.load(rows.bias + request * rows.width + column, mask=inside, other=0.0)
    if rows.allowed is not None:
        word = tl.load(rows.allowed + row * rows.words + (column >> 5), mask=inside, other=0)
        x = tl.where(((word >> (column & 31)) & 1) != 0, x, float("-inf"))
    return x


@triton.jit
def masses(x, column, law, PROBS: tl.constexpr):
    """Return the mass of entries under laws that have their shape: float64."""
    if PROBS:
        found = tl.where(x > 0.0, x, 0.0).to(tl.float64)
    else:
        kept = (x > law.cut) | ((x == law.cut) & (column >= law.low) & (column <= law.high))
        found = tl.where(kept, tl.exp((x - law.top) * law.scale), 0.0).to(tl.float64)
    return found * law.share


@triton.jit
def mass_of(rows, law, row, request, token, live, PROBS: tl.constexpr):
    """Return the mass of one token 0 <= token < V of each row: float64 [ROWS], 0 where not live."""
    column = token.to(tl.int32)
    if rows.place is not None:
        column = tl.load(rows.place + column, mask=live, other=-1)
        live = live & (column >= 0)
    x = read(rows, row, request, column, live)
    return tl.where(live, masses(x, column, law, PROBS), 0.0)
