"""Lenience with the residual scaled too: test and correction both use l q. Lossy."""

from fractions import Fraction

from specref.choice import Choose
from specref.dist import Number, excess, number
from specref.draft import Node


def lenient_scaled(
    root: Node, choose: Choose, lenience: Number = Fraction(1, 2)
) -> tuple[int, ...]:
    """Keep x with probability min(1, p(x) / (l q(x))), else correct from norm((p - l q)+).

    The second reading of lenience (Leviathan et al. 2023, appendix A.5, which does not say what a
    refusal is corrected from): l q takes the place of q everywhere, l the lenience. The acceptance
    is that of `lenient`; the correction is flatter, and may add to tokens that q has enough of.

    What is given up: with R = sum_x (q - p/l)+ the chance of a refusal and S = sum_x (p - l q)+,
    the emitted token has law min(p/l, q) + (R/S) (p - l q)+. It is never closer to p than
    `lenient`, whose corrections go only where mass is missing and never exceed what is missing; on
    p = (1/2, 1/3, 1/6), q = (1/6, 1/3, 1/2) with l = 1/2 it is off by 3/14, `lenient` by 1/6. What
    is kept: no token is emitted with more than p/l. Where p > l q this asks for R/S <= 1/l, and
    S = 1 - l + l R grants it. At l = 1 it is `token`.

    A correction exists whenever it is needed: l q sums to at most 1, so if it exceeds p at the
    refused token it falls short of p at another.

    Args:
        root: a chain whose tokens were drawn from q.
        choose: the reading; the coin of a drafted node is addressed by it.
        lenience: l, in 0 < l <= 1; a fraction keeps exact laws exact.

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> from specref.draft import chain
    >>> p, q = (F(1, 2), F(1, 3), F(1, 6)), (F(1, 6), F(1, 3), F(1, 2))
    >>> law(lambda c: lenient_scaled(chain([p, p], [q, q], [2]), c)[:1])
    {(2,): Fraction(2, 3), (0,): Fraction(5, 21), (1,): Fraction(2, 21)}

    Raises:
        ValueError: a lenience outside 0 < lenience <= 1.
    """
    lenience = number(lenience, "lenience")
    if not 0 < lenience <= 1:
        raise ValueError(f"lenience = {lenience} is outside 0 < lenience <= 1; 1 is lossless")
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        ((x, child),) = node.children
        scaled = tuple(lenience * w for w in node.q)
        if not choose.flip(min(1, node.p[x] / scaled[x]), at=child):
            return (*out, choose(excess(node.p, scaled)))
        out, node = (*out, x), child
    return (*out, choose(node.p))
