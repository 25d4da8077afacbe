"""Broken forms of rules that give up the target's law: they are held to the law that is left."""

from fractions import Fraction

from specref.choice import Choose
from specref.dist import Number, top
from specref.draft import Node
from specref.faults.fault import Fault
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


FAULTS = (
    Fault(
        "typical_token_from_first_row", "typical", "lossy",
        "The round closes with the argmax of its first row, wherever it ends.",
        "It closes with the argmax of the row behind the last kept token.",
        verify=typical_token_from_first_row,
        links=(
            "vllm-project/vllm#5131", "vllm-project/vllm#8320", "vllm-project/vllm#8562",
        ),
    ),
    Fault(
        "typical_bar_undefined", "typical", "lossy",
        "The entropy of a row with a zero is 0 log 0, no number, and nothing is above the bar.",
        "A token of probability 0 adds nothing to the entropy.",
        verify=typical_bar_undefined,
    ),
    Fault(
        "typical_parameters_swapped", "typical", "lossy",
        "The bar is min(delta, epsilon exp(-H)).",
        "The bar is min(epsilon, delta exp(-H)).",
        verify=typical_parameters_swapped,
    ),
    Fault(
        "lenience_inverted", "lenient", "lossy",
        "A draft is accepted with min(1, l p(x)/q(x)).",
        "A draft is accepted with min(1, p(x)/(l q(x))).",
        verify=lenience_inverted,
    ),
)  # fmt: skip
"""The faults of this family."""
