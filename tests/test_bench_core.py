"""Speed of enumeration. Run with `pytest tests/test_bench_core.py --benchmark-enable -n 0`."""

import pytest

from specref import closed
from specref.choice import law
from specref.decode import output_law, round_law, target_law
from specref.dist import rational
from specref.rules import RULES
from tests.fixtures import C4

P, Q = C4


def count_leaves(program):
    leaves = []

    def counted(choose):
        leaves.append(None)
        return program(choose)

    law(counted)
    return len(leaves)


def test_leaves_of_a_bare_program(benchmark):
    half = rational("1/2")

    def program(choose):
        return sum(choose.flip(half) for _ in range(10))

    out = benchmark(law, program)
    assert sum(out.values()) == 1
    benchmark.extra_info["leaves"] = count_leaves(program)
    if benchmark.enabled:
        rate = benchmark.extra_info["leaves"] / benchmark.stats["mean"]
        benchmark.extra_info["leaves_per_second"] = round(rate)


def test_joint_law_of_a_chain_of_four(benchmark):
    rule = RULES["token"]
    out = benchmark.pedantic(output_law, (rule, P, Q), {"shape": 4, "length": 5}, rounds=3)
    assert out == target_law(P, 5)
    benchmark.extra_info["leaves"] = count_leaves(
        lambda choose: rule.verify(rule.draft(P, Q, 4, choose, ()), choose)
    )
    if benchmark.enabled:
        rate = benchmark.extra_info["leaves"] / benchmark.stats["mean"]
        benchmark.extra_info["leaves_per_second"] = round(rate)


def test_round_of_a_tree_of_two_levels(benchmark):
    out = benchmark.pedantic(round_law, (RULES["rrs_without"], P, Q, (2, 2)), rounds=1)
    assert sum(out.values()) == 1


@pytest.mark.parametrize("oracle", ["law", "closed"])
def test_round_law_by_both_oracles(benchmark, oracle):
    """V = 4, four drafts, laws that depend on the context; `specref growth` shows more sizes."""
    compute = {
        "law": lambda: round_law(RULES["block"], P, Q, 4),
        "closed": lambda: closed.round_law("block", P, Q, 4),
    }[oracle]
    out = benchmark.pedantic(compute, rounds=3)
    assert sum(out.values()) == 1
    benchmark.extra_info["outcomes"] = len(out)
