"""What kernels are given, in bundles; an entry of None compiles to nothing."""

from typing import Any, NamedTuple


class Rows(NamedTuple):
    """Rows of the target, or of the draft.

    Attributes:
        x: [rows, width], of which the last stride is 1.
        stride: from row to row.
        width: V, or V' of the draft.
        bias: float32 [B, width].
        allowed: int32 [count, words], bits of allowed tokens.
        words: see `allowed`.
        place: int32 [V], the column of each target token, or -1; None if it is its own.
    """

    x: Any
    stride: Any
    width: Any
    bias: Any = None
    allowed: Any = None
    words: Any = None
    place: Any = None


class Asked(NamedTuple):
    """Sampling parameters: each a tensor [B], or a number as three float32 that add up to it."""

    temperature: Any
    top_k: Any
    top_p: Any
    min_p: Any


class Parts(NamedTuple):
    """What `statistics` found: of each node and block of its row, [R, blocks].

    Attributes:
        top: float32, the largest entry that is no NaN and not +inf.
        total: float64, sum of exp((x - top) * scale).
        best: int32, the first token at top, -1 if top is -inf.
        wrong: int32, whether an entry is none.
    """

    top: Any
    total: Any
    best: Any
    wrong: Any


class Forest(NamedTuple):
    """Drafts, as `gpu_impl.forest.Forest` has them."""

    tokens: Any
    begin: Any
    parents: Any
    nodes: Any
    requests: Any
    deepest: Any


class Drafted(NamedTuple):
    """Where the draft row of a node is.

    Attributes:
        row: int64 [R]; None if it is the node, less `shift` for each request before and this one.
        shift: 0 or 1.
        count: how many rows there are.
    """

    row: Any
    shift: Any
    count: Any


class Draws(NamedTuple):
    """Seeds, or draws: the other two are None."""

    seed: Any
    start: Any
    coins: Any
    terminal: Any


class Out(NamedTuple):
    """What is returned, see `gpu_impl.Verified`; what is not wanted is None."""

    tokens: Any
    counts: Any
    nodes: Any
    terminal: Any
    status: Any
    logprobs: Any
    tests: Any
    coins: Any
    last: Any
