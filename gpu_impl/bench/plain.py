"""The baseline: a batched sampler of chains as one writes it in torch, without care for bytes."""

from typing import Any

import torch

from gpu_impl.bench.rounds import Asked, Round


def laws(logits: Any, asked: Asked) -> Any:
    """Return the probabilities of rows after temperature, top-k and top-p: float32 [rows, V]."""
    x = logits.float() / asked.temperature
    if asked.top_k:
        least = x.topk(min(asked.top_k, x.shape[1]), 1).values[:, -1:]
        x = x.masked_fill(x < least, -torch.inf)
    p = x.softmax(1)
    if asked.top_p < 1:
        ordered, ids = p.sort(1, descending=True)
        behind = ordered.cumsum(1) - ordered >= asked.top_p
        p = p.scatter(1, ids, ordered.masked_fill(behind, 0))
        p = p / p.sum(1, keepdim=True)
    return p


def sample(batch: Round, asked: Asked) -> tuple[Any, Any]:
    """Verify chains: tokens [B, K + 1] padded with -1, and counts [B]."""
    shape = (batch.requests, -1, batch.vocab)
    p = laws(batch.target, asked).view(shape)
    q = laws(batch.draft, Asked("", asked.temperature)).view(shape)
    x = batch.tokens.view(batch.requests, -1)[:, 1:, None]
    u = torch.rand(x.shape[:2], device=p.device)
    accepted = u * q.gather(2, x)[:, :, 0] < p[:, :-1].gather(2, x)[:, :, 0]
    n = accepted.int().cumprod(1).sum(1)
    every = torch.arange(batch.requests, device=p.device)
    weights = p[every, n]
    refused = (n < batch.drafts)[:, None]
    taken = q[every, n.clamp(max=max(batch.drafts - 1, 0))]
    weights = torch.where(refused, (weights - taken).clamp(min=0), weights)
    last = torch.multinomial(weights, 1)[:, 0]
    step = torch.arange(batch.drafts + 1, device=p.device)
    tokens = torch.nn.functional.pad(x[:, :, 0], (0, 1), value=-1)
    tokens = torch.where(step < n[:, None], tokens, -1)
    return torch.where(step == n[:, None], last[:, None], tokens), n + 1
