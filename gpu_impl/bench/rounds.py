"""Batches to time: drafts, and logits like those of language models."""

from dataclasses import dataclass
from typing import Any

import torch

from gpu_impl.draws import Seeds


@dataclass(frozen=True)
class Asked:
    """Sampling parameters of every request, and what they are called."""

    name: str
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    @property
    def filters(self) -> bool:
        return self.top_k > 0 or self.top_p < 1


PLAIN = Asked("T=1")
FILTERED = Asked("T=0.7 top-k 50 top-p 0.9", 0.7, 50, 0.9)


@dataclass(frozen=True)
class Round:
    """One batch.

    Attributes:
        target: raw logits [R, V].
        draft: raw logits of the drafts: [B * K, V] for chains, [R, V] for trees.
        tokens, begin, parents: the drafts, as `gpu_impl.verify` takes them.
        requests, drafts, vocab: B, drafted tokens of each, V.
    """

    target: Any
    draft: Any
    tokens: Any
    begin: Any
    parents: Any
    requests: int
    drafts: int
    vocab: int

    def seeds(self, repeat: int = 0) -> Seeds:
        """Return addresses of draws, other ones for each repeat."""
        seed = torch.arange(self.requests, device=self.target.device)
        return Seeds(seed, torch.full_like(seed, 1000 * repeat))


def chains(
    requests: int, drafts: int, vocab: int, *, asked: Asked = PLAIN, apart: float = 1.0,
    dtype: Any = torch.float32, device: Any = "cpu", seed: int = 0,
) -> Round:  # fmt: skip
    """Return chains of one length, drawn from draft logits at the temperature that is asked.

    Args:
        requests, drafts, vocab: B, K, V.
        asked: its temperature is that of the drafts; they have no filters.
        apart: deviation between the logits of target and draft; the larger, the fewer are accepted.
        dtype, device, seed: of the logits.
    """
    generator = torch.Generator(device).manual_seed(seed)
    draft = _like_models(requests * drafts, vocab, generator)
    x = _drawn(draft, asked.temperature, generator)
    target = _like_models(requests * (drafts + 1), vocab, generator).view(requests, -1, vocab)
    target[:, :drafts] = draft.view(requests, drafts, vocab)
    for rows in target[:, :drafts]:
        rows += apart * torch.randn(rows.shape, generator=generator, device=device)
    tokens = torch.nn.functional.pad(x.view(requests, drafts), (1, 0), value=-1).flatten()
    begin = torch.arange(requests + 1, dtype=torch.int32, device=device) * (drafts + 1)
    return Round(
        target.flatten(0, 1).to(dtype), draft.to(dtype), tokens, begin, None, requests, drafts,
        vocab,
    )  # fmt: skip


def trees(
    requests: int, nodes: int, vocab: int, *, width: int = 4, dtype: Any = torch.float32,
    device: Any = "cpu", seed: int = 0,
) -> Round:  # fmt: skip
    """Return trees in which each node has `width` children, level by level, up to their size.

    The children of a node are the likeliest tokens of its draft row, best first; the target's row
    is the draft's with a deviation of 1.
    """
    generator = torch.Generator(device).manual_seed(seed)
    draft = _like_models(requests * nodes, vocab, generator)
    target = draft.clone()
    for rows in target:
        rows += torch.randn(rows.shape, generator=generator, device=device)
    node = torch.arange(nodes, device=device)
    parents = (node - 1).div(width, rounding_mode="floor")
    rank = torch.where(node > 0, (node - 1) % width, 0)
    best = draft.topk(width, 1).indices.view(requests, nodes, width)
    tokens = torch.where(node > 0, best[:, parents.clamp(min=0), rank], -1)
    begin = torch.arange(requests + 1, dtype=torch.int32, device=device) * nodes
    return Round(
        target.to(dtype), draft.to(dtype), tokens.flatten(), begin, parents.repeat(requests),
        requests, nodes - 1, vocab,
    )  # fmt: skip


def _like_models(rows: int, vocab: int, generator: Any) -> Any:
    """Return logits of which a few dozen tokens have most of the mass, float32 [rows, V]."""
    x = torch.randn(rows, vocab, generator=generator, device=generator.device)
    x *= 2
    few = min(64, vocab)
    likely = torch.randint(vocab, (rows, few), generator=generator, device=generator.device)
    rank = torch.arange(1, few + 1, device=generator.device)
    return x.scatter_add_(1, likely, (15 - 2 * rank.log2()).expand(rows, few).contiguous())


def _drawn(logits: Any, temperature: float, generator: Any) -> Any:
    """Return one token of each row, by an exponential race."""
    drawn = []
    for part in logits.split(64):
        weights = (part / temperature).softmax(1)
        noise = torch.empty_like(weights).exponential_(generator=generator)
        drawn.append((weights / noise).argmax(1))
    return torch.cat(drawn) if drawn else logits.new_zeros(0, dtype=torch.int64)
