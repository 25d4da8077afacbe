"""Speed of the tape. Run with `pytest tests/test_bench_gate.py --benchmark-enable -n 0`."""

from fractions import Fraction
from itertools import product

import torch
from transformers.generation.utils import _speculative_sampling

from specref.draft import with_replacement
from specref.gate.cases import Fixture, fixtures
from specref.gate.measure import measure
from specref.gate.tape import Tape


def logits(vocab, gamma):
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(1, gamma, vocab, generator=generator)
    return torch.randn(1, gamma + 1, vocab, generator=generator), q


def read_all_drafts(vocab, gamma):
    """Read the law of transformers' function on every draft; return (runs, cells)."""
    p, q = logits(vocab, gamma)
    calls = cells = 0
    for draft in product(range(vocab), repeat=gamma):
        x = torch.tensor([draft])

        def program(tape, seed, x=x):
            return tuple(_speculative_sampling(x, q, gamma, p)[0][0].tolist())

        got = measure(program, budget=1_000)
        assert got.exact
        assert sum(got.law.values()) == 1
        calls += got.calls
        cells += len(got.cells)
    return calls, cells


def test_transformers_at_v_4_gamma_3_over_all_drafts(benchmark):
    calls, cells = benchmark.pedantic(read_all_drafts, args=(4, 3), rounds=1)
    assert (calls, cells) == (764, 584)
    benchmark.extra_info.update(calls=calls, cells=cells)  # divide by the time: per second


def test_one_comparison(benchmark):
    def run():
        tape = Tape()
        with tape.playing() as run:
            assert not bool(torch.rand(()) < 0.3)
        return run.cell

    assert benchmark(run) == ((5033165, 1 << 24),)


def test_drafts_of_a_fixture(benchmark):
    fixture: Fixture = next(f for f in fixtures("chain", False) if f.name == "mixed")
    drafts = benchmark(fixture.drafts, with_replacement)
    assert sum(drafts.values()) == Fraction(1)
