from collections import Counter
from fractions import Fraction as F

import pytest

from specref.choice import Proposal, Seeded, law
from specref.dist import normalise, without
from specref.draft import (
    DRAFTS,
    chain,
    depth,
    flat,
    likeliest,
    nodes,
    tree,
    with_replacement,
    without_replacement,
)
from specref.model import Table

P = Table(
    {
        (): normalise([1, 2, 3]),
        (0,): normalise([3, 1, 2]),
        (1,): normalise([2, 2, 2]),
        (2,): normalise([0, 1, 5]),
    },
    order=1, name="target",
)  # fmt: skip
Q = Table(
    {
        (): normalise([1, 1, 4]),
        (0,): normalise([0, 1, 1]),
        (1,): normalise([1, 0, 0]),
        (2,): normalise([2, 3, 1]),
    },
    order=1, name="draft",
)  # fmt: skip


def rows(count):
    """Return `count` laws that can be told apart."""
    return [(F(1, at + 2), 1 - F(1, at + 2)) for at in range(count)]


def test_a_tree_is_built_from_flat_rows_and_taken_apart_again():
    tokens, parents = (1, 0, 0, 1, 1), (0, 0, 1, 1, 2)
    p_rows, q_rows = rows(6), rows(6)[::-1]
    root = tree(p_rows, q_rows, tokens, parents)
    assert flat(root) == (tokens, parents)
    order = nodes(root)
    assert [node.index for node in order] == list(range(6))
    assert [node.p for node in order] == p_rows
    assert [node.q for node in order] == q_rows
    assert [(x, child.index) for x, child in root.children] == [(1, 1), (0, 2)]
    assert [(x, child.index) for x, child in order[1].children] == [(0, 3), (1, 4)]


def test_nodes_need_not_stand_level_by_level():
    root = tree(rows(4), rows(4), (0, 1, 1), (0, 1, 0))
    assert [(x, child.index) for x, child in root.children] == [(0, 1), (1, 3)]
    assert flat(root) == ((0, 1, 1), (0, 1, 0))


def test_a_chain_is_a_tree_of_only_children():
    root = chain(rows(4), rows(4), (1, 0, 1))
    assert flat(root) == ((1, 0, 1), (0, 1, 2))
    assert all(len(node.children) <= 1 for node in nodes(root))


def test_an_empty_draft_is_a_root():
    assert flat(chain(rows(1), rows(1), ())) == ((), ())


@pytest.mark.parametrize(
    ("p", "q", "tokens", "parents", "complaint"),
    [
        (2, 3, (0, 1), (0, 0), "p_rows has 2 rows; 2 drafts need 3"),
        (3, 4, (0, 1), (0, 0), "q_rows has 4 rows; 2 drafts need 3"),
        (3, 3, (0, 1), (0,), "parents has 1 entries for 2 drafts"),
        (3, 3, (0, 1), (0, 2), "parent 2 of node 2 does not stand before it"),
        (3, 3, (0, 1), (-1, 0), "parent -1 of node 1 does not stand before it"),
        (3, 3, (0, 2), (0, 0), r"drafts\[1\] = 2 is outside 0 <= token < 2"),
        (3, 3, (-1, 0), (0, 0), r"drafts\[0\] = -1 is outside 0 <= token < 2"),
    ],
)
def test_a_tree_that_does_not_fit_is_refused(p, q, tokens, parents, complaint):
    with pytest.raises(ValueError, match=complaint):
        tree(rows(p), rows(q), tokens, parents)


@pytest.mark.parametrize(
    ("shape", "gamma"), [(0, 0), (4, 4), ((), 0), ((3,), 1), ((2, 1, 2), 3)]
)  # fmt: skip
def test_depth_is_the_largest_number_of_accepted_tokens(shape, gamma):
    assert depth(shape) == gamma


def drafts_of(drafter, shape, context=()):
    """Return the exact law of the flat draft."""
    return law(lambda choose: flat(drafter(P, Q, shape, choose, context)))


def test_a_drawn_chain_has_the_law_of_the_draft_model():
    out = drafts_of(with_replacement, 2)
    assert out == {
        ((x, y), (0, 1)): Q(())[x] * Q((x,))[y] for x in range(3) for y in range(3) if Q((x,))[y]
    }
    assert drafts_of(without_replacement, 2) == out, "width one leaves nothing to replace"


def test_siblings_drawn_with_replacement_are_independent():
    q = Q(())
    assert drafts_of(with_replacement, (2,)) == {
        ((x, y), (0, 0)): q[x] * q[y] for x in range(3) for y in range(3)
    }


def test_siblings_drawn_without_replacement_are_distinct():
    q = Q(())
    assert drafts_of(without_replacement, (2,)) == {
        ((x, y), (0, 0)): q[x] * without(q, x)[y] for x in range(3) for y in range(3) if x != y
    }


def test_siblings_run_out_with_the_tokens_of_the_draft_model():
    assert drafts_of(without_replacement, (2,), context=(1,)) == {((0,), (0,)): 1}
    assert all(len(tokens) == 2 for tokens, _ in drafts_of(without_replacement, (3,), (0,)))
    assert drafts_of(likeliest, (5,)) == {((2, 0, 1), (0, 0, 0)): 1}


def test_the_likeliest_drafts_are_drawn_from_nothing():
    assert drafts_of(likeliest, (2, 1)) == {((2, 0, 1, 1), (0, 0, 1, 2)): 1}
    assert likeliest(P, Q, 3, None, ()).children[0][0] == 2


PAIRS = {"hub_pairs", "one_from_each"}


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        (name, shape)
        for name in DRAFTS
        for shape in (0, 3, (2, 2), (3, 1))
        if not (shape == (3, 1) and name in PAIRS)
    ],
    ids=str,
)
def test_every_node_carries_the_laws_after_its_own_text(name, shape):
    def texts(node, text):
        yield node, text
        for x, child in node.children:
            yield from texts(child, (*text, x))

    def program(choose):
        root = DRAFTS[name](P, Q, shape, choose, (0, 2))
        for node, text in texts(root, (0, 2)):
            assert (node.p, node.q) == (P(text), Q(text))
        return len(nodes(root))

    assert sum(law(program).values()) == 1


@pytest.mark.parametrize("name", sorted(PAIRS))
def test_a_drafter_of_pairs_refuses_more(name):
    with pytest.raises(ValueError, match=rf"{name} draws .* pass (smaller )?widths"):
        DRAFTS[name](P, Q, (3, 1), Seeded(0), ())


@pytest.mark.parametrize("name", DRAFTS)
def test_nodes_are_numbered_in_the_order_drawn_level_by_level(name):
    def program(choose):
        root = DRAFTS[name](P, Q, (2, 2), choose, ())
        level, expected = [root], []
        while level:
            expected += [node.index for node in level]
            level = [child for node in level for _, child in node.children]
        assert expected == list(range(len(expected)))
        assert [node.index for node in nodes(root)] == expected

    law(program)


class Addresses:
    """The reading that takes the last possible token and remembers where it was asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, weights, at=None):
        self.asked.append(at)
        return max(x for x, w in enumerate(weights) if w > 0)


@pytest.mark.parametrize("name", ["with_replacement", "without_replacement"])
def test_each_drafted_node_is_proposed_by_the_draw_at_its_own_address(name):
    choose = Addresses()
    root = DRAFTS[name](P, Q, (2, 2), choose, ())
    count = len(nodes(root))
    assert choose.asked == [Proposal(at) for at in range(1, count)]


def test_seeded_drafts_repeat_and_differ_between_rounds():
    def drafted(seed, start):
        return flat(with_replacement(P, Q, 6, Seeded(seed, start), ()))

    assert drafted(1, 0) == drafted(1, 0)
    assert max(Counter(drafted(seed, 0) for seed in range(20)).values()) < 20
    assert any(drafted(seed, 0) != drafted(seed, 7) for seed in range(20))


@pytest.mark.parametrize("shape", [-1, (0,), (2, -1), (2, 0, 1), 2.5, (1.5,), None])
@pytest.mark.parametrize("name", DRAFTS)
def test_a_shape_needs_a_depth_or_widths(name, shape):
    with pytest.raises(
        ValueError, match=r"shape.* = .* pass a depth >= 0 for a chain, or a tuple of"
    ):
        DRAFTS[name](P, Q, shape, Seeded(0), ())
