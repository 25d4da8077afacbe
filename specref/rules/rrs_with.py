"""Recursive rejection, siblings drawn with replacement: each refusal turns p into its residual."""

from specref.choice import Choose
from specref.dist import excess
from specref.draft import Node


def rrs_with(root: Node, choose: Choose) -> tuple[int, ...]:
    """Try independent siblings in the order drawn (Miao et al. 2024, SpecInfer, Alg. 2).

    Testing the first sibling is `token` on one position: it emits min(p, q) and leaves the target
    wanting (p - q)+. That residual, normalised, is the target of the *next* sibling, which was
    drawn from q independently of the first; and so on. If all are refused, the last residual is
    drawn from. Below an accepted sibling the same begins anew with the target untouched.

    Equal siblings must be kept: the second of two equal ones is a draw of its own. It is always
    refused (the residual has no mass where p was cut to q), yet its refusal updates the residual;
    merging them leaves TV 1/25 on p = (1/2, 3/10, 1/5), q = (1/5, 1/5, 3/5).

    Args:
        root: a tree whose siblings were drawn from q independently.
        choose: the reading; the coin of a drafted node is addressed by it.

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> from specref.draft import tree
    >>> p, q = (F(1, 2), F(3, 10), F(1, 5)), (F(1, 5), F(1, 5), F(3, 5))
    >>> root = tree([p] * 3, [q] * 3, [2, 1], [0, 0])
    >>> law(lambda c: rrs_with(root, c)[:1])
    {(2,): Fraction(1, 3), (1,): Fraction(2, 3)}
    """
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        p = node.p
        for x, child in node.children:
            if choose.flip(min(1, p[x] / node.q[x]), at=child):
                out, node = (*out, x), child
                break
            p = excess(p, node.q)
        else:
            return (*out, choose(p))
    return (*out, choose(node.p))
