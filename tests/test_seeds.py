"""Seeds: they decide every draw, or the sampler does not say so."""

import random

import numpy as np
import pytest
import torch

from specref.gate import seeding
from specref.gate.errors import UsageError
from specref.gate.report import CLAIMS
from specref.gate.seeding import LOOKS
from specref.subjects.programs import WAYS, of_rule
from tests.related import Chain, Tree, session_of

WRONG = {
    "same seed": "global generator",
    "history": "counts requests",
    "other seed": "seed unused",
    "unseeded": "a default seed",
}


def judged(subject):
    return seeding.judge(session_of(subject))


def named(finding):
    return finding.message.partition(":")[0]


def test_every_look_has_a_sampler_that_fails_it():
    assert set(WRONG) == set(LOOKS)


@pytest.mark.parametrize("name", WRONG)
def test_a_seed_that_does_not_decide_is_found(name):
    found = judged(Chain(WRONG[name], seeded=True))
    assert {(f.verdict, f.severity, f.claim) for f in found} == {("fail", "stream", "seeds")}
    assert "seeds" in CLAIMS
    assert name in {named(f) for f in found}


@pytest.mark.parametrize("fault", ["one stream for all calls", "clock", "global generator"])
def test_what_no_seed_decides_fails_if_the_opposite_is_declared(fault):
    assert {"same seed", "history"} <= {named(f) for f in judged(Chain(fault, seeded=True))}


@pytest.mark.parametrize("fault", ["one stream for all calls", "clock", "global generator"])
def test_what_no_seed_decides_is_left_alone_otherwise(fault):
    (found,) = judged(Chain(fault))
    assert found.verdict == "not applicable"
    assert "declare seeded = True" in found.message


@pytest.mark.parametrize("name", ["history", "other seed"])
def test_an_undeclared_seed_that_decides_is_held_to_it(name):
    (failure,) = judged(Chain(WRONG[name]))
    assert (failure.verdict, named(failure)) == ("fail", name)


@pytest.mark.parametrize("name", WRONG)
def test_a_failure_is_repeated_from_its_data(name):
    failures = judged(Chain(WRONG[name], seeded=True))
    failure = next(f for f in failures if named(f) == name)
    (found,) = seeding.again(session_of(Chain(WRONG[name], seeded=True)), "seeds", failure.case)
    assert (found.verdict, named(found)) == ("fail", name)
    honest = session_of(Chain(seeded=True))
    assert seeding.again(honest, "seeds", failure.case)[0].verdict == "pass"


def test_data_of_another_kind_is_refused_with_the_nearest_name():
    with pytest.raises(UsageError, match="nearest: history"):
        seeding.again(session_of(Chain()), "seeds", {"relation": "histories"})


def test_an_honest_seeded_sampler_passes_every_look():
    (found,) = judged(Chain(seeded=True))
    assert found.verdict == "pass"
    assert all(name in found.message for name in LOOKS)
    assert "nothing to be seen" not in found.message


@pytest.mark.parametrize("subject", [Chain(), Tree()], ids=["chain", "tree"])
def test_an_honest_sampler_that_declares_nothing_is_not_asked_for_draws_without_a_seed(subject):
    (found,) = judged(subject)
    assert found.verdict == "pass"
    assert "unseeded" not in found.message


@pytest.mark.parametrize("way", WAYS)
def test_seeds_decide_whatever_draws(way):
    (found,) = judged(of_rule("token", choices=WAYS[way]))
    assert found.verdict == "pass"


def test_a_sampler_that_wants_a_seed_is_not_failed_for_that():
    subject = of_rule("token")
    subject.seeded = True
    (found,) = judged(subject)
    assert found.verdict == "pass"
    assert "nothing to be seen of: unseeded" in found.message


def test_a_rule_that_draws_nothing_has_nothing_to_decide():
    (found,) = judged(of_rule("greedy"))
    assert found.verdict == "pass"
    assert "nothing to be seen of: other seed" in found.message


class Drafts(Chain):
    """Has a drafter of its own, on torch's global generator if it is wrong."""

    def propose(self, case, n, seed):
        q = torch.tensor([case.q[: case.gamma]] * n)
        g = torch.default_generator if self.fault else torch.Generator().manual_seed(seed)
        return torch.multinomial(q.flatten(0, 1), 1, generator=g).view(n, -1), q


def test_drafts_are_decided_by_the_seed_too():
    subject = Drafts(seeded=True)
    subject.generator = Chain().generator
    assert judged(subject)[0].verdict == "pass"
    subject.fault = "drafts"
    assert {named(f) for f in judged(subject)} == {"same seed", "history"}


def test_global_states_are_left_as_they_were():
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    judged(Chain("global generator", seeded=True))
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    assert after == before
