"""Certified enclosures of real numbers: python-flint's balls, or mpmath's intervals."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol

from specref.dist import Number, rational


class Arithmetic(Protocol):
    """Real numbers with an error bound that is carried along; `+ - * /` and `<` work on them.

    A comparison is true only if it holds for every real number in the enclosures.
    """

    def at(self, bits: int) -> Any:
        """Return a context manager within which results are rounded to so many bits."""

    def number(self, value: Number) -> Any:
        """Return the enclosure of a rational."""

    def exp(self, ball: Any) -> Any:
        """Return the exponential."""

    def log(self, ball: Any) -> Any:
        """Return the natural logarithm of a positive number."""

    def bounds(self, ball: Any) -> tuple[Number, Number] | None:
        """Return rationals, the one at most and the other at least what is enclosed.

        None where there are none, because too few bits left nothing known: more of them may tell.
        """


class Flint:
    """Balls of Arb, by python-flint.

    Raises:
        ImportError: python-flint is not installed.
    """

    def __init__(self) -> None:
        import flint

        self._flint = flint

    @contextmanager
    def at(self, bits: int) -> Iterator[None]:
        with self._flint.ctx.workprec(bits):
            yield

    def number(self, value: Number) -> Any:
        exact = self._flint.fmpq(int(value.numerator), int(value.denominator))
        return self._flint.arb(exact)

    def exp(self, ball: Any) -> Any:
        return ball.exp()

    def log(self, ball: Any) -> Any:
        return ball.log()

    def bounds(self, ball: Any) -> tuple[Number, Number] | None:
        if not ball.is_finite():
            return None
        low, high = ball.lower().man_exp(), ball.upper().man_exp()
        return _below(int(low[0]), int(low[1])), -_below(-int(high[0]), int(high[1]))


class Intervals:
    """Intervals of mpmath, in a context of their own.

    Raises:
        ImportError: mpmath is not installed.
    """

    def __init__(self) -> None:
        from mpmath.ctx_iv import MPIntervalContext

        self._iv = MPIntervalContext()

    @contextmanager
    def at(self, bits: int) -> Iterator[None]:
        before, self._iv.prec = self._iv.prec, bits
        try:
            yield
        finally:
            self._iv.prec = before

    def number(self, value: Number) -> Any:
        return self._iv.mpf(int(value.numerator)) / self._iv.mpf(int(value.denominator))

    def exp(self, ball: Any) -> Any:
        return self._iv.exp(ball)

    def log(self, ball: Any) -> Any:
        return self._iv.log(ball)

    def bounds(self, ball: Any) -> tuple[Number, Number] | None:
        if any(exp and not man for _, man, exp, _ in ball._mpi_):  # so it writes infinities and NaN
            return None
        low, high = (
            (-int(man) if sign else int(man), int(exp)) for sign, man, exp, _ in ball._mpi_
        )
        return _below(*low), -_below(-high[0], high[1])


TINIEST = 1 << 14
"""Bits after the point that are written out; masses below are enclosed by 0 and one last bit."""


def _below(man: int, exp: int) -> Number:
    """Return `man * 2^exp`, or a little less where it is too small to be written out."""
    if exp >= 0:
        return rational(man << exp)
    if man.bit_length() + exp < -TINIEST:
        return rational(-1 if man < 0 else 0, 1 << TINIEST)
    return rational(man, 1 << -exp)


@cache
def arithmetic(name: str | None = None) -> Arithmetic:
    """Return the arithmetic that is installed: python-flint, else mpmath.

    Args:
        name: "flint" or "mpmath" for one of them.

    Raises:
        ImportError: what was asked for is not installed.
    """
    if name != "mpmath":
        try:
            return Flint()
        except ImportError:
            if name is not None:
                raise
    try:
        return Intervals()
    except ImportError:
        raise ImportError(
            "logits whose law is irrational need python-flint or mpmath; "
            "pip install 'specref[exact]', or pass weights whose powers are rational"
        ) from None
