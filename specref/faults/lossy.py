"""Broken forms of rules that give up the target's law: they are held to the law that is left."""

from fractions import Fraction

from specref.choice import Choose
from specref.dist import Number, top
from specref.draft import Node
from specref.faults.frame import chance, verify_chain
from specref.rules.typical import typical

LENIENCE = Fraction(1, 2)
"""What `lenient` multiplies q with."""

EPSILON, DELTA = Fraction(9, 100), Fraction(3, 10)
"""The bar of `typical`: its upper limit, and the factor of the entropy."""


def typical_token_from_first_row(root: Node, choose: Choose) -> tuple[int, ...]:
    """Close every round with the argmax of the first row, also behind tokens that were kept."""
    return (*typical(root, choose)[:-1], *top(root.p, 1))


def typical_bar_undefined(root: Node, choose: Choose) -> tuple[int, ...]:
    """Compute the entropy with 0 log 0, which is not a number, so no token is above the bar.

    Rows without zeros, and softmax rows of finite logits, are right.
    """

    def cut(node: Node) -> Node:
        below = () if min(node.p) == 0 else tuple((x, cut(child)) for x, child in node.children)
        return Node(node.p, node.q, below, node.index)

    return typical(cut(root), choose)


def typical_parameters_swapped(root: Node, choose: Choose) -> tuple[int, ...]:
    """Take the limit of the bar for the factor of the entropy, and the other way round."""
    return typical(root, choose, epsilon=DELTA, delta=EPSILON)


def lenience_inverted(root: Node, choose: Choose) -> tuple[int, ...]:
    """Accept with min(1, l p/q): stricter than `token`, where it was to be more lenient."""

    def stricter(node: Node, x: int) -> Number:
        return chance(tuple(LENIENCE * w for w in node.p), node.q, x)

    return verify_chain(root, choose, accept=lambda nodes, i, x: stricter(nodes[i], x))
