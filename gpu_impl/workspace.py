"""Memory that calls share: with a workspace a call allocates nothing, so it can be captured."""

from typing import Any

import torch


class Workspace:
    """Named tensors that are made once and handed out again.

    What a call returns lies in it, and the next call with the same workspace writes over it.
    """

    def __init__(self) -> None:
        self._held: dict[str, Any] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: Any, device: Any) -> Any:
        """Return the tensor of a name; it is made anew if it had another shape, type or device."""
        held = self._held.get(name)
        wanted = (tuple(shape), dtype, torch.device(device))
        if held is None or (tuple(held.shape), held.dtype, held.device) != wanted:
            held = self._held[name] = torch.empty(shape, dtype=dtype, device=device)
        return held


class Fresh(Workspace):
    """A workspace that makes every tensor anew: what calls without one are given."""

    def take(self, name: str, shape: tuple[int, ...], dtype: Any, device: Any) -> Any:
        return torch.empty(shape, dtype=dtype, device=device)
