"""Rules for trees: published numbers, what looking at branches gains, and what breaks them."""

import itertools
import random
from dataclasses import replace
from fractions import Fraction as F
from functools import partial
from operator import itemgetter

import networkx
import pytest
from hypothesis import given, settings

from specref.choice import Seeded, Uniforms, law
from specref.closed import round_law as closed_law
from specref.decode import deviation, output_law, round_law, target_law
from specref.dist import normalise, rational, tv, without
from specref.draft import (
    Node,
    as_is,
    chain,
    flat,
    likeliest,
    nodes,
    one_from_each,
    tree,
    with_replacement,
    without_replacement,
)
from specref.oracle import optimal_length
from specref.rules import RULES
from specref.rules.heterogeneous import heterogeneous
from specref.rules.nested_transport import nested_transport
from specref.rules.transport import transport
from specref.transport import distinct, independent
from tests.fixtures import (
    C4,
    GRID,
    P3,
    P4,
    Q3,
    Q4,
    TOY2,
    A,
    B,
    after,
    drafts,
    expected_accepted,
    model,
    models,
    same,
)

DRAWN = {"i.i.d.": (with_replacement, independent), "w/o repl.": (without_replacement, distinct)}


def accepted(out):
    """Return the mean number of accepted tokens of a law of emitted texts."""
    return sum((len(text) - 1) * mass for text, mass in out.items())


def shortest_paths(mu, wanted):
    """Return the plan that shortest augmenting paths find, tuple by tuple in the order of `mu`."""
    graph = networkx.DiGraph()
    scale = 1
    for mass in (*mu.values(), *wanted):
        scale *= int(mass.denominator)
    for t, mass in mu.items():
        graph.add_edge("source", t, capacity=int(mass * scale))
        graph.add_edges_from((t, x) for x in t)
    for x, mass in enumerate(wanted):
        graph.add_edge(x, "sink", capacity=int(mass * scale))
    _, flow = networkx.maximum_flow(
        graph, "source", "sink", flow_func=networkx.algorithms.flow.shortest_augmenting_path
    )
    return {t: {x: rational(flow[t][x], scale) for x in dict.fromkeys(t)} for t in mu}


def no_plan(mu, wanted):
    return {t: dict.fromkeys(t, wanted[0] * 0) for t in mu}


def column(name, drawn):
    """Return the rule of a column of the table, for siblings drawn one way or the other."""
    draft, siblings = DRAWN[drawn]
    per_draw = {
        "rrs": {"i.i.d.": RULES["rrs_with"], "w/o repl.": RULES["rrs_without"]},
        "traversal": {"i.i.d.": RULES["traversal_with"], "w/o repl.": RULES["traversal"]},
    }
    if name in per_draw:
        return per_draw[name][drawn]
    verify = {
        "transport": partial(transport, siblings=siblings),
        "nested": partial(nested_transport, siblings=siblings),
        "nested, shortest paths": partial(nested_transport, siblings=siblings, plan=shortest_paths),
        "nested, no plan": partial(nested_transport, siblings=siblings, plan=no_plan),
    }[name]
    return replace(RULES["nested_transport"], verify=verify, draft=draft)


# Two levels of two siblings.
TABLE = {
    ("A", "i.i.d."): ("403/324", "209/162", "1885/1296", "1921/1296", "109/72"),
    ("A", "w/o repl."): ("112/81", "115/81", "253/144", "16/9", "259/144"),
    ("B", "i.i.d."): ("836/625", "866/625", "966/625", "988/625", "7917/5000"),
    ("B", "w/o repl."): ("171/100", "87/50", "2", "2", "2"),
}
COLUMNS = ("rrs", "traversal", "transport", "nested, shortest paths", "nested")


@pytest.mark.parametrize(
    ("pair", "drawn", "name", "expected"),
    [
        (*row, name, expected)
        for row, values in TABLE.items()
        for name, expected in zip(COLUMNS, values, strict=True)
    ],
)
def test_accepted_tokens_on_two_levels_of_two(pair, drawn, name, expected):
    p, q = {"A": A, "B": B}[pair]
    out = round_law(column(name, drawn), same(p), same(q), (2, 2))
    assert accepted(out) == F(expected)


@pytest.mark.parametrize(
    ("pair", "drawn", "best"),
    [
        ("A", "i.i.d.", 1.55030), ("A", "w/o repl.", 1.79861),
        ("B", "i.i.d.", 1.61446), ("B", "w/o repl.", 2.0),
    ],
)  # fmt: skip
def test_no_rule_accepts_more_than_the_best_verifier(pair, drawn, best):
    p, q = {"A": A, "B": B}[pair]
    most = optimal_length(same(p), same(q), (2, 2), DRAWN[drawn][0]) - 1
    assert most == pytest.approx(best, abs=5e-6)
    assert all(float(F(value)) <= most + 1e-9 for value in TABLE[pair, drawn])
    attained = float(F(TABLE[pair, drawn][-1])) == pytest.approx(most, abs=1e-9)
    assert attained == (drawn == "w/o repl.")


@pytest.mark.parametrize("drawn", DRAWN)
@pytest.mark.parametrize("name", [*COLUMNS, "nested, no plan"])
def test_every_column_is_lossless_where_contexts_matter_and_laws_have_zeros(name, drawn):
    for p, q in ((P3, Q3), (Q3, P3)):
        assert deviation(column(name, drawn), p, q, shape=(2, 2), length=3) == 0


@pytest.mark.parametrize("drawn", DRAWN)
@pytest.mark.parametrize("name", ["nested", "nested, shortest paths", "nested, no plan"])
def test_nested_transport_is_lossless_on_every_pair_of_a_grid(name, drawn):
    for p, q in itertools.product(GRID, GRID):
        assert deviation(column(name, drawn), same(p), same(q), shape=(2,), length=2) == 0


def test_full_trees_of_independent_siblings_accept_powers_of_one_levels_rate():
    for (p, q), width, levels in itertools.product((A, B, TOY2), (1, 2, 3), (1, 2, 3)):
        rate = accepted(closed_law("rrs_with", same(p), same(q), (width,)))
        out = closed_law("rrs_with", same(p), same(q), (width,) * levels)
        assert accepted(out) == sum(rate**level for level in range(1, levels + 1))


@pytest.mark.parametrize("name", ["traversal", "traversal_with"])
def test_on_a_chain_traversal_is_block_verification(name):
    both = RULES[name].verify, RULES["block"].verify
    for p, q in ((P3, Q3), (Q3, P3), (P4, Q4), C4):
        for root, _ in drafts(RULES["block"], p, q, 3):
            laws = [law(lambda choose, rule=rule, root=root: rule(root, choose)) for rule in both]
            assert laws[0] == laws[1], flat(root)


@pytest.mark.parametrize("name", ["traversal", "traversal_with"])
def test_on_a_chain_traversal_decides_as_block_verification_does(name):
    draws = [F(k, 16) for k in (0, 5, 9, 14)]
    for root, _ in drafts(RULES["block"], P3, Q3, 2):
        for row in itertools.product(draws, repeat=3):
            emitted = (RULES[rule].verify(root, Uniforms(row)) for rule in (name, "block"))
            assert len({*emitted}) == 1, (flat(root), row)


PAIRS = [("traversal", "rrs_without"), ("traversal_with", "rrs_with")]


@pytest.mark.parametrize(("branches", "top_down"), PAIRS)
@pytest.mark.parametrize("shape", [(2, 2), (1, 2), (2, 1), (2, 1, 1), (3, 2)])
def test_whole_branches_never_accept_less(branches, top_down, shape):
    @settings(max_examples=60)
    @given(models(3), models(3))
    def holds(p, q):
        more, less = (accepted(closed_law(name, p, q, shape)) for name in (branches, top_down))
        assert more >= less

    holds()


def drawn_model(rng):
    """Return a model of three tokens that looks at the last one, with masses drawn from 1 to 9."""
    return model(*([rng.randint(1, 9) for _ in range(3)] for _ in range(4)))


@pytest.mark.parametrize(("branches", "top_down"), PAIRS)
def test_whole_branches_accept_more_on_most_trees(branches, top_down, record_property):
    rng, gains = random.Random(2505), []
    for _ in range(200):
        p, q = drawn_model(rng), drawn_model(rng)
        more, less = (accepted(closed_law(name, p, q, (2, 2))) for name in (branches, top_down))
        assert more >= less
        gains.append(more / less - 1)
    mean, most = float(sum(gains) / len(gains)), float(max(gains))
    record_property("gain", mean)
    print(f"{branches} over {top_down}: {mean:.2%} more tokens accepted, at most {most:.2%}")
    assert sum(gain > 0 for gain in gains) > 100
    assert 0.01 < mean < 0.05 < most < 0.25


def test_one_level_has_no_branches_to_look_at():
    for (branches, top_down), (p, q) in itertools.product(PAIRS, itertools.product(GRID, GRID)):
        pair = [closed_law(name, same(p), same(q), (2,)) for name in (branches, top_down)]
        assert pair[0] == pair[1]


def test_a_plan_for_each_node_mostly_accepts_more_than_traversal_but_not_always():
    rng = random.Random(2605)
    pairs = [(drawn_model(rng), drawn_model(rng)) for _ in range(100)]
    names = "nested_transport", "traversal"
    means = [[accepted(closed_law(name, p, q, (2, 2))) for name in names] for p, q in pairs]
    assert sum(nested >= one_by_one for nested, one_by_one in means) >= 90
    p = model((1, 1, 1), (2, 1, 0), (0, 0, 1), (0, 1, 0))
    q = model((1, 1, 2), (0, 1, 0), (1, 1, 0), (0, 1, 1))
    nested, one_by_one = (round_law(RULES[name], p, q, (2, 1)) for name in names)
    assert (accepted(nested), accepted(one_by_one)) == (F(487, 360), F(49, 36))


def test_plans_treat_siblings_alike_but_branches_are_tried_in_order():
    rule = RULES["nested_transport"]
    p, q = B
    for order in itertools.permutations(range(3), 2):
        one_level = (tree([p] * 3, [q] * 3, way, (0, 0)) for way in (order, order[::-1]))
        assert len({frozenset(after(rule, root).items()) for root in one_level}) == 1
    p, q = A
    two_levels = (
        tree([p] * 5, [q] * 5, (*order, *below), (0, 0, 1, 2))
        for order, below in (((2, 1), (1, 0)), ((1, 2), (0, 1)))
    )
    assert len({frozenset(after(rule, root).items()) for root in two_levels}) == 2


def test_of_equal_siblings_nested_transport_follows_the_first():
    p, q = B
    root = tree([p] * 5, [q] * 5, (2, 2, 1, 0), (0, 0, 1, 2))
    out = law(lambda choose: nested_transport(root, choose, siblings=independent)[:-1])
    assert out.keys() == {(), (2,), (2, 1)}


def test_of_equal_siblings_traversal_accepts_the_first_only_yet_the_second_counts():
    """The first refusal leaves no mass at its token, and the second moves the target again."""
    p, q = B
    root = tree([p] * 5, [q] * 5, (2, 2, 1, 0), (0, 0, 1, 2))
    out = after(RULES["traversal_with"], root)
    assert {text[:-1] for text in out} == {(), (2, 1)}
    merged = after(RULES["traversal_with"], tree([p] * 3, [q] * 3, (2, 1), (0, 1)))
    assert {text[:-1] for text in merged} == {(), (2, 1)}
    assert out != merged


@pytest.mark.parametrize(
    ("tokens", "siblings"), [((1, 1), distinct), ((2, 1), independent), ((0, 2), distinct)]
)
def test_nested_transport_refuses_siblings_that_are_never_drawn(tokens, siblings):
    q = normalise([F(1), F(3), F(0)])
    root = tree([B[0]] * 3, [q] * 3, tokens, (0, 0))
    with pytest.raises(ValueError, match=r"never drawn from q = .* pass siblings="):
        law(lambda choose: nested_transport(root, choose, siblings=siblings))


def traversal_gone_wrong(root, choose, *, fault):
    """Verify as `traversal` does, but for one fault in the update after a refusal."""

    def visit(node, weight):
        r, b, s = weight, node.p, node.q
        for x, child in node.children:
            seen = (weight, node.p, node.q) if fault == "all stale" else (r, b, s)
            below = visit(child, min(1, seen[0] * seen[1][x] / seen[2][x]))
            if below:
                return (x, *below)
            wanted = [max(r * mass - drafted, 0) for mass, drafted in zip(b, s, strict=True)]
            spare = sum(wanted)
            if fault == "no denominator" and node is not root:
                r = spare
            elif r < 1:
                r = spare / (spare + 1 - r)
            b = normalise(wanted) if spare > 0 else b
            s = s if fault == "s stale" else without(s, x)
        return (choose(b),) if node is root or choose.flip(r, at=node) else ()

    return visit(root, 1)


@pytest.mark.parametrize(
    ("fault", "loss"),
    [
        ("none", "0"), ("all stale", "129/500"), ("s stale", "11/100"),
        ("no denominator", "22461/500000"),
    ],
)  # fmt: skip
def test_traversal_with_a_wrong_update_is_lossy(fault, loss):
    wrong = replace(RULES["traversal"], verify=partial(traversal_gone_wrong, fault=fault))
    assert deviation(wrong, same(B[0]), same(B[1]), shape=(2, 2), length=3) == F(loss)


def flat_law(q):
    """Return the uniform law on all tokens, possible under q or not."""
    return normalise([w * 0 + 1 for w in q])


def with_laws(*laws):
    """Return the rule for several draft models, and its drafter, with these laws."""
    return replace(
        RULES["heterogeneous"],
        verify=partial(heterogeneous, laws=laws),
        draft=partial(one_from_each, laws=laws),
    )


def reordered(root, choose, *, key):
    """Visit the two siblings in the order of `key(token, place, p)`, each with its own law."""
    pair = sorted(
        enumerate(root.children), key=lambda numbered: key(numbered[1][0], numbered[0], root.p)
    )
    moved = replace(root, children=tuple(child for _, child in pair))
    laws = RULES["heterogeneous"].verify.__kwdefaults__["laws"]
    return heterogeneous(moved, choose, laws=[laws[place] for place, _ in pair])


def coin_first(root, choose):
    """Visit the two siblings in an order that a coin decides."""
    sign = 1 if choose.flip(rational(1, 2)) else -1
    return reordered(root, choose, key=lambda x, place, p: sign * place)


def test_two_draft_models_in_a_fixed_order():
    p, q = B
    assert expected_accepted("heterogeneous", p, q, (2,)) == F(5, 6)
    backwards = replace(
        RULES["heterogeneous"], verify=partial(reordered, key=lambda x, place, p: -place)
    )
    by_coin = replace(RULES["heterogeneous"], verify=coin_first)
    for rule in (RULES["heterogeneous"], backwards, by_coin):
        assert deviation(rule, same(p), same(q), shape=(2,), length=2) == 0
    rates = [expected_accepted(rule, p, q, (2,)) for rule in (backwards, by_coin)]
    assert rates[1] == F(17, 20) == (F(5, 6) + rates[0]) / 2


def test_two_draft_models_in_an_order_that_tokens_decide_are_lossy():
    by_p = replace(RULES["heterogeneous"], verify=partial(reordered, key=lambda x, place, p: -p[x]))
    assert deviation(by_p, same(B[0]), same(B[1]), shape=(2,), length=1) == F(2, 15)


def test_two_draft_models_with_swapped_laws_are_lossy():
    laws = RULES["heterogeneous"].verify.__kwdefaults__["laws"]
    swapped = replace(RULES["heterogeneous"], verify=partial(heterogeneous, laws=laws[::-1]))
    assert deviation(swapped, same(B[0]), same(B[1]), shape=(2,), length=1) == F(4, 25)


def test_a_draft_model_may_know_tokens_that_another_does_not():
    rule = with_laws(as_is, flat_law)
    for p, q in itertools.product(GRID, GRID):
        assert deviation(rule, same(p), same(q), shape=(2,), length=2) == 0
    assert deviation(rule, P3, Q3, shape=(2, 2), length=3) == 0


def test_draft_models_of_ones_own():
    """What stands at `Node.q` is read by `laws` alone: here it is a row of each of three models."""
    rule = with_laws(itemgetter(0), itemgetter(1), itemgetter(2))

    def rows(context):
        return Q3(context), P3((*context, 0)), flat_law(Q3(context))

    for shape in (3,), (2, 1), (1, 2):
        out = output_law(rule, P3, rows, shape=shape, length=len(shape) + 1)
        assert tv(out, target_law(P3, len(shape) + 1)) == 0


def test_equal_draft_models_are_one():
    twice = with_laws(as_is, as_is)
    for p, q in ((P3, Q3), (Q3, P3)):
        assert round_law(twice, p, q, (2, 1)) == round_law(RULES["rrs_with"], p, q, (2, 1))


def test_more_siblings_than_draft_models_are_refused():
    p, q = B
    with pytest.raises(ValueError, match="3 siblings but has 2 draft models; pass one of laws="):
        law(lambda choose: heterogeneous(tree([p] * 4, [q] * 4, (0, 1, 2), (0, 0, 0)), choose))
    with pytest.raises(ValueError, match="one_from_each draws 2 siblings, not 3"):
        round_law(RULES["heterogeneous"], same(p), same(q), (3,))
    with pytest.raises(ValueError, match="third sibling; pass widths 1 and 2"):
        closed_law("heterogeneous", same(p), same(q), (3,))


def path_masses(p, root):
    """Return the target's probability of the path to every node but the root."""
    masses, todo = {}, [(root, (), 1)]
    while todo:
        node, text, mass = todo.pop()
        for x, child in node.children:
            masses[*text, x] = mass * p(text)[x]
            todo.append((child, (*text, x), masses[*text, x]))
    return masses


@pytest.mark.parametrize("shape", [(2,), (2, 2), (3, 1), (1, 2, 2), (2, 1, 3)])
def test_a_chosen_tree_accepts_the_target_probabilities_of_its_paths(shape):
    for p, q in ((P3, Q3), (Q3, P3), (P4, Q4), C4):
        root = likeliest(p, q, shape, None, ())
        assert accepted(after(RULES["target_only"], root)) == sum(path_masses(p, root).values())


def test_the_two_likeliest_tokens_twice():
    root = likeliest(same(B[0]), same(B[1]), (2, 2), None, ())
    masses = path_masses(same(B[0]), root)
    assert sum(masses[text] for text in masses if len(text) == 1) == F(7, 10)
    assert sum(masses[text] for text in masses if len(text) == 2) == F(49, 100)
    assert accepted(after(RULES["target_only"], root)) == F(119, 100)


def tree_of(p, texts):
    """Return the tree of the given paths, each listed after its parent."""
    order = [(), *texts]
    up = [order.index(text[:-1]) for text in texts]
    return tree([p(text) for text in order], [None] * len(order), [t[-1] for t in texts], up)


def test_the_best_chosen_tree_holds_the_likeliest_paths_of_the_target():
    p = P3
    paths = [path for length in (1, 2) for path in itertools.product(range(3), repeat=length)]
    mass = path_masses(p, tree_of(p, paths))
    for size in (1, 2, 3, 4):
        trees = [
            texts
            for texts in itertools.combinations(paths, size)
            if all(len(text) == 1 or text[:-1] in texts for text in texts)
        ]
        best = max(accepted(after(RULES["target_only"], tree_of(p, texts))) for texts in trees)
        likely = sorted(paths, key=lambda path: -mass[path])[:size]
        assert {*likely} in [{*texts} for texts in trees]
        assert best == sum(mass[path] for path in likely)


def certain(vocab, x):
    return tuple(rational(int(y == x)) for y in range(vocab))


def test_trees_of_likeliest_tokens_are_verified_as_certain_drafts():
    """Rejection against the point mass at each sibling is one draw from the target."""
    for p, q in ((P3, Q3), (Q3, P3), (P4, Q4), C4):
        for shape in ((2,), (2, 2), (3, 1)):
            root = likeliest(p, q, shape, None, ())
            vocab = len(root.p)
            rows = [tuple(certain(vocab, x) for x, _ in node.children) for node in nodes(root)]
            certainly = tree([node.p for node in nodes(root)], rows, *flat(root))
            picks = [itemgetter(k) for k in range(max(shape))]
            out = law(
                lambda choose, root=certainly, picks=picks: heterogeneous(root, choose, laws=picks)
            )
            assert out == after(RULES["target_only"], root)


def test_on_a_chain_target_only_is_one_hot_and_branches_bring_nothing():
    for p, q in ((P3, Q3), (P4, Q4), C4):
        for root, _ in drafts(RULES["token"], p, q, 2):
            x, y = flat(root)[0]
            first, second, third = nodes(root)
            sure = chain(
                [first.p, second.p, third.p],
                [certain(len(first.p), x), certain(len(first.p), y), None],
                [x, y],
            )
            expected = after(RULES["one_hot"], root)
            assert after(RULES["target_only"], root) == expected
            for name in ("traversal", "token", "block"):
                assert after(RULES[name], sure) == expected


@pytest.mark.parametrize(
    "name", [n for n, rule in RULES.items() if rule.shape == "tree" and rule.lossless]
)
def test_the_root_is_where_a_rule_is_asked_and_not_the_node_numbered_0(name):
    """Nodes built by hand all have the number 0; so have roots of subtrees another."""
    p, q = B
    drawn = RULES[name].draft(same(p), same(q), (2, 2), Seeded(4), ())

    def by_hand(node, index):
        children = tuple((x, by_hand(child, index)) for x, child in node.children)
        return Node(node.p, node.q, children, index)

    expected = after(RULES[name], drawn)
    assert all(after(RULES[name], by_hand(drawn, index)) == expected for index in (0, 3))
