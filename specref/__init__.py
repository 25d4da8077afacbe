"""Exact reference of speculative decoding's acceptance rules, and a gate for samplers.

>>> import specref
>>> p = specref.Table({(): ["1/2", "3/10", "1/5"]}, order=0, name="target")
>>> q = specref.Table({(): ["3/5", "1/10", "3/10"]}, order=0, name="draft")
>>> specref.lossless("token", p, q, shape=2, length=3, rounds=2)
True
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from specref.choice import Enumerate, Seeded, Trace, Uniforms, law
    from specref.decode import deviation, lossless
    from specref.dist import excess, normalise, tv
    from specref.draft import Node
    from specref.faults import FAULTS
    from specref.model import NGram, Table
    from specref.rules import RULES
    from specref.sampler import generate, verify

_HOME = {
    "Enumerate": "choice",
    "FAULTS": "faults",
    "NGram": "model",
    "Node": "draft",
    "RULES": "rules",
    "Seeded": "choice",
    "Table": "model",
    "Trace": "choice",
    "Uniforms": "choice",
    "deviation": "decode",
    "excess": "dist",
    "generate": "sampler",
    "law": "choice",
    "lossless": "decode",
    "normalise": "dist",
    "tv": "dist",
    "verify": "sampler",
}

__all__ = [
    "FAULTS",
    "RULES",
    "Enumerate",
    "NGram",
    "Node",
    "Seeded",
    "Table",
    "Trace",
    "Uniforms",
    "deviation",
    "excess",
    "generate",
    "law",
    "lossless",
    "normalise",
    "tv",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that importing specref stays cheap."""
    if name not in _HOME:
        raise AttributeError(f"module 'specref' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"specref.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
