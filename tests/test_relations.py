"""Relations: each holds for honest samplers, and fails for one that is made to break it."""

from dataclasses import replace

import pytest

from specref.gate import relations
from specref.gate.cases import Fixture
from specref.gate.comparison import Asked
from specref.gate.errors import UsageError
from specref.gate.learned import Learned
from specref.gate.relations import RELATIONS
from specref.gate.report import CLAIMS
from specref.gate.taped import Taped
from specref.rules import RULES
from specref.subjects.programs import HashChoices, NumpyChoices, of_rule
from tests.related import Chain, Lenient, Tree, session_of

WRONG = {
    "no drafts": Chain("no drafts, no target"),
    "equal laws": Chain("equal laws are tossed for"),
    "disjoint laws": Chain("forbidden drafts pass"),
    "relabelled": Chain("token 0 is padding"),
    "padded vocabulary": Chain("mass for the padding"),
    "placeholders": Chain("placeholders are tokens"),
    "more siblings": Tree("the second of three siblings wins"),
    "sibling order": Tree("falling siblings lose"),
    "switched off": Lenient("not quite off"),
    relations.KEPT: Chain("writes where laws are equal"),
}

BOTH = pytest.mark.parametrize("declares", [True, False], ids=["declared", "undeclared"])


def judged(subject, instrument=Taped, names=None):
    session = session_of(subject)
    if instrument is None:
        return relations.judge(session, None, names)
    made = instrument(session)
    with made.ready():
        return relations.judge(session, made, names)


def broken(name, instrument=Taped):
    """Return the failure of a relation on the sampler made for it."""
    found = judged(WRONG[name], instrument, ["equal laws" if name == relations.KEPT else name])
    assert {f.verdict for f in found} == {"fail"}
    return next(f for f in found if named(f) == name)


def named(finding):
    return finding.message.partition(":")[0]


def test_every_relation_has_a_sampler_that_breaks_it():
    assert set(WRONG) == {*RELATIONS, relations.KEPT}


@pytest.mark.parametrize("name", WRONG)
def test_a_relation_fails_on_the_sampler_made_for_it(name):
    failure = broken(name)
    assert failure.claim == "metamorphic"
    assert failure.claim in CLAIMS
    assert failure.severity == ("contract" if name == relations.KEPT else "law")
    assert (failure.expected != failure.measured) or name == relations.KEPT


@pytest.mark.parametrize("name", WRONG)
def test_counts_see_it_too(name):
    assert broken(name, None).depth in ("samples", "")


@pytest.mark.parametrize("name", ["no drafts", "padded vocabulary", relations.KEPT])
def test_a_failure_is_repeated_from_its_data(name):
    session = session_of(WRONG[name])
    failure = broken(name)
    found = relations.again(session, failure.claim, failure.case, Taped(session))
    assert name in {named(f) for f in found if f.verdict == "fail"}
    honest = type(WRONG[name])()
    assert relations.again(session_of(honest), "metamorphic", failure.case)[0].verdict == "pass"


@pytest.mark.parametrize("wrong", [{"relation": "relabeled"}, {}, {"relation": None}], ids=str)
def test_data_without_a_relation_is_refused_with_the_names(wrong):
    with pytest.raises(UsageError, match="relations: no drafts"):
        relations.again(session_of(Chain()), "metamorphic", wrong)


@BOTH
def test_an_honest_chain_passes_all_that_apply(declares):
    (found,) = judged(Chain(declares=declares))
    assert (found.verdict, found.depth) == ("pass", "measured law")
    assert found.tv < 1e-6
    told = found.message
    assert ("equal laws" in told) == declares
    for name in ("no drafts", "disjoint laws", "relabelled", "padded vocabulary", "placeholders"):
        assert name in told
    assert "by counts" not in told


@BOTH
def test_an_honest_tree_passes_all_that_apply(declares):
    (found,) = judged(Tree(declares=declares))
    assert (found.verdict, found.depth) == ("pass", "measured law")
    assert "more siblings" in found.message
    assert ("sibling order" in found.message) == declares
    assert "equal laws" not in found.message


def test_a_lossy_sampler_is_held_to_what_its_rule_keeps_and_to_its_switch():
    (found,) = judged(Lenient(), names=["no drafts", "equal laws", "relabelled", "switched off"])
    assert found.verdict == "pass"
    assert all(name in found.message for name in ("equal laws", "relabelled", "switched off"))


KINDS = ("block", "match", "greedy", "rrs_without", "spec_hub", "greedy_multi", "typical")


@pytest.mark.parametrize("name", KINDS)
def test_every_rule_holds_the_relations_that_it_declares(name):
    rule = RULES[name]
    (found,) = judged(of_rule(name))
    assert (found.verdict, found.depth) == ("pass", "measured law")
    assert ("equal laws" in found.message) == rule.accepts_all_when_equal
    assert "padded vocabulary" in found.message
    if rule.sibling_order_matters or rule.shape == "chain":
        assert "sibling order" not in found.message


@pytest.mark.parametrize("rule", ["token", "target_only"])
def test_learned_laws_are_held_to_them(rule):
    names = ["no drafts", "padded vocabulary"]
    (found,) = judged(of_rule(rule, choices=NumpyChoices), Learned, names)
    assert (found.verdict, found.depth) == ("pass", "measured law")


@BOTH
def test_counts_are_certified(declares):
    subject = of_rule("token", choices=HashChoices, declares=declares)
    (found,) = judged(subject, None, ["no drafts", "relabelled"])
    assert (found.verdict, found.depth) == ("pass", "samples")
    assert 0 < found.tv < 0.1


class Refuses(Chain):
    """Has no round without drafts."""

    def sample(self, case, n, seed):
        if case.gamma == 0:
            raise ValueError("gamma = 0; draft something")
        return super().sample(case, n, seed)


def test_a_sampler_that_refuses_empty_drafts_is_left_alone():
    subject = Refuses()
    subject.placeholders = False
    (found,) = judged(subject, names=["no drafts", "equal laws"])
    assert found.verdict == "pass"
    assert (
        "no drafts: it takes no such case, and is left alone (exception: ValueError"
        in found.message
    )


class Falls(Chain):
    """Falls over where the vocabulary is padded."""

    def sample(self, case, n, seed):
        if case.vocab > 4:
            raise IndexError("token 4 is out of range")
        return super().sample(case, n, seed)


def test_an_exception_elsewhere_is_a_crash():
    (found,) = judged(Falls(), names=["equal laws", "padded vocabulary"])
    assert (found.verdict, found.severity, named(found)) == ("fail", "crash", "padded vocabulary")
    assert "token 4 is out of range" in found.message


def test_no_relation_asks_for_what_one_token_cannot_give():
    one = Fixture("one token", {(): (1.0,)}, {(): (1.0,)}, 1)
    session = session_of(Chain())
    found = relations._judged(Asked(session, Taped(session)), [(name, one) for name in RELATIONS])
    assert {f.verdict for f in found} == {"pass"}


def test_half_precision_is_held_to_its_own_band():
    class Half(Chain):
        def given(self, case, n):
            p, q, x = case.tensors(n, "bfloat16")
            return p.float(), q.float(), x, x >= 0

    session = replace(session_of(Half()), dtype="bfloat16")
    (found,) = relations.judge(session, Taped(session), ["equal laws", "padded vocabulary"])
    assert found.verdict == "pass"
