"""Python numbers that a draw reaches: what `.item()` and `.tolist()` give on a tape."""

from collections.abc import Callable
from typing import Any

import torch


class Scalar:
    """A Python float that a draw reaches.

    It computes like the float it stands for, on a 0-dimensional float64 tensor that the tape
    follows, so `u.item() < p` is a comparison like any other. Whoever needs the bare float
    (`float(x)`, `math.log(x)`) takes the draw out of torch, and the tape logs an escape.
    """

    __slots__ = ("tensor",)
    __array_ufunc__ = None  # NumPy numbers leave mixed arithmetic to this class

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        # A Python number does not promote the tensors that it meets; a float64 tensor may.
        floats = [a for a in _flat(args) if isinstance(a, torch.Tensor) and a.is_floating_point()]
        dtype = floats[0].dtype if floats else torch.get_default_dtype()
        plain = _plain(args, dtype)
        named = {name: _plain(value, dtype) for name, value in (kwargs or {}).items()}
        return func(*plain, **named)

    def __float__(self) -> float:
        return float(self.tensor)

    def __int__(self) -> int:
        return int(self.tensor)

    __trunc__ = __int__

    def __floor__(self) -> int:
        return int(self.tensor.floor())

    def __ceil__(self) -> int:
        return int(self.tensor.ceil())

    def __round__(self, digits: int | None = None) -> Any:
        if digits is None:
            return int(self.tensor.round())
        return Scalar(self.tensor.round(decimals=digits))

    def __bool__(self) -> bool:
        return bool(self.tensor != 0)

    def __hash__(self) -> int:
        return hash(float(self.tensor))

    def __repr__(self) -> str:
        return f"Scalar({self.tensor})"

    def __neg__(self) -> "Scalar":
        return Scalar(-self.tensor)

    def __pos__(self) -> "Scalar":
        return self

    def __abs__(self) -> "Scalar":
        return Scalar(self.tensor.abs())

    # NumPy calls these methods for its functions on arrays of objects.

    def log(self) -> "Scalar":
        return Scalar(self.tensor.log())

    def log1p(self) -> "Scalar":
        return Scalar(self.tensor.log1p())

    def exp(self) -> "Scalar":
        return Scalar(self.tensor.exp())

    def sqrt(self) -> "Scalar":
        return Scalar(self.tensor.sqrt())


def _binary(name: str) -> Callable[[Scalar, Any], Any]:
    method = getattr(torch.Tensor, name)

    def apply(self: Scalar, other: Any) -> Any:
        if isinstance(other, torch.Tensor):
            return NotImplemented
        if isinstance(other, Scalar):
            value = other.tensor
        elif isinstance(other, bool | int | float):
            value = other
        else:
            try:
                value = float(other)
            except (TypeError, ValueError):
                return NotImplemented
        out = method(self.tensor, value)
        if out is NotImplemented:
            return out
        return bool(out) if out.dtype == torch.bool else Scalar(out)

    return apply


for _name in (
    "add radd sub rsub mul rmul truediv rtruediv floordiv mod pow rpow lt le gt ge eq ne"
).split():
    setattr(Scalar, f"__{_name}__", _binary(f"__{_name}__"))


def scalars(tensor: Any) -> Any:
    """Return a tensor as nested lists of `Scalar`, as `tolist` would."""
    return Scalar(tensor) if tensor.dim() == 0 else [scalars(part) for part in tensor.unbind(0)]


def has_scalar(data: Any) -> bool:
    """Whether nested lists hold a `Scalar`."""
    return any(isinstance(a, Scalar) for a in _flat((data,)))


def tensor_of(data: Any, dtype: Any) -> Any:
    """Return `torch.tensor(data)` for nested lists that hold a `Scalar`."""

    def build(d: Any) -> Any:
        if isinstance(d, list | tuple):
            return torch.stack([build(x) for x in d])
        return d.tensor.clone() if isinstance(d, Scalar) else torch.tensor(d, dtype=torch.float64)

    return build(data).to(dtype or torch.get_default_dtype())


def _flat(values: Any) -> Any:
    for a in values:
        if isinstance(a, list | tuple):
            yield from _flat(a)
        else:
            yield a


def _plain(value: Any, dtype: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_plain(v, dtype) for v in value)
    return value.tensor.to(dtype) if isinstance(value, Scalar) else value
