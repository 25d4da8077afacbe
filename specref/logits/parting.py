"""Inputs on which presets part: the smallest for each pair, and one request that all read apart."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement, product
from typing import Any

from specref.dist import rational
from specref.logits import Parameters, filtered, same_law, weights
from specref.logits.presets import PRESETS

GRID: dict[str, tuple[Any, ...]] = {
    "temperature": (1, rational(1, 2)),
    "top_k": (None, 1, 2, 3),
    "top_p": (1, rational(1, 2), rational(3, 4), rational(2, 3)),
    "min_p": (0, rational(1, 2)),
}
"""Values that are tried; weights and these make laws rational, so nothing is enclosed."""


@dataclass(frozen=True)
class Input:
    """Weights, most likely token first, and what is asked.

    >>> print(Input((2, 1, 1), Parameters(top_k=2)))
    weights 2,1,1 top_k 2
    """

    weights: tuple[int, ...]
    parameters: Parameters

    def __str__(self) -> str:
        asked = (f"{name} {getattr(self.parameters, name)}" for name in self.parameters.asked())
        return f"weights {','.join(map(str, self.weights))} {' '.join(asked)}"

    def parts(self, a: str, b: str) -> bool:
        """Whether two presets read it as different laws."""
        rows = (filtered(weights(self.weights), self.parameters, name) for name in (a, b))
        return not same_law(*rows)


def inputs(vocab: int, heaviest: int) -> Iterator[Input]:
    """Yield inputs: fewer tokens first, then fewer parameters, then a smaller sum of weights."""
    for size in range(1, vocab + 1):
        rows = combinations_with_replacement(range(heaviest, 0, -1), size)
        asks = [
            Parameters(**dict(zip(GRID, values, strict=True))) for values in product(*GRID.values())
        ]
        pairs = product(sorted(rows, key=lambda row: (sum(row), row)), asks)
        yield from sorted(
            (Input(row, ask) for row, ask in pairs),
            key=lambda one: (len(one.parameters.asked()), sum(one.weights)),
        )


def smallest(vocab: int = 4, heaviest: int = 4) -> dict[tuple[str, str], Input]:
    """Return, for every pair of presets, the first of `inputs` that separates them.

    A pair is only asked for parameters that both have.
    """
    open_ = set(combinations(PRESETS, 2))
    found: dict[tuple[str, str], Input] = {}
    for one in inputs(vocab, heaviest):
        asked = set(one.parameters.asked())
        k = one.parameters.top_k
        if not asked or (k is not None and k >= len(one.weights)):
            continue
        able = [name for name, preset in PRESETS.items() if asked <= set(preset.names)]
        rows = {name: filtered(weights(one.weights), one.parameters, name) for name in able}
        for pair in [pair for pair in open_ if pair[0] in rows and pair[1] in rows]:
            if not same_law(rows[pair[0]], rows[pair[1]]):
                found[pair] = one
                open_.discard(pair)
        if not open_:
            break
    return {pair: found[pair] for pair in combinations(PRESETS, 2) if pair in found}


SHIPPED: tuple[int, ...] = (2,) * 44 + (1,) * 15 + (0,) * 23
"""Logits of 82 tokens that "T=0.7, top_k=50, top_p=0.9" turns into eight laws.

It is the shortest of three blocks of logits 2, 1 and 0, found by trying all lengths: the 50th token
has to stand within a block, for ties, and the mass before that block has to be at least 0.9 of what
top_k leaves but less than 0.9 of the whole, for the joint reading. `vllm_sort` agrees with
`transformers` here: they part where min_p acts.

>>> ask = Parameters(temperature="0.7", top_k=50, top_p="0.9")
>>> for name in PRESETS:
...     print(name, len(filtered(SHIPPED, ask, name).scores))
transformers 43
vllm 41
vllm_sort 43
flashinfer 44
flashinfer_joint 59
llama_cpp 42
mlx 50
trt_llm 43
eagle 45
"""
