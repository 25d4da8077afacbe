"""Traversal verification of siblings that were drawn with replacement."""

from specref.choice import Choose
from specref.draft import Node
from specref.rules.traversal import traversal


def traversal_with(root: Node, choose: Choose) -> tuple[int, ...]:
    """Try whole branches before their beginnings, siblings independent (Weng et al. 2025).

    This is `traversal`, where the law of the next sibling is q again, whatever was drawn before. A
    sibling equal to an earlier one is a draw of its own, with a branch of its own, as in
    `rrs_with`. It is never accepted: the target lost its token at the first refusal. But its
    refusal counts.

    Args:
        root: a tree whose siblings were drawn from q independently.
        choose: the reading; as for `traversal`.

    >>> from fractions import Fraction as F
    >>> from specref.choice import law
    >>> from specref.draft import tree
    >>> p, q = (F(1, 2), F(3, 10), F(1, 5)), (F(1, 5), F(1, 5), F(3, 5))
    >>> root = tree([p] * 4, [q] * 4, [2, 1, 0], [0, 0, 1])
    >>> for accepted, mass in sorted(law(lambda c: traversal_with(root, c)[:-1]).items()):
    ...     print(accepted, mass)
    (1,) 1/6
    (2, 0) 5/6
    """
    return traversal(root, choose, following=lambda s, x: s)
