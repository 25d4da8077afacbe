"""What a call hands over, as sides; and who goes over their rows."""

from types import ModuleType
from typing import Any

import torch

from gpu_impl.parameters import Parameters
from gpu_impl.torch_backend import native
from gpu_impl.torch_backend import rows as plain
from gpu_impl.torch_backend.rows import Side


def side_of(
    x: Any, parameters: Parameters, requests: int, *, greedy: bool = False, probs: bool = False
) -> Side:
    """Return rows with the parameters of their requests.

    Args:
        x: [rows, V].
        parameters: of `requests` requests.
        requests: B.
        greedy: whether every request counts as one of temperature 0.
        probs: whether the rows are probabilities.
    """

    def column(name: str) -> Any:
        return parameters.column(name, requests, x.device)

    temperature = column("temperature")
    return Side(
        x, probs, parameters.reading,
        torch.zeros_like(temperature) if greedy else temperature,
        column("top_k"), column("top_p"), column("min_p"),
        parameters.filters and not greedy and not probs,
        parameters.bias, parameters.allowed,
    )  # fmt: skip


def implementation(device: Any) -> ModuleType:
    """Return the module that goes over rows: native code for a CPU, if it can be built."""
    return native if device.type == "cpu" and native.why_not() is None else plain
