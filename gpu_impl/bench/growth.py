"""How cost grows with B, K, V, the size of trees, and with what is refused; as a chart.

Timings are of one machine and one moment; compare them within one run.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gpu_impl.bench.contenders import Contender, Run, ours
from gpu_impl.bench.rounds import PLAIN, Asked, Round, chains, trees
from gpu_impl.bench.timing import interleaved
from specref.picture import picture

SIZES: dict[str, tuple[float, ...]] = {
    "B": (1, 4, 16, 64),
    "K": (1, 2, 4, 8),
    "V": (2_000, 8_000, 32_000, 128_256),
    "nodes": (4, 16, 64),
    "apart": (0, 0.5, 1, 2, 4),
}
"""What is varied; each other size is as in `BASE`."""

BASE: dict[str, float] = {"B": 16, "K": 4, "V": 32_000, "apart": 1}

LABELS = {
    "B": "B: requests",
    "K": "K: drafted tokens",
    "V": "V: vocabulary",
    "nodes": "nodes of a tree, target_only",
    "apart": "deviation of target from draft",
}


class Point(NamedTuple):
    """One measurement: milliseconds of a contender where one size is `value`."""

    axis: str
    value: float
    name: str
    milliseconds: float
    emitted: float


def measure(
    others: Sequence[Contender],
    repeats: int,
    sizes: Mapping[str, Iterable[float]] | None = None,
    base: Mapping[str, float] = BASE,
    asked: Asked = PLAIN,
) -> Iterator[Point]:
    """Yield times size by size: ours, lazy and eager, and others on chains."""
    for axis, values in (SIZES if sizes is None else sizes).items():
        for value in values:
            batch, ways = _case(axis, {**base, axis: value}, others, asked)
            runs: dict[str, Run] = {way.name: way.prepare(batch, asked) for way in ways}
            for name, time in interleaved(runs, repeats).items():
                yield Point(axis, value, name, 1000 * time.median, time.emitted)


def _case(
    axis: str, size: Mapping[str, float], others: Sequence[Contender], asked: Asked
) -> tuple[Round, list[Contender]]:
    rule = "target_only" if axis == "nodes" else "token"
    own = [ours("lazy", lazy=True, rule=rule), ours("eager", lazy=False, rule=rule)]
    requests, vocab = int(size["B"]), int(size["V"])
    if axis == "nodes":
        return trees(requests, int(size["nodes"]), vocab), own
    drafts, apart = int(size["K"]), size["apart"]
    batch = chains(requests, drafts, vocab, asked=asked, apart=apart)
    return batch, [*own, *others]


def plot(points: Iterable[Point], file: str) -> None:
    """Draw milliseconds over each size that was varied.

    Raises:
        ValueError: a file that is no picture, or matplotlib is missing.
        OSError: the file cannot be written.
    """
    points = list(points)
    axes = list(dict.fromkeys(point.axis for point in points))
    with picture(file, (3.2 * max(len(axes), 1), 3.4)) as figure:
        for place, axis in enumerate(axes):
            _draw(
                figure.add_subplot(1, len(axes), place + 1), axis,
                [point for point in points if point.axis == axis], first=place == 0,
            )  # fmt: skip


def _draw(panel: Any, axis: str, points: Sequence[Point], *, first: bool) -> None:
    for name in dict.fromkeys(point.name for point in points):
        line = [(point.value, point.milliseconds) for point in points if point.name == name]
        panel.plot(*zip(*line, strict=True), marker="o", markersize=3, label=name)
    if axis != "apart":
        panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xlabel(LABELS[axis])
    if first:
        panel.set_ylabel("milliseconds")
        panel.legend(fontsize="small")
    panel.grid(alpha=0.3)
