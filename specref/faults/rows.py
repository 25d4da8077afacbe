"""A row of another position is used: invisible wherever the rows of all positions are equal."""

from specref.choice import Choose
from specref.draft import Node
from specref.faults.frame import chance, residual, verify_chain


def residual_from_first_row(root: Node, choose: Choose) -> tuple[int, ...]:
    """Correct every rejection from the residual of the first position of the round."""
    return verify_chain(root, choose, correct=lambda nodes, i, x: residual(nodes[0].p, nodes[0].q))


def ratio_with_previous_q(root: Node, choose: Choose) -> tuple[int, ...]:
    """Divide by the q of the position before; the first position uses its own, residuals too."""
    return verify_chain(
        root,
        choose,
        accept=lambda nodes, i, x: chance(nodes[i].p, nodes[max(i - 1, 0)].q, x),
    )


def residual_with_previous_q(root: Node, choose: Choose) -> tuple[int, ...]:
    """Subtract the q of the position before; the first position uses its own, ratios too."""
    return verify_chain(
        root,
        choose,
        correct=lambda nodes, i, x: residual(nodes[i].p, nodes[max(i - 1, 0)].q),
    )


def target_rows_shifted(root: Node, choose: Choose) -> tuple[int, ...]:
    """Judge draft i by target row i + 1, in ratio and residual; the last row is the bonus again."""
    return verify_chain(
        root,
        choose,
        accept=lambda nodes, i, x: chance(nodes[i + 1].p, nodes[i].q, x),
        correct=lambda nodes, i, x: residual(nodes[i + 1].p, nodes[i].q),
    )
