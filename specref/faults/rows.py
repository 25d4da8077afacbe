"""A row of another position is used: invisible wherever the rows of all positions are equal."""

from specref.choice import Choose
from specref.draft import Node
from specref.faults.fault import Fault
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


FAULTS = (
    Fault(
        "residual_from_first_row", "token", "rows",
        "Every correction is drawn from the residual of the first position of the round.",
        "The correction is drawn from the residual of the refused position.",
        verify=residual_from_first_row,
    ),
    Fault(
        "ratio_with_previous_q", "token", "rows",
        "The ratio divides by q of the position before; only the first position has its own.",
        "The ratio divides by q of the draft's own position.",
        verify=ratio_with_previous_q,
    ),
    Fault(
        "residual_with_previous_q", "token", "rows",
        "The residual subtracts q of the position before; only the first position has its own.",
        "The residual subtracts q of the refused position.",
        verify=residual_with_previous_q,
    ),
    Fault(
        "target_rows_shifted", "token", "rows",
        "Draft i is accepted and corrected with target row i + 1; the bonus row is right.",
        "Draft i is judged by target row i.",
        verify=target_rows_shifted,
        links=("mlx-node/mlx-node#11",),
    ),
)  # fmt: skip
"""The faults of this family."""
