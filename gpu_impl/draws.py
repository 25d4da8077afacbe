"""Draws: each has an address, so that a round can be repeated alone, in any batch, on any machine.

`Seeds` computes them: Philox4x32-10 with the request's seed as its key and (start of the round,
node, domain) as its counter, exactly as `specref.philox` has it. `Uniforms` are given ones; they
go through the same code. No address is used twice in the life of a sequence, as long as each round
of it starts behind the last one.
"""

from dataclasses import dataclass
from typing import Any

import torch

from specref.philox import Domain

_MASK = 0xFFFFFFFF


@dataclass(frozen=True)
class Seeds:
    """Draws by address.

    Attributes:
        seed: int64 [B], the request's seed; its 64 bits count as unsigned.
        start: int64 [B], tokens before this round, prompt included.
    """

    seed: Any
    start: Any


@dataclass(frozen=True)
class Uniforms:
    """Given draws, float64 in [0, 1).

    Attributes:
        coins: [R], that of each node; a root's is not used.
        terminal: [B].
    """

    coins: Any
    terminal: Any


def philox(seed: Any, start: Any, node: Any, domain: Domain) -> Any:
    """Return the draws at addresses: float64, exact multiples of 2^-53 in [0, 1).

    Args:
        seed, start: int64 [n]; their bits count as unsigned.
        node: int64 [n], index of the node in its round; 0 for the terminal draw.
        domain: what the draws decide.

    >>> import torch
    >>> one = torch.tensor([1])
    >>> philox(one * 7, one * 0, one, Domain.COIN).item()
    0.5328411326344147
    """
    a, b = start & _MASK, (start >> 32) & _MASK
    c, d = node & _MASK, torch.full_like(start, int(domain))
    k, m = seed & _MASK, (seed >> 32) & _MASK
    for _ in range(10):
        # int64 products wrap modulo 2^64, which keeps all of their bits.
        left, right = a * 0xD2511F53, c * 0xCD9E8D57
        a, b = ((right >> 32) & _MASK) ^ b ^ k, right & _MASK
        c, d = ((left >> 32) & _MASK) ^ d ^ m, left & _MASK
        k, m = (k + 0x9E3779B9) & _MASK, (m + 0xBB67AE85) & _MASK
    return ((a << 21) | (b >> 11)).to(torch.float64) * 2.0**-53
