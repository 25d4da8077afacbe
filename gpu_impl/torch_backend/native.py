"""The functions of `rows` for a CPU, in C++ (`rows.cpp`); and what native code is handed.

Masses are single precision, and their sums nearly double; a result is bit by bit the same for any
number of threads and whatever else is asked in the same call. Where there is no library,
`why_not` says why, and `rows` does the same in plain torch.
"""

import ctypes
from functools import lru_cache
from typing import Any

import torch

from gpu_impl.laws import Laws
from gpu_impl.parameters import FILTERS, Reading
from gpu_impl.torch_backend.library import call, why_not
from gpu_impl.torch_backend.rows import Picked

__all__ = ["draw", "laws", "mass", "why_not"]

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ZERO = ("one", "off", "refused")
LAWS = (
    torch.float32, torch.float32, torch.float32, torch.int32, torch.int32, torch.float64,
    torch.int32, torch.bool, torch.bool,
)  # fmt: skip
"""The types of `Laws`."""
MOST = 2**31 - 1


def laws(picked: Picked) -> Laws:
    """Return the scalars of rows."""
    n = len(picked)
    found = Laws(*(torch.empty(n, dtype=dtype) for dtype in LAWS))
    if n:
        held: list[Any] = []
        side = picked.side
        numbers = (side.temperature, side.top_k, side.top_p, side.min_p)
        asked = asked_struct(numbers, side.reading, held)
        told = laws_struct(found, held)
        call("specref_laws", _rows(picked, held), asked, n, told, torch.get_num_threads())
    return found


def mass(
    p: Picked, p_laws: Laws, q: Picked | None, q_laws: Laws | None, a: Any, c: Any, out: Any = None
) -> Any:
    """Return sum_v max(a p(v) - c q(v), 0) over the tokens that are not excluded; see `rows`."""
    return _mass(p, p_laws, q, q_laws, a, c, out, None)[1]


def draw(
    p: Picked, p_laws: Laws, q: Picked | None, q_laws: Laws | None, a: Any, c: Any, out: Any, u: Any
) -> tuple[Any, Any]:
    """Draw one token of each row from the weights of `mass`; see `rows`."""
    return _mass(p, p_laws, q, q_laws, a, c, out, u)


def _mass(
    p: Picked, p_laws: Laws, q: Picked | None, q_laws: Laws | None, a: Any, c: Any, out: Any, u: Any
) -> tuple[Any, Any]:
    n = len(p)
    token, found = torch.empty(n, dtype=torch.int32), torch.empty(n, dtype=torch.float64)
    if not n:
        return token, found
    held: list[Any] = []
    none = q is None or q_laws is None
    call(
        "specref_mass",
        _rows(p, held),
        laws_struct(p_laws, held),
        None if q is None or none else _rows(q, held),
        None if q_laws is None or none else laws_struct(q_laws, held),
        n,
        pointer(a, torch.float64, held),
        pointer(c, torch.float64, held),
        pointer(out, torch.int32, held),
        0 if out is None else out.shape[1],
        pointer(u, torch.float64, held),
        pointer(token, torch.int32, held),
        pointer(found, torch.float64, held),
        torch.get_num_threads(),
    )
    return token, found


def _rows(picked: Picked, held: list[Any]) -> int:
    side = picked.side
    told = side_struct(
        side.x, len(side.temperature), held, probs=side.probs, bias=side.bias,
        allowed=side.allowed, place=side.place,
    )  # fmt: skip
    index = (picked.rows, picked.requests, picked.nodes)
    return address(_Picked(told, *(pointer(at, torch.int64, held) for at in index)), held)


# Structures, as rows.h and rows.cpp have them. `held` keeps what they point to.


def pointer(tensor: Any, dtype: Any, held: list[Any]) -> int | None:
    """Return the address of a tensor's numbers, in order; None if there is no tensor."""
    if tensor is None:
        return None
    if tensor.dtype is not dtype or tensor.device.type != "cpu" or not tensor.is_contiguous():
        tensor = tensor.to("cpu", dtype).contiguous()
    held.append(tensor)
    found: int = tensor.data_ptr()
    return found


def address(made: Any, held: list[Any]) -> int:
    """Return the address of a structure."""
    held.append(made)
    return ctypes.addressof(made)


class _Side(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "bias", "allowed", "place")),
        *((name, ctypes.c_int64) for name in ("stride", "words", "rows", "requests", "nodes")),
        *((name, ctypes.c_int32) for name in ("width", "vocab", "dtype", "probs")),
    )


class _Picked(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in ("side", "rows", "requests", "nodes"))


class _Laws(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in Laws._fields)


class _Asked(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("temperature", *FILTERS)),
        *((name, ctypes.c_float) for name in ("coldest", "hottest")),
        ("each", ctypes.c_int32 * 4),
        ("groups", ctypes.c_int32),
        *((name, ctypes.c_int32 * 4) for name in ("group", "hot")),
        *(
            (name, ctypes.c_int32)
            for name in "top_k_all top_p_all highest exceeds top_p_zero whole_top_k".split()
        ),
    )


def side_struct(
    x: Any, requests: int, held: list[Any], *, probs: bool = False, bias: Any = None,
    allowed: Any = None, place: Any = None,
) -> int:  # fmt: skip
    """Return rows as native code reads them, see `rows.Side`."""
    held.append(x)
    rows, width = x.shape
    told = _Side(
        x.data_ptr(),
        pointer(bias, torch.float32, held),
        pointer(allowed, torch.int32, held),
        pointer(place, torch.int32, held),
        x.stride(0),
        0 if allowed is None else allowed.shape[1],
        rows,
        requests,
        0 if allowed is None else len(allowed),
        width,
        width if place is None else len(place),
        DTYPES.index(x.dtype),
        probs,
    )
    return address(told, held)


def laws_struct(known: Laws, held: list[Any]) -> int:
    """Return scalars of rows as native code reads and writes them."""
    columns = (pointer(one, dtype, held) for one, dtype in zip(known, LAWS, strict=True))
    return address(_Laws(*columns), held)


def asked_struct(numbers: tuple[Any, Any, Any, Any], reading: Reading, held: list[Any]) -> int:
    """Return sampling parameters as native code reads them.

    Args:
        numbers: temperature, top_k, top_p, min_p; each a number for all requests, or a tensor [B].
        reading: the preset.
        held: see above.
    """
    if any(isinstance(value, torch.Tensor) for value in numbers):
        return address(_asked(numbers, reading, held), held)
    shared = _shared(numbers, reading)
    held.append(shared)
    return ctypes.addressof(shared[0])


@lru_cache(maxsize=256)
def _shared(numbers: tuple[Any, Any, Any, Any], reading: Reading) -> tuple[_Asked, list[Any]]:
    """Return the parameters of calls that ask the same of all requests, and what they point to."""
    held: list[Any] = []
    return _asked(numbers, reading, held), held


def _asked(numbers: tuple[Any, Any, Any, Any], reading: Reading, held: list[Any]) -> _Asked:
    at, each = [], []
    for value, whole in zip(numbers, (False, True, False, False), strict=True):
        each.append(isinstance(value, torch.Tensor))
        if each[-1]:
            at.append(pointer(value, torch.int32 if whole else torch.float32, held))
        else:
            one = ctypes.c_int32(min(int(value), MOST)) if whole else ctypes.c_float(value)
            at.append(address(one, held))
    return _Asked(
        *at, reading.coldest, reading.hottest, tuple(each), len(reading.groups),
        tuple(sum(1 << FILTERS.index(name) for name in group) for group in reading.groups),
        reading.hot, reading.top_k_all, reading.top_p_all, reading.highest, reading.exceeds,
        ZERO.index(reading.top_p_zero), reading.whole_top_k,
    )  # fmt: skip
