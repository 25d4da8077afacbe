"""Ways of drafting: what each may depend on, and the rule that is lossless with it."""

import itertools
import math
import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction as F

import pytest

from specref.choice import Proposal, Seeded, law
from specref.decode import deviation, output_law, round_law
from specref.dist import as_fraction, normalise, rational, top
from specref.draft import Node, chain, flat, likeliest, nodes, with_replacement, without_replacement
from specref.drafters import (
    confident,
    drawn,
    grow,
    heads,
    parallel_heads,
    prompt_lookup,
    ranked,
    scheduled,
    static,
    stochastic_beam,
)
from specref.model import Table
from specref.rules import RULES
from specref.speed import stop_at_drop, throughput


def random_model(rng, vocab, order, weights=(0, 1, 2, 3, 5)):
    """Return a model with a law of its own after every text of up to `order` tokens."""

    def row():
        drawn_row = [rng.choice(weights) for _ in range(vocab)]
        return normalise(drawn_row) if any(drawn_row) else row()

    texts = [
        text for size in range(order + 1) for text in itertools.product(range(vocab), repeat=size)
    ]
    return Table({text: row() for text in texts}, order=order)


RNG = random.Random(12)
MODELS = [(random_model(RNG, 3, 2), random_model(RNG, 3, 2)) for _ in range(4)]
P, Q = MODELS[0]
MEDUSA = ((0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 1))
SEQUOIA = ((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 1, 0))


def lossless_with(rule, drafter, shape, rounds=1, models=MODELS):
    """Whether a rule is exactly lossless on a drafter, on each pair of models."""
    entry = replace(RULES[rule], draft=drafter)
    length = (shape if isinstance(shape, int) else len(shape)) + 1
    return all(
        deviation(entry, p, q, shape=shape, length=length, rounds=rounds) == 0 for p, q in models
    )


def drafts_of(drafter, shape, context=(), p=P, q=Q):
    """Return the exact law of the flat draft."""
    return law(lambda choose: flat(drafter(p, q, shape, choose, context)))


def texts_of(root, context):
    """Return the text of each node, in the order of the nodes."""
    tokens, parents = flat(root)
    texts = [tuple(context)]
    for x, parent in zip(tokens, parents, strict=True):
        texts.append((*texts[parent], x))
    return texts


PAIRS = {
    "prompt_lookup": (prompt_lookup, "one_hot", 3),
    "parallel_heads": (parallel_heads, "token", 2),
    "parallel_heads, a tree": (parallel_heads, "rrs_with", (2, 1)),
    "static": (static(MEDUSA), "target_only", 3),
    "drawn": (drawn(SEQUOIA), "rrs_without", 2),
    "ranked": (ranked(4, 2), "target_only", 3),
    "stochastic_beam": (stochastic_beam(2), "rrs_without", 2),
    "confident": (confident("1/3"), "token", 3),
    "confident, a tree": (confident("1/3"), "rrs_with", (2, 1)),
    "scheduled": (scheduled(lambda context: sum(context) % 3), "token", 2),
    "scheduled, a tree": (scheduled(lambda context: 1), "rrs_with", (2, 2)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_drafter_is_lossless_with_the_rule_that_is_meant_for_it(name):
    drafter, rule, shape = PAIRS[name]
    assert lossless_with(rule, drafter, shape)


@pytest.mark.parametrize("name", ["prompt_lookup", "scheduled", "parallel_heads"])
def test_a_drafter_that_reads_the_text_is_lossless_over_several_rounds(name):
    drafter, rule, shape = PAIRS[name]
    assert lossless_with(rule, drafter, shape, rounds=3)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("context", [(), (0, 2, 1, 0, 2)])
def test_every_node_carries_the_target_after_its_text_and_stands_in_level_order(name, context):
    drafter, _, shape = PAIRS[name]

    def program(choose):
        root = drafter(P, Q, shape, choose, context)
        texts = texts_of(root, context)
        for node, text in zip(nodes(root), texts, strict=True):
            assert node.p == P(text)
            assert sum(node.q) == 1
        order, level = [], [root]
        while level:
            order += [node.index for node in level]
            level = [child for node in level for _, child in node.children]
        assert order == list(range(len(texts)))
        return len(texts)

    assert sum(law(program).values()) == 1


class Addresses:
    """The reading that takes the first possible token and remembers where it was asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, weights, at=None):
        self.asked.append(at)
        return next(x for x, w in enumerate(weights) if w > 0)


@pytest.mark.parametrize("name", PAIRS)
def test_no_address_decides_two_things_and_none_lies_beyond_the_nodes(name):
    drafter, _, shape = PAIRS[name]
    choose = Addresses()
    count = len(nodes(drafter(P, Q, shape, choose, ())))
    assert len(set(choose.asked)) == len(choose.asked)
    assert set(choose.asked) <= {Proposal(at) for at in range(1, count)}


@pytest.mark.parametrize("name", ["prompt_lookup", "static", "ranked"])
def test_drafts_that_are_certain_ask_for_no_draw(name):
    drafter, _, shape = PAIRS[name]
    root = drafter(P, Q, shape, None, (0, 1, 0))
    assert len(nodes(root)) > 1


# Prompt lookup


@pytest.mark.parametrize(
    ("context", "copied"),
    [
        ((), ()),
        ((1,), ()),
        ((0, 1, 2), ()),
        ((1, 1), (1,)),
        ((0, 1, 2, 0), (1, 2, 0)),
        ((0, 1, 2, 0, 1), (2, 0, 1)),
        ((0, 1, 2, 2, 1, 1, 0, 1), (2, 2, 1)),
        ((2, 1, 0, 0, 1, 2, 0, 1), (2, 0, 1)),
    ],
)
def test_what_followed_the_longest_earlier_occurrence_is_copied(context, copied):
    assert flat(prompt_lookup(P, Q, 3, None, context))[0] == copied


def test_of_two_occurrences_the_first_is_copied_and_a_longer_one_wins():
    assert flat(prompt_lookup(P, Q, 1, None, (0, 1, 0, 2, 0)))[0] == (1,)
    assert flat(prompt_lookup(P, Q, 1, None, (0, 1, 2, 0, 2, 2, 0)))[0] == (2,)


def test_a_looked_up_token_has_a_point_mass_and_so_two_rules_agree():
    context = (0, 1, 2, 0)
    root = prompt_lookup(P, Q, 2, None, context)
    assert [tuple(node.q) for node in nodes(root)[:2]] == [(0, 1, 0), (0, 0, 1)]
    one_hot, token = (replace(RULES[name], draft=prompt_lookup) for name in ("one_hot", "token"))
    assert round_law(one_hot, P, Q, 2, context) == round_law(token, P, Q, 2, context)


def test_a_lookup_copies_one_chain():
    with pytest.raises(ValueError, match=r"shape = \(2, 1\) is a tree, but a lookup copies one"):
        prompt_lookup(P, Q, (2, 1), None, ())


# Parallel heads


def test_a_head_knows_the_mean_over_what_lies_between():
    known = heads(Q, (1,))
    for drafts in itertools.product(range(3), repeat=2):
        text = (1, *drafts)
        assert known(text[:1]) == Q((1,))
        assert known(text[:2]) == tuple(
            sum(Q((1,))[y] * Q((1, y))[x] for y in range(3)) for x in range(3)
        )
        third = [F(0)] * 3
        for y, z, x in itertools.product(range(3), repeat=3):
            third[x] += as_fraction(Q((1,))[y] * Q((1, y))[z] * Q((1, y, z))[x])
        assert known(text) == tuple(third)


def test_the_drafts_of_parallel_heads_are_independent():
    known = heads(Q, ())
    first, second = known(()), known((0,))
    assert drafts_of(parallel_heads, 2) == {
        ((x, y), (0, 1)): first[x] * second[y]
        for x in range(3)
        for y in range(3)
        if first[x] * second[y] > 0
    }


def test_declaring_a_law_that_sees_the_drafts_for_heads_that_do_not_is_lossy():
    """The autoregressive q beside drafts of parallel heads: the ratio divides by the wrong law."""

    def declared(p, q, shape, choose, context):
        tokens, _ = flat(parallel_heads(p, q, shape, choose, context))
        texts = [(*context, *tokens[:at]) for at in range(len(tokens) + 1)]
        return chain([p(text) for text in texts], [q(text) for text in texts], tokens)

    full = [
        tuple(random_model(random.Random(at + s), 3, 1, (1, 2, 5)) for s in (0, 50))
        for at in range(3)
    ]
    for p, q in full:
        assert deviation(replace(RULES["token"], draft=declared), p, q, shape=2, length=3) > 0
        # One draft has nothing before it to see, and rules without q do not mind.
        assert deviation(replace(RULES["token"], draft=declared), p, q, shape=1, length=2) == 0
        assert deviation(replace(RULES["one_hot"], draft=declared), p, q, shape=2, length=3) == 0


# Fixed trees


def test_medusas_tree_takes_the_ranks_of_each_head():
    known = heads(Q, (2,))
    root = static(MEDUSA)(P, Q, 3, None, (2,))
    ranks = [top(known((2, *(0,) * level)), 3) for level in range(3)]
    by_path = [tuple(ranks[level][rank] for level, rank in enumerate(path)) for path in
               sorted(MEDUSA, key=lambda path: (len(path), path))]  # fmt: skip
    assert texts_of(root, ())[1:] == by_path
    assert flat(static(MEDUSA)(P, Q, 1, None, (2,)))[1] == (0, 0), "the depth of the shape holds"


def test_ranks_may_be_left_out_where_nothing_is_drawn():
    root = static([(1,)])(P, Q, 1, None, ())
    assert flat(root)[0] == top(Q(()), 2)[1:]
    with pytest.raises(ValueError, match=r"children \[1\] below \(\); number them from 0 on"):
        drawn([(1,)])


def test_a_drawn_tree_of_full_levels_is_the_draft_without_replacement():
    full = [(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)]
    for p, q in MODELS:
        assert drafts_of(drawn(full), 2, (), p, q) == drafts_of(
            without_replacement, (2, 2), (), p, q
        )


@pytest.mark.parametrize("factory", [static, drawn])
@pytest.mark.parametrize(
    ("paths", "complaint"),
    [
        ([()], "leave the root out"),
        ([(0,), (0,)], r"paths has \(0,\) twice"),
        ([(0, 0)], r"\(0, 0\) without its parent \(0,\); add the parent"),
        ([(-1,)], "ranks are numbers from 0 on"),
        ([(0.5,)], r"paths\[0\]\[0\] = 0.5 is not an integer"),
    ],
)
def test_paths_that_are_no_tree_are_refused(factory, paths, complaint):
    with pytest.raises(ValueError, match=complaint):
        factory(paths)


def test_a_rank_beyond_the_vocabulary_is_refused():
    with pytest.raises(ValueError, match="rank 3, but there are 3 tokens; pass ranks below 3"):
        static([(3,)])(P, Q, 1, None, ())


# Dynamic trees


def test_a_ranked_tree_keeps_the_likeliest_paths_of_those_expanded():
    for _, q in MODELS:
        chance = {
            text: math.prod(q(text[:at])[text[at]] for at in range(len(text)))
            for size in (1, 2)
            for text in itertools.product(range(3), repeat=size)
        }
        kept = texts_of(ranked(5, 3)(P, q, 2, None, ()), ())[1:]
        assert sorted((chance[t] for t in kept), reverse=True) == sorted(chance.values())[::-1][:5]
        # Width 1 is the greedy chain.
        assert flat(ranked(9, 1)(P, q, 2, None, ())) == flat(likeliest(P, q, 2, None, ()))


def test_a_ranked_tree_expands_only_the_likeliest_nodes():
    """(0, 1) and (1, 0) are likelier than (2, *), which width 2 never meets."""
    q = Table({(): ["4/10", "35/100", "25/100"]}, order=0)
    texts = texts_of(ranked(99, 2)(P, q, 2, None, ()), ())[1:]
    assert texts == [(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)]
    assert len(texts_of(ranked(99, 2)(P, q, 3, None, ()), ())[1:]) == 2 + 4 + 4


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: ranked(0, 1), "total = 0 is below 1"),
        (lambda: ranked(1, 0), "width = 0 is below 1"),
        (lambda: stochastic_beam(0), "width = 0 is below 1"),
        (lambda: confident("x"), "'x' is not a finite number"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(make, complaint):
    with pytest.raises(ValueError, match=complaint):
        make()


# Gumbel noise: siblings and sequences without replacement


def plackett_luce(weights, count):
    """Return the law of the first `count` arrivals of a race with these rates."""
    out = {}
    for order in itertools.permutations([x for x, w in enumerate(weights) if w > 0], count):
        left, mass = sum(weights), 1
        for x in order:
            mass, left = mass * weights[x] / left, left - weights[x]
        out[order] = mass
    return out


def test_siblings_without_replacement_are_the_first_arrivals_of_a_race():
    for _, q in MODELS:
        for context in ((), (0,), (1, 2)):
            row = q(context)
            count = min(2, sum(w > 0 for w in row))
            assert drafts_of(without_replacement, (2,), context, P, q) == {
                (order, (0,) * count): mass for order, mass in plackett_luce(row, count).items()
            }


def within_hoeffding(counts, exact, total, error=1e-9):
    """Whether every frequency is as near as all of them are with probability 1 - error."""
    assert set(counts) <= set(exact)
    band = math.sqrt(math.log(2 * len(exact) / error) / (2 * total))
    return all(abs(counts[outcome] / total - mass) <= band for outcome, mass in exact.items())


def gumbel(rng):
    return -math.log(rng.expovariate(1))


def test_gumbel_noise_on_log_likelihoods_ranks_tokens_as_the_race_does():
    row, total, rng = normalise([1, 2, 4, 1]), 20_000, random.Random(3)
    counts = Counter()
    for _ in range(total):
        scores = [math.log(w) + gumbel(rng) for w in row]
        counts[tuple(sorted(range(4), key=lambda x: -scores[x])[:2])] += 1
    assert within_hoeffding(counts, plackett_luce(row, 2), total)


def published_beam(q, depth, width, rng):
    """Run stochastic beam search top down (Kool et al. 2019, Alg. 1), in floats.

    Children are given Gumbel noise that is conditioned on its maximum being their parent's score.
    """
    levels = [[((), 0.0, 0.0)]]
    for _ in range(depth):
        found = []
        for text, chance, score in levels[-1]:
            children = [
                ((*text, x), chance + math.log(w), chance + math.log(w) + gumbel(rng))
                for x, w in enumerate(q(text))
                if w > 0
            ]
            peak = max(noisy for *_, noisy in children)
            for child, log_chance, noisy in children:
                rest = math.exp(-score) - math.exp(-peak) + math.exp(-noisy)
                found.append((child, log_chance, -math.log(rest)))
        levels.append(sorted(found, key=lambda node: -node[2])[:width])
    return [[text for text, *_ in level] for level in levels[1:]]


def test_the_published_beam_has_the_law_of_the_program():
    q, total, rng = random_model(random.Random(5), 2, 1, (1, 2, 3)), 20_000, random.Random(4)
    exact = drafts_of(stochastic_beam(2), 2, (), P, q)
    counts = Counter()
    for _ in range(total):
        levels = published_beam(q, 2, 2, rng)
        below = {}
        for text in (text for level in levels for text in level):
            below.setdefault(text[:-1], []).append(text[-1])
        counts[flat(grow(q, q, 2, lambda text, first, b=below: b.get(text, []), ()))] += 1
    assert len(exact) > 4
    assert within_hoeffding(counts, exact, total)


def beam_of_whole_sequences(width):
    """Return the beam by its definition: draw sequences until every level is full."""

    def drafter(p, q, shape, choose, context):
        mass = {
            text: math.prod(q(text[:at])[text[at]] for at in range(shape))
            for text in itertools.product(range(len(q(()))), repeat=shape)
        }
        mass = {text: m for text, m in mass.items() if m > 0}
        sizes = [min(width, len({text[:level] for text in mass})) for level in range(1, shape + 1)]
        levels = [[] for _ in range(shape)]
        while [len(level) for level in levels] != sizes:
            text = list(mass)[choose(normalise(mass.values()))]
            del mass[text]
            for level, found in enumerate(levels, start=1):
                if len(found) < width and text[:level] not in found:
                    found.append(text[:level])
        below = {}
        for text in (text for level in levels for text in level):
            below.setdefault(text[:-1], []).append(text[-1])
        return grow(p, q, shape, lambda text, first: below.get(text, []), ())

    return drafter


@pytest.mark.parametrize(("vocab", "depth", "width"), [(2, 2, 2), (2, 2, 3), (2, 3, 2), (3, 2, 2)])
def test_the_beam_skips_only_draws_that_change_nothing(vocab, depth, width):
    rng = random.Random(vocab + 10 * depth)
    for q in [random_model(rng, vocab, depth - 1) for _ in range(3)]:
        assert drafts_of(stochastic_beam(width), depth, (), q, q) == drafts_of(
            beam_of_whole_sequences(width), depth, (), q, q
        )


@pytest.mark.parametrize(
    ("vocab", "depth", "width", "cases"),
    [(2, 2, 2, 40), (2, 3, 2, 20), (2, 3, 3, 10), (3, 2, 2, 40), (3, 2, 3, 10), (3, 3, 2, 5)],
)
def test_recursive_rejection_is_lossless_on_stochastic_beams(vocab, depth, width, cases):
    """Which nodes survive depends on tokens elsewhere, but on no token that is yet to be tested."""
    rng = random.Random(100 * vocab + 10 * depth + width)
    models = [tuple(random_model(rng, vocab, depth) for _ in "pq") for _ in range(cases)]
    assert lossless_with("rrs_without", stochastic_beam(width), depth, models=models)


def test_on_beams_as_on_trees_siblings_must_stand_in_the_order_drawn():
    def by_score(p, q, shape, choose, context):
        def ordered(node):
            children = [(x, ordered(child)) for x, child in node.children]
            children.sort(key=lambda pair: -node.q[pair[0]])
            return Node(node.p, node.q, tuple(children), node.index)

        return ordered(stochastic_beam(2)(p, q, shape, choose, context))

    assert not lossless_with("rrs_without", by_score, 2)


# How long a draft is


def test_a_token_below_the_threshold_is_submitted_and_the_last():
    for _, q in MODELS:
        for (tokens, _), _mass in drafts_of(confident("1/3"), 3, (), P, q).items():
            sure = [q(tokens[:at])[x] >= F(1, 3) for at, x in enumerate(tokens)]
            assert all(sure[:-1])
            assert len(tokens) == 3 or not sure[-1]
    assert drafts_of(confident(0), 2) == drafts_of(with_replacement, 2)
    q = Table({(): ["1/4", "3/4"]}, order=0)
    at_the_edge = drafts_of(confident("1/4"), 2, (), P, q)
    assert at_the_edge == drafts_of(with_replacement, 2, (), P, q), "equal is sure enough"


def test_to_withhold_the_token_of_low_confidence_is_lossy():
    def withheld(p, q, shape, choose, context):
        tokens, _ = flat(confident("1/2")(p, q, shape, choose, context))
        if tokens and q((*context, *tokens[:-1]))[tokens[-1]] < rational("1/2"):
            tokens = tokens[:-1]
        texts = [(*context, *tokens[:at]) for at in range(len(tokens) + 1)]
        return chain([p(text) for text in texts], [q(text) for text in texts], tokens)

    assert not lossless_with("token", withheld, 2)
    assert lossless_with("match", withheld, 2), "the target's own draw does not mind"


DSPARK = Table({(): ["7/10", "3/10"]}, order=0), Table({(): ["1/2", "1/2"]}, order=0)


@pytest.mark.parametrize(
    ("decide", "first_token"),
    [
        (lambda values: values.index(max(values)), {(0,): F(17, 20), (1,): F(3, 20)}),
        (stop_at_drop, {(0,): F(7, 10), (1,): F(3, 10)}),
    ],
)
def test_a_schedule_that_looks_ahead_gives_dsparks_own_counterexample(decide, first_token):
    """The second draft is worth submitting only behind token 0 (DSpark, appendix A).

    The best length overall is two behind token 0 and none otherwise, so the first token is
    submitted for what it is. Stopping at the first drop decides before it is looked at.
    """

    def admitted(p, q, shape, choose, context):
        tokens, _ = flat(with_replacement(p, q, 2, choose, context))
        survive = F(4, 5), F(9, 10) if tokens[0] == 0 else F(0)
        count = decide(throughput(survive, (1, F(1, 2), F(9, 20))))
        return chain([p(())] * (count + 1), [q(())] * (count + 1), tokens[:count])

    p, q = DSPARK
    entry = replace(RULES["token"], draft=admitted)
    assert output_law(entry, p, q, shape=2, length=1) == first_token


def test_a_length_drawn_apart_from_the_tokens_is_lossless():
    def mixed(p, q, shape, choose, context):
        levels = choose(normalise([1, 2, 3]), at=Proposal(0))
        return with_replacement(p, q, levels, choose, context)

    assert lossless_with("token", mixed, 2, rounds=2)


def test_a_schedule_decides_the_depth_by_the_text_up_to_the_shape():
    drafter = scheduled(lambda context: len(context))
    for size, levels in [(0, 0), (1, 1), (2, 2), (3, 2)]:
        assert drafts_of(drafter, 2, (0,) * size) == drafts_of(
            with_replacement, levels, (0,) * size
        )
    with pytest.raises(ValueError, match=r"length\(context\) = -1 is negative"):
        scheduled(lambda context: -1)(P, Q, 2, Seeded(0), ())
