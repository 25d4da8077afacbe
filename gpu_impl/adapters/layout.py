"""What the layouts of others have in common, and the way from each into a forest."""

from typing import Any

import torch

from gpu_impl.errors import need
from gpu_impl.forest import owners
from gpu_impl.verified import Verified


def even(requests: int, nodes: int, device: Any) -> Any:
    """Return the boundaries of requests that all have as many nodes: int32 [B + 1].

    >>> even(2, 3, "cpu").tolist()
    [0, 3, 6]
    """
    return torch.arange(requests + 1, dtype=torch.int32, device=device) * nodes


def behind_roots(values: Any, root: Any) -> Any:
    """Return what drafted tokens have, with that of a root before each request's: [B * (K + 1)].

    Args:
        values: [B, K].
        root: a number.

    >>> behind_roots(torch.tensor([[5, 6], [7, 8]]), -1).tolist()
    [-1, 5, 6, -1, 7, 8]
    """
    roots = torch.full((len(values), 1), root, dtype=values.dtype, device=values.device)
    return torch.cat([roots, values], 1).flatten()


def behind_ragged_roots(values: Any, ends: Any, root: Any) -> Any:
    """Return the same for requests with more and fewer drafts: [N + B].

    Args:
        values: [N], one request's after the other's.
        ends: int [B], where each request's values end.
        root: a number.

    >>> behind_ragged_roots(torch.tensor([5, 6, 7]), torch.tensor([2, 2, 3]), -1).tolist()
    [-1, 5, 6, -1, -1, 7]
    """
    at = torch.arange(len(values), device=values.device)
    request = owners(torch.nn.functional.pad(ends.long(), (1, 0)), len(values))
    out = torch.full((len(values) + len(ends),), root, dtype=values.dtype, device=values.device)
    # Ends that are wrong must not lead outside; what comes of them is flagged by the backend.
    return out.scatter(0, (at + request + 1).clamp(max=max(len(out) - 1, 0)), values)


def as_logits(probs: Any, logits: Any, name: str) -> Any:
    """Return logits, of which either they themselves or their probabilities are given.

    Raises:
        ValueError: neither, or both.
    """
    need((probs is None) != (logits is None), f"pass either {name}_probs or {name}_logits")
    return probs.log() if logits is None else logits


def tell(status: Any, verified: Verified) -> None:
    """Write what was wrong into the caller's tensor, if there is one."""
    if status is not None:
        status.copy_(verified.status)
