"""rotalabs-accel: `verify_tokens`, the verifier of its speculative decoding.

    pip install --no-deps rotalabs-accel==1.1.1     # it imports transformers

It takes the drafted tokens, each with its probability under the draft model, and asks the target
model itself: here one that answers with the logits of the case. `rejection` is the subject for the
public `rejection_sample`, which verifies one token, in the loop that its documentation describes;
`eagle` that for `eagle_verify`.
"""

from collections.abc import Callable
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import torch
from rotalabs_accel.speculative import (
    eagle_verify,
    rejection_sample,
    sample_from_logits,
    verify_tokens,
)

from specref.gate.cases import Case

_NAME = f"rotalabs-accel {version('rotalabs-accel')}"
_LAST = torch.zeros((1, 1), dtype=torch.int64)
"""The last token of the text, which is verified already."""

name = f"{_NAME}, verify_tokens"
rules = ["token"]


def sample(case: Case, n: int, seed: int) -> Any:
    """Verify the case n times, one call each, on torch's global generator."""
    return _rounds(case, n, seed, _by_verify_tokens)


class Rejection:
    """The public function for one token; the bonus is drawn by its `sample_from_logits`."""

    name = f"{_NAME}, rejection_sample"
    rules = ("token",)

    def sample(self, case: Case, n: int, seed: int) -> Any:
        """Verify the case n times, with a call for each drafted token."""
        return _rounds(case, n, seed, _by_rejection_sample)


class Eagle:
    """The verifier of its EAGLE decoding."""

    name = f"{_NAME}, eagle_verify"
    rules = ("token",)

    def sample(self, case: Case, n: int, seed: int) -> Any:
        """Verify the case n times, one call each."""
        return _rounds(case, n, seed, _by_eagle_verify)


rejection, eagle = Rejection(), Eagle()


def _rounds(case: Case, n: int, seed: int, verify: Callable[[Any, Any, Any], Any]) -> Any:
    torch.default_generator.manual_seed(seed)
    p, q, x = case.logits(1)
    drawn = torch.softmax(q, -1)[0].gather(1, x.T)[:, 0]
    out = torch.full((n, case.gamma + 1), -1)
    for row in range(n):
        tokens = verify(p, drawn, x[0])
        out[row, : len(tokens)] = torch.as_tensor(tokens)
    return out


def _model(p: Any) -> Any:
    """Return a target model whose logits are p, and which has no cache."""
    return lambda ids, **_: SimpleNamespace(logits=p, past_key_values=None)


def _by_verify_tokens(p: Any, drawn: Any, x: Any) -> Any:
    # top_p stays at its default: verification does not look at it, and 1.0 raises at the bonus.
    return verify_tokens(_model(p), _LAST, x, drawn, None)[0]


def _by_eagle_verify(p: Any, drawn: Any, x: Any) -> Any:
    return eagle_verify(_model(p), _LAST, x[None], drawn[None], None, use_sampling=True)[0]


def _by_rejection_sample(p: Any, drawn: Any, x: Any) -> list[int]:
    emitted = []
    for row, (token, mass) in enumerate(zip(x, drawn, strict=True)):
        logits = p[0, row]
        accepted, kept = rejection_sample(logits.softmax(-1)[token], mass, token, logits)
        emitted.append(int(kept))
        if not accepted:
            return emitted
    return [*emitted, int(sample_from_logits(p[:, -1])[0])]
