"""Target-only verification: one draw from the target per node, looked up among the siblings."""

from specref.choice import Choose
from specref.dist import normalise
from specref.draft import Node


def target_only(root: Node, choose: Choose) -> tuple[int, ...]:
    """Take the sibling on which one coin falls, else draw among the rest (SGLang; EAGLE-2 code).

    The coin at a node is one draw from p, seen only as far as needed: the siblings lie side by side
    from 0 on, each as wide as its p(x). If the coin falls on one of them it is accepted; otherwise
    the target's draw is known to be none of them, and is drawn from p with all of them zeroed. No
    draft law is used, so it is lossless for siblings of any origin, as long as they are distinct:
    here a repeated sibling counts once, as its first (counted twice, a coin would take its mass
    twice).

    In law it equals `match` on the tree, and trying siblings in turn with chance p(x), zeroing x
    and renormalising after each refusal.

    Args:
        root: a tree with siblings of any origin.
        choose: the reading; the coin of a node is addressed by its first child, the draw among the
            rest is the terminal draw.

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> from specref.draft import tree
    >>> p = (F(1, 2), F(3, 10), F(1, 5))
    >>> root = tree([p] * 3, [p] * 3, [2, 1], [0, 0])
    >>> law(lambda c: target_only(root, c)[:1])
    {(2,): Fraction(1, 5), (0,): Fraction(1, 2), (1,): Fraction(3, 10)}
    """
    node = root
    out: tuple[int, ...] = ()
    while node.children:
        siblings: dict[int, Node] = {}
        for x, child in node.children:
            siblings.setdefault(x, child)
        rest = [w * 0 if x in siblings else w for x, w in enumerate(node.p)]
        fell = choose((*(node.p[x] for x in siblings), sum(rest)), at=node.children[0][1])
        if fell == len(siblings):
            return (*out, choose(normalise(rest)))
        x = list(siblings)[fell]
        out, node = (*out, x), siblings[x]
    return (*out, choose(node.p))
