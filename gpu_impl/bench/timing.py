"""Times that can be compared: interleaved repeats, medians, and the bytes that must be moved."""

from collections.abc import Mapping, Sequence
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

import torch

from gpu_impl.bench.contenders import Run
from gpu_impl.bench.rounds import Round


class Timed(NamedTuple):
    """What the repeats of one way took, in their order.

    Attributes:
        seconds: by the clock, or by the events of a GPU.
        emitted: mean tokens per request.
        busy: seconds that the threads of this process worked, which other work on the machine
            changes little; on a GPU, those of the host.
    """

    seconds: tuple[float, ...]
    emitted: float
    busy: tuple[float, ...] = ()

    @property
    def median(self) -> float:
        return median(self.seconds)

    def ratio(self, other: "Timed") -> float:
        """Return how many times as long this one took: the median over pairs of one repeat."""
        return _ratio(self.seconds, other.seconds)

    def busy_ratio(self, other: "Timed") -> float:
        """Return the same of the seconds that threads worked."""
        return _ratio(self.busy, other.busy)


def _ratio(one: Sequence[float], two: Sequence[float]) -> float:
    return median(a / max(b, 1e-9) for a, b in zip(one, two, strict=True))


def interleaved(runs: Mapping[str, Run], repeats: int, device: Any = "cpu") -> dict[str, Timed]:
    """Time each run once per repeat, one after the other, so that all see the same machine.

    One repeat before is not counted.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    busy: dict[str, list[float]] = {name: [] for name in runs}
    emitted: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(-1, repeats):
        for name, run in runs.items():
            begin = process_time()
            spent, counts = clocked(run, repeat + 1, device)
            worked = process_time() - begin
            if repeat >= 0:
                seconds[name].append(spent)
                busy[name].append(worked)
                emitted[name].append(float(counts.double().mean()))
    return {
        name: Timed(tuple(seconds[name]), sum(emitted[name]) / max(repeats, 1), tuple(busy[name]))
        for name in runs
    }


def clocked(run: Run, repeat: int, device: Any = "cpu") -> tuple[float, Any]:
    """Return the seconds of one run, by events on a GPU, and what it returned."""
    if torch.device(device).type != "cuda":
        begin = perf_counter()
        counts = run(repeat)
        return perf_counter() - begin, counts
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    counts = run(repeat)
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / 1000, counts


def copy_bandwidth(device: Any = "cpu", size: int = 1 << 28, repeats: int = 7) -> float:
    """Return bytes per second, read and written, of a copy of `size` bytes: the best of several."""
    source = torch.zeros(size // 4, device=device)
    sink = torch.empty_like(source)

    def run(repeat: int) -> Any:
        return sink.copy_(source)

    return 2 * size / min(clocked(run, at, device)[0] for at in range(repeats))


class Floor(NamedTuple):
    """Bytes per round: rows on the path, one depth after the other; or all rows at once."""

    lazy: float
    eager: float


def floor(batch: Round, emitted: float, *, drafts_read: bool) -> Floor:
    """Return the least bytes of logits that an exact sampler of chains reads.

    Args:
        batch: chains.
        emitted: mean number of emitted tokens per request: so many target rows are on its path, and
            all of them but that of a bonus have a draft row.
        drafts_read: whether the draft's rows have to be read for q(x); if not, one is read where a
            draft was refused.
    """
    row = batch.vocab * batch.target.element_size()
    q_row = batch.vocab * batch.draft.element_size()
    tests = min(emitted, batch.drafts) if drafts_read else 1
    drafts = batch.drafts if drafts_read else 1
    return Floor(
        batch.requests * (emitted * row + tests * q_row),
        batch.requests * ((batch.drafts + 1) * row + drafts * q_row),
    )
