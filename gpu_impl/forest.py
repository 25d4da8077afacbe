"""A batch of drafts as a ragged forest: chains and trees of any size, one after the other."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gpu_impl.errors import need

INTEGERS = (torch.int32, torch.int64)


@dataclass(frozen=True)
class Forest:
    """Drafts of B requests, R nodes in all. Node 0 of each request is its root.

    Attributes:
        tokens: int32 or int64 [R], token of each node; a root's is not looked at.
        begin: int32 or int64 [B + 1], where each request begins; 0 first, R last.
        parents: int32 or int64 [R], index of each node's parent in its request, -1 for the root;
            parents stand before children, siblings in the order drawn. None for chains.
        max_depth: no node lies deeper.
        max_width: no node has more children.
    """

    tokens: Any
    begin: Any
    parents: Any
    max_depth: int
    max_width: int

    @property
    def requests(self) -> int:
        """B."""
        return int(self.begin.shape[0]) - 1

    @property
    def nodes(self) -> int:
        """R."""
        return int(self.tokens.shape[0])


def forest(
    tokens: Any, begin: Any, parents: Any = None, max_depth: int | None = None,
    max_width: int | None = None,
) -> Forest:  # fmt: skip
    """Check a batch of drafts as far as the host can see it.

    On a CPU everything is looked at. On a device the values are not, to spare a synchronisation:
    what is wrong there becomes a status bit. The two maxima, if they are not given, are computed
    from the values on a CPU and from R on a device.

    Raises:
        ValueError: shapes, types, boundaries or parents that make no forest, or maxima that the
            drafts exceed.
    """
    _integers("tokens", tokens, tokens)
    _integers("cu_nodes", begin, tokens)
    nodes, requests = int(tokens.shape[0]), int(begin.shape[0]) - 1
    need(requests >= 0, "cu_nodes is empty; pass B + 1 boundaries, of which the first is 0")
    if parents is not None:
        _integers("parents", parents, tokens)
        need(len(parents) == nodes, f"parents has {len(parents)} entries, tokens {nodes}")
    need(nodes >= requests, f"tokens has {nodes} nodes for {requests} requests; each has a root")
    for name, given in (("max_depth", max_depth), ("max_width", max_width)):
        need(given is None or given >= 0, f"{name} = {given} is negative; leave it out")
    depth = width = max(nodes - requests, 0)
    if tokens.device.type == "cpu":
        above = None if parents is None else parents.numpy()
        depth, width = _look(nodes, begin.numpy(), above)
        most = depth if max_depth is None else max_depth
        need(depth <= most, f"max_depth = {max_depth}, but a node lies {depth} deep")
        most = width if max_width is None else max_width
        need(width <= most, f"max_width = {max_width}, but a node has {width} children")
    if parents is None:
        width = min(width, 1)
    return Forest(
        tokens, begin, parents, depth if max_depth is None else max_depth,
        width if max_width is None else max_width,
    )  # fmt: skip


def owners(begin: Any, nodes: int) -> Any:
    """Return which request each node is of: int64 [R]."""
    # Small, and on every call: one running sum, where searching would wake up threads.
    marks = torch.zeros(nodes + 1, dtype=torch.int64, device=begin.device)
    marks = marks.index_add(0, begin[1:-1].clamp(0, nodes), torch.ones_like(begin[1:-1]))
    return marks.cumsum(0)[:nodes]


def _integers(name: str, given: Any, tokens: Any) -> None:
    """Refuse what is no vector of integers beside the tokens."""
    # The messages take longer than the checks, and every call is checked.
    if (
        isinstance(given, torch.Tensor)
        and given.dtype in INTEGERS
        and given.dim() == 1
        and given.device == tokens.device
    ):
        return
    need(isinstance(given, torch.Tensor), f"{name} is a {type(given).__name__}; pass a tensor")
    need(given.dtype in INTEGERS, f"{name} is {given.dtype}; pass int32 or int64")
    need(given.dim() == 1, f"{name} has shape {list(given.shape)}; pass one dimension")
    need(
        given.device == tokens.device,
        f"{name} is on {given.device}, tokens on {tokens.device}; pass them on one device",
    )


def _look(nodes: int, begin: Any, parents: Any) -> tuple[int, int]:
    """Return the depth and the width of a forest, of which the values are at hand in NumPy."""
    need(begin[0] == 0, f"cu_nodes[0] = {begin[0]}; the first boundary is 0")
    need(begin[-1] == nodes, f"cu_nodes ends at {begin[-1]}, but there are {nodes} nodes")
    need(
        bool((begin[1:] > begin[:-1]).all()),
        "cu_nodes has a request without nodes; each has a root, drafts or none",
    )
    if len(begin) == 1:
        return 0, 0
    sizes = begin[1:] - begin[:-1]
    if parents is None:
        depth = int(sizes.max()) - 1
        return depth, min(depth, 1)
    first = np.repeat(begin[:-1].astype(np.int64), sizes)
    at = np.arange(nodes) - first
    roots = at == 0
    need(bool((parents[roots] == -1).all()), "parents of roots are -1")
    wrong = ~roots & ((parents < 0) | (parents >= at))
    need(
        not wrong.any(),
        f"parents[{wrong.argmax()}] is none: 0 <= parent < node inside each request",
    )
    up = parents + first
    above = up[~roots]
    width = int(np.bincount(above).max()) if len(above) else 0
    depth = 0
    while len(above):
        depth += 1
        above = up[above[~roots[above]]]
    return depth, width
