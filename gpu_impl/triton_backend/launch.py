"""From a checked call to kernels: bundles, grids, memory."""

from typing import Any

import torch
import triton

from gpu_impl.call import Batch
from gpu_impl.draws import Seeds
from gpu_impl.laws import DraftLogits, OneHot
from gpu_impl.lossy import Lenience, Thresholds
from gpu_impl.parameters import Parameters
from gpu_impl.triton_backend import walk as kernels
from gpu_impl.triton_backend.arguments import Asked, Draws, Out, Parts, Rows
from gpu_impl.verified import Trace, Verified
from gpu_impl.workspace import Fresh

ENGINES = {"one_hot": 1, "target_only": 1, "match": 2, "greedy": 2, "block": 3}

BLOCK = 4096
"""Entries of a row that are summed up at once. Sums depend on it, so nothing else does it on."""

OPTIONS = {"num_warps": 8, "maxnreg": 255, "enable_fp_fusion": False}
"""How kernels are compiled: with as many registers as there are, so that they spill nothing."""


def verify(batch: Batch, rows: int | None = None) -> Verified:
    """Verify a checked batch, see `gpu_impl.verify`.

    Args:
        batch: the call.
        rows: requests that one program serves, a power of 2; chosen if left out: 1 on a device.
            No result depends on it.

    Raises:
        ValueError: a vocabulary of 2^24 tokens or more, which float32 does not count.
    """
    forest, device = batch.forest, batch.logits.device
    vocab = batch.logits.shape[1]
    if vocab >= 1 << 24:
        raise ValueError(f"target_logits has {vocab} columns; the triton backend takes < 2^24")
    memory = Fresh() if batch.workspace is None else batch.workspace
    out = _out(batch, memory)
    if forest.requests:
        block = min(BLOCK, triton.next_power_of_2(vocab))
        _walk(batch, memory, out, block, _rows(forest.requests, block, device, rows))
    trace = Trace(out.tests, out.coins, out.last) if batch.trace else None
    if batch.trace and not isinstance(batch.draws, Seeds):
        trace = Trace(out.tests, batch.draws.coins, batch.draws.terminal)
    return Verified(
        out.tokens, out.counts, out.nodes, out.terminal, out.status, out.logprobs, trace
    )


def _rows(requests: int, block: int, device: Any, asked: int | None) -> int:
    if asked is not None:
        return asked
    if device.type != "cpu":
        return 1
    fits = max(1, (1 << 18) // block)
    return int(min(triton.next_power_of_2(requests), fits))


def _walk(batch: Batch, memory: Any, out: Out, block: int, rows: int) -> None:
    forest, draft = batch.forest, batch.draft
    greedy = batch.rule == "greedy"
    target = Rows(
        batch.logits, batch.logits.stride(0), batch.logits.shape[1], batch.parameters.bias,
        batch.parameters.allowed, -(-batch.logits.shape[1] // 32),
    )  # fmt: skip
    asked = _asked(batch.parameters)
    draft_rows, draft_asked, held, row, shift, count = (
        Rows(None, None, None),
        None,
        None,
        None,
        0,
        0,
    )
    given = batch.parameters
    probs = False
    if not isinstance(draft, OneHot):
        probs = not isinstance(draft, DraftLogits)
        x = draft.logits if isinstance(draft, DraftLogits) else draft.probs
        draft_rows = Rows(x, x.stride(0), x.shape[1], place=_place(batch, memory))
        given = draft.parameters if isinstance(draft, DraftLogits) else Parameters()
        draft_asked = _asked(given)
        held = draft.laws if isinstance(draft, DraftLogits) else None
        row, count = draft.row, len(x)
        shift = int(row is None and count != forest.nodes)
    parts, draft_parts = None, None
    if not batch.lazy:
        # The draft's blocks are those of the target: a row of it may be shorter.
        parts = _statistics(
            batch, memory, "target", target, asked, None, 0, 0, False, greedy, rows, block
        )
        if draft_asked is not None and held is None:
            draft_parts = _statistics(
                batch, memory, "draft", draft_rows, draft_asked, row, shift, count, probs, False,
                rows, block,
            )  # fmt: skip
    kernels.walk[(triton.cdiv(forest.requests, rows),)](
        target, asked, parts, draft_rows, draft_asked, held, draft_parts, row, shift,
        forest.tokens, forest.begin, forest.parents, _draws(batch), _lossy(batch), out,
        forest.nodes, forest.requests, forest.max_depth, count, batch.fallback,
        ENGINE=ENGINES.get(batch.rule, 0), WITHOUT=batch.rule == "rrs_without", PROBS=probs,
        GREEDY=greedy, FILTERS=batch.parameters.filters and not greedy,
        READING=batch.parameters.reading, DRAFT_FILTERS=given.filters, DRAFT_READING=given.reading,
        ROWS=rows, BLOCK=block, **OPTIONS,
    )  # fmt: skip


def _statistics(
    batch: Batch, memory: Any, name: str, rows: Rows, asked: Any, row: Any, shift: int, count: int,
    probs: bool, greedy: bool, at_once: int, block: int,
) -> Parts:  # fmt: skip
    forest = batch.forest
    blocks = triton.cdiv(rows.width, block)
    kinds = (torch.float32, torch.float64, torch.int32, torch.int32)
    parts = Parts(
        *(
            memory.take(f"{name} {field}", (forest.nodes, blocks), kind, batch.logits.device)
            for field, kind in zip(Parts._fields, kinds, strict=True)
        )
    )
    kernels.statistics[(triton.cdiv(forest.nodes, at_once), blocks)](
        rows, asked, row, shift, forest.begin, parts, forest.nodes, forest.requests, count,
        max(forest.requests - 1, 0).bit_length(),
        DRAFT=name == "draft", PROBS=probs, GREEDY=greedy, ROWS=at_once, BLOCK=block, **OPTIONS,
    )  # fmt: skip
    return parts


def _asked(given: Parameters) -> Asked:
    return Asked(
        *(
            value if isinstance(value, torch.Tensor) else _three(float(min(value, 2**31)))
            for value in (given.temperature, given.top_k, given.top_p, given.min_p)
        )
    )


def _three(value: float) -> tuple[float, float, float]:
    """Return float32 numbers that add up to a float64 one, so that it reaches a kernel unrounded.

    Kernels take float arguments as float32.
    """
    parts = []
    for _ in range(3):
        parts.append(float(torch.tensor(value, dtype=torch.float32)))
        value -= parts[-1]
    return parts[0], parts[1], parts[2]


def _place(batch: Batch, memory: Any) -> Any:
    """Return the column of each target token of a smaller draft vocabulary, or None."""
    tokens = getattr(batch.draft, "tokens", None)
    if tokens is None:
        return None
    vocab = batch.logits.shape[1]
    found = memory.take("place", (vocab,), torch.int32, batch.logits.device).fill_(-1)
    block = min(1024, triton.next_power_of_2(len(tokens)))
    grid = (triton.cdiv(len(tokens), block),)
    kernels.place[grid](tokens, found, len(tokens), vocab, BLOCK=block, **OPTIONS)
    return found


def _draws(batch: Batch) -> Draws:
    if isinstance(batch.draws, Seeds):
        return Draws(batch.draws.seed, batch.draws.start, None, None)
    return Draws(None, None, batch.draws.coins, batch.draws.terminal)


def _lossy(batch: Batch) -> Any:
    asked = batch.lossy
    if isinstance(asked, Lenience):
        return _three(asked.lenience)
    if isinstance(asked, Thresholds):
        return _three(asked.single), _three(asked.acc)
    return None


def _out(batch: Batch, memory: Any) -> Out:
    forest, device = batch.forest, batch.logits.device
    requests, wide = forest.requests, forest.max_depth + 1

    def take(name: str, shape: tuple[int, ...], dtype: Any, wanted: bool = True) -> Any:
        return memory.take(name, shape, dtype, device) if wanted else None

    seeds = isinstance(batch.draws, Seeds)
    tests = take("tests", (forest.nodes,), torch.uint8, batch.trace)
    return Out(
        take("tokens", (requests, wide), torch.int32),
        take("counts", (requests,), torch.int32),
        take("nodes", (requests, wide - 1), torch.int32),
        take("terminal", (requests,), torch.int32),
        take("status", (requests,), torch.int32),
        take("logprobs", (requests, wide), torch.float32, batch.logprobs),
        tests.zero_() if tests is not None else None,
        take("coins", (forest.nodes,), torch.float64, batch.trace and seeds),
        take("last", (requests,), torch.float64, batch.trace and seeds),
    )
