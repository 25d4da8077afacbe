"""What the loop hands over to the rule, or takes from it, is not what belongs to the round."""

from specref.draft import Node, chain, depth
from specref.faults.fault import Fault
from specref.faults.frame import unroll
from specref.faults.rounds import (
    Round,
    drafted,
    exchanging,
    moved,
    past_end,
    until_end,
    widths,
    with_rows,
)
from specref.model import Model
from specref.stops import Text


@exchanging("emitted")
def counter_carried_over(now: Round, root: Node, out: Text) -> Text:
    """Never reset the number of accepted drafts: a round keeps what earlier rounds accepted too."""
    count = len(out) - 1 + sum(len(before) - 1 for _, before in now.past)
    return (*drafted(root)[:count], out[-1])


@exchanging("emitted", until_end=past_end)
def first_token_dropped(now: Round, root: Node, out: Text) -> Text:
    """Leave out the first token of a round that emits more than one."""
    return out[1:] if len(out) > 1 else out


@exchanging("target")
def undrafted_token_from_draft_model(now: Round) -> Model:
    """Draw the token of a round that has no room for drafts from the draft model."""
    return now.p if depth(widths(now)) else now.q


@exchanging("submitted")
def repeated_draft_dropped(now: Round, root: Node) -> Node:
    """Cut a drawn chain before its first token that repeats the token before it."""
    nodes, tokens = unroll(root)
    before = [*(now.here[-1:] or (None,)), *tokens]
    repeats = [x == y for x, y in zip(before, tokens, strict=False)]
    kept = [*repeats, True].index(True)
    rows = nodes[: kept + 1]
    return chain([node.p for node in rows], [node.q for node in rows], tokens[:kept])


@exchanging("submitted")
def draft_rows_of_first_round(now: Round, root: Node) -> Node:
    """Verify with the q rows that stand in this place of the batch: a request's at its beginning.

    They are of the same drafted tokens, behind the text of a request that has emitted nothing.
    """
    q = until_end(now, moved(now.q, now.here, now.context))
    return with_rows(root, now.here, q=lambda node, text: q(text))


def unseen(now: Round) -> Model:
    """Return the draft model that runs before the last token of the round before is in its input.

    Where its rows are declared as they are, this is lawful, and costs acceptance alone.
    """
    return moved(now.q, now.here, now.here[:-1] if now.past else now.here)


@exchanging("submitted", draft=unseen)
def drafted_without_last_token(now: Round, root: Node) -> Node:
    """Draft before the last token is in the input, and declare q as if it had been."""
    q = until_end(now, now.q)
    return with_rows(root, now.here, q=lambda node, text: q(text))


FAULTS = (
    Fault(
        "counter_carried_over", "token", "loops",
        "A round keeps as many drafts as it and all rounds before it accepted.",
        "A round keeps the drafts that it accepted.",
        loop=counter_carried_over,
    ),
    Fault(
        "first_token_dropped", "token", "loops",
        "The first token of a round that emits several is left out of the text.",
        "All accepted tokens and the last draw are emitted.",
        loop=first_token_dropped,
    ),
    Fault(
        "undrafted_token_from_draft_model", "token", "loops",
        "A round that has no room for drafts draws from q.",
        "A round without drafts is one draw from p.",
        loop=undrafted_token_from_draft_model,
    ),
    Fault(
        "repeated_draft_dropped", "token", "loops",
        "A drawn chain is cut before its first token that repeats the one before it.",
        "The number of drafts is fixed before they are drawn, or a drawn token stays.",
        loop=repeated_draft_dropped,
    ),
    Fault(
        "draft_rows_of_first_round", "token", "loops",
        "Ratio and residual use the q rows of a request that is at its beginning.",
        "The q rows move with the request that they were computed for.",
        loop=draft_rows_of_first_round,
        links=("vllm-project/vllm#40269",),
    ),
    Fault(
        "drafted_without_last_token", "token", "loops",
        "Drafts are drawn before the last token is in the input, and q is declared as if it were.",
        "The q that is declared is the q that was drawn from.",
        loop=drafted_without_last_token,
        links=("vllm-project/vllm#9730",),
    ),
)  # fmt: skip
"""The faults of this family."""
