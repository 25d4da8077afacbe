"""The rules that verify chains: the numbers and the claims of their papers, settled exactly."""

import itertools
import math
import random
from dataclasses import replace
from fractions import Fraction as F

import pytest
from hypothesis import given, settings

from specref.choice import Trace, law
from specref.decode import deviation, output_law, round_law
from specref.dist import excess, normalise, tv
from specref.draft import DRAFTS, chain, flat, nodes, with_replacement
from specref.faults.proposals import unlikely_draft_dropped
from specref.rules import RULES
from specref.rules.coupled import target_given_draft
from specref.rules.hierarchical import hierarchical
from specref.sampler import verify
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

PAIRS = list(itertools.product(GRID, GRID))
"""All pairs of laws over three tokens in multiples of 1/4; many zeros."""


def mean_accepted(name, p, q, gamma):
    """Return E[tau] for models that look at the context."""
    out = round_law(RULES[name], p, q, gamma)
    return sum((len(text) - 1) * mass for text, mass in out.items())


def acceptance(name, p, q):
    """Return the probability that one drafted token is accepted."""
    return expected_accepted(name, p, q, 1)


def joint(row_of, text):
    """Return the mass that a model gives to a text."""
    return math.prod(row_of(text[:at])[x] for at, x in enumerate(text))


def texts(vocab, gamma):
    """Return all texts of 1 to gamma tokens."""
    lengths = range(1, gamma + 1)
    return [t for length in lengths for t in itertools.product(range(vocab), repeat=length)]


def overlap(p, q, vocab, gamma):
    """Return the most that any lossless rule may accept: sum over lengths of sum min(P, Q)."""
    return sum(min(joint(p, text), joint(q, text)) for text in texts(vocab, gamma))


@pytest.mark.parametrize(
    ("name", "pair", "gamma", "accepted"),
    [
        # Sun et al. 2024, the example of section 2: token 10/9, block 11/9
        ("block", TOY2, 1, "2/3"), ("block", TOY2, 2, "11/9"), ("block", TOY2, 3, "5/3"),
        ("block", B, 1, "3/5"), ("block", B, 2, "26/25"), ("block", B, 3, "689/500"),
        # Leviathan et al. 2023, A.2: 1/M
        ("one_shot", A, 1, "1/3"), ("one_shot", B, 1, "2/5"), ("one_shot", TOY2, 1, "1/2"),
        ("one_shot", B, 2, "14/25"),
        # Daliri et al. 2024
        ("coupled", A, 1, "7/12"), ("coupled", B, 1, "49/85"),
    ],
)  # fmt: skip
def test_the_mean_number_of_accepted_tokens_is_the_known_one(name, pair, gamma, accepted):
    assert expected_accepted(name, *pair, gamma) == F(accepted)


def test_block_and_token_part_at_two_drafted_tokens():
    """A claim that the two coincide up to gamma = 2 was made about an engine's block rule."""
    assert expected_accepted("token", *TOY2, 2) == F(10, 9)
    assert expected_accepted("block", *TOY2, 2) == F(11, 9)


def test_block_is_token_for_one_drafted_token():
    for p, q in PAIRS:
        block, token = (round_law(RULES[name], same(p), same(q), 1) for name in ("block", "token"))
        assert block == token


def certain(row_of):
    """Return the model that always continues with the likeliest token of another."""

    def row(context):
        law_ = row_of(context)
        return tuple(w * 0 + (x == law_.index(max(law_))) for x, w in enumerate(law_))

    return row


@settings(max_examples=30)
@given(models(3), models(3))
def test_block_is_token_for_certain_drafts_so_it_loses_nothing_there(p, q):
    laws = [round_law(RULES[n], p, certain(q), 3) for n in ("block", "token", "one_hot")]
    assert laws[0] == laws[1] == laws[2]


def test_certain_drafts_of_the_second_standard_pair():
    for name in ("block", "token"):
        assert mean_accepted(name, same(B[0]), certain(same(B[1])), 3) == F(31, 125)


def by_length(out):
    masses = {}
    for text, mass in out.items():
        masses[len(text) - 1] = masses.get(len(text) - 1, 0) + mass
    return masses


def test_block_on_one_draft_keeps_what_token_gives_up():
    """The unlikely first token is carried by the second, which the target wants more."""
    root = chain([B[0]] * 3, [B[1]] * 3, [2, 0])
    out = after(RULES["block"], root)
    assert by_length(out) == {2: F(5, 6), 0: F(1, 6)}
    assert tuple(out.get((x,), 0) / F(1, 6) for x in range(3)) == (F(3, 4), F(1, 4), 0)
    assert by_length(after(RULES["token"], root)) == {2: F(1, 3), 0: F(2, 3)}


def suffix_weight(p, q, text):
    """Return P_l as the least product of ratios over the ends of a draft, the empty one too."""
    ratios = [p(text[:at])[x] / q(text[:at])[x] for at, x in enumerate(text)]
    return min(math.prod(ratios[at:], start=F(1)) for at in range(len(text) + 1))


@pytest.mark.parametrize(
    ("p", "q", "gamma"),
    [(P3, Q3, 3), (Q3, P3, 3), (P4, Q4, 2), (*C4, 2)],
    ids=["three tokens", "three tokens, swapped", "four tokens", "C4"],
)
def test_the_invariant_of_block_a_beginning_is_kept_with_its_weight(p, q, gamma):
    kept = {}

    def program(choose):
        root = with_replacement(p, q, gamma, choose, ())
        return flat(root)[0], len(RULES["block"].verify(root, choose)) - 1

    for (drafted, tau), mass in law(program).items():
        for length in range(1, tau + 1):
            kept[drafted[:length]] = kept.get(drafted[:length], 0) + mass
    mean = 0
    for text in texts(p.vocab, gamma):
        drawn = joint(q, text)
        if drawn > 0:
            weight = suffix_weight(p, q, text)
            assert kept.get(text, 0) == drawn * weight
            mean += drawn * weight
    assert mean_accepted("block", p, q, gamma) == mean


@settings(max_examples=40)
@given(models(3), models(3))
def test_what_rules_accept_is_ordered(p, q):
    match, coupled, one_shot, token, block = (
        mean_accepted(name, p, q, 2) for name in ("match", "coupled", "one_shot", "token", "block")
    )
    assert overlap(p, q, 3, 2) >= block >= token >= max(coupled, one_shot)
    assert coupled >= match


def drawn_models(rng, vocab):
    """Return a model that looks at the last token; masses 1 to 9, normalised."""
    return model(*([rng.randint(1, 9) for _ in range(vocab)] for _ in range(vocab + 1)))


def test_block_gains_some_percent_on_drawn_models(record_property):
    """Gains are small, never negative, and now and then large."""
    rng = random.Random(40)
    gains = []
    for _ in range(60):
        p, q = drawn_models(rng, 3), drawn_models(rng, 3)
        gains.append(float(mean_accepted("block", p, q, 3) / mean_accepted("token", p, q, 3)) - 1)
    mean, most = sum(gains) / len(gains), max(gains)
    print(f"block over token, E[tau]: mean gain {mean:.1%}, largest {most:.1%} of {len(gains)}")
    assert min(gains) >= 0
    assert sum(gain > 0 for gain in gains) > len(gains) / 2
    assert 0.01 < mean < 0.1 < most
    record_property("cases", len(gains))


# Hierarchical.


def tokens_kept(name, p, q, gamma):
    """Return the law of (emitted text, accepted drafts), told by the coins of the round."""

    def program(choose):
        trace = Trace(choose)
        text = RULES[name].verify(with_replacement(p, q, gamma, choose, ()), trace)
        kept = [step.at.index for step in trace.steps if step.kind == "flip" and step.outcome]
        return text, max(kept, default=0)

    return law(program)


def mean_kept(name, p, q, gamma):
    return sum(kept * mass for (_, kept), mass in tokens_kept(name, p, q, gamma).items())


@pytest.mark.parametrize(
    ("pair", "gamma", "ideal"),
    [(TOY2, 2, "4/3"), (TOY2, 3, "50/27"), (B, 2, "28/25"), (B, 3, "779/500")],
)
def test_hierarchical_reaches_the_overlap_that_block_does_not(pair, gamma, ideal):
    p, q = map(same, pair)
    assert overlap(p, q, len(pair[0]), gamma) == F(ideal)
    assert mean_kept("hierarchical", p, q, gamma) == F(ideal)
    assert mean_kept("block", p, q, gamma) == mean_accepted("block", p, q, gamma) < F(ideal)


@settings(max_examples=30)
@given(models(3), models(3))
def test_hierarchical_reaches_the_overlap_on_generated_models(p, q):
    assert mean_kept("hierarchical", p, q, 2) == overlap(p, q, 3, 2)


@pytest.mark.parametrize("gamma", [0, 1, 2, 3])
def test_hierarchical_emits_gamma_tokens_and_a_bonus_only_behind_accepted_ones(gamma):
    for (text, kept), mass in tokens_kept("hierarchical", P3, Q3, gamma).items():
        assert len(text) == (gamma + 1 if kept == gamma else gamma), mass


def test_hierarchical_and_token_are_one_for_one_drafted_token():
    for p, q in PAIRS:
        laws = [round_law(RULES[n], same(p), same(q), 1) for n in ("hierarchical", "token")]
        assert laws[0] == laws[1]


def test_hierarchical_is_lossy_when_the_target_goes_on_behind_the_first_redrawn_token():
    def cut(root, choose):
        trace = Trace(choose)
        text = hierarchical(root, trace)
        kept = [step.at.index for step in trace.steps if step.kind == "flip" and step.outcome]
        return text[: max(kept, default=0) + 1]

    p, q = map(same, TOY2)
    assert deviation("hierarchical", p, q, shape=2, length=3) == 0
    wrong = replace(RULES["hierarchical"], verify=cut)
    assert deviation(wrong, p, q, shape=2, length=1) == 0
    assert deviation(wrong, p, q, shape=2, length=2) > 0


def test_hierarchical_draws_each_redrawn_token_at_an_address_of_its_own():
    longest = set()

    def program(choose):
        trace = Trace(choose)
        RULES["hierarchical"].verify(with_replacement(P3, Q3, 3, choose, ()), trace)
        asked = [None if step.at is None else step.at.index for step in trace.steps]
        assert len(set(asked)) == len(asked)
        longest.add(max(at for at in asked if at is not None))

    law(program)
    assert longest == {3, 4, 5}, "nodes behind the draft are numbered on from its last"


@pytest.mark.parametrize("drafter", DRAFTS)
def test_drafters_leave_the_way_to_the_models_open(drafter):
    def program(choose):
        root = DRAFTS[drafter](P3, Q3, 2, choose, (1,))
        return root, flat(root)[0]

    for root, drafted in law(program):
        for node in nodes(root):
            text = (1, *drafted[: node.index])
            for x, y in itertools.product(range(3), repeat=2):
                far = node.beyond(x).beyond(y)
                assert (far.p, far.q) == (P3((*text, x, y)), Q3((*text, x, y)))
                assert (node.beyond(x).index, far.index, far.children) == (3, 4, ())


def test_hierarchical_says_what_a_draft_from_rows_lacks():
    root = chain([B[0]] * 3, [B[1]] * 3, [2, 0])
    with pytest.raises(ValueError, match="does not hold their laws; grow it from models"):
        after(RULES["hierarchical"], root)
    with pytest.raises(ValueError, match="hierarchical calls the models"):
        verify("hierarchical", [B[0]] * 3, [B[1]] * 2, [2, 0], seed=0)


class Printed:
    """Zhou et al. 2026, Alg. 2, as printed: capped ratios r*, their divergences and residuals."""

    def __init__(self, p, q):
        self.p, self.q = p, q

    def ratio(self, text, start=0):
        return math.prod(
            (self.p(text[:at])[text[at]] / self.q(text[:at])[text[at]]
             for at in range(start, len(text))),
            start=F(1),
        )  # fmt: skip

    def reset(self, text):
        """m: the shorter beginning of the largest ratio, if that exceeds 1, else 0."""
        best = max(range(1, len(text)), key=lambda i: self.ratio(text[:i]), default=0)
        return best if best and self.ratio(text[:best]) > 1 else 0

    def masses(self, text):
        """Return by token v behind `text`: (Q r*, Q), each divided by Q(text)."""
        out = []
        for v, (a, b) in enumerate(zip(self.p(text), self.q(text), strict=True)):
            out.append((self.ratio(text, self.reset((*text, v))) * a, b))  # no division by q(v) = 0
        return out

    def chance(self, text, gamma):
        if len(text) == gamma:
            return min(1, self.ratio(text, self.reset(text)))
        missing = sum(max(b - a, 0) for a, b in self.masses(text))
        wanted = sum(max(a - b, 0) for a, b in self.masses(text))
        return wanted / missing if missing else 1

    def residual(self, text):
        return normalise(max(a - b, 0) for a, b in self.masses(text))


def test_the_printed_form_of_hierarchical_is_block_coin_for_coin(record_property):
    rng = random.Random(2601)
    coins = residuals = 0
    pairs = [(P3, Q3), (Q3, P3), *((drawn_models(rng, 3), drawn_models(rng, 3)) for _ in range(12))]
    for p, q in pairs:
        printed = Printed(p, q)
        for root, _ in drafts(RULES["block"], p, q, 3):
            drafted, steps = flat(root)[0], {}

            def program(choose, root=root, steps=steps):
                trace = Trace(choose)
                kept = len(RULES["block"].verify(root, trace)) - 1
                steps.update({step.at.index: step.weights for step in trace.steps if step.at})
                steps[f"behind {kept}"] = trace.steps[-1].weights

            law(program)
            for at, weights in steps.items():
                if isinstance(at, int):
                    assert weights == (printed.chance(drafted[:at], 3),)
                    coins += 1
                elif at != "behind 3":
                    assert weights == printed.residual(drafted[: int(at.split()[1])])
                    residuals += 1
    assert coins > 500
    assert residuals > 200
    record_property("coins", coins)
    print(f"{len(pairs)} pairs of models, gamma 3: {coins} coins and {residuals} residuals equal")


# One-shot rejection sampling.


def test_one_shot_accepts_the_same_share_of_every_token_of_the_target():
    for p, q in PAIRS:
        share = min(b / a for a, b in zip(p, q, strict=True) if a > 0)
        out = round_law(RULES["one_shot"], same(p), same(q), 1)
        for x in range(3):
            accepted = sum(mass for text, mass in out.items() if len(text) == 2 and text[0] == x)
            assert accepted == p[x] * share
            assert out.get((x,), 0) == p[x] * (1 - share)


# Coupled randomness.


def pairs_of(p, q):
    """Return the law of (drafter's winner, target's winner) as a table [V][V]."""
    return [[b * w for w in (target_given_draft(p, q, x) if b else p)] for x, b in enumerate(q)]


def test_the_coupled_winners_have_the_laws_q_and_p():
    for p, q in [*PAIRS, A, B]:
        table = pairs_of(p, q)
        assert tuple(sum(row) for row in table) == q
        assert tuple(sum(column) for column in zip(*table, strict=True)) == p


def test_a_token_can_replace_only_drafts_that_the_target_likes_less():
    for p, q in PAIRS:
        for x, row in enumerate(pairs_of(p, q)):
            for y, mass in enumerate(row):
                if x != y:
                    assert (mass > 0) == (q[x] * p[y] > q[y] * p[x])


def test_coupled_winners_agree_by_the_formula_and_within_the_bounds():
    for p, q in [*PAIRS, A, B]:
        agree = sum(
            1 / sum(max(a / p[i], b / q[i]) for a, b in zip(p, q, strict=True))
            for i in range(len(p))
            if p[i] * q[i] > 0
        )
        assert acceptance("coupled", p, q) == agree
        distance = tv(p, q)
        assert (1 - distance) / (1 + distance) <= agree <= 1 - distance
        assert acceptance("match", p, q) <= agree <= acceptance("token", p, q)


def test_weighted_minhash_agrees_with_the_lower_bound():
    for p, q in [*PAIRS, A, B]:
        least, most = ([f(a, b) for a, b in zip(p, q, strict=True)] for f in (min, max))
        distance = tv(p, q)
        assert sum(least) / sum(most) == (1 - distance) / (1 + distance)
    assert (1 - tv(*A)) / (1 + tv(*A)) == F(1, 2)


def test_the_form_with_least_and_most_masses_is_a_bound_and_not_the_formula():
    """min/(min + sum max - max) per token is equal on one standard pair and less on the other."""

    def form(p, q):
        least, most = ([f(a, b) for a, b in zip(p, q, strict=True)] for f in (min, max))
        total = sum(most)
        return sum(low / (low + total - high) for low, high in zip(least, most, strict=True) if low)

    for p, q in PAIRS:
        assert (1 - tv(p, q)) / (1 + tv(p, q)) <= form(p, q) <= acceptance("coupled", p, q)
    assert form(*A) == acceptance("coupled", *A) == F(7, 12)
    assert form(*B) < acceptance("coupled", *B) == F(49, 85)


@pytest.mark.parametrize(("drafters", "bound"), [(1, "7/12"), (2, "59/84"), (3, "23/30")])
def test_a_list_of_coupled_drafts_agrees_where_the_target_won(drafters, bound):
    """K drafters with clocks of their own, and a target that races over all of them.

    Splitting each token into K, one for each row of clocks, makes it the race of `coupled`: the
    target has p/K on each part, the first drafter q on its own parts. The published bound is the
    probability that the drafter whose clock the target's winner holds has drafted the same token.
    """
    p, q = A
    parts = [(v, k) for v in range(3) for k in range(drafters)]
    split_p = tuple(p[v] / drafters for v, _ in parts)
    split_q = tuple(q[v] * (k == 0) for v, k in parts)
    table = pairs_of(split_p, split_q)
    same_part = sum(table[at][at] for at in range(len(parts)))
    assert drafters * same_part == F(bound)
    closed = sum(
        drafters / (sum(max(b / q[j], a / p[j]) for a, b in zip(p, q, strict=True))
                    + (drafters - 1) / p[j])
        for j in range(3)
    )  # fmt: skip
    assert closed == F(bound)
    drawn = [sum(row[at] for row in table) for at in range(len(parts))]
    assert [sum(drawn[v * drafters : (v + 1) * drafters]) for v in range(3)] == list(p)


# Who decides how long a draft is.


def stopped_behind_an_unlikely_token(p, q, shape, choose, context):
    """Cut a drawn chain behind its first token that is not the likeliest of q, and submit that."""
    node = with_replacement(p, q, shape, choose, context)
    rows, tokens = [node], []
    while node.children:
        ((x, child),) = node.children
        likely = node.q[x] == max(node.q)
        rows, tokens, node = [*rows, child], [*tokens, x], child
        if not likely:
            break
    return chain([row.p for row in rows], [row.q for row in rows], tokens)


def test_a_draft_dropped_for_what_it_is_changes_the_law():
    """The counterexample of DSpark, appendix A: admitted only when it is the first token."""
    p, q = map(same, (normalise([7, 3]), normalise([1, 1])))
    wrong = replace(RULES["token"], draft=unlikely_draft_dropped)
    assert output_law(wrong, p, q, shape=1, length=1) == {(0,): F(17, 20), (1,): F(3, 20)}
    assert deviation(wrong, p, q, shape=1, length=1) == F(3, 20)


def test_rules_for_any_draft_do_not_mind_dropped_drafts():
    for name in ("match", "one_hot"):
        rule = replace(RULES[name], draft=unlikely_draft_dropped)
        assert deviation(rule, *C4, shape=2, length=3) == 0


@pytest.mark.parametrize("name", ["token", "block", "one_shot", "coupled"])
def test_stopping_behind_a_token_is_safe_and_before_it_is_not(name):
    safe = replace(RULES[name], draft=stopped_behind_an_unlikely_token)
    assert deviation(safe, *C4, shape=3, length=4) == 0
    wrong = replace(RULES[name], draft=unlikely_draft_dropped)
    assert deviation(wrong, *C4, shape=3, length=4) > 0


def test_the_residual_of_block_is_not_that_of_token():
    """Behind a kept token of weight below 1 the target wants less, so other tokens."""
    root = chain([B[0]] * 3, [B[1]] * 3, [0, 2])
    assert after(RULES["block"], root) == after(RULES["token"], root), "weight 1: the same"
    p, q = normalise([4, 3, 2, 1]), normalise([1, 1, 3, 5])
    out = after(RULES["block"], chain([p] * 3, [q] * 3, [2, 3]))
    corrections = [out.get((2, y), 0) for y in range(4)]
    assert normalise(corrections) != excess(p, q)
    assert normalise(corrections) == excess(tuple(w * F(2, 3) for w in p), q)
