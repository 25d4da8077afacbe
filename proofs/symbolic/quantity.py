"""Numbers that are rational functions: what the rules compute with when they run on symbols."""

import math
from fractions import Fraction
from typing import Any

from flint import fmpq

from proofs.symbolic.region import Region
from proofs.symbolic.symbols import Polynomial

LESS, EQUAL, MORE = frozenset((-1,)), frozenset((0,)), frozenset((1,))


class Quantity:
    """A quotient of polynomials, with + - * / and comparisons, which the region answers.

    A division asks whether the divisor is zero, so denominators are never zero on the region. There
    is no hash: a set or a dictionary would say that a number is not in it, and not ask the region.
    """

    __slots__ = ("bottom", "region", "top")

    def __init__(self, top: Polynomial, bottom: Polynomial, region: Region) -> None:
        self.top, self.bottom, self.region = top, bottom, region

    def _read(self, other: Any) -> tuple[Polynomial, Polynomial] | None:
        """Return another operand as a quotient of polynomials."""
        if isinstance(other, Quantity):
            assert other.region is self.region, "a number of another region came back"
            return other.top, other.bottom
        symbols = self.region.shared.symbols
        if isinstance(other, int):
            return symbols.integer(other), symbols.one
        if hasattr(other, "numerator") and hasattr(other, "denominator"):
            return symbols.constant(other), symbols.one
        return None

    def _reduced(self, top: Polynomial, bottom: Polynomial) -> "Quantity":
        one = self.region.shared.symbols.one
        if bottom is one or bottom.is_constant():
            scale = bottom.leading_coefficient()
            return Quantity(top if scale == 1 else top * (1 / scale), one, self.region)
        common = top.gcd(bottom)
        top, bottom = top / common, bottom / common
        scale = bottom.leading_coefficient()
        return Quantity(top * (1 / scale), bottom * (1 / scale), self.region)

    def __add__(self, other: Any) -> Any:
        read = self._read(other)
        if read is None:
            return NotImplemented
        top, bottom = read
        if bottom is self.bottom and bottom is self.region.shared.symbols.one:
            return Quantity(self.top + top, bottom, self.region)
        if bottom == self.bottom:
            return self._reduced(self.top + top, bottom)
        return self._reduced(self.top * bottom + top * self.bottom, self.bottom * bottom)

    __radd__ = __add__

    def __neg__(self) -> "Quantity":
        return Quantity(-self.top, self.bottom, self.region)

    def __pos__(self) -> "Quantity":
        return self

    def __sub__(self, other: Any) -> Any:
        read = self._read(other)
        if read is None:
            return NotImplemented
        return self + Quantity(-read[0], read[1], self.region)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        read = self._read(other)
        if read is None:
            return NotImplemented
        one = self.region.shared.symbols.one
        if read[1] is one and self.bottom is one:
            return Quantity(self.top * read[0], one, self.region)
        return self._reduced(self.top * read[0], self.bottom * read[1])

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        read = self._read(other)
        if read is None:
            return NotImplemented
        if self.region.is_in([read[0]], EQUAL):
            raise ZeroDivisionError("a symbol that is zero here divides")
        return self._reduced(self.top * read[1], self.bottom * read[0])

    def __rtruediv__(self, other: Any) -> Any:
        read = self._read(other)
        if read is None:
            return NotImplemented
        return Quantity(*read, self.region) / self

    def __pow__(self, exponent: int) -> Any:
        return self._reduced(self.top**exponent, self.bottom**exponent)

    def __abs__(self) -> "Quantity":
        return -self if self < 0 else self

    def _compared(self, other: Any, signs: frozenset[int]) -> Any:
        """Say whether self - other has one of these signs."""
        if isinstance(other, float) and math.isinf(other):
            return (-1 if other > 0 else 1) in signs
        if hasattr(other, "as_integer_ratio") and not hasattr(other, "numerator"):
            # Left to Python, `p == 1/2` would be false: a float is compared as fractions do it.
            other = Fraction(*other.as_integer_ratio())
        read = self._read(other)
        if read is None:
            return NotImplemented
        top, bottom = read
        one = self.region.shared.symbols.one
        if bottom is one and self.bottom is one:
            return self.region.is_in([self.top - top], signs)
        gap = self.top * bottom - top * self.bottom
        return self.region.is_in([gap, self.bottom, bottom], signs)

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, LESS)

    def __le__(self, other: Any) -> Any:
        return self._compared(other, LESS | EQUAL)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, MORE)

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, MORE | EQUAL)

    def __eq__(self, other: object) -> Any:
        return self._compared(other, EQUAL)

    def __ne__(self, other: object) -> Any:
        return self._compared(other, LESS | MORE)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def is_zero(self) -> bool:
        """Say whether it is the zero function, without asking the region."""
        return bool(self.top == 0)

    def at(self, values: list[Fraction]) -> Fraction:
        """Return its value at a point."""
        point = [fmpq(v.numerator, v.denominator) for v in values]
        value = self.top(*point) / self.bottom(*point)
        return Fraction(int(value.p), int(value.q))

    def __repr__(self) -> str:
        show = self.region.shared.symbols.show
        top = show(self.top)
        return top if self.bottom.is_constant() else f"({top})/({show(self.bottom)})"
