"""The whole round on a CPU in one call of native code (`round.cpp`): `walk` says what it does."""

import ctypes
from typing import Any

import torch

from gpu_impl.call import Batch
from gpu_impl.draws import Seeds
from gpu_impl.laws import PLAIN, DraftLogits, DraftProbs, OneHot
from gpu_impl.lossy import Lenience, Thresholds
from gpu_impl.parameters import Parameters
from gpu_impl.torch_backend.library import call
from gpu_impl.torch_backend.native import (
    asked_struct,
    laws_struct,
    pointer,
    side_struct,
)
from gpu_impl.verified import Trace, Verified

RULES = {
    "token": 0, "rrs_with": 0, "rrs_without": 1, "one_hot": 2, "target_only": 2, "match": 3,
    "greedy": 3, "block": 4,
}  # fmt: skip
"""Which of the walks of round.cpp each rule is."""


class _Round(ctypes.Structure):
    _fields_ = (
        *(
            (name, ctypes.c_void_p)
            for name in (
                "target draft asked draft_asked draft_laws tokens begin parents draft_row "
                "draft_tokens seed start coins last"
            ).split()
        ),
        *((name, ctypes.c_int64) for name in "requests nodes depth fallback".split()),
        *((name, ctypes.c_double) for name in "lenience single acc".split()),
        ("wide", ctypes.c_int32 * 3),
        *((name, ctypes.c_int32) for name in "rule thresholds lazy threads".split()),
        *(
            (name, ctypes.c_void_p)
            for name in (
                "emitted counts accepted terminal status logprobs tests coins_used last_used"
            ).split()
        ),
    )


def verify(batch: Batch) -> Verified:
    """Verify a checked batch, see `gpu_impl.verify`."""
    held: list[Any] = []
    forest, target, draws = batch.forest, batch.parameters, batch.draws
    requests, nodes, depth = forest.requests, forest.nodes, forest.max_depth
    told = _Round(
        requests=requests, nodes=nodes, depth=depth, fallback=batch.fallback, lenience=1,
        rule=RULES[batch.rule], lazy=batch.lazy, threads=torch.get_num_threads(),
        target=side_struct(
            batch.logits, requests, held, bias=target.bias, allowed=target.allowed
        ),
        asked=_asked(target, held, greedy=batch.rule == "greedy"),
    )  # fmt: skip
    told.wide[:] = _integers(told, ("tokens", "begin", "parents"), forest, held)
    if not isinstance(batch.draft, OneHot):
        _draft(told, batch.draft, requests, held)
    if isinstance(draws, Seeds):
        told.seed = pointer(draws.seed, torch.int64, held)
        told.start = pointer(draws.start, torch.int64, held)
    else:
        told.coins = pointer(draws.coins, torch.float64, held)
        told.last = pointer(draws.terminal, torch.float64, held)
    if isinstance(batch.lossy, Lenience):
        told.lenience = batch.lossy.lenience
    elif isinstance(batch.lossy, Thresholds):
        told.thresholds, told.single, told.acc = True, batch.lossy.single, batch.lossy.acc

    def made(field: str, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        if batch.workspace is None:
            tensor = torch.empty(shape, dtype=dtype)
        else:
            tensor = batch.workspace.take(name, shape, dtype, batch.logits.device)
        setattr(told, field, tensor.data_ptr())
        return tensor

    whole = torch.int32
    found = Verified(
        made("emitted", "tokens", (requests, depth + 1), whole),
        made("counts", "counts", (requests,), whole),
        made("accepted", "nodes", (requests, depth), whole),
        made("terminal", "terminal", (requests,), whole),
        made("status", "status", (requests,), whole),
        made("logprobs", "logprobs", (requests, depth + 1), torch.float32)
        if batch.logprobs
        else None,
        Trace(
            made("tests", "tests", (nodes,), torch.uint8),
            made("coins_used", "coins", (nodes,), torch.float64),
            made("last_used", "last", (requests,), torch.float64),
        )
        if batch.trace
        else None,
    )
    call("specref_verify", ctypes.byref(told))
    return found


def _asked(given: Parameters, held: list[Any], *, greedy: bool = False) -> int:
    temperature = 0.0 if greedy else given.temperature
    numbers = (temperature, given.top_k, given.top_p, given.min_p)
    return asked_struct(numbers, given.reading, held)


def _draft(told: _Round, draft: DraftLogits | DraftProbs, requests: int, held: list[Any]) -> None:
    probs = isinstance(draft, DraftProbs)
    x = draft.probs if isinstance(draft, DraftProbs) else draft.logits
    told.draft = side_struct(x, requests, held, probs=probs)
    told.draft_asked = _asked(PLAIN if isinstance(draft, DraftProbs) else draft.parameters, held)
    if isinstance(draft, DraftLogits) and draft.laws is not None:
        told.draft_laws = laws_struct(draft.laws, held)
    told.draft_row = pointer(draft.row, torch.int64, held)
    told.draft_tokens = pointer(draft.tokens, torch.int64, held)


def _integers(told: _Round, names: tuple[str, ...], forest: Any, held: list[Any]) -> list[bool]:
    """Hand over vectors of int32 or int64; return which of them are int64."""
    wide = []
    for name in names:
        given = getattr(forest, name)
        wide.append(given is not None and given.dtype is torch.int64)
        setattr(told, name, None if given is None else pointer(given, given.dtype, held))
    return wide
