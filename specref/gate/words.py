"""Given words for torch's generators on the CPU.

Such a generator is a Mersenne Twister: 624 words, of which the next one is tempered and handed out.
What C++ makes of it there, no hook sees; but its state can be read and written, so the words to
come can be given, and afterwards it is known how many were used. A float32 uniform is the lowest 24
bits of a word, a float64 uniform the lowest 53 bits of two.
"""

import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

_HEADER = "<QiiQ"  # the seed, how many words are left and one, whether it is seeded, the next word
_START = struct.calcsize(_HEADER)
_COUNT = 624


class StandIn(type):
    """The class of stand-ins for a class: its instances are theirs, as `isinstance` sees it."""

    def __instancecheck__(cls, thing: Any) -> bool:
        return isinstance(thing, cls.__mro__[1])


def tempered(y: int) -> int:
    """Return the word that is handed out for one of the state.

    >>> tempered(untempered(123456789))
    123456789
    """
    y ^= y >> 11
    y ^= y << 7 & 0x9D2C5680
    y ^= y << 15 & 0xEFC60000
    return y ^ y >> 18


def untempered(word: int) -> int:
    """Return the word of the state for which `word` is handed out."""
    y = word ^ word >> 18
    y ^= y << 15 & 0xEFC60000
    x = y
    for _ in range(4):  # each step makes seven more bits right
        x = y ^ (x << 7 & 0x9D2C5680)
    y = x
    for _ in range(2):
        x = y ^ x >> 11
    return x


def give(generator: Any, count: int, change: Callable[[list[int]], list[int]]) -> None:
    """Change the next words of a generator that was just seeded.

    Args:
        generator: a `torch.Generator` on the CPU.
        count: how many words.
        change: from those that would come to those that shall come.
    """
    sys.modules["torch"].rand((), generator=generator)  # makes the words that the seed stands for
    state = generator.get_state()
    words = _words(state)
    words[:count] = [untempered(w) for w in change([tempered(int(w)) for w in words[:count]])]
    seed, _, seeded, _ = header(generator)
    struct.pack_into(_HEADER, state.numpy(), 0, seed, _COUNT, seeded, 0)
    generator.set_state(state)


def header(generator: Any) -> tuple[int, ...]:
    """Return what a generator's state says of where it is."""
    return struct.unpack_from(_HEADER, generator.get_state().numpy(), 0)


def used(generator: Any) -> int:
    """Return how many words were used since they were given."""
    return header(generator)[3]


def _words(state: Any) -> Any:
    return state.numpy()[_START : _START + 8 * _COUNT].view(np.uint64)


def exchanges(seeded: Callable[[Any], None]) -> list[tuple[Any, Any]]:
    """Return what modules name and seed generators with, each with what stands in for it.

    Args:
        seeded: is told every generator on the CPU that was just seeded by a stand-in.
    """
    torch = sys.modules["torch"]

    class Sort(StandIn, type(torch.Generator)):  # type: ignore[misc]
        """The class of the stand-in, also as torch sees it."""

    class Generator(torch.Generator, metaclass=Sort):  # type: ignore[misc, name-defined]
        """A generator that tells when it is seeded."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            tell(self)

        def manual_seed(self, seed: int) -> Any:
            super().manual_seed(seed)
            return tell(self)

        def seed(self) -> int:
            drawn: int = super().seed()
            tell(self)
            return drawn

    def tell(generator: Any) -> Any:
        if generator.device.type == "cpu":
            seeded(generator)
        return generator

    def manual_seed(seed: int) -> Any:
        return tell(real(seed))

    real = torch.manual_seed
    return [(torch.Generator, Generator), (real, manual_seed)]
