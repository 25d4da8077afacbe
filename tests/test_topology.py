"""Which tree to draft: the dynamic program against every tree, and against what rules emit."""

import itertools
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction as F

import pytest

from specref.choice import law
from specref.decode import deviation, round_law
from specref.dist import as_fraction, normalise, rational
from specref.draft import likeliest
from specref.drafters import drawn, ranked
from specref.model import Table
from specref.rules import RULES
from specref.topology import best_tree, bound, expected_tokens, fastest_tree, likeliest_paths
from tests.test_drafters import MODELS

# Acceptances by rank of 667 tokens, 49 of them rejected: the vector that Sequoia ships
# (github.com/Infini-AI-Lab/Sequoia, acceptance-rate-vector.pt), in counts.
COUNTS = [
    423, 72, 38, 15, 13, 10, 3, 2, 8, 3, 5, 3, 4, 2, 1, 2, 1, 2, 0, 2, 2, 2, 0, 1, 0, 1, 0, 0, 0,
    1, 1, 1,
]  # fmt: skip
SEQUOIA = [rational(count, 667) for count in COUNTS]
TIMES = {1: 10, 2: 10, 4: 10, 8: 12, 16: 14, 32: 18}


def test_the_shipped_vector_counts_667_tokens():
    assert sum(COUNTS) + 49 == 667


@pytest.mark.parametrize(
    ("nodes", "tokens"), [(2, F(1090, 667)), (3, F(905959, 444889)), (4, F(679961620, 296740963))]
)
def test_small_trees_of_the_shipped_vector(nodes, tokens):
    assert best_tree(nodes, SEQUOIA).tokens == tokens


@pytest.mark.parametrize(
    ("nodes", "printed"),
    [(4, "2.29143"), (8, "2.73217"), (16, "3.13029"), (32, "3.50074")],
)
def test_larger_trees_of_the_shipped_vector(nodes, printed):
    best = best_tree(nodes, SEQUOIA)
    assert f"{float(best.tokens):.5f}" == printed
    assert len(best.paths) == nodes - 1
    assert expected_tokens(best.paths, SEQUOIA) == best.tokens


def forests(size, first=0):
    """Yield every forest of `size` nodes, as paths; its trees are numbered from `first` on."""
    if size == 0:
        yield ()
        return
    for below in range(size):
        for child in forests(below):
            for rest in forests(size - below - 1, first + 1):
                yield ((first,), *((first, *path) for path in child), *rest)


@pytest.mark.parametrize("nodes", range(1, 9))
def test_no_tree_earns_more_than_the_best(nodes):
    trees = list(forests(nodes - 1))
    assert len(trees) == math.comb(2 * nodes - 2, nodes - 1) // nodes, "the Catalan numbers"
    for acceptance in (SEQUOIA, ["1/2", "1/4"], ["1/3", "1/3", "1/3"], ["1/10", "3/5", 0, "1/5"]):
        for depth in (None, 1, 2, 3):
            within = [t for t in trees if depth is None or max(map(len, t), default=0) <= depth]
            best = best_tree(nodes, acceptance, depth)
            assert best.tokens == max(expected_tokens(tree, acceptance) for tree in within)
            assert tuple(sorted(best.paths)) in {tuple(sorted(tree)) for tree in within}


@pytest.mark.parametrize(
    ("p", "q"), [((3, 2, 1), (1, 2, 3)), ((5, 3, 2), (2, 2, 6)), ((1, 4, 0), (2, 1, 1))]
)
def test_what_a_tree_earns_is_what_the_rule_emits(p, q):
    """Where laws ignore the context, a sibling's chance is the same at every node."""
    p, q = normalise(p), normalise(q)

    def rank_accepted(choose):
        root = drawn([(0,), (1,), (2,)])(lambda text: p, lambda text: q, 1, choose, ())
        emitted = RULES["rrs_without"].verify(root, choose)
        return [x for x, _ in root.children].index(emitted[0]) if len(emitted) == 2 else None

    found = law(rank_accepted)
    acceptance = [found.get(rank, 0) for rank in range(3)]
    for nodes in (2, 4, 6):
        best = best_tree(nodes, acceptance)
        entry = replace(RULES["rrs_without"], draft=drawn(best.paths))
        out = round_law(entry, lambda text: p, lambda text: q, nodes)
        assert sum(len(text) * mass for text, mass in out.items()) == best.tokens


def test_a_best_tree_is_drafted_and_verified_without_loss():
    best = best_tree(5, ["1/2", "1/5", "1/10"])
    entry = replace(RULES["rrs_without"], draft=drawn(best.paths))
    for p, q in MODELS:
        assert deviation(entry, p, q, shape=2, length=3) == 0


@pytest.mark.parametrize("width", [1, 2])
def test_trees_of_bounded_width_stay_below_their_bound_and_come_near(width):
    most = bound(SEQUOIA, width)
    assert most == 1 / (1 - sum(SEQUOIA[:width]))
    earned = [best_tree(nodes, SEQUOIA[:width]).tokens for nodes in (1, 2, 4, 8, 16, 32)]
    assert all(before < after < most for before, after in itertools.pairwise(earned))
    if width == 1:
        assert most - earned[-1] < F(1, 10**5)


def test_the_demo_of_sequoia_counts_one_draft_step_too_many():
    """It counts levels with the root, up to 10, and pays a draft step for each.

    The printed 2.0459 for size 4 and "depth 4" is reproduced by adding that step to every
    verification; the tree has three levels below the root, and so costs less.
    """
    step = F("0.3")
    counted = {nodes: time + step for nodes, time in TIMES.items()}
    printed = fastest_tree(SEQUOIA, counted, step, depth=9, plain=TIMES[1])
    assert (printed.nodes, printed.depth + 1) == (4, 4)
    assert f"{float(printed.speedup):.4f}" == "2.0459"
    found = fastest_tree(SEQUOIA, TIMES, step, depth=9)
    assert (found.nodes, found.depth) == (4, 3)
    assert found.topology == best_tree(4, SEQUOIA)
    assert found.speedup == found.topology.tokens * 10 / (10 + 3 * step)
    assert f"{float(found.speedup):.4f}" == "2.1022"


def test_where_drafting_costs_too_much_the_fastest_tree_is_the_root():
    assert fastest_tree(SEQUOIA, TIMES, draft=100, depth=9)[:3] == (1, 0, 1)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: best_tree(0, ["1/2"]), "nodes = 0 is below 1; count the root too"),
        (lambda: best_tree(3, ["1/2"], -1), "depth = -1 is negative"),
        (lambda: best_tree(3, ["1/2"], 0), "depth = 0 holds the root alone, not nodes = 3"),
        (lambda: best_tree(3, ["-1/2"]), r"acceptance\[0\] = -1/2 is negative; pass chances"),
        (lambda: best_tree(3, ["3/4", "1/2"]), "acceptance sums to 5/4; at most one sibling"),
        (lambda: bound(["1/2"], 0), "width = 0 is below 1"),
        (lambda: bound(["1/2", "1/2"], 2), "sums to 1 over width = 2, so there is no bound"),
        (lambda: fastest_tree(["1/2"], {}, 1, 2), "times is empty"),
        (lambda: fastest_tree(["1/2"], {2: 1}, 1, 2), "no entry for 1 node; add it or pass plain"),
        (lambda: fastest_tree(["1/2"], {2: 1}, 1, 0, plain=1), "holds none of the sizes in times"),
        (lambda: fastest_tree(["1/2"], {1: 0}, 1, 2), r"times\[1\] = 0 is no time; pass one above"),
        (lambda: fastest_tree(["1/2"], {1: 1}, "-1", 2), "draft = -1 is no time; pass one >= 0"),
        (lambda: likeliest_paths(MODELS[0][0], -1, 2), "count = -1 is negative"),
        (lambda: likeliest_paths(MODELS[0][0], 1, -2), "depth = -2 is negative"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()


def chances_of(model, vocab, depth):
    """Return the chance of every text of up to `depth` tokens."""
    return {
        text: math.prod(model(text[:at])[text[at]] for at in range(len(text)))
        for size in range(1, depth + 1)
        for text in itertools.product(range(vocab), repeat=size)
    }


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_no_tree_of_as_many_nodes_is_likelier_than_the_likeliest_paths(count):
    for p, _ in MODELS:
        chances = chances_of(p, 3, 2)
        trees = [
            set(nodes)
            for nodes in itertools.combinations(chances, count)
            if all(len(text) == 1 or text[:-1] in nodes for text in nodes)
        ]
        assert trees
        found = likeliest_paths(p, count, 2)
        assert all(chances[text] == chance for text, chance in found)
        assert sum(chance for _, chance in found) == max(
            sum(chances[text] for text in tree) for tree in trees
        )


def accepted(drafter, p, q, shape):
    out = round_law(replace(RULES["target_only"], draft=drafter), p, q, shape)
    return sum((len(text) - 1) * mass for text, mass in out.items())


@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_round_accepts_the_chance_of_its_nodes(count):
    for p, q in MODELS:
        best = sum(chance for _, chance in likeliest_paths(p, count, 3))
        assert accepted(ranked(count, 3), p, p, 3) == best
        # EAGLE-2 goes by the draft model's chances, and accepts the target's of the same texts.
        chances = chances_of(p, 3, 3)
        by_draft = likeliest_paths(q, count, 3)
        assert len(by_draft) == count
        ours = accepted(ranked(count, 3), p, q, 3)
        assert ours == sum(chances[text] for text, _ in by_draft) <= best


def test_the_two_likeliest_at_two_levels():
    p = normalise([5, 3, 2])
    q = normalise([1, 1, 3])
    found = accepted(likeliest, lambda text: p, lambda text: q, (2, 2))
    assert found == F(119, 100)
    assert as_fraction(found) == sum(p[x] * (1 + sum(p[y] for y in (2, 0))) for x in (2, 0))


def test_paths_stand_level_by_level_and_name_each_node_once():
    best = best_tree(16, SEQUOIA)
    assert list(best.paths) == sorted(best.paths, key=lambda path: (len(path), path))
    assert max(Counter(best.paths).values()) == 1
    assert len(likeliest_paths(Table({(): [1, 0]}, order=0), 9, 2)) == 2, "texts of mass 0 are none"


@pytest.mark.parametrize("paths", [[(-1,)], [(0,), (0, -2)], [("0",)], [(0.5,)], [0], None])
def test_places_that_are_no_ranks_are_refused(paths):
    with pytest.raises(ValueError, match=r"paths(\[\d\])?.*(rank|integer|list)"):
        expected_tokens(paths, ["1/2", "1/4"])


@pytest.mark.parametrize("size", [0, -1, 1.5, "a"])
def test_sizes_that_are_no_numbers_of_nodes_are_refused(size):
    with pytest.raises(ValueError, match=r"a size in times .* count the root too"):
        fastest_tree(["1/2"], {size: 1, 1: 1}, draft=1, depth=1)


@pytest.mark.parametrize("call", [lambda: best_tree(2, ["x"]), lambda: bound([math.nan], 1)])
def test_chances_that_are_no_numbers_are_named(call):
    with pytest.raises(ValueError, match=r"acceptance: .* is not a finite number"):
        call()
