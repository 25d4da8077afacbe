"""Recursive rejection, siblings drawn without replacement: each refusal moves p and q."""

from specref.choice import Choose
from specref.dist import excess, without
from specref.draft import Node


def rrs_without(root: Node, choose: Choose) -> tuple[int, ...]:
    """Try distinct siblings in the order drawn (Jeon et al. 2024, RSD; Chen et al. 2024, Sequoia).

    The argument is that of `rrs_with`; only the law of the next sibling differs. Given that x was
    drawn before it, the second sibling comes from q with x removed and renormalised, so the ratio
    and the residual must use that law. With all of q's tokens drafted, the last one is certain
    under its conditional law, and whatever the target still lacks is drawn from the residual.

    Siblings are visited in the order drawn. Sorted by score the conditional laws no longer apply.

    Args:
        root: a tree whose siblings were drawn from q without replacement.
        choose: the reading; the coin of a drafted node is addressed by it.

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> from specref.draft import tree
    >>> p, q = (F(1, 2), F(3, 10), F(1, 5)), (F(1, 5), F(1, 5), F(3, 5))
    >>> root = tree([p] * 3, [q] * 3, [2, 1], [0, 0])
    >>> law(lambda c: rrs_without(root, c)[:1])
    {(2,): Fraction(1, 3), (1,): Fraction(1, 3), (0,): Fraction(1, 3)}
    """
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        p, q = node.p, node.q
        for x, child in node.children:
            if choose.flip(min(1, p[x] / q[x]), at=child):
                out, node = (*out, x), child
                break
            p, q = excess(p, q), without(q, x)
        else:
            return (*out, choose(p))
    return (*out, choose(node.p))
