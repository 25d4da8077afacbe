"""The pytest plugin and `conformance`. Snapshots: see snapshot.py."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from specref.gate import conformance
from specref.gate.errors import UsageError
from specref.gate.report import CLAIMS
from tests import reports, snapshot
from tests.test_cli import SUBJECT

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[1]

SNAPSHOTS = {"plugin-failures": None}

HEAVY = {"numpy", "torch", "rich", "typer", "specref.gate"}

TESTS = """
from specref.gate import conformance

test_sampler = conformance("mine.engine")
"""


assert conformance  # loaded here, it is the same for all inner runs of this process


@pytest.fixture(autouse=True, scope="module")
def installed_once():
    """Take the checkout off the path, as it is for users.

    A checkout that was installed from has metadata of its own. An inner run that found them would
    take specref for a second plugin, and warn that it is loaded already.
    """
    before = sys.path[:]
    sys.path[:] = [place for place in before if Path(place).resolve() != ROOT]
    yield
    sys.path[:] = before


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Keep the options of the run that we are in, and its plugins, out of the inner ones."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def project(pytester, monkeypatch):
    """A directory with a subject that is never called, and one with tests for it."""
    engine = "name, rules = 'mine', ['token']\ndef sample(case, n, seed): raise Exception"
    pytester.mkpydir("mine").joinpath("engine.py").write_text(engine)
    pytester.makepyfile(test_it=TESTS)
    monkeypatch.syspath_prepend(pytester.path)
    return pytester


@pytest.fixture
def stub(monkeypatch):
    """Let the gate answer with a report made by hand; a function that sets it, and the calls."""
    calls = []

    def use(report):
        def answer(subject, rules, profile, seed):
            calls.append((subject.spec, rules, profile, seed))
            if isinstance(report, BaseException):
                raise report
            return replace(report, findings=[replace(f) for f in report.findings], seed=seed)

        monkeypatch.setattr("specref.gate.check", answer, raising=False)
        return calls

    return use


def run(project, *args):
    return project.runpytest_inprocess("-p", "no:cacheprovider", *args)


def told(result):
    """Return what pytest printed, without times and versions."""
    kept = []
    for line in result.outlines:
        if not line.startswith(("plugins:", "platform", "rootdir", "benchmark:", "hypothesis")):
            kept.append(re.sub(r"in \d+\.\d+s", "in 0s", line))
    return "\n".join(kept)


def test_merely_installed_it_is_invisible(pytester):
    pytester.makepyfile(
        f"""
        import sys

        def test_nothing():
            print("loaded:", *sorted({HEAVY!r} & set(sys.modules)))
            print("plugin:", "specref.plugin" in sys.modules)
        """
    )
    common = ("-p", "no:cacheprovider", "-s", "-W", "error")

    def files():
        return {p.name for p in pytester.path.iterdir() if not p.name.startswith("runpytest-")}

    without = pytester.runpytest_subprocess(*common, "-p", "no:specref")
    before = files()
    installed = pytester.runpytest_subprocess(*common)
    installed.assert_outcomes(passed=1)
    assert files() == before
    assert "plugin: True" in installed.outlines
    assert "plugin: False" in without.outlines
    (line,) = [line for line in installed.outlines if "loaded:" in line]
    assert line.split("loaded:")[1] == ""
    assert told(installed).replace("plugin: True", "plugin: False") == told(without)
    assert installed.errlines == []


def test_its_options_are_in_the_help(pytester):
    done = run(pytester, "--help")
    for option in ("--specref-profile", "--specref-seed", "--specref-report"):
        done.stdout.fnmatch_lines([f"*{option}*"])


def test_there_is_one_test_per_claim_and_it_is_called_so(project, stub):
    stub(reports.PASSED)
    done = run(project, "--collect-only", "-q")
    ids = [line for line in done.outlines if "::" in line]
    assert ids == [f"test_it.py::test_sampler[token/{claim}]" for claim in CLAIMS]


def test_several_rules_and_none(project, stub):
    project.makepyfile(
        test_it="""
        from specref.gate import conformance
        test_two = conformance("mine.engine", rules=["token", "one_hot", "token"])
        test_none = conformance("mine.engine", rules=[])
        """
    )
    stub(reports.PASSED)
    done = run(project, "--collect-only", "-q")
    ids = [line for line in done.outlines if "::" in line]
    assert len(ids) == 3 * len(CLAIMS)
    assert "test_it.py::test_two[one_hot/residual]" in ids
    assert "test_it.py::test_none[lossless/joint]" in ids


def test_verdicts_become_outcomes(project, stub):
    stub(reports.FAILED)
    done = run(project, "-rs")
    done.assert_outcomes(passed=5, failed=4, skipped=6)
    done.stdout.fnmatch_lines(["*SKIPPED*not applicable: the subject has no propose*"])
    snapshot.check(
        "plugin-failures",
        "\n".join(line for line in told(done).splitlines() if "SKIPPED" not in line),
    )


def test_failures_stand_where_the_tests_were_asked_for(project, stub):
    stub(reports.FAILED)
    done = run(project, "-v")
    lines = [line for line in done.outlines if line.startswith("test_it.py::")]
    assert len(lines) == len(CLAIMS)
    assert not [line for line in lines if "<-" in line]
    done.stdout.fnmatch_lines(
        ["FAILED test_it.py::test_sampler?token/support? - *a forbidden token*"]
    )


def test_inconclusive_is_a_failure_that_says_so(project, stub):
    stub(reports.SAMPLED)
    done = run(project)
    done.assert_outcomes(passed=6, failed=1, skipped=8)
    done.stdout.fnmatch_lines(["inconclusive: TV <= 0.087 is all that*"])


def test_what_was_not_run_is_a_skip_that_says_so(project, stub):
    found = [replace(f, rule="token") for f in reports.CRASHED.findings if f.rule]
    stub(reports.report(*found))
    done = run(project, "-rs")
    done.assert_outcomes(failed=1, skipped=len(CLAIMS) - 1)
    done.stdout.fnmatch_lines(["SKIPPED*not run: after the smoke failure"])


def test_a_claim_without_a_finding_is_a_skip(project, stub):
    stub(reports.report(reports.law("joint")))
    run(project).assert_outcomes(passed=1, skipped=len(CLAIMS) - 1)


def test_the_worst_of_several_findings_decides(project, stub):
    good, bad = reports.law("support"), reports.FORBIDDEN
    stub(reports.report(good, bad, replace(bad, message="another"), good))
    done = run(project, "-k", "support")
    done.assert_outcomes(failed=1)
    assert "another" in done.stdout.str()


@pytest.mark.parametrize("rule", [None, "match"])
def test_no_failure_is_lost_for_its_rule(project, stub, rule):
    stub(reports.report(reports.law("joint"), replace(reports.JOINT, rule=rule)))
    run(project).assert_outcomes(failed=1, skipped=len(CLAIMS) - 1)


def test_the_gate_runs_once_per_subject(project, stub):
    project.makepyfile(test_other=TESTS.replace("test_sampler", "test_again"))
    calls = stub(reports.PASSED)
    run(project).assert_outcomes(passed=18, skipped=12)
    assert calls == [("mine.engine", None, "quick", 0)]


def test_a_subject_with_other_rules_is_gated_anew(project, stub):
    calls = stub(reports.PASSED)
    project.makepyfile(
        test_it="""
        from specref.gate import conformance
        test_one = conformance("mine.engine", rules="token")
        test_two = conformance("mine.engine", ("match",))
        """
    )
    run(project)
    assert [call[1] for call in calls] == [("token",), ("match",)]


def test_options_reach_the_gate(project, stub):
    calls = stub(reports.PASSED)
    run(project, "--specref-profile", "ci", "--specref-seed", "12")
    assert calls == [("mine.engine", None, "ci", 12)]


def test_a_fresh_seed_is_told_and_used(project, stub):
    calls = stub(reports.FAILED)
    done = run(project, "--specref-seed", "fresh")
    seed = calls[0][3]
    lines = [f"specref: fresh seed {seed}; repeat with --specref-seed {seed}"]
    assert [line for line in done.outlines if line in lines] == 2 * lines  # first and last
    assert f"seed {seed}. To repeat one failure alone, add" in done.stdout.str()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--specref-profile", "quik"], "--specref-profile quik is unknown; profiles: quick, ci"),
        (["--specref-seed", "x"], "'x' is neither fresh nor 0 <= N < 2147483648"),
        (["--specref-seed", "-1"], "--specref-seed"),
    ],
)
def test_wrong_options_are_usage_errors(project, args, words):
    done = project.runpytest_subprocess(*args)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert words in done.stderr.str()


def test_a_report_is_written(project, stub):
    stub(reports.FAILED)
    done = run(project, "--specref-report", "out")
    data = json.loads((project.path / "out/report.json").read_text())
    assert data["verdict"] == "fail"
    assert "specref: report in out" in done.outlines
    done.stdout.fnmatch_lines(["  repeat  specref replay out/01-token-support.json"])
    assert "--specref-report DIR" not in done.stdout.str()


def test_several_subjects_get_a_directory_each(project, stub):
    project.makepyfile(
        test_more="""
        from specref.gate import conformance

        class Mine:
            rules = "token"
            def sample(self, case, n, seed): pass

        class Other(Mine):
            pass

        test_object = conformance(Mine)
        test_other = conformance(Other())
        test_another = conformance(Other())
        test_rule = conformance("mine.engine", rules=["match"])
        """
    )
    stub(reports.PASSED)
    run(project, "--specref-report", "out")
    names = sorted(path.name for path in (project.path / "out").iterdir())
    assert names == ["Mine", "Other", "Other-2", "mine.engine", "mine.engine-match"]
    assert all((project.path / "out" / name / "report.json").exists() for name in names)


def test_numbers_go_into_the_junit_file(project, stub):
    stub(reports.PASSED)
    run(project, "--junitxml", "out.xml")
    text = (project.path / "out.xml").read_text()
    case = re.search(r'name="test_sampler\[token/joint\]".*?</testcase>', text, re.DOTALL).group()
    found = dict(re.findall(r'<property name="(\w+)" value="([^"]*)"', case))
    assert found == {"tv": "3.2e-08", "depth": "measured law", "calls": "825"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("conformance('no.such_module')", "subject 'no.such_module' does not import"),
        ("conformance('no_file.py')", "there is no file 'no_file.py'"),
        ("conformance('mine.engine:thing')", "has no attribute 'thing'"),
        ("conformance('mine.engine', ['tokn'])", "no rule 'tokn' (nearest: token"),
        ("conformance('mine.engine', 5)", "rules = 5; it is a list of names such as"),
        ("conformance('mine.engine', [['token']])", "there is no rule ['token']"),
        ("conformance(object())", "has no sample(case, n, seed)"),
        ("conformance('leaves.py')", "ends Python when imported (exit 0)"),
        ("conformance('mine.engine', 'rrs_with')", "mine.engine verifies chains"),
    ],
)
def test_a_subject_that_cannot_be_gated_gives_failing_tests_that_say_why(project, text, words):
    (project.path / "leaves.py").write_text("raise SystemExit(0)")
    project.makepyfile(test_it=f"from specref.gate import conformance\ntest_it = {text}")
    done = run(project)
    outcomes = done.parseoutcomes()
    assert outcomes in ({"failed": 1}, {"failed": len(CLAIMS)})
    assert words in done.stdout.str()
    assert "Traceback" not in done.stdout.str()
    assert "During handling" not in done.stdout.str()


def test_a_refusal_of_the_gate_fails_the_tests(project, stub):
    stub(UsageError("it will not"))
    done = run(project, "-k", "joint or residual")
    done.assert_outcomes(failed=2, deselected=len(CLAIMS) - 2)
    done.stdout.fnmatch_lines(["it will not"])


def test_a_subject_may_be_named_by_its_path(project, stub):
    project.makepyfile(
        test_it="""
        from pathlib import Path
        from specref.gate import conformance
        test_it = conformance(Path(__file__).parent / "mine/engine.py")
        """
    )
    calls = stub(reports.PASSED)
    run(project).assert_outcomes(passed=9, skipped=6)
    assert calls[0][0] == str(project.path / "mine/engine.py")


def test_without_the_plugin_conformance_runs_with_the_defaults(project, stub):
    calls = stub(reports.PASSED)
    run(project, "-p", "no:specref").assert_outcomes(passed=9, skipped=6)
    assert calls == [("mine.engine", None, "quick", 0)]


def test_warnings_of_a_subject_stay_warnings(project, monkeypatch):
    import warnings

    def answer(*_):
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        return reports.PASSED

    monkeypatch.setattr("specref.gate.check", answer, raising=False)
    run(project, "-W", "error").assert_outcomes(passed=9, skipped=6, warnings=1)


def test_workers_of_a_parallel_run_share_a_fresh_seed(project):
    pytest.importorskip("xdist")
    project.makeconftest(
        f"""
        import sys
        sys.path.insert(0, {str(snapshot.PLACE.parents[1])!r})
        from dataclasses import replace
        import specref.gate
        from tests import reports

        specref.gate.check = lambda subject, rules, profile, seed: replace(
            reports.FAILED, seed=seed, findings=[replace(f) for f in reports.FAILED.findings]
        )
        """
    )
    args = ("-n", "2", "-p", "xdist", "--specref-seed", "fresh", "--specref-report", "out")
    done = project.runpytest_subprocess("-p", "no:cacheprovider", *args)
    done.assert_outcomes(passed=5, failed=4, skipped=6)
    (told_seed,) = set(re.findall(r"repeat with --specref-seed (\d+)", done.stdout.str()))
    assert set(re.findall(r"profile quick, seed (\d+)", done.stdout.str())) == {told_seed}
    assert json.loads((project.path / "out/report.json").read_text())["seed"] == int(told_seed)


def test_end_to_end_with_a_sampler_that_is_right_and_one_that_is_wrong(pytester):
    pytester.makepyfile(
        right=SUBJECT.format(first=0),
        wrong=SUBJECT.format(first=1),
        test_it="""
        from specref.gate import conformance
        test_right = conformance("right.py")
        test_wrong = conformance("wrong.py")
        """,
    )
    args = ("-p", "no:cacheprovider", "-W", "error", "--specref-report", "out", "-v")
    done = pytester.runpytest_subprocess(*args)
    outcomes = {}
    for which, claim, word in re.findall(r"test_(\w+)\[greedy/(\w+)\] ([A-Z]+)", done.stdout.str()):
        outcomes.setdefault(which, {})[claim] = word
    assert set(outcomes["right"].values()) == {"PASSED", "SKIPPED"}
    assert outcomes["right"]["joint"] == "PASSED"
    assert outcomes["wrong"]["joint"] == "FAILED"
    assert outcomes["wrong"]["smoke"] == "PASSED"
    (command, *_) = re.findall(r"repeat  specref (replay \S+)", done.stdout.str())
    again = subprocess.run(
        [sys.executable, "-m", "specref.cli", *command.split()],
        capture_output=True, text=True, check=False, cwd=pytester.path,
    )  # fmt: skip
    assert again.returncode == 1, again.stderr
    assert "FAIL (still)" in again.stdout
