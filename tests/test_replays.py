"""Replay files: what they keep, and what becomes of damaged ones."""

import json

import pytest

from specref.gate import replay
from specref.gate.cases import Fixture, fixtures
from specref.gate.errors import UsageError
from specref.gate.replays import read_replay

HALVES = [(0.5).hex(), (0.5).hex()]

WHOLE = {
    "format": "specref-replay/1",
    "subject": "mine.py",
    "profile": "quick",
    "seed": 0,
    "claim": "acceptance",
    "rule": "token",
    "severity": "contract",
    "case": {
        "rule": "token",
        "shape": "chain",
        "p": [HALVES, HALVES],
        "q": [HALVES, HALVES],
        "tokens": [0],
        "parents": [0],
        "logits": [[["-inf", "0x0p+0"], HALVES], [HALVES, HALVES]],
    },
}
FIXTURE = {**WHOLE, "case": fixtures("chain", False)[-1].to_json()}
TREE = {**WHOLE, "case": fixtures("tree", False)[-1].to_json()}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a replay file: a function of its data that returns its name."""
    monkeypatch.chdir(tmp_path)

    def to_file(data):
        (tmp_path / "here.json").write_text(json.dumps(data))
        return "here.json"

    return to_file


@pytest.mark.parametrize("data", [WHOLE, FIXTURE, TREE])
def test_a_whole_file_is_read(data, write):
    assert read_replay(write(data)) == data


NAN, INF = float("nan").hex(), float("inf").hex()

DAMAGE = [
    ("subject", 5, "subject is 5, not a name"),
    ("subject", "", "subject is '', not a name"),
    ("profile", "quik", r"profile is 'quik' \(nearest: quick\), not one of quick, ci"),
    ("profile", ["quick"], r"profile is \['quick'\]"),
    ("seed", -1, "seed is -1, not an integer"),
    ("seed", 1 << 31, "seed is 2147483648, not an integer"),
    ("seed", True, "seed is True, not an integer"),
    ("seed", "0", "seed is '0', not an integer"),
    ("claim", "joit", r"claim is 'joit' \(nearest: joint, audit\), not one of smoke"),
    ("claim", None, "claim is null"),
    ("rule", "tokn", r"rule is 'tokn' \(nearest: token"),
    ("rule", 5, "rule is 5"),
    ("severity", "bad", "severity is 'bad', not one of law, edge"),
    ("case", None, "case is null, not a case"),
    ("case", [], r"case is \[\], not a case"),
    ("case.rule", "match", "case.rule is 'match', and rule is 'token'"),
    ("case.shape", 5, "case.shape is 5, not 'chain' or 'tree'"),
    ("case.p", None, "case.p is not a list of 2 rows"),
    ("case.p", [HALVES], "case.p is not a list of 2 rows"),
    ("case.p.0", [], r"case.p\[0\] is \[\], not a row"),
    ("case.p.0.1", "half", r"case.p\[0\]\[1\] is 'half', not a hexadecimal float"),
    ("case.p.0.1", 0.5, r"case.p\[0\]\[1\] is 0.5, not a hexadecimal float"),
    ("case.p.0.1", "0x1p99999", r"case.p\[0\]\[1\] is '0x1p99999', not a hexadecimal float"),
    ("case.p.0.1", NAN, r"case.p\[0\]\[1\] is not a number"),
    ("case.q.1.0", INF, r"case.q\[1\] is no law; its weights are finite"),
    ("case.q.1.0", (-0.5).hex(), r"case.q\[1\] is no law"),
    ("case.q.1", [(0.0).hex()] * 2, r"case.q\[1\] is no law"),
    ("case.q.1", HALVES + HALVES, "the laws of case have rows of 2 and of 4 tokens"),
    ("case.tokens", 0, "case.tokens is 0, not a list of integers"),
    ("case.tokens.0", 0.5, r"case.tokens is \[0.5\], not a list of integers"),
    ("case.tokens.0", 2, r"case.tokens\[0\] = 2 is outside 0 <= token < 2"),
    ("case.tokens.0", -1, r"case.tokens\[0\] = -1 is outside"),
    ("case.parents", [], "case.parents has 0 entries for 1 tokens"),
    ("case.parents.0", 1, r"case.parents\[0\] = 1 does not fit a chain"),
    ("case.parents.0", "0", r"case.parents is \['0'\], not a list of integers"),
    ("case.logits", [HALVES], "case.logits is not a pair of tables"),
    ("case.logits.0.0.0", NAN, r"case.logits of p\[0\]\[0\] is not a number"),
]
IN_FIXTURES = [
    ("case.fixture", 5, "case.fixture is 5, not a name"),
    ("case.shape", 0, "case.shape is 0, not a depth"),
    ("case.shape", [], r"case.shape is \[\], not a depth"),
    ("case.shape", 1 << 30, "case.shape is 1073741824, not a depth"),
    ("case.shape", "2", "case.shape is '2', not a list of integers"),
    ("case.p", 5, "case.p is not a list of pairs of a context and a row"),
    ("case.p.0", [[0]], "case.p is not a list of pairs of a context and a row"),
    ("case.p.0.0", [9], "case.p and case.q are not laws after the same contexts"),
    ("case.p.0.0", None, "context of case.p is null, not a list of integers"),
    ("case.p.0.1.0", "x", r"case.p\[0\]\[0\] is 'x', not a hexadecimal float"),
    ("case.q.1.1", HALVES * 3, "the laws of case have rows of 2 and of 6 tokens"),
]


def damaged(data, field, value):
    data = json.loads(json.dumps(data))  # rows are shared, and lists then are not
    *way, last = [int(part) if part.isdecimal() else part for part in field.split(".")]
    place = data
    for part in way:
        place = place[part]
    place[last] = value
    return data


@pytest.mark.parametrize(
    ("data", "field", "value", "words"),
    [(WHOLE, *one) for one in DAMAGE] + [(FIXTURE, *one) for one in IN_FIXTURES],
)
def test_damage_is_named_with_its_field(data, field, value, words, write):
    with pytest.raises(UsageError, match=rf"^here\.json is damaged: {words}.*; write it anew with"):
        replay(write(damaged(data, field, value)))


@pytest.mark.parametrize("data", [WHOLE["case"], FIXTURE["case"]])
def test_no_part_of_a_case_can_be_missing(data, write):
    for name in data.keys() - {"logits", "fixture", "rule"}:
        case = {key: value for key, value in data.items() if key != name}
        with pytest.raises(UsageError, match=f"case has no {name}; write it anew"):
            read_replay(write({**WHOLE, "case": case}))


@pytest.mark.parametrize("name", [name for name in WHOLE if name != "format"])
def test_no_field_can_be_missing(name, write):
    data = {key: value for key, value in WHOLE.items() if key != name}
    with pytest.raises(UsageError, match=f"here.json lacks {name}; write it anew with --report"):
        read_replay(write(data))


def test_depth_without_end_is_no_json(tmp_path):
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000)
    with pytest.raises(UsageError, match="is not JSON"):
        read_replay(path)


def test_fixtures_come_back_as_they_were(write):
    data = read_replay(write(FIXTURE))
    assert Fixture.from_json(data["case"]) == fixtures("chain", False)[-1]


class Nothing:
    rules = "rrs_with"

    def sample(self, case, n, seed):
        raise AssertionError


def test_an_object_has_to_be_passed_again(write):
    path = write({**WHOLE, "subject": None})
    with pytest.raises(UsageError, match=r"passed as an object; repeat it in code.*subject=\.\.\."):
        replay(path)
    with pytest.raises(UsageError, match="verifies trees, token do not"):
        replay(path, subject=Nothing())


def test_a_case_is_tried_on_what_verifies_such_drafts(write):
    path = write({**WHOLE, "rule": None, "case": {**WHOLE["case"], "rule": None}})
    with pytest.raises(UsageError, match=r"here\.json is of a chain, but Nothing verifies trees"):
        replay(path, subject=Nothing())


def test_a_failure_of_the_contract_stays_one(write):
    pytest.importorskip("torch")
    from specref.subjects.programs import of_rule

    match = of_rule("match")
    for severity in ("contract", "law"):
        report = replay(write({**WHOLE, "severity": severity}), subject=match)
        (finding,) = [f for f in report.findings if f.claim == "acceptance"]
        assert (finding.verdict, finding.severity) == ("fail", severity)
        assert ("lossless, but not this rule" in finding.message) == (severity == "contract")
