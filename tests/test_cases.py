"""What the gate hands to a subject is what it holds the subject to."""

import json
from fractions import Fraction
from itertools import chain

import numpy as np
import pytest
import torch

from specref.dist import as_fraction
from specref.draft import DRAFTS
from specref.gate.cases import (
    Case,
    Fixture,
    OneLevel,
    exact,
    fixtures,
    grid,
    near_ties,
    rounded,
    rounds_fixture,
    sampled_fixtures,
    tiny_masses,
)

MIXED = next(f for f in fixtures("chain", False) if f.name == "mixed")
TREE = next(f for f in fixtures("tree", False) if f.name == "pair, two levels")


def one(fixture, drafts="with_replacement", at=0):
    return fixture.case(list(fixture.drafts(DRAFTS[drafts]))[at], "token")


def test_a_chain_is_handed_over_as_three_tensors():
    p, q, x = one(MIXED).tensors(5)
    assert (p.shape, q.shape, x.shape) == ((5, 3, 4), (5, 2, 4), (5, 2))
    assert (p.dtype, x.dtype) == (torch.float32, torch.int64)
    assert p.is_contiguous()


def test_a_tree_is_handed_over_as_four_even_with_one_child_per_node():
    narrow = Fixture("narrow", TREE.p, TREE.q, (1, 1))
    p, q, tokens, parents = one(narrow).tensors(2)
    assert (p.shape, q.shape, tokens.shape, parents.shape) == ((2, 3, 2), (2, 3, 2), (2, 3), (2, 3))
    assert parents[0].tolist() == [-1, 0, 1]
    assert tokens[0, 0] == -1


def test_pointers_lead_through_the_tree_in_the_order_drawn():
    case = one(TREE)
    first, following = case.pointers(1)
    found, todo = [], [int(first[0, 0])]
    while todo:
        at = todo.pop()
        if at < 0:
            continue
        found.append(at)
        todo += [int(following[0, at]), int(first[0, at])]
    assert sorted(found) == list(range(1, 7))
    assert first[0].tolist() == [1, 3, 5, -1, -1, -1, -1]
    assert following[0].tolist() == [-1, 2, -1, 4, -1, 6, -1]


def test_the_reference_law_is_that_of_the_numbers_handed_over():
    case = one(MIXED)
    p, _, _ = case.tensors(1)
    row = [Fraction(float(w)) for w in p[0, 0]]
    assert [as_fraction(w) for w in case.root().p] == [w / sum(row) for w in row]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_the_law_follows_the_type_that_was_asked_for(dtype):
    case = one(MIXED)
    p, _, _ = case.tensors(1, dtype=dtype)
    assert case.dtype == dtype
    assert rounded(case.p[0], dtype) == tuple(float(w) for w in p[0, 0])
    assert sum(case.root().p) == 1


def test_logits_are_the_logarithms_of_the_laws():
    case = one(next(f for f in fixtures("chain", False) if f.name == "zeros"))
    p, _q, _x = case.logits(1)
    assert torch.isneginf(p[0, 0, 3])
    assert torch.allclose(p.softmax(-1)[0, 0], case.tensors(1)[0][0, 0])


def test_a_write_into_what_was_handed_over_is_seen():
    case = one(MIXED)
    p, _, _ = case.tensors(2)
    assert not case.changed()
    p[0, 0, 0] = 0
    assert case.changed()
    _, q, _ = case.arrays(1)
    q[:] = 0
    assert case.changed()


@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_fixtures_are_proper_and_come_smallest_first(shape):
    for thorough in (False, True):
        found = fixtures(shape, thorough)
        for fixture in (*found, rounds_fixture(shape), *sampled_fixtures(shape)):
            for context in fixture.p:
                assert abs(sum(fixture.p[context]) - 1) < 1e-6
                assert sum(exact(fixture.q[context])) == 1
        assert [f.vocab for f in found][:9] == [2] * 9
    large = [f for f in found if not f.name.startswith("grid")]
    for fixture in (f for f in large if f.vocab > 2):
        for context, p in fixture.p.items():
            gaps = {round(a - b, 6) for a, b in zip(p, fixture.q[context], strict=True) if a > b}
            assert len(gaps) == 2, f"{fixture.name} after {context}: one gap hides wrong rows"


def test_the_grid_is_exhaustive():
    assert len(list(grid(3, 4))) == 15**2
    assert len({(tuple(f.p[()]), tuple(f.q[()])) for f in grid(3, 4)}) == 15**2


@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_near_ties_are_neighbours_and_some_leave_no_residual(shape):
    empty = 0
    drafts = OneLevel("token", shape)
    for case in near_ties(drafts):
        p, q = np.array(case.p[0], np.float32), np.array(case.q[0], np.float32)
        assert np.abs(p - q).max() < 4e-7
        empty += bool((p <= q).all() and (p < q).any())
    assert empty >= 2
    assert all(case.q[0][case.tokens[0]] == 2.0**-26 for case in tiny_masses(drafts))


@pytest.mark.parametrize("name", DRAFTS)
def test_cases_of_their_own_are_drafts_that_the_drafter_makes(name):
    """Their chance is that of the draft: of one level, that of all the drafter can make."""
    drafter = DRAFTS[name]
    drafts = OneLevel(None, "tree", drafter, 2)
    found = [*near_ties(drafts), *tiny_masses(drafts)]
    assert found
    for case in found:
        fixture = Fixture("these laws", {(): case.p[0]}, {(): case.q[0]}, (2,))
        chances = fixture.drafts(drafter)
        assert case.chance(drafter) == chances[case.tokens, case.parents] > 0
        assert 2 in {len(case.tokens), sum(w > 0 for w in case.q[0]) + 1}


def test_a_drafter_that_never_makes_a_draft_is_given_none():
    by_any = [case.tokens for case in tiny_masses(OneLevel("one_hot", "chain"))]
    assert by_any == [(1,), (1,), (2,)]
    assert not list(tiny_masses(OneLevel(None, "chain", DRAFTS["likeliest"])))


@pytest.mark.parametrize("fixture", [MIXED, TREE], ids=["chain", "tree"])
@pytest.mark.parametrize("name", ["with_replacement", "without_replacement", "likeliest"])
def test_the_chance_of_a_draft_is_its_weight(fixture, name):
    drafts = fixture.drafts(DRAFTS[name])
    for draft, weight in list(drafts.items())[::5]:
        assert fixture.case(draft, None).chance(DRAFTS[name]) == as_fraction(weight)


def test_a_draft_that_is_never_made_has_no_chance():
    assert one(MIXED, at=1).chance(DRAFTS["likeliest"]) == 0


def test_one_number_of_siblings_is_kept_to():
    found = fixtures("tree", True, 3)
    assert {width for f in found for width in f.shape} == {3}
    assert rounds_fixture("tree", width=3).shape == sampled_fixtures("tree", 3)[0].shape == (3,)
    assert {f.shape for f in fixtures("tree", True)} == {(2,), (1, 1), (2, 2), (3,)}


def test_cases_and_fixtures_survive_json():
    ties = (near_ties(OneLevel(None, shape)) for shape in ("chain", "tree"))
    for case in (one(MIXED), one(TREE), *chain(*ties)):
        assert Case.from_json(json.loads(json.dumps(case.to_json()))) == case
    for fixture in fixtures("tree", True):
        assert Fixture.from_json(json.loads(json.dumps(fixture.to_json()))) == fixture


def test_an_unknown_type_is_an_error_that_names_the_cure():
    with pytest.raises(ValueError, match="dtype = 'int8'; use one of float64, float32"):
        one(MIXED).tensors(1, dtype="int8")
