"""The second oracle against the first: laws written down, and laws enumerated from the rules."""

import itertools

import pytest
from hypothesis import given, settings

from specref.closed import CLOSED, round_law
from specref.decode import round_law as enumerated
from specref.dist import is_exact, normalise
from specref.rules import RULES
from tests.fixtures import C4, GRID, P3, P4, Q3, Q4, SHARP3, SHARP4, models, same
from tests.test_rules import WALKS_TREES, target_of, targets
from tests.test_structure import EDGES

# Examples by shape; a bushy tree of drawn siblings has thousands of drafts.
CHAINS = {0: 5, 1: 30, 2: 15, 3: 3}
TREES = {(2,): 15, (3,): 5, (1, 2): 5, (2, 1): 5, (2, 2): 1}


def shapes(name):
    """Return the shapes of drafts that a rule is made for, with a number of examples for each."""
    rule = RULES[name]
    chains = CHAINS if rule.shape == "chain" else {}
    trees = TREES if name in WALKS_TREES else {}
    return {
        shape: examples
        for shape, examples in {**chains, **trees}.items()
        if rule.width is None or {*shape} == {rule.width}
    }


every_rule = pytest.mark.parametrize("name", CLOSED)
every_shape = pytest.mark.parametrize(
    ("name", "shape"), [(name, shape) for name in CLOSED for shape in shapes(name)], ids=str
)


def test_every_rule_has_a_closed_law():
    assert set(CLOSED) == set(RULES)


@pytest.mark.parametrize("module", [name for name in EDGES if name.startswith("specref.closed")])
def test_a_closed_law_shares_nothing_with_the_rules_and_their_reading(module):
    shared = ("specref.choice", "specref.rules", "specref.decode", "specref.lemma")
    assert not [used for used in EDGES[module] if used.startswith(shared)]


@every_rule
def test_the_closed_law_is_the_enumerated_one_on_every_pair_of_a_grid(name, record_property):
    cases = 0
    for shape in [shape for shape in shapes(name) if shape in (1, (2,))]:
        for p, q in itertools.product(targets(name, GRID), GRID):
            first = enumerated(RULES[name], same(p), same(q), shape)
            assert round_law(name, same(p), same(q), shape) == first, (p, q)
            cases += 1
    assert cases >= len(targets(name, GRID)) * len(GRID)
    record_property("cases", cases)
    print(f"{name}: {cases} pairs of laws, V = 3, multiples of 1/4, equal on each")


@every_shape
def test_the_closed_law_is_the_enumerated_one_on_generated_models(name, shape, record_property):
    rule, seen = RULES[name], []

    @settings(max_examples=shapes(name)[shape])
    @given(models(3, sharp=rule.one_hot_target), models(3))
    def holds(p, q):
        assert round_law(name, p, q, shape) == enumerated(rule, p, q, shape)
        seen.append((p, q))

    holds()
    record_property("cases", len(seen))
    print(f"{name}: {len(seen)} generated pairs of models, V = 3, shape {shape}, equal on each")


@every_shape
def test_the_closed_law_reads_the_context(name, shape):
    p, q = target_of(name, SHARP3, P3), Q3
    for context in ((0,), (1, 2)):
        out = round_law(name, p, q, shape, context)
        assert out == enumerated(RULES[name], p, q, shape, context)
        assert sum(out.values()) == 1


@every_rule
def test_the_closed_law_holds_on_four_tokens(name):
    smallest = [shape for shape in shapes(name) if shape in (2, (2,))]
    for p, q in ((P4, Q4), (Q4, P4), C4):
        p = target_of(name, SHARP4, p)
        for shape in smallest:
            assert round_law(name, p, q, shape) == enumerated(RULES[name], p, q, shape)


def whole_numbers(context):
    return (1, 0, 0)


@pytest.mark.parametrize("name", CLOSED)
def test_integers_are_read_exactly(name):
    shape = 1 if RULES[name].shape == "chain" else (2,)
    for other in (whole_numbers, lambda context: normalise([1, 1, 1])):
        out = round_law(name, whole_numbers, other, shape)
        assert all(is_exact(mass) for mass in out.values())
        assert sum(out.values()) == 1


def test_what_is_no_model_is_refused_with_its_name():
    for bad, words in (
        (5, "q = 5 is no model"),
        (lambda context: None, r"q\(\(\)\) = None is no list"),
        (lambda context: (2, -1, 0), r"q\(\(\)\)\[1\] = -1 is negative"),
        (lambda context: (1, 0), "p has 3 tokens and q 2; pad the smaller"),
    ):
        with pytest.raises(ValueError, match=words):
            round_law("token", whole_numbers, bad, 1)
    with pytest.raises(KeyError, match="no closed law of 'tokens'; there are of token, one_hot"):
        round_law("tokens", whole_numbers, whole_numbers, 1)
