"""One-hot verification: the token rule for drafts that are certain, q = 1 at the token."""

from specref.choice import Choose
from specref.dist import without
from specref.draft import Node


def one_hot(root: Node, choose: Choose) -> tuple[int, ...]:
    """Verify a chain as if each draft had been certain (Leviathan et al. 2023, Alg. 1, q one-hot).

    Deterministic drafts (n-gram, prompt lookup, argmax of a draft model) have the point mass at x
    as their law, whatever a softmax says. Then min(1, p/q) at x is p(x), and (p - q)+ is p without
    x. The rule stays lossless for *sampled* drafts too: given the draft it never looks at q, so the
    argument holds for each draft separately. It only accepts less often than `token` would.

    Args:
        root: a chain; its tokens must not depend on the coins of this round.
        choose: the reading; the coin of a drafted node is addressed by it.

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> from specref.draft import chain
    >>> p = (F(1, 2), F(3, 10), F(1, 5))
    >>> law(lambda c: one_hot(chain([p, p], [p, p], [1]), c)[:1])
    {(1,): Fraction(3, 10), (0,): Fraction(1, 2), (2,): Fraction(1, 5)}
    """
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        ((x, child),) = node.children
        if not choose.flip(node.p[x], at=child):
            return (*out, choose(without(node.p, x)))
        out, node = (*out, x), child
    return (*out, choose(node.p))
