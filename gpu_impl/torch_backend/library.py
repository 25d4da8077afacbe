"""The C++ of this folder as one library, built on first use.

`rows.cpp` and `round.cpp` are compiled by whatever C++ compiler there is, for the machine's own
instructions, and kept in the user's cache folder under a name that says what it was made of. Where
that cannot be done, `why_not` says why.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

SOURCES = tuple(Path(__file__).with_name(name) for name in ("rows.cpp", "round.cpp"))
HEADERS = (Path(__file__).with_name("rows.h"),)
FLAGS = "-O3 -std=c++17 -ffp-contract=off -fno-math-errno -fno-trapping-math -w".split()
SHARED = "-shared -fPIC -pthread".split()
COMPILERS = ("c++", "g++", "clang++")

NO_MEMORY, DONE = 0, 1


class Unavailable(Exception):
    """There is no native code here; the message says why."""


def why_not() -> str | None:
    """Return why there is no native code here; None if there is."""
    return _opened()[1]


def call(name: str, *arguments: Any) -> None:
    """Call a function of the library that returns a `Result` of rows.h.

    Raises:
        RuntimeError: there is no library here.
        MemoryError, IndexError: what the function said.
    """
    library, reason = _opened()
    if library is None:
        raise RuntimeError(f"there is no native code: {reason}; use gpu_impl.torch_backend.rows")
    result = getattr(library, name)(*arguments)
    if result == NO_MEMORY:
        raise MemoryError("no memory to go over rows")
    if result != DONE:
        raise IndexError("a row, request or node is outside of its tensor")


@cache
def _opened() -> tuple[Any, str | None]:
    if os.environ.get("GPU_IMPL_NATIVE") == "0":
        return None, "GPU_IMPL_NATIVE=0 turns it off"
    try:
        library = built(SOURCES, _folder(), HEADERS)
    except Unavailable as error:
        return None, str(error)
    pointer, whole, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    library.specref_laws.argtypes = (pointer, pointer, whole, pointer, number)
    library.specref_mass.argtypes = (
        *(pointer,) * 4, whole, *(pointer,) * 3, whole, *(pointer,) * 3, number,
    )  # fmt: skip
    library.specref_verify.argtypes = (pointer,)
    return library, None


def built(sources: Sequence[Path], folder: Path, headers: Sequence[Path] = ()) -> Any:
    """Return sources as a loaded library, from the cache folder if it is there.

    Several processes may do so at once: each compiles for itself, and files are moved into place.

    Args:
        sources: C++ files; the first one names the library.
        folder: where libraries are kept; if it cannot be written, nothing is.
        headers: what the sources include beside them.

    Raises:
        Unavailable: a file is gone, there is no compiler, or what it makes cannot be loaded.
    """
    files = (*sources, *headers)
    try:
        texts = [file.read_bytes() for file in files]
    except OSError as error:
        raise Unavailable(f"{error.filename} cannot be read: {error}") from None
    kept = folder / f"{sources[0].stem}-{_key(texts)}.so"
    try:
        return ctypes.CDLL(str(kept))
    except OSError:  # not there yet, or not whole
        pass
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch, kept.name)
        _compile(sources, made)
        try:
            library = ctypes.CDLL(str(made))
        except OSError as error:
            raise Unavailable(f"what was built cannot be loaded: {error}") from None
        _keep(made, kept)
    return library


def _folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) / "gpu_impl" if base else Path("~/.cache/gpu_impl").expanduser()


def _key(texts: Sequence[bytes]) -> str:
    """Return what a library depends on, in short: its files, flags, and the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = sorted({x for x in lines if x.lower().startswith(("flags", "features"))})
    except OSError:
        processor = [platform.processor()]
    told = [platform.system(), platform.machine(), *processor, *FLAGS, *SHARED]
    parts = [hashlib.sha256(text).hexdigest() for text in texts]
    return hashlib.sha256("\n".join([*parts, *told]).encode()).hexdigest()[:24]


def _compile(sources: Sequence[Path], made: Path) -> None:
    named = os.environ.get("CXX")
    compiler = next(filter(None, map(shutil.which, (named,) if named else COMPILERS)), None)
    if compiler is None:
        raise Unavailable(f"no C++ compiler is found: {named or ', '.join(COMPILERS)}")
    said = ""
    for own in (["-march=native"], ["-mcpu=native"], []):
        command = [compiler, *FLAGS, *own, *SHARED, *map(str, sources), "-o", str(made)]
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
