"""Counter-based draws: each has an address and can be computed alone.

Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") maps a 128-bit
counter and a 64-bit key to 128 random bits. Here the key is the seed, and the counter is the
address of the draw:

    word 0, 1   start of the round: number of tokens before it, low and high half
    word 2      node: index of the drafted node (0 for the terminal draw)
    word 3      domain: what the draw decides

The *start of the round* is in the address, not the position of the token: a rule may look at
drafts behind the first rejection, and the next round drafts those positions again. Keyed by
position alone it would meet the same draws twice.
"""

import operator
from enum import IntEnum

from specref.dist import Number, rational

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF


class Domain(IntEnum):
    """What a draw decides."""

    DRAFT = 0
    COIN = 1
    TERMINAL = 2


def philox4x32(
    counter: tuple[int, int, int, int], key: tuple[int, int], rounds: int = 10
) -> tuple[int, int, int, int]:
    """Return the four 32-bit words of Philox4x32 at `counter` under `key`.

    >>> [f"{word:08x}" for word in philox4x32((0, 0, 0, 0), (0, 0))]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    a, b, c, d = counter
    k, m = key
    for _ in range(rounds):
        left, right = _MULTIPLIERS[0] * a, _MULTIPLIERS[1] * c
        a, b, c, d = (right >> 32) ^ b ^ k, right & _MASK, (left >> 32) ^ d ^ m, left & _MASK
        k, m = (k + _WEYL[0]) & _MASK, (m + _WEYL[1]) & _MASK
    return a, b, c, d


def uniform(seed: int, start: int, node: int, domain: Domain) -> Number:
    """Return the draw at an address: an exact multiple of 2^-53 in [0, 1).

    Args:
        seed: request seed, 0 <= seed < 2^64.
        start: number of tokens before this round, 0 <= start < 2^64.
        node: index of the drafted node in its round, 0 <= node < 2^32.
        domain: what the draw decides.

    >>> float(uniform(seed=7, start=0, node=1, domain=Domain.COIN))
    0.5328411326344147

    Raises:
        TypeError: an argument is not an integer.
        ValueError: an argument is outside its range.
    """
    # Array scalars become Python integers here: theirs would overflow in the products.
    seed, start, node = operator.index(seed), operator.index(start), operator.index(node)
    for name, value, bits in (("seed", seed, 64), ("start", start, 64), ("node", node, 32)):
        if not 0 <= value < 1 << bits:
            raise ValueError(f"{name} = {value} is outside 0 <= {name} < 2^{bits}")
    counter = (start & _MASK, start >> 32, node, int(domain))
    high, low, _, _ = philox4x32(counter, (seed & _MASK, seed >> 32))
    return rational((high << 21) | (low >> 11), 1 << 53)
