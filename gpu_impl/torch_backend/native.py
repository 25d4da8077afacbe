"""The functions of `rows` for a CPU, in C++ that is built on first use.

`rows.cpp` is compiled by whatever C++ compiler there is, for the machine's own instructions, and
kept in the user's cache folder under a name that says what it was made of. Where that cannot be
done, `why_not` says why, and `rows` does the same in plain torch.

Masses are single precision, and their sums nearly double; a result is bit by bit the same for any
number of threads and whatever else is asked in the same call.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch

from gpu_impl.laws import Laws
from gpu_impl.parameters import FILTERS, Reading
from gpu_impl.torch_backend.rows import Picked, Side

__all__ = ["draw", "laws", "mass", "why_not"]

SOURCE = Path(__file__).with_name("rows.cpp")
FLAGS = "-O3 -std=c++17 -ffp-contract=off -fno-math-errno -fno-trapping-math -w".split()
SHARED = "-shared -fPIC -pthread".split()
COMPILERS = ("c++", "g++", "clang++")

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ZERO = ("one", "off", "refused")
NO_MEMORY, DONE = 0, 1


class Unavailable(Exception):
    """There is no native code here; the message says why."""


def why_not() -> str | None:
    """Return why there is no native code here; None if there is."""
    return _opened()[1]


def laws(picked: Picked) -> Laws:
    """Return the scalars of rows."""
    n = len(picked)
    single, whole, flag = torch.float32, torch.int32, torch.bool
    dtypes = (single, single, single, whole, whole, torch.float64, whole, flag, flag)
    found = Laws(*(torch.empty(n, dtype=dtype) for dtype in dtypes))
    if n:
        held: list[Any] = []
        rows, asked = _rows(picked, held), _asked(picked.side, held)
        _call("specref_laws", rows, asked, n, _scalars(found, held), torch.get_num_threads())
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
    _call(
        "specref_mass",
        _rows(p, held),
        _scalars(p_laws, held),
        None if q is None or none else _rows(q, held),
        None if q_laws is None or none else _scalars(q_laws, held),
        n,
        _pointer(a, torch.float64, held),
        _pointer(c, torch.float64, held),
        _pointer(out, torch.int32, held),
        0 if out is None else out.shape[1],
        _pointer(u, torch.float64, held),
        _pointer(token, torch.int32, held),
        _pointer(found, torch.float64, held),
        torch.get_num_threads(),
    )
    return token, found


# Structures, as rows.cpp has them


class _Side(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "bias", "allowed", "place")),
        *((name, ctypes.c_int64) for name in ("stride", "words", "rows", "requests", "nodes")),
        *((name, ctypes.c_int32) for name in ("width", "vocab", "dtype", "probs")),
    )


class _Picked(ctypes.Structure):
    _fields_ = (
        ("side", ctypes.POINTER(_Side)),
        *((name, ctypes.c_void_p) for name in ("rows", "requests", "nodes")),
    )


class _Laws(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in Laws._fields)


class _Asked(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("temperature", *FILTERS)),
        *((name, ctypes.c_float) for name in ("coldest", "hottest")),
        *((name, ctypes.c_int32) for name in ("filters", "groups")),
        *((name, ctypes.c_int32 * 4) for name in ("group", "hot")),
        *(
            (name, ctypes.c_int32)
            for name in "top_k_all top_p_all highest exceeds top_p_zero whole_top_k".split()
        ),
    )


def _pointer(tensor: Any, dtype: Any, held: list[Any]) -> Any:
    """Return the address of a tensor's numbers, in order; `held` keeps them there."""
    if tensor is None:
        return None
    tensor = tensor.to(dtype).contiguous()
    held.append(tensor)
    return tensor.data_ptr()


def _rows(picked: Picked, held: list[Any]) -> Any:
    side = picked.side
    x, allowed = side.x, side.allowed
    held.append(x)
    told = _Side(
        x.data_ptr(),
        _pointer(side.bias, torch.float32, held),
        _pointer(allowed, torch.int32, held),
        _pointer(side.place, torch.int32, held),
        x.stride(0),
        0 if allowed is None else allowed.shape[1],
        len(x),
        len(side.temperature),
        0 if allowed is None else len(allowed),
        x.shape[1],
        x.shape[1] if side.place is None else len(side.place),
        DTYPES.index(x.dtype),
        side.probs,
    )
    index = (picked.rows, picked.requests, picked.nodes)
    return ctypes.byref(
        _Picked(ctypes.pointer(told), *(_pointer(at, torch.int64, held) for at in index))
    )


def _scalars(known: Laws, held: list[Any]) -> Any:
    return ctypes.byref(_Laws(*(_pointer(column, column.dtype, held) for column in known)))


def _asked(side: Side, held: list[Any]) -> Any:
    reading: Reading = side.reading
    four = ctypes.c_int32 * 4
    groups = [sum(1 << FILTERS.index(name) for name in group) for group in reading.groups]
    return ctypes.byref(
        _Asked(
            _pointer(side.temperature, torch.float32, held),
            _pointer(side.top_k, torch.int32, held),
            _pointer(side.top_p, torch.float32, held),
            _pointer(side.min_p, torch.float32, held),
            reading.coldest,
            reading.hottest,
            side.filters,
            len(groups),
            four(*groups),
            four(*reading.hot),
            reading.top_k_all,
            reading.top_p_all,
            reading.highest,
            reading.exceeds,
            ZERO.index(reading.top_p_zero),
            reading.whole_top_k,
        )
    )


# The library


@cache
def _opened() -> tuple[Any, str | None]:
    if os.environ.get("GPU_IMPL_NATIVE") == "0":
        return None, "GPU_IMPL_NATIVE=0 turns it off"
    try:
        library = built(SOURCE, _folder())
    except Unavailable as error:
        return None, str(error)
    pointer, whole, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    library.specref_laws.argtypes = (pointer, pointer, whole, pointer, number)
    library.specref_mass.argtypes = (
        *(pointer,) * 4, whole, *(pointer,) * 3, whole, *(pointer,) * 3, number,
    )  # fmt: skip
    return library, None


def _call(name: str, *arguments: Any) -> None:
    library, reason = _opened()
    if library is None:
        raise RuntimeError(f"there is no native code: {reason}; use gpu_impl.torch_backend.rows")
    result = getattr(library, name)(*arguments)
    if result == NO_MEMORY:
        raise MemoryError("no memory to go over rows")
    if result != DONE:
        raise IndexError("a row, request or node is outside of its tensor")


def built(source: Path, folder: Path) -> Any:
    """Return a source as a loaded library, from the cache folder if it is there.

    Several processes may do so at once: each compiles for itself, and files are moved into place.

    Args:
        source: a C++ file.
        folder: where libraries are kept; if it cannot be written, nothing is.

    Raises:
        Unavailable: the source is gone, there is no compiler, or what it makes cannot be loaded.
    """
    try:
        text = source.read_bytes()
    except OSError as error:
        raise Unavailable(f"{source.name} cannot be read: {error}") from None
    kept = folder / f"{source.stem}-{_key(text)}.so"
    try:
        return ctypes.CDLL(str(kept))
    except OSError:  # not there yet, or not whole
        pass
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch, kept.name)
        _compile(source, made)
        try:
            library = ctypes.CDLL(str(made))
        except OSError as error:
            raise Unavailable(f"what was built cannot be loaded: {error}") from None
        _keep(made, kept)
    return library


def _folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) / "gpu_impl" if base else Path("~/.cache/gpu_impl").expanduser()


def _key(text: bytes) -> str:
    """Return what a library depends on, in short: source, flags, and the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = sorted({x for x in lines if x.lower().startswith(("flags", "features"))})
    except OSError:
        processor = [platform.processor()]
    told = [platform.system(), platform.machine(), *processor, *FLAGS, *SHARED]
    return hashlib.sha256(text + "\n".join(told).encode()).hexdigest()[:24]


def _compile(source: Path, made: Path) -> None:
    named = os.environ.get("CXX")
    compiler = next(filter(None, map(shutil.which, (named,) if named else COMPILERS)), None)
    if compiler is None:
        raise Unavailable(f"no C++ compiler is found: {named or ', '.join(COMPILERS)}")
    said = ""
    for own in (["-march=native"], ["-mcpu=native"], []):
        command = [compiler, *FLAGS, *own, *SHARED, str(source), "-o", str(made)]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"{compiler} does not run: {error}") from None
        if run.returncode == 0:
            return
        said = said or run.stderr.strip()
    raise Unavailable(f"{compiler} does not build it: {said[:500]}")


def _keep(made: Path, kept: Path) -> None:
    """Put a library where the next process finds it, whole or not at all."""
    try:
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as partial:
            partial.write(made.read_bytes())
        os.replace(partial.name, kept)
    except OSError:
        return
