"""Sampling parameters, checked: every one names itself and its range when it is refused."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from specref.dist import Number, entries, integers, rational, whole

Allowed: TypeAlias = Callable[[tuple[int, ...]], Iterable[int]] | Iterable[int]
"""The tokens that may come next, or a function from what was emitted to them: a grammar's state."""

RANGES: dict[str, tuple[str, Callable[[Number], bool]]] = {
    "temperature": ("a finite temperature >= 0, where 0 is greedy", lambda v: v >= 0),
    "top_p": ("0 <= top_p <= 1, where 1 is off", lambda v: 0 <= v <= 1),
    "min_p": ("0 <= min_p <= 1, where 0 is off", lambda v: 0 <= v <= 1),
    "typical_p": ("0 < typical_p <= 1, where 1 is off", lambda v: 0 < v <= 1),
    "epsilon": ("0 <= epsilon < 1, where 0 is off", lambda v: 0 <= v < 1),
    "eta": ("0 <= eta < 1, where 0 is off", lambda v: 0 <= v < 1),
    "top_n_sigma": ("a finite top_n_sigma >= 0, where 0 is off", lambda v: v >= 0),
    "repetition_penalty": ("a finite repetition_penalty > 0, where 1 is off", lambda v: v > 0),
    "presence_penalty": ("a finite presence_penalty, where 0 is off", lambda v: True),
    "frequency_penalty": ("a finite frequency_penalty, where 0 is off", lambda v: True),
}
OFF: dict[str, Any] = {
    "temperature": 1, "top_k": None, "top_p": 1, "min_p": 0, "typical_p": 1, "epsilon": 0, "eta": 0,
    "top_n_sigma": 0, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0,
    "bias": {}, "allowed": None, "min_tokens": 0,
}  # fmt: skip
"""The value of each parameter that changes nothing."""


@dataclass(frozen=True)
class Parameters:
    """What a request asks of its sampler; numbers are anything `dist.rational` reads, exactly.

    Attributes:
        temperature: divides the logits; 0 keeps the likeliest token only.
        top_k: keep the k likeliest tokens. Values below 1 are off or refused, as the preset says.
        top_p: keep the likeliest tokens of which the mass reaches this.
        min_p: keep tokens of at least this share of the largest mass.
        typical_p: keep the tokens whose surprise is nearest the entropy, up to this mass.
        epsilon: keep tokens of at least this mass.
        eta: keep tokens of mass at least min(eta, sqrt(eta) exp(-entropy)).
        top_n_sigma: keep logits that are within so many standard deviations of the largest.
        repetition_penalty: divides positive logits of tokens that came, multiplies negative ones.
        presence_penalty: is subtracted from the logits of tokens that came.
        frequency_penalty: is subtracted as often as the token came.
        penalty_window: how many last tokens the penalties look at; None for what the preset has.
        bias: is added to the logit of a token; -inf forbids it.
        allowed: a grammar: see `Allowed`; None allows all tokens.
        min_tokens: so many tokens are emitted before one of `eos` may come.
        eos: the tokens that end a sequence.

    >>> Parameters(temperature="0.7", top_k=50).asked()
    ['temperature', 'top_k']
    >>> Parameters(top_p=1.5)
    Traceback (most recent call last):
    ValueError: top_p = 1.5 is out of range; pass 0 <= top_p <= 1, where 1 is off

    Raises:
        ValueError: a value outside its range, NaN or infinite.
    """

    temperature: Number = 1
    top_k: int | None = None
    top_p: Number = 1
    min_p: Number = 0
    typical_p: Number = 1
    epsilon: Number = 0
    eta: Number = 0
    top_n_sigma: Number = 0
    repetition_penalty: Number = 1
    presence_penalty: Number = 0
    frequency_penalty: Number = 0
    penalty_window: int | None = None
    bias: Mapping[int, Number] = field(default_factory=dict)
    allowed: Allowed | None = None
    min_tokens: int = 0
    eos: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, (range_, holds) in RANGES.items():
            given = getattr(self, name)
            try:
                value = rational(given)
                fine = holds(value)
            except ValueError:
                fine = False
            if not fine:
                raise ValueError(f"{name} = {given} is out of range; pass {range_}")
            object.__setattr__(self, name, value)
        counts = {"top_k": "the number of tokens to keep", "penalty_window": "a number of tokens"}
        for name, cure in counts.items():
            given = getattr(self, name)
            if given is not None:
                least = None if name == "top_k" else 0
                object.__setattr__(self, name, whole(given, name, f"pass {cure}, or None", least))
        least_tokens = whole(self.min_tokens, "min_tokens", "pass a number of tokens >= 0", 0)
        object.__setattr__(self, "min_tokens", least_tokens)
        object.__setattr__(self, "eos", tuple(integers(self.eos, "eos")))
        object.__setattr__(self, "bias", _biases(self.bias))
        if self.allowed is not None and not callable(self.allowed):
            object.__setattr__(self, "allowed", tuple(listed(self.allowed)))
        if self.min_tokens and not self.eos:
            raise ValueError(f"min_tokens = {self.min_tokens} forbids no token; name them by eos")

    def asked(self) -> list[str]:
        """Return the names of the parameters that are not off."""
        names = (at.name for at in fields(self) if at.name in OFF)
        return [name for name in names if getattr(self, name) != OFF[name]]


def listed(allowed: Any) -> list[int]:
    """Read allowed tokens; a mask of booleans would be read as the tokens 0 and 1.

    Raises:
        ValueError: something that is no list of integers.
    """
    read = entries(allowed, "allowed")
    for at, x in enumerate(read):
        if isinstance(x, bool):
            raise ValueError(f"allowed[{at}] = {x} is no token; list the tokens, not a mask of all")
    return integers(read, "allowed")


def _biases(bias: Any) -> dict[int, Number]:
    """Read a mapping from token to bias; -inf stays a float."""
    if not isinstance(bias, Mapping):
        raise ValueError(f"bias = {bias!r} is no mapping; write {{token: bias}}")
    found: dict[int, Number] = {}
    for token, value in bias.items():
        x = whole(token, "bias", "its keys are tokens")
        try:
            found[x] = -math.inf if forbids(value) else rational(value)
        except ValueError:
            raise ValueError(
                f"bias[{x}] = {value} is out of range; pass a finite number, or -inf to forbid"
            ) from None
    return found


def forbids(value: Any) -> bool:
    """Whether a logit or a bias is minus infinity, as a number or as text."""
    if isinstance(value, str):
        return value.strip().lower() in {"-inf", "-infinity"}
    try:
        return bool(float(value) == -math.inf)
    except (OverflowError, TypeError, ValueError):
        return False
