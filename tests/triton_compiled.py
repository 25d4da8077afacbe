"""Kernels compiled for devices that are not here; prints their registers, stack and spills as JSON.

With TRITON_COMPILE=full in the environment, every kernel is compiled for every target.
"""

import contextlib
import io
import json
import os
import re
import tempfile

os.environ.pop("TRITON_INTERPRET", None)
os.environ["TRITON_DUMP_PTXAS_LOG"] = "1"  # told on a cache miss only
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gpu_impl import Parameters
from gpu_impl.laws import Laws
from gpu_impl.triton_backend import walk as kernels
from gpu_impl.triton_backend.arguments import Asked, Draws, Out, Parts, Rows
from gpu_impl.triton_backend.launch import BLOCK, OPTIONS

FULL = os.environ.get("TRITON_COMPILE") == "full"
NUMBERS = Asked(*(("fp32",) * 3,) * 4)
TENSORS = Asked("*fp32", "*i32", "*fp32", "*fp32")
ROWS = Rows("*bf16", "i32", "i32")
HELD = Laws("*fp32", "*fp32", "*fp32", "*i32", "*i32", "*fp64", "*i32", "*i1", "*i1")
NO_ROWS = Rows(None, None, None)
PARTS = Parts("*fp32", "*fp64", "*i32", "*i32")


@triton.jit
def spilling(x, N: tl.constexpr):
    """Sort in too few registers: the reading has to show that."""
    at = tl.arange(0, N)
    tl.store(x + at, tl.sort(tl.load(x + at)))


def source(kernel, given, constants):
    """Return a kernel with the types of its arguments; those of None are constants."""
    fixed = dict(constants)

    def typed(value, path):
        if value is None:
            fixed[path if len(path) > 1 else list(given)[path[0]]] = None
            return "constexpr"
        if isinstance(value, tuple):
            inner = [typed(one, (*path, at)) for at, one in enumerate(value)]
            return type(value)(*inner) if hasattr(value, "_fields") else tuple(inner)
        return value

    types = {name: typed(value, (at,)) for at, (name, value) in enumerate(given.items())}
    types |= dict.fromkeys(constants, "constexpr")
    return ASTSource(fn=kernel, signature=types, constexprs=fixed)


def statistics(probs=False):
    given = {
        "rows": ROWS, "asked": NUMBERS, "drafted_row": "*i64" if probs else None, "shift": "i32",
        "begin": "*i64", "parts": PARTS, "nodes": "i32", "requests": "i32", "draft_rows": "i32",
        "halvings": "i32",
    }  # fmt: skip
    constants = {"DRAFT": probs, "PROBS": probs, "GREEDY": False, "ROWS": 1, "BLOCK": BLOCK}
    return source(kernels.statistics, given, constants)


def place():
    given = {"tokens": "*i64", "column_of": "*i32", "columns": "i32", "vocab": "i32"}
    return source(kernels.place, given, {"BLOCK": 1024})


def walk(engine, *, tree=False, filters=False, eager=False, greedy=False, held=None):
    draft = engine in (0, 3)
    asked = TENSORS if filters else NUMBERS
    parts = PARTS if eager else None
    given = {
        "target": ROWS, "asked": asked, "parts": parts, "draft": ROWS if draft else NO_ROWS,
        "draft_asked": asked if draft else None, "held": held,
        "draft_parts": parts if draft else None, "drafted_row": None, "shift": "i32",
        "tokens": "*i64", "begin": "*i64", "parents": "*i64" if tree else None,
        "draws": Draws("*i64", "*i64", None, None), "lossy": None,
        "out": Out("*i32", "*i32", "*i32", "*i32", "*i32", None, None, None, None),
        "nodes": "i32", "requests": "i32", "deepest": "i32", "draft_rows": "i32", "fallback": "i32",
    }  # fmt: skip
    reading = Parameters().reading
    constants = {
        "ENGINE": engine, "WITHOUT": tree and draft, "PROBS": False, "GREEDY": greedy,
        "FILTERS": filters, "READING": reading, "DRAFT_FILTERS": filters and draft,
        "DRAFT_READING": reading, "ROWS": 1, "BLOCK": BLOCK,
    }  # fmt: skip
    return source(kernels.walk, given, constants)


def resources(made, capability, **options):
    """Compile, and return what the assembler says of it."""
    log = io.StringIO()
    options = OPTIONS | options
    with contextlib.redirect_stdout(log):
        triton.compile(made, target=GPUTarget("cuda", capability, 32), options=options)
    used = re.search(r"Used (\d+) registers", log.getvalue())
    stack = re.search(r"(\d+) bytes stack frame", log.getvalue())
    spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log.getvalue())
    return int(used[1]), int(stack[1]), int(spills[1]) + int(spills[2])


KERNELS = {
    "statistics": statistics,
    "statistics, probabilities": lambda: statistics(True),
    "place": place,
    "walk, ratio": lambda: walk(0),
    "walk, ratio, eager": lambda: walk(0, eager=True),
    "walk, ratio, held": lambda: walk(0, held=HELD),
    "walk, ratio, trees": lambda: walk(0, tree=True),
    "walk, certain, trees": lambda: walk(1, tree=True),
    "walk, match, trees": lambda: walk(2, tree=True),
    "walk, greedy, trees": lambda: walk(2, tree=True, greedy=True),
    "walk, block": lambda: walk(3),
    "walk, match, filters": lambda: walk(2, filters=True),
    "walk, ratio, filters": lambda: walk(0, filters=True),
}

OFTEN = {
    80: ("statistics", "walk, greedy, trees"),
    90: (
        "statistics",
        "place",
        "walk, block",
        "walk, certain, trees",
        "walk, ratio, filters",
    ),
    100: ("statistics", "walk, greedy, trees"),
}

if __name__ == "__main__":
    found = {
        f"sm_{capability}: {name}": resources(KERNELS[name](), capability)
        for capability, names in OFTEN.items()
        for name in (KERNELS if FULL else names)
    }
    control = source(spilling, {"x": "*fp32"}, {"N": 2048})
    found["control"] = resources(control, 90, num_warps=4, maxnreg=32)
    print(json.dumps(found))
