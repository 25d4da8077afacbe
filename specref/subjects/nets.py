"""Toy models as torch networks, for libraries that ask their models themselves."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from specref.stops import Stops

Rows: TypeAlias = Callable[[tuple[int, ...]], Sequence[float]]
"""From a text, the prompt included, to the logits of its next token."""


def behind(prompt: tuple[int, ...], vocab: int, rows: Rows) -> Rows:
    """Return rows that are 0 inside the prompt, where toy models have none; nobody reads them."""
    return lambda text: rows(text) if len(text) >= len(prompt) else [0.0] * vocab


def predictions(rows: Rows, text: Sequence[int]) -> Any:
    """Return the logits [len(text), V] after each token of a text, in float32."""
    return torch.tensor([list(rows(tuple(text[: at + 1]))) for at in range(len(text))])


DRAFTED = 2
"""Most tokens drafted in a round."""


def decoded(
    step: Callable[[tuple[int, ...], int], Sequence[int]],
    n: int,
    stops: Stops,
    prompt: tuple[int, ...],
) -> Any:
    """Repeat a library's round until a text is finished, n times; int [n, max_tokens], -1 pads.

    Args:
        step: from a text, the prompt included, and a number of tokens to draft, to the tokens that
            a round emits behind the text.
        n: number of texts.
        stops: cuts what a round emits beyond the end, which such a library does not do itself.
        prompt: what stands before all of them.
    """
    assert stops.max_tokens is not None
    out = torch.full((n, stops.max_tokens), -1)
    for row in range(n):
        emitted: tuple[int, ...] = ()
        while not stops.over(emitted):
            drafted = min(DRAFTED, max(1, stops.max_tokens - len(emitted) - 1))
            emitted = stops.cut((*emitted, *step((*prompt, *emitted), drafted)))
        out[row, : len(emitted)] = torch.tensor(emitted, dtype=torch.int64)
    return out
