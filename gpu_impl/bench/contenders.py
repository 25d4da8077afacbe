"""Ways from raw logits and sampling parameters to tokens: what is timed side by side."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from gpu_impl.bench import plain
from gpu_impl.bench.rounds import Asked, Round
from gpu_impl.call import verify
from gpu_impl.laws import DraftLogits
from gpu_impl.parameters import Parameters
from gpu_impl.workspace import Workspace

Run: TypeAlias = Callable[[int], Any]
"""Does one round, given the number of the repeat; returns the counts of emitted tokens, [B]."""


@dataclass(frozen=True)
class Contender:
    """One way.

    Attributes:
        name: of the table.
        prepare: makes `Run` for a batch; what it does is not timed.
        drafts_read: whether its time has the pass over the draft's rows in it.
    """

    name: str
    prepare: Callable[[Round, Asked], Run]
    drafts_read: bool = True


def parameters(asked: Asked) -> Parameters:
    """Return the target's parameters."""
    return Parameters(asked.temperature, asked.top_k, asked.top_p)


def ours(
    name: str = "gpu_impl", *, lazy: bool | None = None, known: bool = False, rule: str = "token",
    backend: str = "auto", workspace: bool = False,
) -> Contender:  # fmt: skip
    """Return `gpu_impl.verify` as a contender.

    Args:
        name: of the table.
        lazy: see `verify`.
        known: whether the drafter has kept the scalars of its rows.
        rule, backend: see `verify`.
        workspace: whether its memory is kept between repeats.
    """

    def prepare(batch: Round, asked: Asked) -> Run:
        warm = Parameters(asked.temperature)
        laws = _kept(batch, warm) if known else None
        draft = DraftLogits(batch.draft, warm, laws=laws)
        target = parameters(asked)
        memory = Workspace() if workspace else None
        depth, width = (batch.drafts, 1) if batch.parents is None else (None, None)

        def run(repeat: int) -> Any:
            return verify(
                batch.target, batch.tokens, batch.begin, draft, draws=batch.seeds(repeat),
                parents=batch.parents, rule=rule, parameters=target, max_depth=depth,
                max_width=width, lazy=lazy, backend=backend, workspace=memory,
            ).counts  # fmt: skip

        return run

    return Contender(name, prepare, not known)


def _kept(batch: Round, warm: Parameters) -> Any:
    """Return the scalars of the draft's rows, as `gpu_impl.draft` keeps them."""
    from gpu_impl.torch_backend.rows import Picked
    from gpu_impl.torch_backend.sides import implementation, side_of

    rows = torch.arange(len(batch.draft), device=batch.draft.device)
    side = side_of(batch.draft, warm, len(rows))
    return implementation(batch.draft.device).laws(Picked(side, rows, rows, rows))


def plain_torch() -> Contender:
    """Return the baseline as a contender."""
    return Contender(
        "plain torch", lambda batch, asked: lambda repeat: plain.sample(batch, asked)[1]
    )
