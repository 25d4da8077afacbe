"""Draws that are not independent: of rounds, of positions, of proposals and coins."""

from typing import Any

from specref.choice import Choose
from specref.faults.fault import Fault
from specref.faults.rounds import Round, Shared, draws, exchanging, kind


@exchanging("draws")
def draws_repeated(now: Round) -> Choose:
    """Start the generator anew for every round: all rounds meet the same draws."""
    return Shared(draws(now), now.known, lambda at, refused: (kind(at), index(at)))


@exchanging("draws")
def coins_repeated(now: Round) -> Choose:
    """Use the coins of the first round in every round; proposals and corrections are fresh."""

    def name(at: Any, refused: int | None) -> Any:
        return (kind(at), index(at), 0 if kind(at) == "coin" else len(now.here))

    return Shared(draws(now), now.known, name)


@exchanging("draws")
def draws_by_position(now: Round) -> Choose:
    """Key proposals and coins by the position of their token alone.

    Positions behind a refusal are drafted again by the next round, with the draws that were looked
    at already where a rule looks at drafts behind the first refusal.
    """
    start = len(now.here)

    def name(at: Any, refused: int | None) -> Any:
        return (kind(at), start if at is None else start + at.index)

    return Shared(draws(now), now.known, name)


@exchanging("draws")
def coins_as_proposals(now: Round) -> Choose:
    """Seed drafter and verifier alike: the coin of a token is the uniform that proposed it."""

    def name(at: Any, refused: int | None) -> Any:
        return (len(now.here), index(at))

    return Shared(draws(now), now.known, name)


@exchanging("draws")
def correction_as_proposal(now: Round) -> Choose:
    """Draw the correction by the uniform that proposed the refused token."""

    def name(at: Any, refused: int | None) -> Any:
        if at is None and refused is not None:
            return (len(now.here), "proposal", refused)
        return (len(now.here), kind(at), index(at))

    return Shared(draws(now), now.known, name)


def index(at: Any) -> int:
    """Return the number of the node that an address names, 0 for the terminal draw."""
    return 0 if at is None else at.index


FAULTS = (
    Fault(
        "draws_repeated", "token", "streams",
        "Every round meets the same draws.",
        "The draws of a round are independent of those of other rounds.",
        loop=draws_repeated,
    ),
    Fault(
        "coins_repeated", "token", "streams",
        "Every round meets the coins of the first; proposals and corrections are fresh.",
        "Each round has coins of its own.",
        loop=coins_repeated,
    ),
    Fault(
        "draws_by_position", "block", "streams",
        "Proposals and coins are keyed by the position of the token, so drafts behind a refusal "
        "are drawn and judged again with draws that were looked at.",
        "Draws are keyed by the start of the round too.",
        loop=draws_by_position,
    ),
    Fault(
        "coins_as_proposals", "token", "streams",
        "The coin of a draft is the uniform that proposed it.",
        "Drafter and verifier have streams of their own.",
        loop=coins_as_proposals,
    ),
    Fault(
        "correction_as_proposal", "token", "streams",
        "The correction is drawn by the uniform that proposed the refused token.",
        "The correction has a draw of its own.",
        loop=correction_as_proposal,
        links=("vllm-project/vllm#47386", "vllm-project/vllm#54282"),
    ),
)  # fmt: skip
"""The faults of this family."""
