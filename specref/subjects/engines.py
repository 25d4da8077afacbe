"""Any rule or wrong loop as an engine, any wrong law of a request as a sampler's law.

What `programs` is for single rounds, this is for whole sequences and for sampling parameters: the
program itself, run on the randomness of real samplers, so that its law is known exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specref.decode import Drafting, Loop, decode
from specref.faults import FAULTS, Fault
from specref.faults.fault import Asked, masses_of
from specref.gate.models import ToyModel
from specref.logits import PRESETS, Parameters
from specref.rules import RULES, Rule
from specref.stops import Stops, Text
from specref.subjects.programs import TorchChoices


@dataclass
class Engine:
    """A subject with `generate`, made of a rule and a loop.

    Attributes:
        name: what reports call it.
        rule: what drafts and verifies.
        loop: the loop of rounds.
        drafting: the shape of its drafts.
        parameters: the sampling parameters that it has.
        preset: how it reads them.
        choices: where it takes its randomness from.
    """

    name: str
    rule: Rule
    loop: Loop = decode
    drafting: Drafting = 2
    parameters: tuple[str, ...] = ()
    preset: str = "transformers"
    choices: type = TorchChoices

    def generate(
        self, model: ToyModel, n: int, seed: int, max_tokens: int, eos: tuple[int, ...]
    ) -> Any:
        """Decode n sequences, one after the other."""
        choose = self.choices(seed)
        p, q, stops, context = model.asked(max_tokens, eos)
        return _padded(
            [self.loop(self.rule, p, q, self.drafting, stops, choose, context) for _ in range(n)],
            max_tokens,
        )


def _padded(texts: Sequence[Text], least: int) -> list[list[int]]:
    """Return rows of one length; a wrong loop may exceed the limit."""
    wide = max(least, *(len(text) for text in texts))
    return [[*text, *[-1] * (wide - len(text))] for text in texts]


@dataclass
class Asking:
    """A subject with `law`, made of a law of the next token, and `generate`, which decodes plainly.

    Attributes:
        name: what reports call it.
        asked: the law, called as law(logits, parameters, prompt=, output=).
        parameters: the sampling parameters that it has.
        preset: how it should read them.
        choices: where it takes its randomness from.
    """

    name: str
    asked: Asked
    parameters: tuple[str, ...]
    preset: str
    choices: type = TorchChoices

    def law(self, logits: Any, params: dict[str, Any]) -> Any:
        """Return the law of each row, rounded to float32."""
        asked = dict(params)
        before: Sequence[int] = asked.pop("prompt", ())
        after: Sequence[int] = asked.pop("output", ())
        parameters = Parameters(**asked)
        rows = [
            masses_of(self.asked([float(x) for x in row], parameters, prompt=before, output=after))
            for row in np.asarray(logits)
        ]
        return np.array([[float(mass) for mass in row] for row in rows], np.float32)

    def generate(
        self, model: ToyModel, n: int, seed: int, max_tokens: int, eos: tuple[int, ...]
    ) -> Any:
        """Decode n sequences, token by token."""
        choose, stops = self.choices(seed), Stops(max_tokens, eos, model.stop)
        parameters = Parameters(**model.parameters)
        rows = []
        for _ in range(n):
            text: Text = ()
            while not stops.over(text):
                scores = model.scores((*model.prompt, *text))
                found = self.asked(scores, parameters, prompt=model.prompt, output=text)
                text = (*text, choose(masses_of(found)))
            rows.append(text)
        return _padded(rows, max_tokens)


def of_rule(name: str, drafting: Drafting = 2) -> Engine:
    """Return a rule as an honest engine."""
    return Engine(name, RULES[name], drafting=drafting)


def of_fault(fault: Fault, choices: type = TorchChoices) -> Engine | Asking:
    """Return a wrong loop as an engine, and a wrong law as a law.

    Raises:
        ValueError: a fault of single rounds; `programs` has those.
    """
    preset = PRESETS[fault.preset]
    if fault.law is not None:
        return Asking(fault.name, fault.law, preset.names, fault.preset, choices)
    if fault.loop is None:
        raise ValueError(f"{fault.name} is a wrong {fault.kind}; take programs.of_fault")
    shape = 2 if fault.rule.shape == "chain" else (2, 2)
    parameters = preset.names if fault.family == "requests" else ("min_tokens", "stop")
    return Engine(fault.name, fault.rule, fault.loop, shape, parameters, fault.preset, choices)


class Every:
    """Every such fault by name: `specref gate specref.subjects.engines:faults.limit_overrun`."""

    def __getattr__(self, name: str) -> Engine | Asking:
        if name in self.__dir__():
            return of_fault(FAULTS[name])
        raise AttributeError(name)

    def __dir__(self) -> list[str]:
        return sorted(name for name, f in FAULTS.items() if f.kind in ("loop", "law"))


faults = Every()
