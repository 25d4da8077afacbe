"""Whole engines in the gate: honest ones pass, wrong ones fail, and are named."""

import pytest
import torch

import specref.gate.models as gate_models
from specref.faults import FAULTS
from specref.gate import check, replay, sequences
from specref.gate.generated import texts
from specref.gate.models import ASKED, DRAFT, TARGET, Failing, InjectedError, Request, ToyModel
from specref.gate.sequence_relations import RELATIONS
from specref.gate.subject import Problem
from specref.logits import PRESETS
from specref.logits.parameters import OFF
from tests import engines
from tests.related import session_of

FEW = ("one token", "two tokens", "EOS 0 or 1")


def judged(engine, *names, relations=None):
    """Return what the gate finds on the requests of these names."""
    session = session_of(engine)
    asked = {request.name: request for request in gate_models.requests(session.subject, True)}
    return sequences.judge(session, [asked[name] for name in names], relations)


def failure(engine, *names):
    (found,) = (f for f in judged(engine, *names) if f.verdict == "fail")
    return found


def relation(engine, name, *names):
    """Return the failure of one relation; the laws of single calls are right."""
    found = judged(engine, *(names or ("two tokens",)), relations=[name])
    assert found[0].verdict == "pass", found[0].message
    (broken,) = found[1:]
    assert broken.message.startswith(f"{name}: ")
    assert (broken.claim, broken.verdict) == ("metamorphic", "fail")
    return broken


def test_an_engine_that_hangs_is_told_under_its_own_claim_and_repeated(tmp_path):
    path = tmp_path / "hanging.py"
    path.write_text(
        "time_limit = 0.05\n\n\ndef generate(model, n, seed, max_tokens, eos):\n"
        "    while True:\n        pass\n"
    )
    report = check(str(path))
    (failure,) = report.failures
    assert (failure.claim, failure.severity) == ("sequences", "crash")
    assert "generate ran longer than 0.05 s" in failure.message
    report.write(tmp_path / "out")
    (file,) = (tmp_path / "out").glob("0*.json")
    assert [f.claim for f in replay(file).failures] == ["sequences"]


def test_an_honest_torch_engine_passes_with_its_law_measured():
    found = judged(engines.Engine(), "one token", "two tokens", "three tokens", "EOS 2")
    law, relations = found
    assert (law.claim, law.verdict, law.depth) == ("sequences", "pass", "measured law")
    assert law.tv < 1e-6
    assert law.bound < 0.1
    assert (relations.claim, relations.verdict) == ("metamorphic", "pass")
    assert all(name in relations.message for name in RELATIONS)


def test_an_honest_engine_in_batches_passes_with_its_law_measured():
    law, relations = judged(engines.Batched(), *FEW)
    assert (law.verdict, law.depth, relations.verdict) == ("pass", "measured law", "pass")
    assert law.tv < 1e-6


def test_an_honest_engine_may_apply_the_parameters_itself():
    law, *_ = judged(engines.FromLogits(), "temperature 0.5, top_k 2", relations=[])
    assert (law.verdict, law.depth) == ("pass", "measured law")
    assert law.tv < 1e-6


def test_an_honest_engine_without_torch_is_certified_by_its_texts():
    report = check(engines.InPython())
    found = {f.claim: f for f in report.findings}
    assert report.verdict == "pass"
    assert found["sequences"].depth == "samples"
    assert found["sequences"].tv < 0.05
    assert "certified by" in found["sequences"].message
    assert "chi-square" in found["sequences"].message
    assert "retry" in found["metamorphic"].message


def test_an_honest_numpy_engine_is_not_refuted():
    assert {f.verdict for f in judged(engines.InNumPy(), "one token")} == {"pass"}


WRONG = {
    engines.GoesOnAfterEos: ("EOS 2", "the text goes on after EOS 2", "ends_inside_blocks_ignored"),
    engines.OneMoreAfterEos: ("EOS 2", "the text goes on after EOS 2", None),
    engines.StopsEarly: ("two tokens", "the text stops early", None),
    engines.Overruns: ("one token", "the text goes on after 1 tokens", "limit_overrun"),
    engines.KeepsRejected: ("two tokens", "whole texts do not follow", None),
    engines.StaleContext: ("two tokens", "whole texts do not follow", None),
    engines.WrongBonusRow: ("two tokens", "whole texts do not follow", "bonus_from_row_before"),
    engines.TemperatureIgnored: (
        "temperature 0.5",
        "whole texts do not follow",
        "temperature_ignored",
    ),
}


@pytest.mark.parametrize("engine", WRONG, ids=lambda engine: engine.__name__)
def test_a_wrong_engine_fails_and_is_named(engine):
    name, text, fault = WRONG[engine]
    found = failure(engine(), name)
    assert (found.claim, found.severity, found.depth) == ("sequences", "law", "measured law")
    assert found.message.startswith(f"{name}: {text}")
    assert found.case["request"] == name
    assert "engines.py" in found.where
    if fault:
        assert fault in FAULTS
        assert fault in found.nearest_fault["matches"]


def test_a_wrong_numpy_engine_fails_by_its_texts():
    found = failure(engines.SeedResetInNumPy(), "two tokens")
    assert (found.claim, found.severity, found.depth) == ("sequences", "law", "samples")


def test_rows_that_share_draws_fail_by_their_texts():
    found = failure(engines.RowsShareDrawsInNumPy(), "two tokens")
    assert (found.claim, found.severity) == ("sequences", "law")


def test_a_generator_that_starts_anew_each_round_uses_a_state_twice():
    found = relation(engines.SeedResetEachRound(), "fresh states")
    assert found.severity == "stream"


def test_rows_that_start_their_generator_anew_use_a_state_twice():
    assert relation(engines.RowsShareDraws(), "fresh states").severity == "stream"


def test_a_seed_that_is_ignored_gives_the_same_texts():
    assert relation(engines.IgnoresSeed(), "other seed").severity == "stream"


def test_a_seed_that_is_said_to_decide_has_to():
    class Unseeded(engines.Engine):
        seeded = True

        def begin(self, seed):
            self.generator = None

    assert relation(Unseeded(), "same seed").severity == "stream"


def test_an_engine_without_seeds_of_its_own_passes():
    class Unseeded(engines.Engine):
        def begin(self, seed):
            self.generator = None

    law, relations = judged(Unseeded(), "two tokens", relations=["same seed", "retry"])
    assert (law.verdict, relations.verdict) == ("pass", "pass")
    assert "same seed" not in relations.message
    assert "retry" in relations.message


def test_what_was_asked_before_must_not_matter():
    for asked in (("two tokens", "EOS 0 or 1"), ("EOS 0 or 1", "two tokens")):
        assert relation(engines.RemembersRequests(), "history", *asked).severity == "stream"


def test_a_cache_that_a_failed_call_leaves_behind_shows_when_it_is_tried_again():
    found = relation(engines.KeepsItsCache(), "retry")
    assert "after an error in call 1 of the model" in found.message


def test_rows_of_one_call_that_go_together_are_no_independent_rows():
    class Coupled(engines.Engine):
        def generate(self, model, n, seed, max_tokens, eos):
            return super().generate(model, 1, seed, max_tokens, eos).expand(n, -1)

    assert relation(Coupled(), "independent rows").severity == "stream"


def test_calls_of_many_rows_follow_the_law_of_calls_of_one():
    class Tired(engines.Engine):
        def row(self, model, seed, max_tokens, eos):
            self.rows += 1
            return super().row(model, seed, max_tokens, eos if self.rows < 9 else (0, 1, 2))

        def begin(self, seed):
            super().begin(seed)
            self.rows = 0

    found = relation(Tired(), "large calls")
    assert "256 rows" in found.message


class Shifted(engines.Engine):
    """Right for the target that it makes up, which depends on what it is asked for."""

    def __init__(self, wrong):
        self.wrong = wrong

    def generate(self, model, n, seed, max_tokens, eos):
        self.eos, self.limit = eos, max_tokens
        return super().generate(model, n, seed, max_tokens, eos)

    def target(self, model, text):
        law = super().target(model, text)
        return law.flip(0) if self.wrong(self) else law


class Own:
    """A model of the subject's own, which knows nothing of the law that comes of it."""

    def __init__(self, wrong):
        self.model = ToyModel("own", TARGET, DRAFT, (0,))
        self.name, self.vocab, self.prompt = "own", 3, (0,)
        self.max_tokens, self.eos, self.draft = 3, (), self.model.draft
        self.wrong = wrong

    def target(self, context):
        return self.model.target(context)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("shorter", lambda engine: engine.limit == 2 and not engine.eos),
        ("cut at EOS", lambda engine: engine.limit == 2 and bool(engine.eos)),
    ],
    ids=["shorter", "cut at EOS"],
)
def test_laws_of_other_limits_and_ends_are_compared_on_a_model_of_the_subjects_own(name, wrong):
    engine = Shifted(wrong)
    engine.models = [Own(wrong)]
    session = session_of(engine)
    (law, *broken) = sequences.judge(session)
    assert law.verdict == "pass"
    assert any(f.message.startswith(f"{name}: ") for f in broken)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (lambda n, limit: None, "shape"),
        (lambda n, limit: torch.zeros(n, limit + 1, 2, dtype=torch.long), "shape"),
        (lambda n, limit: [[0] * limit] * (n + 1), "shape"),
        (lambda n, limit: [[0] * (limit - 1)] * n, "shape"),
        (lambda n, limit: [[0.0] * limit] * n, "dtype"),
        (lambda n, limit: [[float("nan")] * limit] * n, "dtype"),
        (lambda n, limit: [[0]] + [[0, 1]] * (n - 1), "shape"),
        (lambda n, limit: "text", "shape"),
        (lambda n, limit: [[3] * limit] * n, "range"),
        (lambda n, limit: [[-2] * limit] * n, "range"),
        (lambda n, limit: [[0, -1, 0][:limit]] * n, "padding"),
        (lambda n, limit: [[1 << 40] * limit] * n, "range"),
    ],
    ids=[
        *"nothing cube many-rows narrow floats nan ragged text large negative gap huge".split(),
    ],
)
def test_an_answer_that_is_no_sequences_is_told(answer, kind):
    request = Request("three tokens", ToyModel("toy", TARGET, DRAFT, (0, 1)), 3)
    found = texts(answer(2, 3), request, 2)
    assert {type(outcome) for outcome in found} == {Problem}
    assert {outcome.kind for outcome in found} == {kind}

    class Wrong:
        def generate(self, model, n, seed, max_tokens, eos):
            return answer(n, max_tokens)

    told = failure(Wrong(), "three tokens")
    assert told.severity == "crash"
    assert kind in told.message


def test_an_engine_that_always_raises_crashes():
    class Raises:
        def generate(self, model, n, seed, max_tokens, eos):
            raise KeyError("no such model")

    found = failure(Raises(), "one token")
    assert (found.severity, found.claim) == ("crash", "sequences")
    assert "KeyError" in found.message


def test_no_tokens_may_be_refused_or_returned_as_no_columns():
    class Refuses(engines.Engine):
        def generate(self, model, n, seed, max_tokens, eos):
            if not max_tokens:
                raise ValueError("max_tokens = 0; pass 1 or more")
            return super().generate(model, n, seed, max_tokens, eos)

    for engine in (Refuses(), engines.Engine()):
        assert judged(engine, "no tokens", "one token")[0].verdict == "pass"

    class EmitsOne(engines.Engine):
        def generate(self, model, n, seed, max_tokens, eos):
            return super().generate(model, n, seed, max(1, max_tokens), eos)

    found = failure(EmitsOne(), "no tokens")
    assert "the text goes on after 0 tokens" in found.message


def test_an_exception_of_some_draws_is_told_with_its_probability():
    class Sometimes(engines.Engine):
        def verify(self, p, q, drafted):
            if drafted == [2]:
                raise RuntimeError("the cache is full")
            return super().verify(p, q, drafted)

    found = failure(Sometimes(), "two tokens")
    assert found.severity == "crash"
    assert "the cache is full" in found.message
    assert "probability" in found.message


def test_a_model_without_a_law_is_told():
    class Unlawful(Own):
        def target(self, context):
            return [0.5, 0.5, float("nan")]

    engine = engines.Engine()
    engine.models = [Unlawful(None)]
    (found,) = sequences.judge(session_of(engine))
    assert (found.verdict, found.severity) == ("fail", "crash")
    assert "the model has no law" in found.message


def test_a_failure_is_found_again_on_its_own_case():
    session = session_of(engines.StopsEarly())
    first = failure(engines.StopsEarly(), "two tokens")
    (again,) = sequences.again(session, "sequences", first.case)
    assert (again.verdict, again.measured) == (first.verdict, first.measured)
    with pytest.raises(ValueError, match="no request 'ten tokens'"):
        sequences.again(session, "sequences", {"request": "ten tokens"})


def test_every_parameter_changes_a_law_of_the_toy_model():
    assert set(ASKED) == set(OFF)
    contexts = [(0, 1, 2, *rest) for rest in ((), (0,), (1,), (0, 1), (1, 1), (2, 2))]
    plain = ToyModel("plain", TARGET, DRAFT, (0, 1, 2))
    for name, value in ASKED.items():
        preset = next(preset for preset in PRESETS.values() if name in preset.names)
        parameters = {name: value} | ({"eos": (0,)} if name == "min_tokens" else {})
        model = ToyModel(name, TARGET, DRAFT, (0, 1, 2), parameters, preset)
        assert any(model.target(c) != plain.target(c) for c in contexts), name


@pytest.mark.parametrize("preset", ["transformers", "vllm", "llama_cpp"])
def test_a_request_is_made_of_every_parameter_that_a_subject_has(preset):
    engine = engines.Engine()
    engine.parameters, engine.preset = tuple(ASKED), preset
    subject = session_of(engine).subject
    asked = gate_models.requests(subject, False)
    assert subject.preset is PRESETS[preset]
    assert {name for request in asked for name in request.parameters} - {"eos"} == {
        name for name in ASKED if name in PRESETS[preset].names
    }
    assert all(sum(request.law(request.model.prompt)) == 1 for request in asked)


def test_a_failing_model_raises_once():
    model = Failing(ToyModel("toy", TARGET, DRAFT, (0,)), 2)
    model.target((0,))
    assert (model.vocab, model.failed) == (3, False)
    with pytest.raises(InjectedError, match="once"):
        model.draft((0,))
    assert model.failed
    assert len(model.target((0,))) == 3


def test_a_context_with_no_tokens_of_the_vocabulary_is_refused():
    model = ToyModel("toy", TARGET, DRAFT, (0,))
    with pytest.raises(ValueError, match="outside 0 <= token < 3"):
        model.target((0, -1))
