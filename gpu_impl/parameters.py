"""Sampling parameters of a batch: one value for all requests, or one for each."""

from dataclasses import dataclass, field
from typing import Any

import torch

from specref.logits import Preset
from specref.logits.presets import find

FILTERS = ("top_k", "top_p", "min_p")
"""Filters of which the kept tokens are a beginning of the order by logit."""

RANGES = {
    "temperature": "temperature >= 0, where 0 is greedy",
    "top_k": "a number of tokens, or 0 for off",
    "top_p": "0 <= top_p <= 1, where 1 is off",
    "min_p": "0 <= min_p <= 1, where 0 is off",
}


@dataclass(frozen=True)
class Parameters:
    """What each request asks of its sampler.

    Attributes:
        temperature: divides the logits; 0 is greedy. A number, or a float32 tensor [B].
        top_k: keep the k likeliest tokens; 0 (and values >= V) is off. An int, or [B].
        top_p: keep the likeliest tokens of which the mass reaches this; 1 is off. Also [B].
        min_p: keep tokens of at least this share of the largest mass; 0 is off. Also [B].
        bias: is added to the logits, float32 [B, V]; -inf forbids a token.
        allowed: bit masks of the tokens that may follow each node, int32 [R, ceil(V / 32)]: bit
            v % 32 of word v // 32, the layout of xgrammar and vLLM.
        preset: whose order, ties and boundaries: a key of `specref.logits.PRESETS` or a `Preset`.

    Raises:
        KeyError: an unknown preset.
        ValueError: a number outside its range, or a parameter that the preset does not have.
    """

    temperature: Any = 1.0
    top_k: Any = 0
    top_p: Any = 1.0
    min_p: Any = 0.0
    bias: Any = None
    allowed: Any = None
    preset: str | Preset = "vllm"
    reading: "Reading" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        preset = find(self.preset)
        for name, off in (*OFF.items(), ("bias", None), ("allowed", None)):
            value = getattr(self, name)
            asked = value is not off if off is None else _is_tensor(value) or value != off
            if asked and name not in preset.names:
                raise ValueError(f"{name} is asked, but {preset.name} has none; leave it out")
        for name, range_ in RANGES.items():
            value = getattr(self, name)
            if not _is_tensor(value):
                _check(name, value, range_, preset)
        object.__setattr__(self, "reading", Reading.of(preset))

    @property
    def filters(self) -> bool:
        """Whether any filter may act, as far as the host can see."""
        return any(
            _is_tensor(getattr(self, name)) or getattr(self, name) != OFF[name] for name in FILTERS
        )

    def column(self, name: str, requests: int, device: Any) -> Any:
        """Return a parameter as a tensor [B] on a device: float64, or int32 for top_k."""
        value = getattr(self, name)
        dtype = torch.int32 if name == "top_k" else torch.float64
        if _is_tensor(value):
            return value.to(dtype)
        return torch.full((requests,), value, dtype=dtype, device=device)


OFF: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
"""The value of each number that changes nothing."""


@dataclass(frozen=True)
class Reading:
    """A preset, as far as the filters here need it.

    Attributes:
        groups: filters that act one after the other; those of a group look at the same law.
        hot: for each group, whether the temperature has acted before it; the last entry is True
            (the law that is drawn from has it always).
        top_k_all, top_p_all: whether all equally likely tokens at the boundary stay.
        highest: whether, of those of which some stay, the ones of highest id do, not of lowest.
        exceeds: whether the kept mass has to exceed top_p, not just to reach it.
        top_p_zero: what top_p = 0 means: "one", "off" or "refused".
        coldest, hottest: the positive temperatures that are taken, rounded to float32 outwards.
        whole_top_k: whether top_k >= V is taken, and off.
    """

    groups: tuple[tuple[str, ...], ...]
    hot: tuple[bool, ...]
    top_k_all: bool
    top_p_all: bool
    highest: bool
    exceeds: bool
    top_p_zero: str
    coldest: float
    hottest: float
    whole_top_k: bool

    @staticmethod
    def of(preset: Preset) -> "Reading":
        """Read a preset.

        Raises:
            ValueError: ties that fall to the lowest ids for one filter and to the highest for
                another, or greedy ties that are not the lowest: no single cut tells such a law.
        """
        groups: list[tuple[str, ...]] = []
        hot: list[bool] = []
        warm = False
        for step in preset.steps:
            together = (step,) if isinstance(step, str) else step
            warm = warm or "temperature" in together
            kept = tuple(name for name in together if name in FILTERS)
            if kept:
                groups.append(kept)
                hot.append(warm)
        sides = {preset.top_k_ties, preset.top_p_ties} - {"all"}
        if len(sides) > 1 or preset.greedy_ties != "lowest":
            raise ValueError(
                f"preset {preset.name!r} keeps ties of lowest id in one place and not in another; "
                "pass one in which top_k_ties and top_p_ties agree and greedy_ties is 'lowest'"
            )
        return Reading(
            tuple(groups),
            (*hot, True),
            preset.top_k_ties == "all",
            preset.top_p_ties == "all",
            "highest" in sides,
            preset.nucleus == "exceeds",
            preset.top_p_zero,
            float(preset.coldest) * (1 - 2**-24),  # a float32 tensor may hold the rounded bound
            float(preset.hottest) * (1 + 2**-24),
            preset.whole_top_k,
        )


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _check(name: str, value: Any, range_: str, preset: Preset) -> None:
    fine = isinstance(value, int | float) and not isinstance(value, bool) and value == value
    if name == "top_k":
        fine = fine and value == int(value) and value >= 0
    elif name == "temperature":
        fine = fine and 0 <= value < float("inf")
        fine = fine and (value == 0 or float(preset.coldest) <= value <= float(preset.hottest))
        range_ += f"; {preset.name} takes {float(preset.coldest):g} to {float(preset.hottest):g}"
    else:
        fine = fine and 0 <= value <= 1
        if name == "top_p" and value == 0 and preset.top_p_zero == "refused":
            fine, range_ = False, f"0 < top_p <= 1, which is what {preset.name} takes"
    if not fine:
        raise ValueError(f"{name} = {value!r} is out of range; pass {range_}")
