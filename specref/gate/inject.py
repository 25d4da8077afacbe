"""Given draws for samplers that take none: control of the generators that they use.

While `controlled()` is entered, Python's `random`, NumPy's bit generators and torch's generators on
the CPU answer as ever, but for runs under `play`: there the draws of a run are given integers, in
the order in which they are drawn, and what goes beyond the given ones is real and written down. All
code of the libraries above single draws is left as it is: `choice`, `multinomial` or `shuffle` do
what they do with the numbers they get. A draw is one of

    size 2^53     a float64 uniform k/2^53: `random()` of Python, a double of NumPy
    size 2^32     a 32-bit word of NumPy
    size 2^62     a 64-bit word of NumPy; its two lowest bits stay as they were drawn
    size 2^b      `getrandbits(b)` of Python; of more than 62 bits, the highest
    size n        a whole number below n, as Python's `randrange`, `choice`, `shuffle` ask for it
    size 2^24     a float32 uniform of torch, or
    size 2^53     a float64 uniform, if a `Plan` says that its words come in pairs (`gate.words`)

The real generator draws too, and its state is the address of a draw: what starts from the same
state, as from two generators with one seed, is the same draw and gets the same number.

NumPy's classes are C. A bit generator is a table of four functions, which its `capsule` holds for
everyone who wants to draw from it; the table is replaced. Classes of bit generators are exchanged,
wherever a module names them, for subclasses that do this when they are made.
"""

import ctypes
import gc
import random
import sys
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from threading import get_ident
from types import MethodType, ModuleType
from typing import Any

import numpy as np

from specref.gate import words
from specref.gate.limit import TimeLimit, deaf

Program = Callable[[int], Any]
"""A function of the seed that it is given; what it returns is its outcome."""

MOST_BITS = 62
"""Bits of a draw that are given; of longer ones the lowest stay as they were drawn."""


@dataclass(frozen=True)
class Plan:
    """What the integers of a point are for.

    Attributes:
        sizes: of the columns, multiples of the sizes of the draws that ask for them.
        blocks: columns for the words of each torch generator, in the order in which they are
            seeded; the first is for the default generator as the run finds it.
        pairs: whether such a column is a float64 uniform of two words, or a float32 one of one.
    """

    sizes: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    pairs: bool = False


@dataclass
class Played:
    """One run on given draws.

    Attributes:
        outcome: what the program returned.
        drawn: integer and size of each draw, in order.
        addresses: state that each was drawn from.
        repeats: draws that were asked for again from the same state.
        escapes: why the draws are not under control.
        blocks: columns that each torch generator would have used.
    """

    outcome: Any
    drawn: list[tuple[int, int]]
    addresses: list[Hashable]
    repeats: list[int]
    escapes: list[str]
    blocks: tuple[int, ...]


class _Live:
    """The draws of the run that is going on."""

    def __init__(self, point: Sequence[int], plan: Plan) -> None:
        self.point, self.plan = point, plan
        self.drawn: list[tuple[int, int]] = []
        self.known: dict[Hashable, tuple[int, int, int]] = {}
        self.repeats: list[int] = []
        self.escapes: list[str] = []
        self.interrupt: BaseException | None = None
        self.thread = get_ident()
        self.hook = sys.unraisablehook
        self.blocks: list[int] = []
        self.owners: dict[int, tuple[int, Any]] = {}

    def double(self, real: float) -> float:
        """Return the float64 uniform to be used instead of the real one."""
        # Two states with the same 53 bits are as rare as two states that are the same by chance.
        return self.draw(real, 1 << 53, int(real * 2.0**53)) * 2.0**-53

    def word(self, address: Hashable, bits: int, real: int) -> int:
        """Return the word to be used instead of the real one."""
        hidden = max(0, bits - MOST_BITS)
        k = self.draw(address, 1 << (bits - hidden), real >> hidden)
        return k << hidden | real & ((1 << hidden) - 1)

    def draw(self, address: Hashable, size: int, real: int) -> int:
        """Return the given integer of the next draw; one that is not new is what it was."""
        if get_ident() != self.thread:
            self.escapes.append("draws are made in several threads, in no order")
        at, known, k = self.known.get(address, (len(self.drawn), size, -1))
        if known != size:
            self.escapes.append("one state of a generator is read in two ways")
            return real
        if k >= 0:
            self.repeats.append(at)
            return k
        k = real
        if at < len(self.point) and self.plan.sizes[at] % size == 0:
            k = self.point[at] // (self.plan.sizes[at] // size)
        self.drawn.append((k, size))
        self.known[address] = (at, size, k)
        return k

    def seeded(self, generator: Any) -> None:
        """Give a torch generator that was just seeded the words of its block."""
        self.close(generator)
        at = len(self.blocks)
        self.blocks.append(0)
        self.owners[id(generator)] = at, generator
        count = self.plan.blocks[at] if at < len(self.plan.blocks) else 0
        if count:
            seed = generator.initial_seed()
            words.give(generator, count * self._width, lambda real: self._words(seed, real))

    @property
    def _width(self) -> int:
        """Words of a column."""
        return 2 if self.plan.pairs else 1

    def _words(self, seed: int, real: list[int]) -> list[int]:
        given: list[int] = []
        for at in range(0, len(real), self._width):
            # The bits of a uniform are the lowest of its first word, and all of a second one.
            *first, last = real[at : at + self._width]
            whole = first[0] << 32 | last if first else last
            size = 1 << 53 if first else 1 << 24
            whole += self.draw((seed, at, self._width), size, whole % size) - whole % size
            given += [whole >> 32, whole & 0xFFFFFFFF][-self._width :]
        return given

    def close(self, generator: Any) -> None:
        """Note how many columns a torch generator has used since it was seeded."""
        at, _ = self.owners.pop(id(generator), (-1, None))
        if at >= 0:
            self.blocks[at] = -(-words.used(generator) // self._width)

    def ignored(self, report: Any) -> None:
        """Keep what was raised while C waits for a number: it cannot pass through C."""
        if "ctypes callback" not in (report.err_msg or ""):
            self.hook(report)
        elif not isinstance(report.exc_value, TimeLimit):  # that one rings again
            self.interrupt = report.exc_value


_live: _Live | None = None
_depth = 0


def play(
    program: Program, seed: int, point: Sequence[int] = (), plan: Plan | None = None
) -> Played:
    """Run a program on given draws, inside of `controlled()`.

    Args:
        program: draws from generators of any kind that is controlled.
        seed: given to it; generators that it seeds draw what is given all the same.
        point: integer of each draw, 0 <= point[j] < plan.sizes[j]; draws beyond are real.
        plan: what the integers are for.
    """
    global _live
    assert _depth, "play runs inside of controlled()"
    live = _Live(point, plan or Plan())
    torch = sys.modules.get("torch")
    if torch:
        # Far from the seed that the program has: another generator that it seeds is another one.
        live.seeded(torch.default_generator.manual_seed(seed ^ 0x5DEECE66D))
    _live, sys.unraisablehook = live, live.ignored
    try:
        outcome = program(seed)
        for _, generator in list(live.owners.values()):
            live.close(generator)
    finally:
        _live = None
        sys.unraisablehook = live.hook
    if live.interrupt is not None:
        raise live.interrupt
    addresses, blocks = list(live.known), tuple(live.blocks)
    return Played(outcome, live.drawn, addresses, live.repeats, live.escapes, blocks)


def _seeded(generator: Any) -> None:
    if _live:
        _live.seeded(generator)


@contextmanager
def controlled() -> Iterator[None]:
    """Take the generators of Python and NumPy over, and give them back in the end.

    May be entered again inside; that costs nothing.
    """
    global _depth
    _depth += 1
    try:
        if _depth == 1:
            _take_over()
        yield
    finally:
        _depth -= 1
        if not _depth:
            _give_back()


def _take_over() -> None:
    for name, method in _METHODS.items():
        setattr(random.Random, name, method)
    _rename(_exchanges())
    _rewire(given=True)


def _give_back() -> None:
    for name in _METHODS:
        if name in _ORIGINAL:
            setattr(random.Random, name, _ORIGINAL[name])
        elif name in vars(random.Random):
            delattr(random.Random, name)
    _rename([(new, old) for old, new in _exchanges()])
    _rewire(given=False)


def _exchanges() -> list[tuple[Any, Any]]:
    """Return the objects that modules name, each with what stands in for it."""
    return _plain_exchanges() + (_torch_exchanges() if sys.modules.get("torch") else [])


@cache
def _torch_exchanges() -> list[tuple[Any, Any]]:
    return words.exchanges(_seeded)


@cache
def _plain_exchanges() -> list[tuple[Any, Any]]:
    classes = [(wiring.plain, wiring.wired) for wiring in _wirings().values()]
    bound = [getattr(random, name) for name in ("random", "getrandbits")]
    return [*classes, *((b, MethodType(_METHODS[b.__name__], b.__self__)) for b in bound)]


def _rename(pairs: list[tuple[Any, Any]]) -> None:
    """Let every module that names the first of a pair name the second one instead."""
    new = {id(first): second for first, second in pairs}
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            names = vars(module)
            found = [(name, new[id(value)]) for name, value in names.items() if id(value) in new]
            names.update(found)


# Python's random: methods written in Python call `random`, `getrandbits` and `_randbelow`.

_Core: Any = random.Random.__mro__[1]
_ORIGINAL: dict[str, Any] = {
    name: vars(random.Random)[name]
    for name in ("random", "getrandbits", "_randbelow")
    if name in vars(random.Random)
}


def _random(self: Any) -> float:
    real: float = _Core.random(self)
    return _live.double(real) if _live else real


def _getrandbits(self: Any, k: int, /) -> int:
    if not _live or k <= 0:
        return int(_Core.getrandbits(self, k))
    state = _Core.getstate(self)
    return _live.word(state, k, _Core.getrandbits(self, k))


def _randbelow(self: Any, n: int) -> int:
    global _live
    live, below = _live, _ORIGINAL["_randbelow"]
    own_bits = type(self).getrandbits is not _getrandbits  # from the system, say: no state of ours
    if live is None or own_bits or n >= 1 << MOST_BITS:
        return int(below(self, n))
    state = _Core.getstate(self)
    _live = None  # the bits that it is made of are no draws of their own
    try:
        real: int = below(self, n)
    finally:
        _live = live
    return live.draw(state, n, real) if n > 1 else real


_METHODS: dict[str, Any] = {
    "random": _random,
    "getrandbits": _getrandbits,
    "_randbelow": _randbelow,
}


# NumPy: the table of a bit generator is its state and four functions of it.

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

_UINT64 = ctypes.PYFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)
_UINT32 = ctypes.PYFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p)
_DOUBLE = ctypes.PYFUNCTYPE(ctypes.c_double, ctypes.c_void_p)
_KINDS = (_UINT64, _UINT32, _DOUBLE, _UINT64)  # the last gives the words as they are made

_holders: dict[int, Callable[[], Any]] = {}
"""From the address of a state to the bit generator that has it, or None if it is gone."""


def _table(generator: Any) -> Any:
    """Return the table of a bit generator, as an array of pointers."""
    return (ctypes.c_void_p * 5).from_address(_pointer(generator.capsule, b"BitGenerator"))


class _Wiring:
    """What is known of one class of bit generators.

    Attributes:
        plain: the class.
        wired: its stand-in, whose instances draw what is given.
    """

    def __init__(self, plain: Any) -> None:
        self.plain = plain
        self._plain = _table(plain(0))[1:]
        uint64, uint32, double, raw = (
            kind(place) for kind, place in zip(_KINDS, self._plain, strict=True)
        )
        raw_bits = 32 if plain is np.random.MT19937 else 64
        self._functions = (
            _UINT64(_wired(uint64, lambda live, at, real: live.word(("64", real), 64, real))),
            _UINT32(_wired(uint32, lambda live, at, real: live.word(at, 32, real), state=True)),
            _DOUBLE(_wired(double, lambda live, at, real: live.double(real))),
            _UINT64(_wired(raw, lambda live, at, real: live.word(at, raw_bits, real), state=True)),
        )
        self._given = [ctypes.cast(f, ctypes.c_void_p).value for f in self._functions]

        def start(this: Any, *args: Any, **kwargs: Any) -> None:
            plain.__init__(this, *args, **kwargs)
            if _depth:
                self.wire(this, True, weakref.ref(this))

        self.wired = words.StandIn(plain.__name__, (plain,), {"__init__": start})

    def wire(self, generator: Any, given: bool, holder: Callable[[], Any]) -> None:
        """Let a bit generator draw what is given, or again what is real."""
        table = _table(generator)
        table[1:] = self._given if given else self._plain
        _holders[table[0]] = holder


def _wired(function: Any, answer: Callable[[_Live, Any, Any], Any], state: bool = False) -> Any:
    """Return a function of a table: the real one, and in a run what is given instead.

    Args:
        function: the real one.
        answer: from the run, the address of the draw and the real number to the one given.
        state: whether the address is the state, which is dear; else it must not matter.
    """

    @deaf
    def draw(place: int) -> Any:
        live = _live
        if live is None:
            return function(place)
        at = _frozen(_holders[place]().state) if state else None
        return answer(live, at, function(place))

    return draw


def _frozen(state: Any) -> Hashable:
    """Return the state of a bit generator as something that can be looked up."""
    if isinstance(state, dict):
        return tuple((key, _frozen(value)) for key, value in state.items())
    return state.tobytes() if isinstance(state, np.ndarray) else state


@cache
def _wirings() -> dict[Any, _Wiring]:
    """Return the wiring of each class of bit generators, under it and under its stand-in."""
    names = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
    return {getattr(np.random, name): _Wiring(getattr(np.random, name)) for name in names}


def _rewire(given: bool) -> None:
    """Wire every bit generator that exists, and let generators, which copy the table, read it."""
    wirings = {kind: w for w in _wirings().values() for kind in (w.plain, w.wired)}
    _holders.clear()
    users = []
    for thing in gc.get_objects():
        kind = type(thing)
        if kind in wirings:
            wirings[kind].wire(thing, given, partial(_same, thing))
        elif issubclass(kind, (np.random.Generator, np.random.RandomState)):
            users.append(thing)
    if not given:
        _holders.clear()
    for user in users:
        if isinstance(user, np.random.Generator):
            np.random.Generator.__init__(user, user.bit_generator)
        else:
            state = user.get_state(legacy=False)
            np.random.RandomState.__init__(user, user._bit_generator)
            user.set_state(state)  # with the second of a pair of normal numbers


def _same(thing: Any) -> Any:
    return thing
