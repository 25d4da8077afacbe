"""How torch makes uniforms, and noise: from integers of a grid to the numbers a sampler sees.

A CPU generator gives k, uniform on 0 <= k < 2^bits. The number is k * 2^-bits, scaled to the range
asked for and rounded to the type; what rounds up to the end of the range comes out as its start.
That last step is no rarity in half precision: one bfloat16 uniform in 512 is 0.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch

BITS = {torch.float32: 24, torch.float64: 53, torch.float16: 24, torch.bfloat16: 24}


@dataclass(frozen=True)
class Uniform:
    """Uniforms of a type in [low, high), on the CPU."""

    dtype: Any
    low: float = 0.0
    high: float = 1.0

    @property
    def bits(self) -> int:
        """The grid has 2^bits integers."""
        return BITS[self.dtype]

    @cached_property
    def wrapped(self) -> int:
        """How many of the largest k come out as the start of the range."""
        good, bad = 0, 1 << self.bits  # k = 0 is the start itself
        end = self._end.to(self.dtype)
        while bad - good > 1:
            middle = (good + bad) // 2
            if bool(self.value(torch.tensor(middle)) < end):
                good = middle
            else:
                bad = middle
        return (1 << self.bits) - bad if self._start < self._end else 0

    @property
    def size(self) -> int:
        """How many k are not wrapped."""
        return (1 << self.bits) - self.wrapped

    def value(self, k: Any) -> Any:
        """Return the numbers of grid integers that are not wrapped."""
        unit = k.double() * 2.0**-self.bits
        if (self.low, self.high) != (0, 1):
            # torch multiplies and adds with one rounding; float64 stands in for that in float32.
            unit = unit * (self._end - self._start).double() + self._start.double()
        return unit.to(self._wide).to(self.dtype)

    def nearest(self, numbers: Any) -> Any:
        """Return grid integers that give these numbers, or where rounding hid them, near ones."""
        span = (self._end - self._start).double()
        k = ((numbers.double() - self._start.double()) / span * 2.0**self.bits).round()
        return k.long().clamp(0, self.size - 1)

    @property
    def _wide(self) -> Any:
        """The type in which the number is computed."""
        return torch.float64 if self.dtype is torch.float64 else torch.float32

    @cached_property
    def _start(self) -> Any:
        return torch.tensor(self.low, dtype=self._wide)

    @cached_property
    def _end(self) -> Any:
        return torch.tensor(self.high, dtype=self._wide)


@lru_cache(maxsize=1000)
def uniform(dtype: Any, low: float = 0.0, high: float = 1.0) -> Uniform:
    """Return the uniforms of a type in [low, high); made once, for what they work out."""
    return Uniform(dtype, low, high)


@dataclass(frozen=True)
class Exponential:
    """Exponential noise of a type, on the CPU: finer than any grid, so 2^52 slices stand for it.

    Its smallest numbers are as fine as the type allows, and 0 is none of them.
    """

    dtype: Any
    rate: float = 1.0

    size = 1 << 52

    def value(self, k: Any) -> Any:
        """Return the numbers in the middle of slices."""
        unit = (k.double() + 0.5) / self.size
        return (-torch.log1p(-unit) / self.rate).to(self.dtype)

    def nearest(self, numbers: Any) -> Any:
        """Return the slices that numbers lie in."""
        unit = -torch.expm1(-numbers.double() * self.rate)
        return (unit * self.size).long().clamp(0, self.size - 1)


@lru_cache(maxsize=1000)
def exponential(dtype: Any, rate: float = 1.0) -> Exponential:
    """Return the exponential noise of a type and rate."""
    return Exponential(dtype, rate)
