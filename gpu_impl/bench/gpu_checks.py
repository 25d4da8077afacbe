"""What must hold on a device before its times mean anything."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from gpu_impl.bench.rounds import Round, chains, trees
from gpu_impl.call import CHAINS, RULES, verify
from gpu_impl.draws import Seeds
from gpu_impl.laws import DraftLogits, OneHot
from gpu_impl.parameters import Parameters
from gpu_impl.verified import Verified
from gpu_impl.workspace import Workspace

TINY = 20
"""V of what runs in the interpreter."""


class Skip(Exception):
    """A check that this machine cannot run."""


def run(device: str, tiny: bool) -> Iterator[dict[str, str]]:
    """Run the checks one after the other; one that fails does not stop the others."""
    for name, check in CHECKS.items():
        try:
            verdict, note = "ok", check(device, tiny)
        except Skip as why:
            verdict, note = "skipped", str(why)
        # A failure of any kind is the result that is wanted.
        except Exception as error:
            verdict, note = "FAIL", f"{type(error).__name__}: {error}"[:500]
        yield {"check": name, "verdict": verdict, "note": note}


def capture(round_: Callable[[], Any]) -> tuple[Any, Any]:
    """Return a round as a CUDA graph, and what it writes into."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # what is compiled and allocated at the first run
        round_()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        held = round_()
    return graph, held


def verified(
    batch: Round, rule: str, seeds: Seeds, *, backend: str = "triton", lazy: bool = True,
    workspace: Any = None,
) -> Verified:  # fmt: skip
    """Verify a batch whose requests ask for different things: every third one is greedy.

    Tiny vocabularies have no filters: the interpreter needs seconds for them.
    """
    b = torch.arange(batch.requests, device=batch.target.device)
    b = b % 6  # so that a batch that is repeated asks the same again
    heat = torch.where(b % 3 == 2, 0.0, 0.7 + 0.2 * b)
    parameters = Parameters(
        heat, torch.where(b % 2 == 0, 0, 3 + b).int(), torch.where(b % 4 == 1, 0.8, 1.0)
    )
    if batch.vocab <= TINY:
        parameters = Parameters(heat)
    draft: Any = OneHot() if rule == "one_hot" else DraftLogits(batch.draft)
    chain = batch.parents is None
    return verify(
        batch.target, batch.tokens, batch.begin, draft, draws=seeds, parents=batch.parents,
        rule=rule, parameters=parameters, backend=backend, lazy=lazy, workspace=workspace,
        max_depth=batch.drafts if chain else 4, max_width=1 if chain else 4, trace=True,
    )  # fmt: skip


def _batches(device: str, tiny: bool) -> Iterator[tuple[str, Round]]:
    if tiny:
        yield "token", chains(2, 1, TINY, seed=1)
        return
    requests, vocab = 192, 1_000
    for dtype in (torch.float32, torch.bfloat16):
        chain = chains(requests, 3, vocab, dtype=dtype, device=device, seed=1)
        tree = trees(requests, 9, vocab, dtype=dtype, device=device, seed=2)
        for rule in RULES:
            yield rule, chain if rule in CHAINS else tree


def like_torch(device: str, tiny: bool) -> str:
    """Triton and torch emit the same, but where a draw falls into the rounding of a law."""
    rounds, other, chance = 0, 0, 0.0
    for rule, batch in _batches(device, tiny):
        seeds = batch.seeds()
        one, two = (verified(batch, rule, seeds, backend=each) for each in ("triton", "torch"))
        same = (one.tokens == two.tokens).all(1) & (one.status == two.status)
        rounds, other = rounds + batch.requests, other + int((~same).sum())
        # Up to five draws, each among at most V boundaries that rounding moves by about 2^-22.
        chance += batch.requests * 5 * batch.vocab * 2.0**-22
    allowed = 3 + round(2 * chance)
    assert other <= allowed, f"{other} of {rounds} rounds differ, {allowed} are allowed"
    return f"{other} of {rounds} rounds differ"


def repeated(device: str, tiny: bool) -> str:
    """Every run, lazy or eager, gives the same bits."""
    for rule, batch in _batches(device, tiny):
        first = verified(batch, rule, batch.seeds())
        for lazy in (False,) if tiny else (True, False, True):
            _equal(first, verified(batch, rule, batch.seeds(), lazy=lazy), f"{rule}, lazy={lazy}")
    return "bitwise, lazy and eager"


def invariant(device: str, tiny: bool) -> str:
    """A request emits the same alone and in any place."""
    for rule, batch in _batches(device, tiny):
        whole = verified(batch, rule, batch.seeds())
        nodes = len(batch.tokens) // batch.requests
        rows = len(batch.draft) // batch.requests
        # Every sixth, so that it asks for the same.
        for b in range(0, batch.requests, max(6, batch.requests // 6 // 6 * 6)):
            alone = Round(
                batch.target[b * nodes : (b + 1) * nodes], batch.draft[b * rows : (b + 1) * rows],
                batch.tokens[b * nodes : (b + 1) * nodes], batch.begin[:2],
                None if batch.parents is None else batch.parents[:nodes], 1, batch.drafts,
                batch.vocab,
            )  # fmt: skip
            seeds = Seeds(*(column[b : b + 1] for column in _columns(batch.seeds())))
            one = verified(alone, rule, seeds)
            assert torch.equal(one.tokens[0], whole.tokens[b]), f"{rule}, request {b}"
    return "alone as in the batch"


def unsynchronised(device: str, tiny: bool) -> str:
    """The host does not wait for the device."""
    if device != "cuda":
        raise Skip("needs a device")
    for rule, batch in _batches(device, tiny):
        workspace, seeds = Workspace(), batch.seeds()
        verified(batch, rule, seeds, workspace=workspace)  # compiles
        for lazy in (True, False):
            verified(batch, rule, seeds, workspace=workspace, lazy=lazy)
            torch.cuda.set_sync_debug_mode("error")
            try:
                verified(batch, rule, seeds, workspace=workspace, lazy=lazy)
            finally:
                torch.cuda.set_sync_debug_mode("default")
    return "no wait in any rule"


def graphs(device: str, tiny: bool) -> str:
    """A captured round, played on other logits, gives what an eager one gives on them."""
    if device != "cuda":
        raise Skip("needs a device")
    for rule, batch in _batches(device, tiny):
        workspace, seeds = Workspace(), batch.seeds()
        graph, held = capture(partial(verified, batch, rule, seeds, workspace=workspace))
        batch.target.copy_(batch.target.roll(1, 0))
        graph.replay()
        _equal(held, verified(batch, rule, seeds), rule)
    return "replayed on other logits"


def far(device: str, tiny: bool) -> str:
    """Offsets beyond 2^31 are right: one batch over and over in one tensor, each copy alike."""
    requests, drafts, vocab, copies = (2, 1, TINY, 2) if tiny else (48, 7, 151_936, 48)
    base = chains(requests, drafts, vocab, dtype=torch.bfloat16, device=device, seed=3)
    many = Round(
        base.target.repeat(copies, 1), base.draft.repeat(copies, 1), base.tokens.repeat(copies),
        torch.arange(requests * copies + 1, dtype=torch.int32, device=device) * (drafts + 1),
        None, requests * copies, drafts, vocab,
    )  # fmt: skip
    seeds = Seeds(*(column.repeat(copies) for column in _columns(base.seeds())))
    for rule in ("token",) if tiny else ("token", "block"):
        one = verified(base, rule, base.seeds())
        out = verified(many, rule, seeds)
        assert torch.equal(out.tokens, one.tokens.repeat(copies, 1)), rule
    return f"{many.target.numel():,} logits"


def _columns(seeds: Seeds) -> tuple[Any, Any]:
    return seeds.seed, seeds.start


def _equal(one: Verified, two: Verified, what: str) -> None:
    for name in ("tokens", "counts", "nodes", "terminal", "status"):
        assert torch.equal(getattr(one, name), getattr(two, name)), f"{what}: {name}"


CHECKS: dict[str, Callable[[str, bool], str]] = {
    "triton as torch": like_torch,
    "repeated runs": repeated,
    "batch invariance": invariant,
    "no synchronisation": unsynchronised,
    "CUDA graphs": graphs,
    "large offsets": far,
}
