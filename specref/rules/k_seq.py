"""K-SEQ: test each of K independent siblings against the same, lowered threshold."""

import math
from bisect import bisect_left
from functools import lru_cache

from specref.choice import Choose
from specref.dist import Law, Number, is_exact, normalise, number
from specref.draft import Node

PARTS = 720720
"""rho is a multiple of 1/PARTS: the least common multiple of 1 to 16, so simple roots are exact."""


def k_seq(root: Node, choose: Choose, *, rho: Number | None = None) -> tuple[int, ...]:
    """Accept each sibling with min(1, p/(rho q)) until one is (Sun et al. 2023, SpecTr, K-SEQ).

    Each test alone accepts x with mass min(q, p/rho); let beta be the sum of these. The K tests are
    independent and alike, and test k is reached with chance (1 - beta)^(k-1), so x is accepted with
    mass g min(q, p/rho), where g = 1 + (1 - beta) + ... + (1 - beta)^(K-1). If g <= rho that is at
    most p, and what is missing is drawn when all tests fail: lossless for every such rho. Times
    rho, what is missing reads rho (p - rho q)+ + (rho - g) min(p, rho q).

    A smaller rho accepts more. The smallest valid one solves g = rho and is in general irrational,
    so the rule takes the next multiple of 1/720720 above it, which is still exactly lossless.
    SpecTr states the condition times beta, 1 - (1 - beta)^K <= rho beta; rho = K always fulfils it.

    All K tests are alike: unlike `rrs_with` nothing is learnt from a refusal, and a repeated
    sibling gets a second chance.

    Args:
        root: a tree whose siblings were drawn from q independently; K is their number at a node.
            Whichever of equal siblings is accepted, the first is followed: they were drafted alike.
        choose: the reading; the coin of a drafted node is addressed by it.
        rho: the divisor, left out for the smallest valid multiple of 1/720720 at each node.

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> from specref.draft import tree
    >>> p, q = (F(1, 2), F(1, 3), F(1, 6)), (F(1, 6), F(1, 3), F(1, 2))
    >>> root = tree([p] * 3, [q] * 3, [2, 1], [0, 0])
    >>> print({text: str(mass) for text, mass in law(lambda c: k_seq(root, c)[:1]).items()})
    {(2,): '2/9', (1,): '14/27', (0,): '7/27'}

    Raises:
        ValueError: a rho with which some node would have g > rho.
    """
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        p, q, k = node.p, node.q, len(node.children)
        divisor = smallest_rho(p, q, k) if rho is None else _valid(rho, p, q, k)
        for x, child in node.children:
            if choose.flip(min(1, p[x] / (divisor * q[x])), at=child):
                out, node = (*out, x), dict(reversed(node.children))[x]
                break
        else:
            taken = _taken(p, q, divisor)
            spare = divisor - _tests(sum(taken) / divisor, k)
            wanted = [max(a - divisor * b, 0) for a, b in zip(p, q, strict=True)]
            missing = [divisor * w + spare * t for w, t in zip(wanted, taken, strict=True)]
            return (*out, choose(normalise(missing)))
    return (*out, choose(node.p))


def smallest_rho(p: Law, q: Law, k: int) -> Number:
    """Return the smallest multiple of 1/720720 in 1 <= rho <= k that is valid for `k` siblings.

    >>> from fractions import Fraction as F
    >>> smallest_rho((F(1, 2), F(1, 3), F(1, 6)), (F(1, 6), F(1, 3), F(1, 2)), 2)
    Fraction(3, 2)
    """
    if k == 1:
        return 1
    rows = tuple(p), tuple(q)
    # A row of floats equals the row of fractions of the same value, which it must not answer for.
    search = _remembered if is_exact(sum(rows[0]) + sum(rows[1])) else _search
    return (rows[1][0] * 0 + search(*rows, k)) / PARTS


def _search(p: Law, q: Law, k: int) -> int:
    """Return the smallest valid rho in units of 1/PARTS, by bisection.

    Validity is monotone: as rho grows, rho beta grows and 1 - (1 - beta)^k shrinks.
    """
    zero = q[0] * 0  # rho has to be the kind of number that the laws are made of

    def is_valid(parts: int) -> bool:
        rho = (zero + parts) / PARTS
        return not _tests(sum(_taken(p, q, rho)) / rho, k) > rho

    return bisect_left(range(k * PARTS), True, lo=PARTS, key=is_valid)


_remembered = lru_cache(maxsize=4096)(_search)


def _valid(rho: Number, p: Law, q: Law, k: int) -> Number:
    """Return rho if it fulfils g <= rho; g is never below 1."""
    rho = number(rho, "rho")
    if not (1 <= rho < math.inf and _tests(sum(_taken(p, q, rho)) / rho, k) <= rho):
        raise ValueError(
            f"rho = {rho} is not valid for {k} siblings here: it must be at least "
            f"{smallest_rho(p, q, k)}; leave it out, or pass {k}, which always is"
        )
    return rho


def _taken(p: Law, q: Law, rho: Number) -> list[Number]:
    """Return rho min(q, p/rho) by token."""
    return [min(a, rho * b) for a, b in zip(p, q, strict=True)]


def _tests(beta: Number, k: int) -> Number:
    """Return g, the mean number of tests out of `k` when each accepts with chance beta."""
    reached, total = 1, 0
    for _ in range(k):
        total, reached = total + reached, reached * (1 - beta)
    return total
