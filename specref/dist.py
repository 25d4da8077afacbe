"""Finite laws: one nonnegative number per token, summing to one.

A law is a plain tuple. Every function here uses only ``+ - * /``, ``min``, ``max`` and comparisons,
so the same text runs on fractions, on faster rationals, on floats and on symbols.
"""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence, Set
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

try:  # the same numbers, about four times as fast
    from gmpy2 import mpq as _Rational
except ImportError:
    _Rational = Fraction

Number: TypeAlias = Any
"""A `Fraction`, another rational, a float or a symbol."""

Law: TypeAlias = tuple[Number, ...]


MOST_DIGITS = 5_000
"""Largest exponent of ten of a number that is read, far beyond those of floats."""


def rational(value: Number, denominator: int = 1) -> Number:
    """Return `value / denominator` exactly, as the fastest rational type that is installed.

    Integers, fractions, decimals, floats (their exact binary value), strings such as "3/10" or
    "0.3" and array scalars are accepted.

    >>> print(rational("3/10") + rational(0.5))
    4/5

    Raises:
        ValueError: the value is not a finite number, or has an exponent beyond `MOST_DIGITS`.
    """
    try:
        if isinstance(value, _Rational):
            exact = value
        elif isinstance(value, str | Decimal):
            exact = _from_fraction(Fraction(_writable(value)))
        elif isinstance(value, Fraction | int):
            exact = _from_fraction(Fraction(value))
        elif hasattr(value, "numerator") and hasattr(value, "denominator"):
            exact = _from_fraction(Fraction(int(value.numerator), int(value.denominator)))
        else:
            exact = _from_fraction(Fraction(float(value)))
    except (ValueError, OverflowError, TypeError, ZeroDivisionError):
        raise ValueError(
            f"{value!r} is not a finite number; write 3/10, 0.3 or an integer"
        ) from None
    return exact if denominator == 1 else exact / denominator


def _writable(value: str | Decimal) -> str | Decimal:
    """Return a number whose digits can be written out: 1e99999999 would fill the memory."""
    _, _, exponent = str(value).lower().partition("e")
    if exponent and abs(int(exponent)) > MOST_DIGITS:
        raise ValueError
    return value


def exact_number(value: Number, name: str) -> Number:
    """Return what `rational` returns, or say which argument is no number.

    Raises:
        ValueError: the value is not a finite number; `name` says whose.
    """
    try:
        return rational(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def number(value: Number, name: str) -> Number:
    """Return a parameter of any kind of number as it is, and a string such as "3/10" exactly.

    Raises:
        ValueError: something else.
    """
    if isinstance(value, str) or not hasattr(value, "__truediv__"):
        return exact_number(value, name)
    return value


def _from_fraction(value: Fraction) -> Number:
    return value if _Rational is Fraction else _Rational(value.numerator, value.denominator)


def as_fraction(value: Number) -> Fraction:
    """Return an exact number as a `Fraction`, whatever rational type computed it.

    Raises:
        TypeError: the number is not exact.
    """
    if not is_exact(value):
        raise TypeError(f"{value!r} is not exact: somewhere floats got into an exact computation")
    return Fraction(int(value.numerator), int(value.denominator))


def as_law(weights: Iterable[Number], name: str = "law") -> Law:
    """Return `weights` as an exact law, or say what keeps them from being one.

    Args:
        weights: one weight per token, anything `rational` reads.
        name: what the caller calls this argument; it stands in the error.

    >>> print(*as_law(["1/2", "0.5"]))
    1/2 1/2

    Raises:
        ValueError: no row, no entries, a negative entry, or a sum other than one.
    """
    row = exact_row(weights, name)
    if not row:
        raise ValueError(f"{name} is empty; a law needs at least one token")
    for x, w in enumerate(row):
        if w < 0:
            raise ValueError(f"{name}[{x}] = {w} is negative; a law has entries >= 0")
    total = sum(row)
    if total != 1:
        raise ValueError(
            f"{name} sums to {_short(total)}, not 1; floats count at their exact binary value, so "
            'write decimals as strings ("0.1") or pass normalise(...) of strings or integers'
        )
    return row


def exact_row(values: Iterable[Number], name: str) -> Law:
    """Return a row of anything `rational` reads; its entries may have any sign and sum.

    Raises:
        ValueError: something that is no row of numbers.
    """
    row = entries(values, name)
    for x, value in enumerate(row):
        if not isinstance(value, str) and (hasattr(value, "__len__") and _sized(value)):
            raise ValueError(f"{name}[{x}] is a row itself; pass one number per token as {name}")
    try:
        return tuple(rational(w) for w in row)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _sized(value: Any) -> bool:
    try:
        return len(value) >= 0
    except TypeError:  # array scalars and tensors of no dimension have none
        return False


def entries(values: Iterable[Any], name: str) -> tuple[Any, ...]:
    """Return what a list, a tuple, an array or an iterator holds.

    Raises:
        ValueError: something without an order, or without entries that are values.
    """
    if isinstance(values, tuple):
        return values
    if isinstance(values, str | bytes | Mapping | Set):
        kind = type(values).__name__
        raise ValueError(f"{name} = {values!r} is a {kind}; write a list, one entry per place")
    try:
        return tuple(values)
    except TypeError:  # arrays of no dimension too
        raise ValueError(f"{name} = {values!r} is no list; write one entry per place") from None


def integers(values: Iterable[Any], name: str) -> list[int]:
    """Return integers; arrays and tensors hold other types of them.

    Raises:
        ValueError: something else.
    """
    cure = "tokens and nodes are integers"
    return [whole(x, f"{name}[{at}]", cure) for at, x in enumerate(entries(values, name))]


def whole(value: Any, name: str, cure: str, least: int | None = None) -> int:
    """Return an integer of any type that is one.

    Args:
        value: what was passed.
        name: what the caller calls this argument.
        cure: what to write instead.
        least: the smallest that makes sense.

    Raises:
        ValueError: no integer, or a smaller one.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} = {value!r} is not an integer; {cure}") from None
    if least is not None and number < least:
        sign = "negative" if least == 0 else f"below {least}"
        raise ValueError(f"{name} = {number} is {sign}; {cure}")
    return number


def _short(total: Number) -> str:
    text = str(total)
    return text if len(text) <= 24 else f"1 {float(total - 1):+.3g}"


def normalise(weights: Iterable[Number]) -> Law:
    """Return `weights` divided by their sum; integers and strings are read exactly, floats stay.

    >>> normalise([Fraction(1), Fraction(3)])
    (Fraction(1, 4), Fraction(3, 4))
    >>> print(*normalise([1, "1/2"]))
    2/3 1/3

    Raises:
        ValueError: a weight that is negative or not finite, or weights that sum to zero.
    """
    row = tuple(rational(w) if isinstance(w, str) else w for w in entries(weights, "weights"))
    _check_weights(row, "weights")
    return _to_law(row)


def _to_law(row: Law) -> Law:
    total = sum(row)
    if total == 0:
        raise ValueError("the weights sum to zero, so there is no law to normalise to")
    return _divide(row, total)


def _check_weights(row: Sequence[Number], name: str) -> None:
    total = sum(row)
    if not is_exact(total) and not isinstance(total, float) and not hasattr(total, "dtype"):
        return  # symbols: whoever reads them decides
    if (is_exact(total) or total < math.inf) and (not row or min(row) >= 0):
        return
    for x, w in enumerate(row):
        if not 0 <= w < math.inf:  # NaN is on neither side of a comparison
            raise ValueError(f"{name}[{x}] = {w} is no weight; weights are finite and >= 0")
    raise ValueError(f"{name} sums to {total}; scale the weights down")


def _divide(row: Law, total: Number) -> Law:
    exact = rational(total) if isinstance(total, int) else total  # int / int would be a float
    return tuple(w / exact for w in row)


def excess(p: Sequence[Number], q: Sequence[Number]) -> Law:
    """Return the residual `norm((p - q)+)`, the law of a correction (Leviathan 2023, Alg. 1).

    Args:
        p: target law [V].
        q: draft law [V].

    >>> excess((Fraction(1, 2), Fraction(1, 2)), (Fraction(3, 4), Fraction(1, 4)))
    (Fraction(0, 1), Fraction(1, 1))

    Raises:
        ValueError: an entry that is negative or not finite, rows of different length, or `p <= q`
            everywhere; then no draft is ever rejected and no residual exists.
    """
    rows = entries(p, "p"), entries(q, "q")
    for row, name in zip(rows, "pq", strict=True):
        _check_weights(row, name)
    return _to_law(tuple(max(a - b, 0) for a, b in zip(*rows, strict=True)))


def without(law: Sequence[Number], x: int) -> Law:
    """Return `law` with token `x` removed and the rest renormalised; all zeros if nothing is left.

    >>> without((Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)), 0)
    (Fraction(0, 1), Fraction(1, 2), Fraction(1, 2))
    """
    row = tuple(w * 0 if i == x else w for i, w in enumerate(law))
    total = sum(row)
    return row if total == 0 else _divide(row, total)


def top(law: Sequence[Number], k: int) -> tuple[int, ...]:
    """Return the `k` likeliest tokens, likeliest first; equal ones in token order.

    >>> top((Fraction(1, 4), Fraction(1, 2), Fraction(1, 4)), 2)
    (1, 0)
    """
    return tuple(sorted(range(len(law)), key=lambda x: -law[x])[:k])


def keep(law: Sequence[Number], tokens: Iterable[int]) -> Law:
    """Return `law` restricted to `tokens` and renormalised, as a top-k or top-p filter does."""
    kept = set(tokens)
    return normalise(w if x in kept else w * 0 for x, w in enumerate(law))


def tv(
    a: Mapping[Any, Number] | Sequence[Number], b: Mapping[Any, Number] | Sequence[Number]
) -> Number:
    """Return the total variation distance: half the sum of absolute differences.

    Args:
        a, b: laws as tuples over tokens, or as mappings from outcome to mass.

    >>> tv((1, 0), (0, 1))
    Fraction(1, 1)
    """
    first = a if isinstance(a, Mapping) else dict(enumerate(a))
    second = b if isinstance(b, Mapping) else dict(enumerate(b))
    total = sum(abs(first.get(o, 0) - second.get(o, 0)) for o in first.keys() | second.keys())
    return total * Fraction(1, 2) if isinstance(total, int) else total / 2


def is_exact(value: Number) -> bool:
    """Whether `value` is a rational number, so that equality means equality."""
    return isinstance(value, int | Fraction | _Rational)


def approximate_exp(value: Number) -> Number:
    """Return `exp(value)` rounded to a double, as an exact rational.

    Faults such as a softmaxed residual are irrational; this pins them to 53 bits.
    """
    return rational(math.exp(float(value)))
