"""Any rule or fault as a sampler: the program run on the randomness of real ones.

These are the samplers on which the gate shows its power: their law is known exactly, and they draw
the ways that engines do.
"""

import random
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from specref.dist import Number
from specref.draft import DRAFTS, Drafter, flat
from specref.faults import ROUND_FAULTS, Fault
from specref.gate.cases import Case, exact
from specref.gate.errors import gated_rule
from specref.rules import RULES, Verify


class TorchChoices:
    """The reading of `choose` that draws with torch, in float64, from one generator."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, weights: Sequence[Number], at: Any = None) -> int:
        return int(torch.multinomial(_row(weights), 1, generator=self.generator))

    def flip(self, chance: Number, at: Any = None) -> bool:
        u = torch.rand((), dtype=torch.float64, generator=self.generator)
        return bool(u < float(chance))


class ExponentialChoices(TorchChoices):
    """Categories by a race: the one with the least E/p, for exponential noise E, comes first."""

    def __call__(self, weights: Sequence[Number], at: Any = None) -> int:
        row = _row(weights)
        return int((row / torch.empty_like(row).exponential_(generator=self.generator)).argmax())


class GumbelChoices(TorchChoices):
    """Categories by a race in logarithms: the greatest log p + G, for Gumbel noise G."""

    def __call__(self, weights: Sequence[Number], at: Any = None) -> int:
        row = _row(weights)
        u = torch.rand(row.shape, dtype=row.dtype, generator=self.generator)
        # Noise of u = 0 would put the only possible index level with the impossible ones.
        return int((row.log() - (-u.clamp_min(2.0**-54).log()).log()).argmax())


class NumpyChoices:
    """The reading of `choose` that draws with NumPy: the tape cannot see it."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def __call__(self, weights: Sequence[Number], at: Any = None) -> int:
        row = np.array([float(w) for w in weights])
        return int(self.generator.choice(len(row), p=row / row.sum()))

    def flip(self, chance: Number, at: Any = None) -> bool:
        return bool(self.generator.random() < float(chance))


class PythonChoices:
    """The reading of `choose` that draws with Python's `random`."""

    def __init__(self, seed: int) -> None:
        self.generator = random.Random(seed)

    def __call__(self, weights: Sequence[Number], at: Any = None) -> int:
        return self.generator.choices(range(len(weights)), [float(w) for w in weights])[0]

    def flip(self, chance: Number, at: Any = None) -> bool:
        return self.generator.random() < float(chance)


class HashChoices:
    """The reading of `choose` that hashes seed and counter: only its output can be seen."""

    def __init__(self, seed: int) -> None:
        self.seed, self.count = seed, 0

    def __call__(self, weights: Sequence[Number], at: Any = None) -> int:
        sums = list(accumulate(float(w) for w in weights))
        return bisect(sums, self._unit() * sums[-1])

    def flip(self, chance: Number, at: Any = None) -> bool:
        return self._unit() < float(chance)

    def _unit(self) -> float:
        self.count += 1
        digest = blake2b(b"%d %d" % (self.seed, self.count), digest_size=8).digest()
        return float(int.from_bytes(digest, "big") >> 11) / (1 << 53)


WAYS = {
    "torch": TorchChoices,
    "exponential race": ExponentialChoices,
    "Gumbel race": GumbelChoices,
    "NumPy": NumpyChoices,
    "Python": PythonChoices,
    "hash": HashChoices,
}
"""How samplers draw, by name."""


def _row(weights: Sequence[Number]) -> Any:
    return torch.tensor([float(w) for w in weights], dtype=torch.float64)


@dataclass
class Program:
    """A subject made of a rule or a fault.

    Attributes:
        name: what reports call it.
        rules: the rule it is held to.
        verify: what it does.
        drafts: the drafter it is tried on.
        shape: "chain" or "tree".
        choices: where it takes its randomness from.
    """

    name: str
    rules: tuple[str, ...]
    verify: Verify
    drafts: Drafter
    shape: str
    choices: type

    def sample(self, case: Case, n: int, seed: int) -> Any:
        """Run n rounds on the case."""
        case.arrays(1)
        root = case.root()
        choose = self.choices(seed)
        rows = []
        for _ in range(n):
            out = self.verify(root, choose)
            rows.append([*out, *[-1] * (case.gamma + 1 - len(out))])
        return rows


@dataclass
class Drafting(Program):
    """A subject with its own drafter, which declares the draft law that it was given."""

    drafter: Drafter | None = None

    def propose(self, case: Case, n: int, seed: int) -> Any:
        """Draw n drafts; the laws depend on the position alone."""
        assert self.drafter is not None
        p = [exact(row, "float64") for row in case.p]
        q = [exact(row, "float64") for row in case.q]
        choose = self.choices(seed)
        rows = []
        for _ in range(n):
            root = self.drafter(
                lambda text: p[len(text)], lambda text: q[len(text)], case.gamma, choose, ()
            )
            tokens = flat(root)[0]
            rows.append([*tokens, *[-1] * (case.gamma - len(tokens))])
        declared = [[float(w) for w in row] for row in q[:-1]]
        return rows, [declared] * n


def of_fault(fault: Fault, choices: type = TorchChoices) -> Program:
    """Return a fault as a subject that declares the rule it breaks."""
    base = RULES[fault.base]
    rule = fault.rule
    if fault.draft is not None and rule.shape == "chain":
        return Drafting(
            fault.name, (fault.base,), rule.verify, base.draft, "chain", choices, fault.draft
        )
    return Program(fault.name, (fault.base,), rule.verify, rule.draft, rule.shape, choices)


def of_rule(
    name: str, drafts: str | None = None, declares: bool = True, choices: type = TorchChoices
) -> Program:
    """Return a rule as a subject, on its own drafts or others."""
    rule = RULES[gated_rule(name)]
    drafter = DRAFTS[drafts] if drafts else rule.draft
    return Program(name, (name,) if declares else (), rule.verify, drafter, rule.shape, choices)


class Every:
    """Every fault or rule by name: `specref gate specref.subjects.programs:faults.coin_reused`.

    They draw with torch, unless another of the `WAYS` is named first: `rules.NumPy.token`, or
    `faults.Gumbel_race.coin_reused`.
    """

    def __init__(self, faults: bool, choices: type = TorchChoices) -> None:
        self._faults, self._choices = faults, choices

    def __getattr__(self, name: str) -> "Program | Every":
        way = name.replace("_", " ")
        if way in WAYS:
            return Every(self._faults, WAYS[way])
        if self._faults and name in ROUND_FAULTS:
            return of_fault(ROUND_FAULTS[name], self._choices)
        if not self._faults and name in RULES:
            return of_rule(name, choices=self._choices)
        raise AttributeError(name)

    def __dir__(self) -> list[str]:
        return sorted(ROUND_FAULTS if self._faults else RULES)


faults = Every(faults=True)
rules = Every(faults=False)
