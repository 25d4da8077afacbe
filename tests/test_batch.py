"""Batches of several requests: each gets its own law, and samplers that mix them up are found."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from specref.gate import batches
from specref.gate.batches import COUNTED, LOOKS, Mixed
from specref.gate.cases import rounds_fixture, sampled_fixtures
from specref.gate.errors import UsageError
from specref.gate.report import CLAIMS
from specref.gate.taped import Taped
from specref.subjects.programs import of_rule
from tests.related import Chain, Tree, session_of

WRONG = {
    "row alone": "q of the neighbour",
    "independent rows": "one coin for all rows",
    "neighbours": "least length for all",
    "permuted": "rows sorted by draft",
    "chunks": "laws of the first row in calls of three",
    "many rows": "laws of the first row in large calls",
    "ragged": "number of drafts of the first row for all",
}


def judged(subject, taped=True, names=None):
    session = session_of(subject)
    return batches.judge(session, Taped(session) if taped else None, names)


def named(finding):
    return finding.message.partition(":")[0]


def two(shape="chain"):
    """Return two cases that have no row in common."""
    session = session_of(Chain() if shape == "chain" else Tree())
    one, other = sampled_fixtures(shape)
    return session.cases(one)[0][0], session.cases(other)[-1][0]


def test_every_look_has_a_sampler_that_fails_it():
    assert set(WRONG) == set(LOOKS)


@pytest.mark.parametrize("name", WRONG)
def test_a_sampler_that_mixes_up_requests_fails(name):
    found = judged(Chain(WRONG[name]), names=[name])
    assert [named(f) for f in found] == [name]
    (failure,) = found
    assert (failure.verdict, failure.severity, failure.claim) == ("fail", "law", "batch")
    assert failure.claim in CLAIMS
    assert failure.tv > 0.01
    assert failure.expected != failure.measured


@pytest.mark.parametrize("name", ["row alone", "neighbours", "permuted", "many rows"])
def test_counts_see_it_too(name):
    (failure,) = judged(Chain(WRONG[name], declares=False), taped=False)
    assert (failure.verdict, failure.depth, named(failure)) == ("fail", "samples", COUNTED)


@pytest.mark.parametrize("name", ["permuted", "chunks"])
def test_a_failure_is_repeated_from_its_data(name):
    session = session_of(Chain(WRONG[name]))
    (failure,) = batches.judge(session, Taped(session), [name])
    (found,) = batches.again(session, "batch", failure.case, Taped(session))
    assert (found.verdict, named(found)) == ("fail", name)
    honest = session_of(Chain())
    assert batches.again(honest, "batch", failure.case, Taped(honest))[0].verdict == "pass"


def test_data_of_another_kind_is_refused_with_the_nearest_name():
    with pytest.raises(UsageError, match="nearest: neighbours"):
        batches.again(session_of(Chain()), "batch", {"relation": "neighbors"})


def test_honest_batches_pass_every_look():
    (found,) = judged(Chain(declares=False))
    assert (found.verdict, found.depth) == ("pass", "measured law")
    assert all(name in found.message for name in LOOKS)
    assert found.calls > 300


def test_honest_trees_pass():
    (found,) = judged(Tree(), names=["row alone", "neighbours", "ragged"])
    assert (found.verdict, found.depth) == ("pass", "measured law")
    assert "neighbours" in found.message
    assert "ragged" not in found.message


@pytest.mark.parametrize(
    "subject",
    [Chain(), Chain(declares=False), Tree()],
    ids=["chain", "undeclared chain", "tree"],
)
def test_honest_batches_are_certified_by_counts(subject):
    (found,) = judged(subject, taped=False)
    assert (found.verdict, found.depth) == ("pass", "samples")
    assert 0 < found.tv < 0.1


class OneRow(Chain):
    def given(self, case, n):
        p, q, x = (part.repeat(n, *[1] * (part.dim() - 1)) for part in case.tensors(1))
        return p, q, x, x >= 0


class FirstRow(Chain):
    def given(self, case, n):
        p, q, x = (part[:1].expand_as(part) for part in case.tensors(n))
        return p, q, x, x >= 0


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        (OneRow(), "asks for 1 of 2 rows"),
        (FirstRow(), "every row follows the first"),
        (of_rule("token"), "asks for 1 of 2 rows"),
    ],
    ids=["one row", "first row", "program"],
)
def test_samplers_of_one_request_are_not_held_to_it(subject, reason):
    (found,) = judged(subject)
    assert found.verdict == "not applicable"
    assert reason in found.message


def test_a_mixture_that_takes_laws_alone_from_the_first_row_is_no_sampler_of_one_request():
    class Laws(Chain):
        def given(self, case, n):
            p, q, x, there = super().given(case, n)
            return p[:1].expand_as(p), q, x, there

    assert {f.verdict for f in judged(Laws(), names=["row alone"])} == {"fail"}


def test_an_exception_in_batches_alone_is_a_crash():
    class Falls(Chain):
        def given(self, case, n):
            p, q, x, there = super().given(case, n)
            if (x != x[:1]).any() and case.vocab > 2:
                raise RuntimeError("one draft for all")
            return p, q, x, there

    (failure,) = judged(Falls(), names=["row alone"])
    assert (failure.verdict, failure.severity) == ("fail", "crash")
    assert "one draft for all" in failure.message


@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_a_mixed_case_hands_over_the_rows_of_its_requests(shape):
    one, other = two(shape)
    batch = Mixed([one, other, other])
    for what in ("arrays", "pointers"):
        parts = [getattr(case, what)(1) for case in (one, other, other)]
        for got, *rows in zip(getattr(batch, what)(3), *parts, strict=True):
            assert np.array_equal(got, np.concatenate(rows))
    for what in ("tensors", "logits"):
        parts = [getattr(case, what)(1, "float64") for case in (one, other, other)]
        for got, *rows in zip(getattr(batch, what)(3, "float64"), *parts, strict=True):
            assert torch.equal(got, torch.cat(rows))
            assert got.dtype == rows[0].dtype
    assert (batch.gamma, batch.vocab, batch.chain) == (one.gamma, one.vocab, one.chain)
    assert batch.single == ""


def test_a_mixed_case_notes_what_is_asked_beyond_its_rows():
    batch = Mixed(two())
    batch.tensors(5)
    assert batch.single == "it asks for 5 of 2 rows"
    batch = Mixed(two())
    assert not hasattr(batch, "tokens")
    assert batch.single == "it looks at case.tokens, not at the rows it is given"


def test_three_requests_of_a_fixture_differ_in_every_row():
    session = session_of(Chain())
    for fixture in (*sampled_fixtures("chain")[:1], rounds_fixture("chain")):
        made = batches._Batch(batches.Asked(session, None), fixture)
        rows = [set(case.p) | set(case.q) for case in made.cases]
        assert not rows[0] & rows[1]
        assert len({case.shape for case in made.cases}) == 1
        assert replace(made.cases[0], p=made.cases[1].p) != made.cases[0]
