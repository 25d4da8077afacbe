"""What a call returns; everything lies on the device of the logits."""

from typing import Any, NamedTuple


class Trace(NamedTuple):
    """Every decision of a round and the draw that it used.

    Attributes:
        tests: uint8 [R], a `Decision` for each node.
        coins: float64 [R], the draw that each node's address holds, whether it was used or not.
        terminal: float64 [B], the terminal draw.
    """

    tests: Any
    coins: Any
    terminal: Any


class Verified(NamedTuple):
    """One round of each request.

    Attributes:
        tokens: int32 [B, max_depth + 1], emitted tokens, -1 behind them.
        counts: int32 [B], how many; at least 1.
        nodes: int32 [B, max_depth], accepted nodes as indices in their request, -1 behind them: the
            cache rows that stay.
        terminal: int32 [B], a `Terminal`: where the last token comes from.
        status: int32 [B], a `Status`; 0 if nothing was wrong.
        logprobs: float32 [B, max_depth + 1], log target probability of each emitted token, or None.
        trace: the decisions, or None.
    """

    tokens: Any
    counts: Any
    nodes: Any
    terminal: Any
    status: Any
    logprobs: Any
    trace: Trace | None
