"""One script for a machine with a GPU: is the Triton backend right there, and what does it cost?

    python -m gpu_impl.bench.gpu --json gpu.json

needs torch and triton, no network, and at most eight minutes. With `--tiny` it runs in Triton's
interpreter on a CPU, to see that the script itself works.
"""

import argparse
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from gpu_impl.bench import gpu_checks
from gpu_impl.bench.contenders import Contender, Run, ours, plain_torch
from gpu_impl.bench.kernels import Unable, kernels
from gpu_impl.bench.rounds import FILTERED, PLAIN, Asked, Round, chains, trees
from gpu_impl.bench.timing import copy_bandwidth, floor, interleaved

WARM = Asked("T=0.7", 0.7)
CHAINS = [
    (64, 7, 151_936, PLAIN), (64, 7, 151_936, WARM), (64, 7, 151_936, FILTERED),
    (256, 3, 128_256, PLAIN), (256, 3, 128_256, FILTERED), (1, 7, 151_936, WARM),
]  # fmt: skip
"""B, K, V of the chains that are timed, in bfloat16, and what their requests ask."""

TREES = [(32, 64, 151_936), (1, 64, 151_936)]
"""B, nodes, V of the trees."""


def main(argv: Sequence[str] | None = None) -> int:
    """Check, then time; return 0, or 1 if a check failed."""
    parser = argparse.ArgumentParser(prog="python -m gpu_impl.bench gpu", description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="in the interpreter, small sizes")
    parser.add_argument("--json", metavar="FILE", help="write everything to this file")
    parser.add_argument("--seconds", type=float, default=450, help="start nothing after these")
    parser.add_argument("--repeats", type=int, default=20, help="of each time")
    asked = parser.parse_args(argv)
    if asked.tiny:
        os.environ["TRITON_INTERPRET"] = "1"  # read when kernels are decorated
    elif not torch.cuda.is_available():
        parser.error("there is no CUDA device; --tiny runs in the interpreter")
    device = "cpu" if asked.tiny else "cuda"
    end = monotonic() + asked.seconds
    got: dict[str, Any] = {"machine": _machine(device), "checks": [], "times": []}

    def write() -> None:
        if asked.json:  # after each step: what is known stays, whatever comes
            Path(asked.json).write_text(json.dumps(got, indent=1) + "\n", encoding="utf-8")

    print(json.dumps(got["machine"]), flush=True)
    for result in gpu_checks.run(device, asked.tiny):
        got["checks"].append(result)
        print(f"{result['verdict']:8} {result['check']}: {result['note']}", flush=True)
        write()
    peers, got["missing"] = kernels()
    for name, why in got["missing"].items():
        print(f"without {name}: {why}")
    repeats = 1 if asked.tiny else asked.repeats
    for make in _cases(device, asked.tiny, peers):
        if monotonic() > end:
            got["cut"] = True
            print("out of time: the rest is not run")
            break
        for row in make(repeats, got["machine"]["copy_bytes_per_second"]):
            got["times"].append(row)
            print(json.dumps(row), flush=True)
        write()
    write()
    return int(any(result["verdict"] == "FAIL" for result in got["checks"]))


def _machine(device: str) -> dict[str, Any]:
    import triton

    size = 1 << (30 if device == "cuda" else 22)
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else "interpreter",
        "torch": torch.__version__,
        "triton": triton.__version__,
        "copy_bytes_per_second": copy_bandwidth(device, size),
    }


Case = Callable[[int, float], Iterator[dict[str, Any]]]


def _cases(device: str, tiny: bool, peers: Sequence[Contender]) -> Iterator[Case]:
    dtype = torch.bfloat16
    own = [
        ours("lazy", lazy=True, backend="triton", workspace=True),
        ours("eager", lazy=False, backend="triton", workspace=True),
        ours("lazy, draft laws kept", lazy=True, known=True, backend="triton", workspace=True),
    ]
    own = own[:1] if tiny else [*own, *(captured(each) for each in own)]
    for requests, drafts, vocab, asked in [(1, 1, 20, PLAIN)] if tiny else CHAINS:

        def chain(
            repeats: int, bandwidth: float, size: Any = (requests, drafts, vocab, asked)
        ) -> Iterator[dict[str, Any]]:
            batch = chains(*size[:3], asked=size[3], dtype=dtype, device=device)
            ways = [*own, plain_torch(), *peers]
            yield from _timed("chain", batch, size[3], ways, repeats, bandwidth)

        yield chain
    lazy = ours("lazy", lazy=True, rule="target_only", backend="triton", workspace=True)
    eager = ours("eager", lazy=False, rule="target_only", backend="triton", workspace=True)
    every = Contender("softmax of every row alone", _softmax)
    for requests, nodes, vocab in [(1, 3, 20)] if tiny else TREES:

        def tree(
            repeats: int, bandwidth: float, size: Any = (requests, nodes, vocab)
        ) -> Iterator[dict[str, Any]]:
            batch = trees(*size, dtype=dtype, device=device)
            ways = [lazy, every] if tiny else [lazy, eager, every]
            yield from _timed("tree", batch, PLAIN, ways, repeats, bandwidth)

        yield tree


def _softmax(batch: Round, asked: Asked) -> Run:
    """Prepare what kernels for trees need before they begin; it emits nothing."""
    none = torch.zeros(batch.requests, device=batch.target.device)

    def run(repeat: int) -> Any:
        (batch.target.float() / asked.temperature).softmax(1)
        return none

    return run


def captured(way: Contender) -> Contender:
    """Return a way as a CUDA graph; each repeat plays the same round."""

    def prepare(batch: Round, asked: Asked) -> Run:
        run = way.prepare(batch, asked)
        graph, counts = gpu_checks.capture(lambda: run(0))

        def play(repeat: int) -> Any:
            graph.replay()
            return counts

        return play

    return replace(way, name=f"{way.name}, captured", prepare=prepare)


def _timed(
    shape: str, batch: Round, asked: Asked, ways: Sequence[Contender], repeats: int,
    bandwidth: float,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    size = {
        "shape": shape, "requests": batch.requests, "drafts": batch.drafts, "vocab": batch.vocab,
        "asked": asked.name,
    }  # fmt: skip
    runs: dict[str, Run] = {}
    for way in ways:
        try:
            runs[way.name] = way.prepare(batch, asked)
            if batch.target.is_cuda:
                runs[way.name](0)  # compiles; the interpreter, which is slow, has nothing to
        except Unable as error:
            yield {**size, "way": way.name, "unable": str(error)}
            runs.pop(way.name, None)
        # A peer that breaks must not end the script.
        except Exception as error:
            yield {**size, "way": way.name, "broken": f"{type(error).__name__}: {error}"[:300]}
            runs.pop(way.name, None)
    reads = {way.name: way.drafts_read for way in ways}
    times = interleaved(runs, repeats, batch.target.device)
    for name, time in times.items():
        row = {**size, "way": name, "microseconds": 1e6 * time.median, "tokens": time.emitted}
        if shape == "chain":
            least = floor(batch, time.emitted, drafts_read=reads[name])
            row["floor_bytes"] = least._asdict()
            row["share_of_copy"] = least.lazy / bandwidth / time.median
        elif name != "softmax of every row alone":
            # Of a tree, only the target's rows on the path are read.
            bytes_ = batch.requests * time.emitted * batch.vocab * batch.target.element_size()
            row["share_of_copy"] = bytes_ / bandwidth / time.median
        yield row


if __name__ == "__main__":
    raise SystemExit(main())
