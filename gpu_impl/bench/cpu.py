"""The comparison on a CPU: every contender on the same batches, and trees against their paths."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from platform import machine, processor
from statistics import median
from typing import Any

import torch

from gpu_impl.bench.contenders import Contender, Run, ours, parameters
from gpu_impl.bench.rounds import PLAIN, Asked, Round
from gpu_impl.bench.timing import Floor, copy_bandwidth, floor, interleaved
from gpu_impl.call import verify
from gpu_impl.draws import Uniforms
from gpu_impl.laws import OneHot
from gpu_impl.parameters import Parameters


@dataclass(frozen=True)
class Row:
    """What one contender took.

    Attributes:
        name: of it.
        drafts_read: whether the pass over the draft's rows is in its time.
        milliseconds, best: median and least, by the clock.
        ratio: how many times as long as ours with the same draft rows read, by pairs of repeats.
        busy, busy_ratio: the same in milliseconds that threads worked.
        emitted: mean tokens per request.
        floor: bytes that an exact sampler reads, lazily and eagerly.
        share: of the time, what copying the lazy floor's bytes would take.
    """

    name: str
    drafts_read: bool
    milliseconds: float
    best: float
    ratio: float
    busy: float
    busy_ratio: float
    emitted: float
    floor: Floor
    share: float


def compare(
    batch: Round, asked: Asked, contenders: Sequence[Contender], repeats: int, bandwidth: float
) -> list[Row]:
    """Time contenders side by side.

    Args:
        batch: chains.
        asked: of the target.
        contenders: the first one that reads the draft's rows, and the first that does not, are what
            the others are compared with.
        repeats: of each, interleaved.
        bandwidth: bytes per second.
    """
    times = interleaved({each.name: each.prepare(batch, asked) for each in contenders}, repeats)
    first = {each.drafts_read: times[each.name] for each in reversed(contenders)}
    rows = []
    for each in contenders:
        time = times[each.name]
        least = floor(batch, time.emitted, drafts_read=each.drafts_read)
        rows.append(
            Row(
                each.name, each.drafts_read, 1000 * time.median, 1000 * min(time.seconds),
                time.ratio(first[each.drafts_read]), 1000 * median(time.busy),
                time.busy_ratio(first[each.drafts_read]), time.emitted, least,
                least.lazy / bandwidth / time.median,
            )
        )  # fmt: skip
    return rows


@dataclass(frozen=True)
class Path:
    """What a tree costs beside the rows of its accepted path alone."""

    nodes: int
    milliseconds: float
    path: float
    ratio: float
    busy_ratio: float
    emitted: float


def tree_and_path(batch: Round, repeats: int, asked: Asked = PLAIN) -> Path:
    """Time trees, and the chains that their accepted paths are, on the same rows.

    Args:
        batch: trees; each repeat has the same draws, so that the path stays.
        repeats: of both, interleaved.
        asked: of the target.
    """

    def tree(repeat: int) -> Any:
        return verify(
            batch.target, batch.tokens, batch.begin, draws=batch.seeds(), parents=batch.parents,
            rule="target_only", parameters=parameters(asked), lazy=True, trace=True,
        )  # fmt: skip

    path = along(batch, tree(0), parameters(asked))
    runs: dict[str, Run] = {"tree": lambda repeat: tree(repeat).counts, "path": path}
    times = interleaved(runs, repeats)
    both = times["tree"], times["path"]
    return Path(
        batch.drafts + 1, 1000 * both[0].median, 1000 * both[1].median, both[0].ratio(both[1]),
        both[0].busy_ratio(both[1]), both[0].emitted,
    )  # fmt: skip


def along(batch: Round, out: Any, target: Parameters) -> Run:
    """Return the round on the accepted paths alone: chains whose drafts are all accepted."""
    rows, tokens, begin = [], [], [0]
    for b, count in enumerate(out.counts.tolist()):
        at = [0, *out.nodes[b, : count - 1].tolist()]
        place = torch.tensor(at) + int(batch.begin[b])
        rows.append(batch.target[place])
        tokens.append(batch.tokens[place])
        begin.append(begin[-1] + count)
    logits, chain = torch.cat(rows), torch.cat(tokens)
    ends = torch.tensor(begin, dtype=torch.int32)
    assert out.trace is not None
    # Coins of 0 accept; the last draw is the tree's.
    draws = Uniforms(torch.zeros(len(chain), dtype=torch.float64), out.trace.terminal)

    def run(repeat: int) -> Any:
        return verify(
            logits, chain, ends, OneHot(), draws=draws, rule="one_hot", parameters=target, lazy=True
        ).counts

    return run


def here() -> dict[str, Any]:
    """Return what was measured on."""
    return {
        "processor": processor() or machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "copy_bytes_per_second": copy_bandwidth(),
    }


def contenders(others: Sequence[Contender]) -> list[Contender]:
    """Return ours, and others after them."""
    return [
        ours(), ours("gpu_impl, eager", lazy=False),
        ours("gpu_impl, draft laws kept", known=True), *others,
    ]  # fmt: skip


def report(
    cases: Sequence[tuple[Round, Asked]], others: Sequence[Contender], repeats: int,
    tree: Round | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return everything, ready for JSON."""
    machine_ = here()
    bandwidth = machine_["copy_bytes_per_second"]
    compared = [
        {
            "requests": batch.requests, "drafts": batch.drafts, "vocab": batch.vocab,
            "dtype": str(batch.target.dtype).removeprefix("torch."), "asked": asdict(asked),
            "rows": [
                {**asdict(row), "floor": row.floor._asdict()}
                for row in compare(batch, asked, contenders(others), repeats, bandwidth)
            ],
        }
        for batch, asked in cases
    ]  # fmt: skip
    return {
        "machine": machine_,
        "repeats": repeats,
        "cases": compared,
        "tree": None if tree is None else asdict(tree_and_path(tree, repeats)),
    }
