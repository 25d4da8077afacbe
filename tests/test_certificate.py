"""The certificate of a run, and the checker that has to see through every change of it."""

import copy
import json
import re
import subprocess
import sys
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specref import checker
from specref.faults import FAULTS
from specref.gate import checks
from specref.gate.cases import fixtures
from specref.gate.certificate import Measurement, certificate, dumped
from specref.gate.exact import Exact
from specref.gate.learned import Learned
from specref.gate.loading import load
from specref.gate.report import Report
from specref.gate.session import Session
from specref.gate.taped import Taped
from specref.rules import RULES
from specref.subjects.programs import Program, TorchChoices

CHECKER = Path(checker.__file__)


def measured(subject, *names, profile="quick", instrument=Taped):
    """Return the report of a subject that was measured on some pairs of models, or on all."""
    loaded = load(subject)
    rule = next(iter(loaded.rules), None)
    report = Report(
        subject=loaded.spec,
        name=loaded.name,
        source="",
        profile=profile,
        seed=0,
        drafts=loaded.drafts,
    )
    session = Session(loaded, rule, report, lambda _: None)
    models = [f for f in fixtures(loaded.shape, False) if not names or f.name in names]
    case, _ = session.cases(models[0])[0]
    loaded.sample(case, 1, 0)
    session.dtype = case.dtype
    judge = Exact(session, instrument(session))
    groups = [(fixture, judge.read(fixture)) for fixture in map(session.fit, models)]
    assert not report.escapes
    report.measurements.append(Measurement(rule, session.dtype, groups))
    return report


def certified(subject, *names, **options):
    return json.loads(dumped(certificate(measured(subject, *names, **options))))


def program(name, drafts=None):
    """Return a rule or a fault as a sampler that draws with torch."""
    entry = RULES[name] if name in RULES else FAULTS[name]
    base = entry if name in RULES else RULES[entry.base]
    return Program(name, (base.name,), entry.verify, drafts or base.draft, base.shape, TorchChoices)


@pytest.fixture(scope="module")
def chain():
    return certified(program("token"), "grid V=3 1/2 #27", "small")


@pytest.fixture(scope="module")
def tree():
    return certified(program("rrs_with"), "grid V=2 1/2 #8", "pair, two levels")


@pytest.fixture
def told(tmp_path, capsys):
    """Return a function from a certificate to the checker's exit code and what it prints."""

    def go(data):
        file = tmp_path / "certificate.json"
        file.write_text(data if isinstance(data, str) else dumped(data))
        return checker.main(str(file)), capsys.readouterr().out

    return go


def alone(file):
    """Run the checker as a script, in an interpreter that has its standard library alone."""
    return subprocess.run(
        [sys.executable, "-I", "-S", str(CHECKER), str(file)],
        capture_output=True, text=True, check=False, cwd=file.parent,
    )  # fmt: skip


# What is so is verified.


def test_the_sampler_of_transformers_is_verified_without_anything_of_ours(tmp_path):
    pytest.importorskip("transformers")
    data = certified("transformers")
    file = tmp_path / "certificate.json"
    file.write_text(dumped(data))
    assert file.stat().st_size < 100_000
    got = alone(file)
    assert (got.returncode, got.stderr) == (0, "")
    lines = got.stdout.splitlines()
    assert (
        "token, grid V=2 1/2 #6: 1 drafts with_replacement, TV 1/16777216 = 5.96e-08, num"
        in got.stdout
    )
    assert lines[-1] == "verified: 458 cells, 121 cases"
    assert len(lines) == len(data["rules"][0]["models"]) + 2 == 52


def test_the_checker_needs_the_standard_library_alone():
    lines = CHECKER.read_text(encoding="utf-8").splitlines()
    imported = {line.split()[1] for line in lines if line.startswith(("import ", "from "))}
    assert imported <= sys.stdlib_module_names


def test_a_small_sampler_is_verified_as_a_script(chain, tmp_path):
    file = tmp_path / "certificate.json"
    file.write_text(dumped(chain))
    got = alone(file)
    assert (got.returncode, got.stderr) == (0, "")
    assert got.stdout.splitlines()[-1] == "verified: 42 cells, 11 cases"


@pytest.mark.parametrize("name", ["rrs_with", "rrs_without", "target_only", "match", "one_hot"])
def test_every_way_to_draft_is_verified(name, told):
    code, out = told(certified(program(name), "grid V=3 1/2 #16", "grid V=3 1/2 #27", "small"))
    assert (code, out.count("TV 0") + out.count("numerics")) == (0, 3), out


def test_the_checker_finds_the_distance_that_the_gate_finds(told):
    report = measured(program("residual_is_target"), "grid V=3 1/2 #27", "small", "zeros")
    code, out = told(certificate(report))
    assert code == 0
    (made,) = report.measurements
    for fixture, group in made.groups:
        found = checks.joint(fixture, group, made.dtype)
        word = "FAIL" if found.fails else "numerics" if found.tv else "exact"
        assert f"{fixture.name}: {len(group)} drafts with_replacement, TV {found.tv} = " in out
        assert f"{word} (rounding {found.band:.1e}, missed 0.0e+00)" in out
    assert out.count("FAIL") == 3
    assert "the law of residual_is_target is the target's on 0 of 3 pairs of models" in out


def test_half_precision_is_handed_over_as_it_is(told):
    class Halves:
        name, rules = "halves", ("token",)

        def sample(self, case, n, seed):
            case.tensors(n, "float16")
            return program("token").sample(case, n, seed)

    data = certified(Halves(), "small")
    (part,) = data["rules"]
    assert part["dtype"] == "float16"
    rows = [row for _, row in part["models"][0]["p"]]
    assert all(float(torch.tensor(float.fromhex(w)).half()) == float.fromhex(w) for w in rows[0])
    assert told(data)[0] == 0


def test_an_exception_is_an_outcome_with_a_mass(told):
    class Raises:
        name, rules = "raises", ("token",)

        def sample(self, case, n, seed):
            if bool(torch.rand(()) < 0.25):
                raise RuntimeError('a "quoted" {"tokens": 1}\n')
            return program("token").sample(case, n, seed)

    data = certified(Raises(), "grid V=3 1/2 #27")
    code, out = told(data)
    assert code == 0
    assert "TV 1/4 = 0.25, FAIL" in out
    assert json.loads(dumped(data)) == data


def test_drafts_of_an_unknown_drafter_are_taken_as_given(told):
    def last(p, q, shape, choose, context):
        return chain_of(p, q, shape, len(p(())) - 1)

    data = certified(program("one_hot", last), "small")
    assert data["rules"][0]["drafts"] == "own"
    code, out = told(data)
    assert (code, "1 drafts own, TV 0" in out) == (0, True)


def chain_of(p, q, gamma, x):
    from specref.draft import chain

    texts = [(x,) * at for at in range(gamma + 1)]
    return chain([p(t) for t in texts], [q(t) for t in texts], (x,) * gamma)


def test_what_probes_may_have_missed_is_counted_in(told):
    report = measured(program("residual_is_target"), "grid V=3 1/2 #27")
    ((_, group),) = report.measurements[0].groups
    assert "TV 1/4 = 0.25, FAIL (rounding 3.5e-06, missed 0.0e+00)" in told(certificate(report))[1]
    for reading in group:
        reading.measured.missed = 0.375
    assert (
        "TV 1/4 = 0.25, numerics (rounding 3.5e-06, missed 3.8e-01)" in told(certificate(report))[1]
    )


class Decides:
    """Takes its draws as an argument."""

    name, rules = "decides", ("token",)

    def sample(self, case, n, seed):
        return self.decide(case, np.random.default_rng(seed).random((n, case.gamma + 1)))

    def decide(self, case, u):
        p, q, x = case.arrays(len(u))
        out = np.full((len(u), case.gamma + 1), -1)
        for i, row in enumerate(u):
            accepted = row[:-1] * [q[i, at, y] for at, y in enumerate(x[i])] < [
                p[i, at, y] for at, y in enumerate(x[i])
            ]
            kept = int(np.cumprod(accepted).sum())
            weights = p[i, kept] - (q[i, kept] if kept < case.gamma else 0)
            sums = np.cumsum(weights.clip(0) / weights.clip(0).sum())
            out[i, :kept] = x[i, :kept]
            out[i, kept] = min(np.searchsorted(sums, row[-1], side="right"), case.vocab - 1)
        return out


def test_cells_that_were_learned_are_verified_with_what_may_be_missed(told):
    data = certified(Decides(), "grid V=2 1/2 #8", "small", instrument=Learned)
    code, out = told(data)
    assert code == 0
    *_, small, _, last = out.splitlines()
    missed = {case["missed"] for case in models(data)["cases"]}
    assert f"numerics (rounding 5.2e-06, missed {missed.pop():.1e})" in small
    assert not missed
    assert last.endswith("11 cases")


def test_two_runs_give_the_same_certificate(chain):
    assert dumped(certified(program("token"), "grid V=3 1/2 #27", "small")) == dumped(chain)


def test_models_that_the_budget_does_not_reach_are_left_out(told):
    report = measured(program("token"), "grid V=3 1/2 #27", "small")
    _, (_, group) = report.measurements[0].groups
    group[-1].measured.complete = False
    data = certificate(report)
    assert data["left_out"] == [["token", "small", "the budget of calls does not reach"]]
    assert told(data)[1].splitlines()[1:] == [
        "left out: token, small: the budget of calls does not reach",
        "the law of token is the target's on 1 of 1 pairs of models",
        "verified: 3 cells, 2 cases",
    ]


# What is changed is refused.


def first(data):
    """Return the first case of the last pair of models."""
    return data["rules"][0]["models"][-1]["cases"][0]


def models(data):
    return data["rules"][0]["models"][-1]


def swapped(pairs, *ats):
    """Exchange two entries."""
    a, b = ats
    pairs[a], pairs[b] = pairs[b], pairs[a]


def change_mass(data):
    first(data)["cells"][0][2] = "1/7"


def change_outcome(data):
    first(data)["cells"][0][1] = [1]


def lose_a_cell(data):
    first(data)["cells"].pop()


def repeat_a_cell(data):
    first(data)["cells"].append(first(data)["cells"][0])


def widen_a_cell(data):
    """Let a cell reach into its neighbour, and state the mass that it then has."""
    cells = first(data)["cells"]
    at, side = next(
        (cell, side) for cell in cells for side in cell[0]
        if isinstance(data["draws"][side[0]], int) and side[1] > 0
    )  # fmt: skip
    size, width = data["draws"][side[0]], side[2] - side[1]
    at[2] = str(Fraction(at[2]) * Fraction(width + 1, width))
    assert size > width
    side[1] -= 1


def turn_a_cell_around(data):
    """Add two cells of negative and positive mass that no draw lies in."""
    box, _, mass = copy.deepcopy(first(data)["cells"][0])
    other = copy.deepcopy(box)
    box[0][1:] = reversed(box[0][1:])
    first(data)["cells"] += [[box, [0], f"-{mass}"], [other, [1], mass]]


def leave_the_draws(data):
    """Move a cell past the end of its first draw, with the same mass."""
    side = first(data)["cells"][0][0][0]
    size = data["draws"][side[0]]
    side[1:] = [size, size + side[2] - side[1]]


def draw_once_more(data):
    """Let one cell hang on a coin that is drawn after all others."""
    data["draws"].append(2)
    cell = first(data)["cells"][0]
    cell[0].append([len(data["draws"]) - 1, 0, 1])
    cell[2] = str(Fraction(cell[2]) / 2)


def draw_something_else(data):
    """Let one cell have a finer first draw, with the same mass."""
    (draw, low, high), *_ = first(data)["cells"][0][0]
    data["draws"].append(2 * data["draws"][draw])
    first(data)["cells"][0][0][0] = [len(data["draws"]) - 1, 2 * low, 2 * high]


def change_a_draw(data):
    at = next(at for at, draw in enumerate(data["draws"]) if isinstance(draw, int))
    data["draws"][at] //= 2


def weigh_a_choice_below_zero(data):
    data["draws"].append(["-1", "2"])


def change_weight(data):
    first(data)["weight"] = "1/7"


def exchange_weights(data):
    a, b = models(data)["cases"][0], models(data)["cases"][1]
    assert a["weight"] != b["weight"]
    a["weight"], b["weight"] = b["weight"], a["weight"]


def change_tv(data):
    models(data)["tv"] = "0" if models(data)["tv"] != "0" else "1/3"


def change_verdict(data):
    models(data)["verdict"] = "FAIL"


def change_stated_law(data):
    (_, a), (_, b) = first(data)["law"][:2]
    first(data)["law"][0][1], first(data)["law"][1][1] = b, a


def change_p(data):
    row = models(data)["p"][0][1]
    row[0], row[1] = row[1], row[0]


def change_q(data):
    row = models(data)["q"][0][1]
    row[0], row[1] = row[1], row[0]


def make_a_law_negative(data):
    models(data)["p"][0][1][0] = "-0x1.0p-3"


def change_draft(data):
    first(data)["tokens"][-1] = 1 - first(data)["tokens"][-1]


def lose_a_draft(data):
    models(data)["cases"].pop()


def repeat_a_draft(data):
    models(data)["cases"].append(first(data))


def rewrite_a_cell(data):
    """Change an outcome and all that is said of it but the TV."""
    case = first(data)
    case["cells"][0][1] = [1] if case["cells"][0][1] == [0] else [0]
    law = checker.total((outcome, mass) for _, outcome, mass in case["cells"])
    case["law"] = [[list(outcome), str(mass)] for outcome, mass in law.items()]


def another_format(data):
    data["format"] = "specref-certificate/2"


def another_way_to_draft(data):
    data["rules"][0]["drafts"] = "by chance"


def nothing(data):
    data["rules"][0]["models"] = []


def lose_a_field(data):
    del first(data)["cells"]


TAMPERED = {
    change_mass: "draft [0, 0]: the cell of [...] has mass ..., not 1/7",
    change_outcome: "draft [0, 0]: the cells have another law than is stated",
    lose_a_cell: "draft [0, 0]: a cell is missing",
    repeat_a_cell: "draft [0, 0]: cells overlap",
    widen_a_cell: "draft [0, 0]: cells ...",
    turn_a_cell_around: "draft [0, 0]: a cell is empty",
    leave_the_draws: "draft [0, 0]: a cell lies outside of its draws",
    draw_once_more: "draft [0, 0]: a cell is missing",
    draw_something_else: "draft [0, 0]: cells differ in what is drawn next",
    change_a_draw: "draft ...: the cell of ... has mass ..., not ...",
    weigh_a_choice_below_zero: "a law has the weight -1",
    change_weight: "draft [0, 0]: its weight is ..., not 1/7",
    exchange_weights: "draft [0, 0]: its weight is ..., not ...",
    change_tv: "the TV is ..., not 0",
    change_verdict: "the verdict is numerics, not FAIL",
    change_stated_law: "draft [0, 0]: the cells have another law than is stated",
    change_p: "the TV is ..., not ...",
    change_q: "draft [0, 0]: its weight is ..., not ...",
    make_a_law_negative: "a law has the weight -1/8",
    change_draft: "draft [0, 1]: its weight is ..., not ...",
    lose_a_draft: "a draft is missing",
    repeat_a_draft: "drafts overlap",
    rewrite_a_cell: "the TV is ..., not ...",
    another_format: "the format is specref-certificate/2",
    another_way_to_draft: "there is no way to draft that is called by chance",
    nothing: "nothing is in it",
    lose_a_field: "KeyError: 'cells'",
}


def pattern(message):
    return ".*".join(map(re.escape, message.split("...")))


@pytest.mark.parametrize("change", TAMPERED, ids=lambda change: change.__name__)
def test_what_is_changed_is_named(change, chain, told):
    data = copy.deepcopy(chain)
    change(data)
    assert data != chain
    code, out = told(data)
    last = out.splitlines()[-1]
    assert code == 1
    assert re.fullmatch(f"REFUSED  .*{pattern(TAMPERED[change])}", last), last


SIZES = (3, 4, 2)
PICK = (Fraction(1, 2), Fraction(0), Fraction(1, 4), Fraction(1, 4))
DRAWS = (3, PICK, 2)


@st.composite
def boxes(draw):
    """Boxes that tile a cube, or nearly: some are lost, repeated, or changed in one side."""
    found = [tuple((0, size) for size in SIZES)]
    for _ in range(draw(st.integers(0, 6))):
        box = found.pop(draw(st.integers(0, len(found) - 1)))
        at = draw(st.integers(0, 2))
        low, high = box[at]
        cut = draw(st.integers(low, high))
        sides = [side for side in ((low, cut), (cut, high)) if side[0] < side[1]]
        found += [(*box[:at], side, *box[at + 1 :]) for side in sides]
    for _ in range(draw(st.integers(0, 2))):
        box = found.pop(draw(st.integers(0, len(found) - 1)))
        at = draw(st.integers(0, 2))
        low = draw(st.integers(0, SIZES[at] - 1))
        side = low, draw(st.integers(low + 1, SIZES[at]))
        found += [box] * draw(st.integers(0, 2)) or [(*box[:at], side, *box[at + 1 :])]
    return found


@given(boxes())
def test_a_cover_is_what_holds_every_point_once(found):
    points = [p for p in product(*map(range, SIZES)) if PICK[p[1]]]
    wanted = all(
        sum(all(a <= k < b for k, (a, b) in zip(p, box, strict=True)) for box in found) == 1
        for p in points
    )
    sides = [[(v, *side) for v, side in zip(DRAWS, box, strict=True)] for box in found]
    try:
        checker.cover(sides, "cell")
    except ValueError:
        assert not wanted or untidy_in_nothing(found)
    else:
        assert wanted


def untidy_in_nothing(found):
    """Whether points that cannot be drawn lie in no box, or in several."""
    points = [p for p in product(*map(range, SIZES)) if not PICK[p[1]]]
    inside = [
        sum(all(a <= k < b for k, (a, b) in zip(p, box, strict=True)) for box in found)
        for p in points
    ]
    return any(count != 1 for count in inside)


def test_a_draft_that_hangs_elsewhere_is_refused(tree, told):
    assert told(tree)[0] == 0
    data = copy.deepcopy(tree)
    assert first(data)["parents"][:2] == [0, 0]
    first(data)["parents"][1] = 1
    assert "more below it than the shape allows" in told(data)[1].splitlines()[-1]


def test_what_is_no_certificate_is_refused(told, tmp_path, capsys):
    for text in ("", "[]", "{}", '{"format": 1}', "\ufeff"):
        code, out = told(text)
        assert (code, out.startswith("REFUSED")) == (1, True), text
    assert checker.main(str(tmp_path / "absent.json")) == 1
    assert "absent.json" in capsys.readouterr().out


# The command.

SUBJECT = """
import torch
name, rules = "argmax", ["greedy"]

def sample(case, n, seed):
    p, q, x = case.tensors(n)
    best, gamma = p.argmax(-1), x.shape[1]
    kept = (best[:, :gamma] == x).long().cumprod(1).sum(1, keepdim=True)
    at, padded = torch.arange(gamma + 1), torch.nn.functional.pad(x, (0, 1))
    return torch.where(at <= kept, torch.where(at < kept, padded, best), -1)
"""
NUMPY = "name = 'nothing'\ndef sample(case, n, seed):\n    return None\n"


@pytest.fixture
def specref(tmp_path):
    def go(*args):
        return subprocess.run(
            [sys.executable, "-m", "specref.cli", *args],
            capture_output=True, text=True, check=False, cwd=tmp_path,
        )  # fmt: skip

    return go


def test_the_command_writes_what_the_checker_reads(specref, tmp_path):
    (tmp_path / "subject.py").write_text(SUBJECT)
    got = specref("gate", "subject.py", "--certificate", "here.json")
    assert (got.returncode, got.stderr) == (0, "")
    data = json.loads((tmp_path / "here.json").read_text())
    assert data["subject"] == "subject.py"
    assert data["versions"]["torch"] == torch.__version__
    (audit,) = data["rules"][0]["audit"]
    assert audit["seed"] == 0
    assert 0 < audit["bound"] < 0.1
    checked = alone(tmp_path / "here.json")
    assert checked.returncode == 0
    assert "the law of argmax is the target's on 55 of 55 pairs of models" in checked.stdout


def test_without_a_measured_law_there_is_no_certificate(specref, tmp_path):
    (tmp_path / "subject.py").write_text(NUMPY)
    got = specref("gate", "subject.py", "--certificate", "here.json")
    assert got.returncode == 1
    assert "--certificate here.json is not written, no law was measured: " in got.stderr
    assert not (tmp_path / "here.json").exists()


def test_a_place_that_cannot_be_written_is_refused_at_once(specref, tmp_path):
    for place in (".", "absent/here.json"):
        got = specref("gate", "absent.py", "--certificate", place)
        assert got.returncode == 3
        assert f"--certificate {place}" in got.stderr
