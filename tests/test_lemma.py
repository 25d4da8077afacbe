"""The master lemma: its identities, its contract at every weight, its instances, its conditions."""

import itertools
from fractions import Fraction as F

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specref.choice import law
from specref.dist import normalise, rational
from specref.draft import Node, likeliest, with_replacement, without_replacement
from specref.faults.proposals import unlikely_draft_dropped
from specref.lemma import (
    INSTANCES,
    OUTSIDE,
    OneByOne,
    Planned,
    certain,
    contract,
    deferred,
    drawn_with,
    drawn_without,
    immediate,
    refused,
)
from specref.rules import RULES
from tests.fixtures import C4, P3, P4, Q3, Q4, SHARP3, SHARP4, after, drafts, models, same, tenths

B = same(tenths(5, 3, 2)), same(tenths(2, 2, 6))

# Here a second sibling may be refused; where q is further off, no residual token ever is.
CLOSE = same(tenths(6, 3, 1)), same(tenths(5, 1, 4))

CHAINS = (1, 2, 3)
TREES = ((2,), (1, 2), (2, 1))
BUSHY = (2, 2)
WEIGHTS = [rational(0), rational(1, 9), rational(3, 7), rational(1)]

every_instance = pytest.mark.parametrize("name", INSTANCES)


def shapes_of(name, *more):
    """Return the shapes that a rule is held to its contract on, of some and `more` trees."""
    rule = RULES[name]
    if rule.shape == "chain":
        return CHAINS
    return [shape for shape in (*TREES, *more) if rule.width in (None, *shape)]


def held(name, p, q, shape, weight, context=()):
    """Return how far the instance of a rule is from its contract, on the rule's own drafts."""
    return contract(
        INSTANCES[name], p, q,
        shape=shape, weight=weight, draft=RULES[name].draft, context=context,
    )  # fmt: skip


laws = (
    st.lists(st.integers(0, 6), min_size=3, max_size=3)
    .filter(any)
    .map(lambda weights: normalise(rational(w) for w in weights))
)


@settings(max_examples=200)
@given(laws, laws, st.fractions(0, 1, max_denominator=9).map(rational))
def test_the_three_identities(p, s, r):
    owed = [r * w for w in p]
    left = [max(w - c, 0) for w, c in zip(owed, s, strict=True)]
    received = [min(w, c) for w, c in zip(owed, s, strict=True)]
    for x in range(3):
        if s[x] > 0:
            assert s[x] * min(1, owed[x] / s[x]) == received[x]
        assert received[x] + left[x] == owed[x]
    refusal = 1 - r + sum(left)
    assert 1 - sum(received) == refusal
    assert (refusal == 0) == (r == 1 and p == s)
    if refusal > 0:
        later = refused(owed, left)
        assert [refusal * w for w in later] == left
        assert 0 <= sum(later) <= 1
        assert sum(later) == sum(left) / refusal
        assert (sum(later) == 1) == (r == 1)


@pytest.mark.parametrize("weight", WEIGHTS, ids=str)
@every_instance
def test_an_instance_keeps_its_contract_at_every_weight_and_node(name, weight):
    target = SHARP3 if RULES[name].one_hot_target else P3
    other = SHARP3 if RULES[name].one_hot_target else Q3
    for shape, context in itertools.product(shapes_of(name), [(), (0, 2)]):
        assert held(name, target, Q3, shape, weight, context) == 0, (shape, context)
        assert held(name, other, P3, shape, weight, context) == 0, (shape, context)


@pytest.mark.parametrize("name", [name for name in INSTANCES if BUSHY in shapes_of(name, BUSHY)])
def test_an_instance_keeps_its_contract_on_bushy_trees(name):
    assert held(name, P3, Q3, BUSHY, rational(3, 7), (1,)) == 0


@every_instance
def test_an_instance_keeps_its_contract_with_four_tokens(name):
    target = SHARP4 if RULES[name].one_hot_target else P4
    for shape in shapes_of(name)[:3]:
        assert held(name, target, Q4, shape, rational(5, 8)) == 0, shape


@every_instance
def test_an_instance_keeps_its_contract_on_generated_models(name, record_property):
    seen = []

    @settings(max_examples=15)
    @given(
        models(3, sharp=RULES[name].one_hot_target),
        models(3),
        st.fractions(0, 1, max_denominator=8),
        st.sampled_from(shapes_of(name)),
    )
    def holds(p, q, weight, shape):
        assert held(name, p, q, shape, weight) == 0
        seen.append(shape)

    holds()
    record_property("cases", len(seen))


@every_instance
def test_an_instance_with_weight_one_is_the_rule(name, record_property):
    rule, seen = RULES[name], 0
    for shape in shapes_of(name):
        for p, q in [(P3, Q3), (Q3, P3)]:
            target = SHARP3 if rule.one_hot_target else p
            for root, _ in drafts(rule, target, q, shape):
                seen += 1
                own = law(lambda choose, root=root: INSTANCES[name](root, 1, choose))
                assert own == after(rule, root), (shape, root)
    record_property("drafts", seen)


@pytest.mark.parametrize("commit", [immediate, deferred])
@pytest.mark.parametrize("draft", [with_replacement, without_replacement, unlikely_draft_dropped])
def test_every_draft_may_be_read_as_certain(draft, commit):
    shape = 3 if draft is unlikely_draft_dropped else (2, 1)
    for weight in WEIGHTS:
        verifier = OneByOne(certain, commit)
        assert contract(verifier, P3, Q3, shape=shape, weight=weight, draft=draft) == 0


def test_on_certain_drafts_it_does_not_matter_when_one_commits():
    for shape in (3, (2, 2), (3, 1)):
        for root, _ in drafts(RULES["target_only"], P3, Q3, shape):
            at_once, later = (
                law(
                    lambda choose, commit=commit, root=root: OneByOne(certain, commit)(
                        root, 1, choose
                    )
                )
                for commit in (immediate, deferred)
            )
            assert at_once == later


def test_the_tables_name_registered_lossless_rules_once():
    assert not INSTANCES.keys() & OUTSIDE.keys()
    for name in INSTANCES.keys() | OUTSIDE.keys():
        assert RULES[name].lossless
    for name, form in INSTANCES.items():
        assert not isinstance(form, Planned) or form.draft is RULES[name].draft


def test_coupled_is_no_instance():
    # In every form for one sampled draft, the correction is the same whatever was refused; in the
    # form for certain drafts, each draft alone yields the target. It does neither.
    corrections = set()
    for root, _ in drafts(RULES["coupled"], *B, 1):
        out = after(RULES["coupled"], root)
        assert root.p != tuple(
            sum(mass for text, mass in out.items() if text[0] == x) for x in range(3)
        )
        refusal = [out.get((x,), 0) for x in range(3)]
        if any(refusal):
            corrections.add(normalise(refusal))
    assert len(corrections) == 2


def test_no_lossy_rule_keeps_the_contract():
    lossy = [name for name, rule in RULES.items() if not rule.lossless]
    for name in lossy:
        shape = 1 if RULES[name].shape == "chain" else (2,)
        verify, draft = RULES[name].verify, RULES[name].draft
        found = max(
            contract(
                lambda root, weight, choose, verify=verify: verify(root, choose), *pair,
                shape=shape, weight=1, draft=draft,
            )
            for pair in (B, (P3, Q3), (Q3, P3), C4)
        )  # fmt: skip
        assert found > 0, name


def test_a_weight_is_a_probability():
    for weight in (F(-1, 2), F(3, 2)):
        with pytest.raises(ValueError, match="is outside 0 <= weight <= 1"):
            contract(INSTANCES["token"], *B, shape=1, weight=weight, draft=with_replacement)


# The four side conditions of the lemma, broken one at a time.


@pytest.mark.parametrize("commit", [immediate, deferred])
@pytest.mark.parametrize(
    ("siblings", "draft"),
    [
        (drawn_with, without_replacement),
        (drawn_without, with_replacement),
        (drawn_with, likeliest),
        (drawn_without, likeliest),
    ],
)
def test_a_wrong_law_of_the_next_sibling_breaks_the_contract(siblings, draft, commit):
    def program(root, weight, choose):
        # Siblings drawn with replacement may be equal; drawn without, the law of a repeat is 0.
        tokens = [x for x, _ in root.children]
        if siblings is drawn_without and len(set(tokens)) < len(tokens):
            return OneByOne(drawn_with, commit)(root, weight, choose)
        return OneByOne(siblings, commit)(root, weight, choose)

    for weight in (rational(3, 7), rational(1)):
        found = contract(program, *B, shape=(2,), weight=weight, draft=draft)
        assert found > 0
        print(f"{siblings.__name__} on {draft.__name__}, weight {weight}: TV {found}")


def ordered(draft, key):
    """Return the drafter that puts siblings in the order of `key(node, token)` after drawing."""

    def arrange(node):
        below = sorted(node.children, key=lambda pair: key(node, pair[0]))
        arranged = tuple((x, arrange(child)) for x, child in below)
        return Node(node.p, node.q, arranged, node.index)

    def drafter(p, q, shape, choose, context):
        return arrange(draft(p, q, shape, choose, context))

    return drafter


def test_siblings_out_of_the_order_drawn_break_the_contract():
    by_p = ordered(without_replacement, lambda node, x: -node.p[x])
    by_q = ordered(without_replacement, lambda node, x: -node.q[x])
    for commit in (immediate, deferred):
        verifier = OneByOne(drawn_without, commit)
        assert contract(verifier, *B, shape=(2,), weight=1, draft=by_p) == F(1, 5)
        assert contract(verifier, *B, shape=(2,), weight=1, draft=by_q) == F(1, 10)
        for weight in (F(3, 7), 1):
            for shape in [(2,), (2, 1)]:
                assert contract(verifier, P3, Q3, shape=shape, weight=weight, draft=by_p) > 0


def test_a_node_that_exists_because_of_its_token_breaks_the_contract():
    dspark = same(tenths(7, 3)), same(tenths(5, 5))
    for commit in (immediate, deferred):
        verifier = OneByOne(drawn_with, commit)
        found = contract(verifier, *dspark, shape=1, weight=1, draft=unlikely_draft_dropped)
        assert found == F(3, 20)
        for weight, shape in itertools.product((F(3, 7), 1), CHAINS):
            broken = contract(
                verifier, *C4, shape=shape, weight=weight, draft=unlikely_draft_dropped
            )
            assert broken > 0


class OneUniform:
    """A reading in which all coins, and if asked the terminal draw, read one and the same uniform.

    What is known of the uniform is an interval; the inner reading decides where in it the uniform
    lies, as far as it must be known.
    """

    def __init__(self, inner, terminal):
        self.inner, self.terminal = inner, terminal
        self.low, self.high = rational(0), rational(1)

    def cut(self, weights):
        edges = [min(max(e, self.low), self.high) for e in itertools.accumulate(weights, initial=0)]
        parts = [b - a for a, b in itertools.pairwise(edges)]
        pick = self.inner(normalise(parts))
        self.low, self.high = edges[pick], edges[pick + 1]
        return pick

    def flip(self, chance, at=None):
        return self.cut((chance, 1 - chance)) == 0

    def __call__(self, weights, at=None):
        return self.cut(weights) if self.terminal and at is None else self.inner(weights, at=at)


def shared(verifier, terminal):
    return lambda root, weight, choose: verifier(root, weight, OneUniform(choose, terminal))


def test_one_uniform_for_two_decisions_breaks_the_contract():
    drafted = {"draft": with_replacement}
    for commit in (immediate, deferred):
        verifier = OneByOne(drawn_with, commit)
        for weight in (F(3, 7), 1):
            coin, terminal = shared(verifier, False), shared(verifier, True)
            # One coin alone is shared with nobody: at the root, at weight 1, nothing is broken.
            one = contract(coin, *B, shape=1, weight=weight, **drafted)
            assert (one == 0) == (weight == 1)
            assert contract(coin, *C4, shape=2, weight=weight, **drafted) > 0
            assert contract(coin, *CLOSE, shape=(2,), weight=weight, **drafted) > 0
            assert contract(terminal, *B, shape=1, weight=weight, **drafted) > 0
    token = shared(INSTANCES["token"], True)
    found = law(lambda choose: token(with_replacement(*B, 1, choose, ()), 1, choose)[:1])
    assert sum(abs(found[(x,)] - w) for x, w in enumerate(tenths(5, 3, 2))) / 2 == F(1, 20)
