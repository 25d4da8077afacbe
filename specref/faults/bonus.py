"""The token after a fully accepted draft is drawn from the wrong law.

The first gamma tokens are right, so tests that look at drafted positions, or mock the bonus, pass.
"""

from specref.choice import Choose
from specref.dist import keep, top
from specref.draft import Node
from specref.faults.fault import Fault
from specref.faults.frame import residual, verify_chain


def bonus_from_draft(root: Node, choose: Choose) -> tuple[int, ...]:
    """Draw the bonus from the draft law behind the last draft."""
    return verify_chain(root, choose, bonus=lambda nodes: nodes[-1].q)


def bonus_from_last_draft_row(root: Node, choose: Choose) -> tuple[int, ...]:
    """Draw the bonus from the last draft law that was used, which is one row early too."""
    return verify_chain(root, choose, bonus=lambda nodes: nodes[-2:][0].q)


def bonus_is_likeliest(root: Node, choose: Choose) -> tuple[int, ...]:
    """Take the argmax of p as the bonus, as at temperature 0."""
    return verify_chain(root, choose, bonus=lambda nodes: keep(nodes[-1].p, top(nodes[-1].p, 1)))


def bonus_from_residual(root: Node, choose: Choose) -> tuple[int, ...]:
    """Subtract the draft law from the bonus row too, though nothing was refused there."""
    return verify_chain(root, choose, bonus=lambda nodes: residual(nodes[-1].p, nodes[-1].q))


def bonus_from_last_residual(root: Node, choose: Choose) -> tuple[int, ...]:
    """Draw the bonus from the residual of the last draft, as if that draft had been refused."""
    return verify_chain(
        root, choose, bonus=lambda nodes: residual(nodes[-2:][0].p, nodes[-2:][0].q)
    )


def bonus_from_row_before(root: Node, choose: Choose) -> tuple[int, ...]:
    """Draw the bonus from the target row of the last draft: rows that are all equal hide it."""
    return verify_chain(root, choose, bonus=lambda nodes: nodes[-2:][0].p)


FAULTS = (
    Fault(
        "bonus_from_draft", "token", "bonus",
        "The bonus is drawn from q, at the position of the bonus.",
        "The bonus is drawn from p.",
        verify=bonus_from_draft,
    ),
    Fault(
        "bonus_from_last_draft_row", "token", "bonus",
        "The bonus is drawn from the q of the last draft.",
        "The bonus is drawn from p at the position behind the last draft.",
        verify=bonus_from_last_draft_row,
    ),
    Fault(
        "bonus_is_likeliest", "token", "bonus",
        "The bonus is the argmax of p.",
        "The bonus is drawn from p.",
        verify=bonus_is_likeliest,
    ),
    Fault(
        "bonus_from_residual", "token", "bonus",
        "The bonus is drawn from norm((p - q)+), at the position of the bonus.",
        "Nothing was refused there, so the bonus is drawn from p.",
        verify=bonus_from_residual,
    ),
    Fault(
        "bonus_from_last_residual", "token", "bonus",
        "The bonus is drawn from norm((p - q)+) of the last draft.",
        "The last draft was accepted, so the bonus is drawn from the p behind it.",
        verify=bonus_from_last_residual,
    ),
    Fault(
        "bonus_from_row_before", "token", "bonus",
        "The bonus is drawn from the target row of the last draft.",
        "The bonus is drawn from the target row behind the last draft.",
        verify=bonus_from_row_before,
    ),
)  # fmt: skip
"""The faults of this family."""
