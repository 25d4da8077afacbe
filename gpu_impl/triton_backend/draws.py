"""Draws by address, bit for bit those of `gpu_impl.draws.philox`; or given ones."""

import triton
import triton.language as tl

from specref.philox import Domain

COIN = tl.constexpr(int(Domain.COIN))
TERMINAL = tl.constexpr(int(Domain.TERMINAL))


@triton.jit
def uniform(seed, start, node, DOMAIN: tl.constexpr):
    """Return draws in [0, 1), float64, of int64 seeds, starts and nodes of one shape."""
    low = (start & 0xFFFFFFFF).to(tl.uint32)
    high = ((start >> 32) & 0xFFFFFFFF).to(tl.uint32)
    third = (node & 0xFFFFFFFF).to(tl.uint32)
    a, b, _, _ = tl.philox(seed, low, high, third, third * 0 + DOMAIN)
    bits = (a.to(tl.int64) << 21) | (b.to(tl.int64) >> 11)
    return bits.to(tl.float64) * 1.1102230246251565e-16


@triton.jit
def coin(draws, base, request, node, live):
    """Return the draws of nodes; what they are where not live does not matter."""
    if draws.coins is not None:
        u = tl.load(draws.coins + base + node, mask=live, other=0.0)
    else:
        seed = tl.load(draws.seed + request, mask=live, other=0)
        start = tl.load(draws.start + request, mask=live, other=0)
        u = uniform(seed, start, node.to(tl.int64), COIN)
    return u


@triton.jit
def last(draws, request, live):
    """Return the terminal draws of requests."""
    if draws.terminal is not None:
        u = tl.load(draws.terminal + request, mask=live, other=0.0)
    else:
        seed = tl.load(draws.seed + request, mask=live, other=0)
        start = tl.load(draws.start + request, mask=live, other=0)
        u = uniform(seed, start, start * 0, TERMINAL)
    return u
