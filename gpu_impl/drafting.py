"""Drafting with the same laws and addresses: q is what `verify` takes, by construction."""

from typing import Any, NamedTuple

import torch

from gpu_impl.draws import Seeds, philox
from gpu_impl.errors import need
from gpu_impl.laws import PLAIN, Laws
from gpu_impl.parameters import Parameters
from gpu_impl.torch_backend.rows import Picked
from gpu_impl.torch_backend.sides import implementation, side_of
from specref.philox import Domain


class Drafted(NamedTuple):
    """Drafts behind n nodes.

    Attributes:
        tokens: int64 [n, width], in the order drawn; -1 where a row is no law, or, without
            replacement, all of its tokens were drawn.
        laws: the scalars of the rows; hand them to `DraftLogits` beside the same logits and
            parameters, and these rows are read again only at a refusal.
    """

    tokens: Any
    laws: Laws


def draft(
    logits: Any,
    draws: Seeds,
    first: Any,
    *,
    width: int = 1,
    replacement: bool = True,
    parameters: Parameters = PLAIN,
    vocab: int | None = None,
) -> Drafted:
    """Draw the drafts behind n nodes, one or more siblings behind each.

    Chains, and trees for "rrs_with" and "target_only", draw with replacement or one sibling;
    "rrs_without" draws without.

    Args:
        logits: float32, bfloat16 or float16 [n, >= V'], the draft model's rows.
        draws: `Seeds` of the n rows: the seed of the request and the start of its round, [n].
        first: int64 [n], the index that the first draft of each has in its request; its siblings
            have the following ones. It is a part of the draw's address.
        width: siblings behind each node.
        replacement: whether siblings may be equal.
        parameters: of the n rows; plain softmax if left out.
        vocab: V', if the rows are padded.

    >>> import torch
    >>> seeds = Seeds(torch.tensor([7, 8]), torch.tensor([0, 0]))
    >>> rows = torch.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])
    >>> draft(rows, seeds, torch.tensor([1, 1]), width=2, replacement=False).tokens.shape
    torch.Size([2, 2])

    Raises:
        ValueError: an argument, by name.
    """
    need(isinstance(logits, torch.Tensor) and logits.dim() == 2, "logits is no tensor [n, V]")
    x = logits if vocab is None else logits[:, :vocab]
    need(x.shape[1] >= 1 and x.stride(1) == 1, "logits has no columns, or they lie apart")
    need(width >= 1, f"width = {width}; pass a number of siblings >= 1")
    for name, given in (("draws.seed", draws.seed), ("draws.start", draws.start), ("first", first)):
        need(
            isinstance(given, torch.Tensor)
            and given.dtype == torch.int64
            and tuple(given.shape) == (len(x),)
            and given.device == x.device,
            f"{name} is no int64 [{len(x)}] tensor on {x.device}; make it one",
        )
    side = side_of(x, parameters, len(x))
    at = torch.arange(len(x), device=x.device)
    picked, rows = Picked(side, at, at, at), implementation(x.device)
    known = rows.laws(picked)
    none = known.bad | known.lawless
    one = torch.ones(len(x), dtype=torch.float64, device=x.device)
    drawn = torch.full((len(x), width), -1, dtype=torch.int32, device=x.device)
    for rank in range(width):
        u = philox(draws.seed, draws.start, first + rank, Domain.DRAFT)
        out = None if replacement or not rank else drawn[:, :rank]
        token, _ = rows.draw(picked, known, None, None, one, 0 * one, out, u)
        drawn[:, rank] = torch.where(none, -1, token)
    return Drafted(drawn.long(), known)
