"""Subjects in other languages: the runners in C and JavaScript, and every way to be a bad one."""

import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import specref
from specref import cli
from specref.choice import Uniforms
from specref.gate import process, runner
from specref.gate.cases import Case, fixtures
from specref.gate.errors import UsageError
from specref.gate.limit import TimeLimit
from specref.gate.loading import load, wrap
from specref.gate.process import Process, RunnerError
from specref.gate.runner import GRID, Command
from specref.gate.session import PROFILES
from specref.gate.subject import Hung, Problem
from specref.rules import RULES

SOURCES = Path(specref.__file__).parent / "subjects" / "runners"
FAULTS = {
    "residual_is_target": "residual",
    "bonus_from_last_draft_row": "bonus",
    "coin_reused": "residual",
}
"""Planted in both runners, and the claim that tells."""

HALF = (0.5, 0.5)
CASE = Case((HALF,) * 3, (HALF,) * 3, (0, 1), (0, 1), "token")
BAD_SEED = 13
"""The stubs misbehave on it, once asked to sample."""

# An obliging runner whose rows are easy to foretell, and everything that it can be told to do
# instead: as soon as it starts, or when it meets the bad seed.
STUB = """
import json, os, signal, subprocess, sys, time

when, *what = sys.argv[1:]
hello = {"name": "stub", "rules": ["token"], "modes": ["sample", "decide"]}

def say(text):
    os.write(1, text.encode())

def answer(id, rows):
    say(json.dumps({"id": id, "rows": rows}) + "\\n")

def misbehave(**scope):
    for text in what:
        exec(text, globals(), scope)
    if "rows" in scope:
        answer(scope["id"], scope["rows"])

if when == "start":
    misbehave()
for line in sys.stdin:
    request = json.loads(line)
    if "specref" in request:
        say(json.dumps(hello) + "\\n")
        continue
    if request["do"] == "decide":
        rows = [[k % request["vocab"] for k in draws] for draws in request["draws"]]
        answer(request["id"], rows)
    elif request["seed"] == 13:
        misbehave(id=request["id"], n=request["n"])
    else:
        answer(request["id"], [[request["seed"] % request["vocab"]]] * request["n"])
"""

IGNORE = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
SLEEP = "time.sleep(60)"


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    path = tmp_path_factory.mktemp("stubs") / "stub.py"
    path.write_text(STUB)

    def command(when="never", *what):
        return shlex.join([sys.executable, "-S", str(path), when, *what])

    return command


@pytest.fixture
def start(stubs):
    """Start stubs; whatever happens, they are ended."""
    started = []

    def new(when="never", *what, time_limit=20.0):
        started.append(Command(stubs(when, *what), time_limit))
        return started[-1]

    yield new
    for command in started:
        command.close()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler (cc) on PATH: chain.c is not tested")
    place = tmp_path_factory.mktemp("runner") / "chain"
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    subprocess.run(["cc", *flags, "-o", place, SOURCES / "chain.c"], check=True, timeout=60)
    return str(place)


@pytest.fixture(params=["c", "js"])
def language(request):
    """Return the command of a runner that comes with specref."""
    if request.param == "c":
        return request.getfixturevalue("compiled")
    if shutil.which("node") is None:
        pytest.skip("there is no Node (node) on PATH: chain.js is not tested")
    return shlex.join(["node", str(SOURCES / "chain.js")])


def pid(command):
    return command._process._popen.pid


def gone(number):
    """Whether a process is neither running nor a zombie of ours."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    return False


# The runners that come with specref.


def telling_draws(case, rng, rows=24):
    """Return draws k, among them the ends of the grid and those around every threshold."""
    root, width = case.root(), len(case.tokens) + 1
    marks, node = {0, 1, GRID - 1}, root
    while True:
        cuts, total = [], Fraction(0)
        for p in node.p:
            total += p
            cuts.append(total)
        for x, _ in node.children:
            cuts.append(min(Fraction(1), node.p[x] / node.q[x]))
        marks |= {min(GRID - 1, max(0, int(cut * GRID) + by)) for cut in cuts for by in (-1, 0, 1)}
        if not node.children:
            break
        ((_, node),) = node.children
    pool = sorted(marks)
    free = rng.integers(GRID, size=(rows, width))
    edges = rng.choice(pool, size=(3 * rows, width))
    return np.concatenate([free, edges])


def test_decisions_are_those_of_the_reference(language, record_property):
    rng = np.random.default_rng(0)
    command, compared = Command(language), 0
    for fixture in fixtures("chain", False)[-7:]:
        for draft in fixture.drafts(RULES["token"].draft):
            case = fixture.case(draft, "token")
            draws = telling_draws(case, rng)
            root = case.root()
            got = command.decide(case, draws / GRID)
            for row, out in zip(draws.tolist(), got.tolist(), strict=True):
                wanted = RULES["token"].verify(root, Uniforms(Fraction(k, GRID) for k in row))
                assert out == [*wanted, *[-1] * (len(out) - len(wanted))], (fixture.name, row)
                compared += 1
    command.close()
    record_property("cases", compared)


def test_an_honest_runner_passes(language):
    report = specref.gate.check(f"command: {language}")
    assert report.verdict == "pass", [f.message for f in report.failures]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_named(language, fault, monkeypatch):
    small = [f for f in fixtures("chain", False) if f.name == "small"]
    monkeypatch.setattr("specref.gate.exact.fixtures", lambda *_: small)
    little = replace(PROFILES["quick"], audit_rows=1 << 10, audit_calls=8, probes=64, tv=0.2)
    monkeypatch.setitem(PROFILES, "quick", little)
    report = specref.gate.check(f"command: {language} --fault {fault}")
    failed = {finding.claim: finding for finding in report.failures}
    assert report.verdict == "fail"
    assert FAULTS[fault] in failed
    assert not {"smoke", "acceptance", "stream"} & set(failed)
    named = failed[FAULTS[fault]].nearest_fault
    assert fault in (*named["matches"], named["resembles"])


def test_draws_of_a_runner_depend_on_the_seed_alone(language):
    command = Command(language)
    first, again, other = (command.sample(CASE, 64, seed).tolist() for seed in (1, 1, 2))
    assert first == again != other
    command.close()


def test_a_runner_refuses_what_it_does_not_know(language):
    done = subprocess.run(
        [*shlex.split(language), "--fault", "nonsense"], capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 2
    assert all(fault in done.stderr for fault in FAULTS)
    with pytest.raises(UsageError, match=r"left with exit code 2; its stderr ends with 'usage: "):
        Command(f"{language} --fault nonsense")


def test_a_runner_answers_nonsense_with_an_error_and_goes_on(language):
    here = Process(shlex.split(language))
    assert "error" in here.ask({"specref": 2}, 20)
    assert "error" in here.ask({"id": 7, "do": "sample"}, 20)
    assert here.ask({"specref": 1}, 20)["rules"] == ["token"]
    here.end()


def test_the_example_in_the_documentation_is_true(language):
    lines = re.findall(r"^    ([<>]) (.*(?:\n {7}.*)*)", runner.__doc__, re.MULTILINE)
    (_, hello), _, (_, asked), (_, answer) = lines[:4]
    here = Process(shlex.split(language))
    assert here.ask(json.loads(hello), 20)["modes"] == ["sample", "decide"]
    assert here.ask(json.loads(asked), 20) == json.loads(answer)
    here.end()


def test_on_the_command_line_a_failure_is_repeated_from_its_file(
    language, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)

    def run(*words):
        with pytest.raises(SystemExit) as left:
            cli.main(words)
        return left.value.code, capsys.readouterr().out

    command = f"{language} --fault residual_is_target"
    code, out = run("gate", "--command", command, "--report", "out")
    assert code == 1
    assert "with residual_is_target" in out
    (path,) = Path("out").glob("*-token-residual.json")
    assert json.loads(path.read_text())["subject"] == f"command: {command}"
    code, out = run("replay", str(path))
    assert (code, out.splitlines()[-1][:12]) == (1, "FAIL (still)")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a.py", "--command", "b"], "both SUBJECT a.py and --command are given; drop one"),
        ([], "Missing argument 'SUBJECT' (or --command)"),
        (["--command", " "], "the command is empty"),
        (["--command", "run 'it"], "does not split into words: No closing quotation"),
        (["--command", "./nowhere -x"], "there is no program './nowhere'; give a path"),
    ],
)
def test_a_command_that_cannot_be_is_a_matter_of_usage(words, said, capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(["gate", *words])
    assert left.value.code == cli.USAGE
    assert said in capsys.readouterr().err


# What is said, and what comes back.


def test_a_case_is_told_in_integers_exactly():
    p = ((0.1, 0.2, 0.7), (2.0**-30, 1.0, 2.0**-149), (1.0, 0.0, 0.0))
    rows = tuple(tuple(float(np.float32(w)) for w in row) for row in p)
    case = Case(rows, rows[::-1], (2, 2), (0, 0), "rrs_with", "tree")
    told = json.loads(json.dumps(runner._encoded(case)))
    for key, laws in (("p", case.p), ("q", case.q)):
        back = np.array(told.pop(key), np.uint32).view(np.float32)
        assert tuple(map(tuple, back.tolist())) == laws
    assert told == {"rule": "rrs_with", "vocab": 3, "tokens": [2, 2], "parents": [0, 0]}
    assert case.dtype == "float32"


TREES = """
import json, sys
from fractions import Fraction
import numpy as np
from specref.choice import Uniforms
from specref.dist import normalise, rational
from specref.draft import tree
from specref.rules import RULES

def laws(rows):
    floats = np.array(rows, np.uint32).view(np.float32)
    return [normalise(rational(float(w)) for w in row) for row in floats]

print(json.dumps({"rules": sys.argv[1:], "modes": ["decide"]}), flush=True)
sys.stdin.readline()
for line in sys.stdin:
    asked = json.loads(line)
    root = tree(laws(asked["p"]), laws(asked["q"]), asked["tokens"], asked["parents"])
    verify = RULES[asked["rule"]].verify
    rows = [
        verify(root, Uniforms(Fraction(k, 2**24) for k in draws)) for draws in asked["draws"]
    ]
    print(json.dumps({"id": asked["id"], "rows": rows}), flush=True)
"""


@pytest.mark.parametrize("rule", ["rrs_without", "target_only"])
def test_trees_reach_the_program_whole(rule, tmp_path):
    path = tmp_path / "trees.py"
    path.write_text(TREES)
    command = Command(shlex.join([sys.executable, str(path), rule]))
    subject = wrap(command, "spec")
    assert subject.shape == "tree"
    rng = np.random.default_rng(0)
    for fixture in fixtures("tree", False)[-3:]:
        for draft in list(fixture.drafts(subject.drafter))[:5]:
            case = fixture.case(draft, rule)
            draws = rng.integers(GRID, size=(20, len(case.tokens) + 1))
            got = command.decide(case, draws / GRID)
            for row, out in zip(draws.tolist(), got.tolist(), strict=True):
                uniforms = Uniforms(Fraction(k, GRID) for k in row)
                wanted = RULES[rule].verify(case.root(), uniforms)
                assert out == [*wanted, *[-1] * (len(out) - len(wanted))]
    command.close()


def test_thousands_of_decisions_go_in_parts_and_come_in_order(start):
    draws = np.random.default_rng(0).integers(GRID, size=(2 * runner.MOST_DECISIONS + 5, 3))
    got = start().decide(CASE, draws / GRID)
    assert got.dtype == np.int64
    assert (got == draws % 2).all()
    assert start().decide(CASE, np.empty((0, 3))).shape == (0, 3)


@pytest.mark.parametrize(
    ("u", "said"),
    [
        (np.zeros((4, 2)), r"u has shape \(4, 2\); expected \(rows, 3\)"),
        (np.zeros(3), r"u has shape \(3,\)"),
        (np.full((1, 3), 1.0), "multiples of 2"),
        (np.full((1, 3), 0.1), "multiples of 2"),
        (np.full((1, 3), -0.5), "multiples of 2"),
        (np.full((1, 3), np.nan), "multiples of 2"),
    ],
)
def test_draws_off_the_grid_are_refused(start, u, said):
    with pytest.raises(ValueError, match=said):
        start().decide(CASE, u)


def test_what_it_can_be_asked_for_is_its_choice(start):
    assert start("start", "hello['modes'] = ['sample', 'dance']").decide is None
    decides = start("start", "hello['modes'] = ['decide']")
    first, again, other = (decides.sample(CASE, 64, seed).tolist() for seed in (1, 1, 2))
    assert first == again != other
    assert {len(row) for row in first} == {3}


def test_what_it_says_of_itself_is_what_it_is_held_to(start):
    plain = wrap(start("start", "hello.clear(); hello['modes'] = ['sample']"), "spec")
    assert (plain.rules, plain.shape, plain.drafts) == ((), "chain", "with_replacement")
    assert plain.name.startswith(sys.executable)
    tree = wrap(
        start("start", "hello.update(rules=[], shape='tree', drafts='without_replacement')"), "spec"
    )
    assert (tree.name, tree.shape, tree.drafts) == ("stub", "tree", "without_replacement")
    with pytest.raises(UsageError, match=r"there is no rule 'tokn'.*nearest: token"):
        wrap(start("start", "hello['rules'] = ['tokn']"), "spec")


# Bad from the start.

STARTS = {
    "exits": (("os.write(2, b'loading\\nno model\\n\\n'); sys.exit(3)",),
              "left with exit code 3; its stderr ends with 'no model'"),
    "is killed": (("os.kill(os.getpid(), signal.SIGKILL)",), "was ended by SIGKILL"),
    "greets": (("say('Loading model...\\n')",),
               "printed 'Loading model...' where a JSON object is due; stdout is for answers"),
    "greets with JSON": (("say('[1, 2]\\n')",), r"printed '\[1, 2\]' where a JSON object is due"),
    "prints bytes": (("os.write(1, bytes([0xff, 0xfe, 10]))",), r"printed '\\\\xff\\\\xfe'"),
    "nests": (("say('[' * 100_000 + '\\n')",), r"printed '\[\[\[.*\.\.\.' where"),
    "closes stdout": (("os.close(1)", SLEEP), "closed its stdout"),
    "stops in a line": (("say('{\"name\"')", "sys.exit(0)"),
                        "left with exit code 0 in the middle of a line, '{\"name\"'"),
    "refuses": (("say('{\"error\": \"only version 2\"}\\n'); sys.exit(0)",),
                "answered the handshake with the error 'only version 2'"),
    "has no modes": (("del hello['modes']",), "its handshake has modes 'null'; some of"),
    "has odd modes": (("hello['modes'] = 'sample'",), "its handshake has modes 'sample'"),
    "has odd rules": (("hello['rules'] = 'token'",), "its handshake has rules 'token'; a list"),
    "has an odd name": (("hello['name'] = 7",), "its handshake has name '7'; a string is due"),
}  # fmt: skip


@pytest.mark.parametrize("name", STARTS)
def test_a_program_that_is_no_runner_is_told_what_it_did(name, stubs, monkeypatch):
    monkeypatch.setattr(process, "GRACE", 0.2)
    what, said = STARTS[name]
    with pytest.raises(UsageError, match=said):
        Command(stubs("start", *what))


def test_a_program_that_says_nothing_is_given_up(stubs):
    with pytest.raises(UsageError, match=r"said nothing for 0\.3 s; .* and flushes it"):
        Command(stubs("start", SLEEP), 0.3)


def test_files_that_do_not_run_are_told_apart(tmp_path):
    script = tmp_path / "run"
    script.write_text("#!/nowhere/node\n")
    with pytest.raises(UsageError, match=r"cannot be run \(Permission denied\); chmod \+x it"):
        Command(str(script))
    script.chmod(0o755)
    with pytest.raises(UsageError, match=r"the interpreter in the first line of .* is not found"):
        Command(str(script))
    script.write_bytes(b"\x00\x01\x02")
    with pytest.raises(UsageError, match=r"cannot be run \(Exec format error\)"):
        Command(str(script))
    with pytest.raises(UsageError, match=r"cannot be run \(embedded null byte\)"):
        load("command: a\0b")


# Bad in between: the call fails and says why, and the next one is served.

CALLS = {
    "exits": ("sys.exit(5)", "left with exit code 5"),
    "is killed": ("os.kill(os.getpid(), signal.SIGSEGV)", "was ended by SIGSEGV"),
    "prints garbage": ("say('oops\\n')", "printed 'oops' where a JSON object is due"),
    "prints a number": ("say('NaN\\n')", "printed 'NaN' where"),
    "answers another": ("id = 99; rows = [[0]] * n", r"answered request 1 with '{\"id\": 99, .*"),
    "answers twice": ("say(json.dumps(dict(id=id, rows=[[0]] * n)) + '\\n{}\\n')",
                      "printed more than one line for one request: '{}"),
    "says no rows": ("say(json.dumps(dict(id=id)) + '\\n')", "answered without rows"),
    "says why": ("say(json.dumps(dict(id=id, error='no such rule')) + '\\n')",
                 "answered with the error 'no such rule'"),
    "says why, not to what": ("say('{\"error\": 7}\\n')", "answered with the error '7'"),
    "too few rows": ("rows = [[0]] * (n - 1)", "answered with 3 rows where 4 are due"),
    "too many rows": ("rows = [[0]] * (n + 1)", "answered with 5 rows where 4 are due"),
    "too long a row": ("rows = [[0]] * 3 + [[0] * 4]", "a round emits 3 at most"),
    "no lists": ("rows = [0] * n", "a list of lists is due"),
    "a table": ("rows = {'0': [0]}", "a list of lists is due"),
    "floats": ("rows = [[0.0]] * n", "answered with '0.0' where a token is due"),
    "truths": ("rows = [[True]] * n", "answered with 'true' where a token is due"),
    "nothing": ("rows = [[None]] * n", "answered with 'null' where a token is due"),
    "huge ids": ("rows = [[2 ** 70]] * n", "answered with '1180591620717411303424' where"),
    "closes stdout": ("os.close(1); time.sleep(60)", "closed its stdout"),
    "half a line": ("say('{\"id\":'); sys.exit(0)", "in the middle of a line, '{\"id\":'"),
    "endless line": ("while True: say('0' * 4096)", "printed more than 1 MiB for one request"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_bad_answer_is_an_outcome_and_the_next_call_is_served(name, start, monkeypatch):
    monkeypatch.setattr(process, "GRACE", 0.2)
    monkeypatch.setattr(process, "MOST_BYTES", 1 << 20)
    what, said = CALLS[name]
    subject = wrap(start("call", what), "spec")
    bad = subject.sample(CASE, 4, BAD_SEED)
    assert len(bad) == 4
    assert len(set(bad)) == 1
    assert isinstance(bad[0], Problem)
    assert bad[0].kind == "exception"
    assert re.search(said, bad[0].text), bad[0].text
    assert bad[0].text.startswith("RunnerError: ")
    assert subject.sample(CASE, 4, 7) == [(1,)] * 4


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("[[2]] * n", "range: token 2 is outside 0 <= token < 2"),
        ("[[-2]] * n", "range: token -2 is outside 0 <= token < 2"),
        ("[[]] * n", "empty: a round emitted nothing"),
        ("[[0, -1, 1]] * n", "padding: tokens after the first -1"),
    ],
)
def test_rows_that_are_no_rounds_are_outcomes_as_anybodys(rows, said, start):
    subject = wrap(start("call", f"rows = {rows}"), "spec")
    bad = subject.sample(CASE, 4, BAD_SEED)
    assert str(bad[0]).startswith(said)
    assert wrap(start("call", "rows = [[0, -1]] * n"), "spec").sample(CASE, 1, BAD_SEED) == [(0,)]


@pytest.mark.parametrize("own", [True, False])
def test_a_program_that_hangs_is_given_up_and_ended(own, start):
    command = start("call", IGNORE, SLEEP)
    number, subject = pid(command), wrap(command, "spec")
    subject.time_limit, command.time_limit = (60.0, 0.4) if own else (0.4, 60.0)
    with pytest.raises(Hung, match="sample ran longer than"):
        subject.sample(CASE, 1, BAD_SEED)
    assert gone(number)
    assert command.sample(CASE, 1, 7).tolist() == [[1, -1, -1]]


def test_noise_on_stderr_blocks_nothing(start):
    noise = "os.write(2, b'noise ' * 100 + b'\\n')"
    loud = f"for _ in range(1800): {noise}"  # 1 MB; a pipe holds 64 kB
    command = start("call", loud, "rows = [[1]] * n")
    for _ in range(3):
        assert command.sample(CASE, 4, BAD_SEED)[:, 0].tolist() == [1] * 4
    assert command._deaths == 0
    assert start("start", loud).sample(CASE, 1, 7).tolist() == [[1, -1, -1]]


def test_noise_without_end_does_not_outlast_the_limit(start):
    flood = "while True: os.write(2, b'noise' * 1000)"
    command = start("call", flood)
    command.time_limit = 0.4
    with pytest.raises(TimeLimit):
        command.sample(CASE, 1, BAD_SEED)
    with pytest.raises(RunnerError, match=r"closed its stdout; its stderr ends with '\w*noise"):
        start("call", "os.close(1)", flood).sample(CASE, 1, BAD_SEED)


def test_questions_and_answers_larger_than_a_pipe_get_through():
    echo = "import sys; sys.stdout.write(sys.stdin.readline())"
    here = Process([sys.executable, "-S", "-c", echo])
    question = {"x": "y" * 3_000_000}
    assert here.ask(question, 20) == question
    here.end()
    deaf = "import time; print('{}', flush=True); time.sleep(60)"
    here = Process([sys.executable, "-S", "-c", deaf])
    with pytest.raises(TimeLimit):  # an answer to half a question is none
        here.ask(question, 0.5)
    here.kill()


def test_a_line_that_comes_late_is_no_answer_to_the_next_question(start):
    command = start("call", "answer(id, [[0]] * n)", "time.sleep(0.2)", "answer(id, [[0]] * n)")
    command.sample(CASE, 1, BAD_SEED)
    with pytest.raises(RunnerError, match=r"answered request 2 with '{\"id\": 1, |more than one"):
        command.sample(CASE, 1, 7)
    assert command.sample(CASE, 1, 7).tolist() == [[1, -1, -1]]


def test_a_program_that_answers_and_leaves_is_started_for_each_call(start):
    command = start("call", "answer(id, [[0]] * n)", "sys.exit(0)")
    numbers = {pid(command)}
    assert command.sample(CASE, 1, BAD_SEED).tolist() == [[0, -1, -1]]
    with pytest.raises(RunnerError, match="left with exit code 0"):
        command.sample(CASE, 1, 7)
    assert command.sample(CASE, 1, 7).tolist() == [[1, -1, -1]]
    numbers.add(pid(command))
    assert len(numbers) == 2


def test_a_program_that_always_dies_is_not_started_for_ever(start, monkeypatch):
    monkeypatch.setattr(runner, "MOST_DEATHS", 3)
    command = start("call", "sys.exit(5)")
    for _ in range(3):
        with pytest.raises(RunnerError, match="left with exit code 5"):
            command.sample(CASE, 1, BAD_SEED)
    with pytest.raises(RunnerError, match="died 3 times; it is not started again"):
        command.sample(CASE, 1, 7)


def test_a_program_that_cannot_be_started_again_is_an_outcome(tmp_path, stubs):
    script = tmp_path / "run"
    script.write_text(f"#!/bin/sh\nexec {stubs('call', 'sys.exit(5)')}\n")
    script.chmod(0o755)
    subject = load(f"command: {script}")
    subject.sample(CASE, 1, BAD_SEED)
    script.unlink()
    (bad,) = subject.sample(CASE, 1, 7)
    assert "there is no program" in str(bad)


# Nothing is left behind.


def test_a_closed_command_is_gone_and_comes_back(start):
    command = start("start", IGNORE)
    number = pid(command)
    command.close()
    assert gone(number)
    assert command.sample(CASE, 1, 7).tolist() == [[1, -1, -1]]


def test_a_program_has_time_to_leave_and_is_killed_after_it(stubs, tmp_path, monkeypatch):
    mark = tmp_path / "left"
    polite = Command(stubs("start", f"import atexit; atexit.register(open, {str(mark)!r}, 'w')"))
    polite.close()
    assert mark.exists()
    monkeypatch.setattr(process, "GRACE", 0.2)
    stays = Command(stubs("start", IGNORE, "import atexit; atexit.register(time.sleep, 60)"))
    number = pid(stays)
    begun = time.monotonic()
    stays.close()
    assert gone(number)
    assert time.monotonic() - begun < 10


def test_the_last_reference_takes_the_program_with_it(stubs):
    command = Command(stubs())
    number = pid(command)
    del command
    assert gone(number)


def test_the_gate_ends_what_it_started(stubs, monkeypatch):
    numbers = []

    class Watched(Process):
        def __init__(self, words):
            super().__init__(words)
            numbers.append(self._popen.pid)

    monkeypatch.setattr(runner, "Process", Watched)
    assert specref.gate.check(f"command: {stubs()}").verdict == "fail"
    assert numbers
    assert all(gone(number) for number in numbers)


def test_an_interrupt_ends_the_program(start):
    command = start("call", SLEEP)
    number = pid(command)

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            command.sample(CASE, 1, BAD_SEED)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert gone(number)


@pytest.mark.parametrize("end", ["", "raise SystemExit(4)", "1 / 0"])
def test_the_end_of_python_ends_the_program(end, stubs):
    text = f"""
from specref.gate.runner import Command
command = Command({stubs("start", IGNORE, "import atexit; atexit.register(time.sleep, 60)")!r})
print(command._process._popen.pid, flush=True)
{end}
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert gone(int(done.stdout))


def test_what_the_program_started_ends_with_it(start, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    here = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    child = "['sh', '-c', 'echo up; sleep 60'], stdin=subprocess.DEVNULL"
    command = start("start", f"subprocess.Popen({child}, stdout=open({str(fifo)!r}, 'w'))")
    assert select.select([here], [], [], 20)[0]
    assert os.read(here, 100) == b"up\n"
    command.close()
    # The other end is open as long as the grandchild lives.
    assert select.select([here], [], [], 20)[0]
    assert os.read(here, 100) == b""
    os.close(here)
