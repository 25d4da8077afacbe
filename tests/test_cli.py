"""The command line. Snapshots are rewritten with SPECREF_SNAPSHOTS=write (see snapshot.py)."""

import json
import os
import pty
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import specref
from specref import cli
from specref.faults import FAULTS
from specref.gate.errors import UsageError
from specref.rules import RULES
from tests import reports, snapshot

SNAPSHOTS = {
    "cli-gate": ["gate", "a.py"],
    "cli-replay": ["replay", "a.json"],
}

# Accepts while the draft is the likeliest token; draws nothing, so the gate is quick with it.
SUBJECT = """
import torch
name, rules = "argmax", ["greedy"]
FIRST = {first}

def sample(case, n, seed):
    print("a subject may print")
    p, q, x = case.tensors(n)
    best, gamma = p.argmax(-1), x.shape[1]
    agrees = (best[:, :gamma] == x).long()
    agrees[:, :FIRST] = 1
    kept = agrees.cumprod(1).sum(1, keepdim=True)
    out = torch.where(torch.arange(gamma + 1) < kept, torch.nn.functional.pad(x, (0, 1)), best)
    return torch.where(torch.arange(gamma + 1) <= kept, out, -1)
"""


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run the command line in this process: a function that returns (code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("SPECREF_DEBUG", raising=False)

    def go(*args):
        with pytest.raises(SystemExit) as ended:
            cli.main(args)
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return go


@pytest.fixture
def stub(monkeypatch):
    """Let the gate answer with a report made by hand; a function that sets it, and the calls."""
    calls = []

    def use(report):
        def answer(*args):
            calls.append(args)
            if isinstance(report, BaseException):
                raise report
            return replace(report, findings=[replace(f) for f in report.findings])

        monkeypatch.setattr("specref.gate.check", answer, raising=False)
        monkeypatch.setattr("specref.gate.replay", answer, raising=False)
        return calls

    return use


def shell(*args, **options):
    return subprocess.run(
        [sys.executable, "-m", "specref.cli", *args],
        capture_output=True, text=True, check=False, **options,
    )  # fmt: skip


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_output_looks_as_it_did(name, run, stub):
    found = reports.RESIDUAL if name == "cli-replay" else reports.FORBIDDEN
    stub(reports.report(found))
    code, out, err = run(*SNAPSHOTS[name])
    assert (code, err) == (1, "")
    snapshot.check(name, out.rstrip("\n"))


@pytest.mark.parametrize(
    ("name", "code"), [("passed", 0), ("failed", 1), ("sampled", 2), ("empty", 2)]
)
def test_the_exit_code_is_the_verdict(name, code, run, stub):
    stub(reports.ALL[name])
    got, out, err = run("gate", "a.py")
    assert (got, err) == (code, "")
    last = [line for line in out.splitlines() if not line.startswith(" ")][-1]
    assert last.startswith(reports.ALL[name].verdict.upper())


def test_arguments_reach_the_gate(run, stub):
    calls = stub(reports.PASSED)
    run("gate", "a.py")
    run("gate", "b:c", "--rules", "token, match", "--profile", "ci", "--seed", "7")
    assert calls == [("a.py", None, "quick", 0, None), ("b:c", ["token", "match"], "ci", 7, None)]


def test_a_fresh_seed_is_told_and_used(run, stub):
    calls = stub(reports.PASSED)
    _, _, err = run("gate", "a.py", "--seed", "fresh")
    (seed,) = re.findall(r"fresh seed (\d+); repeat with --seed \1", err)
    assert calls[0][3] == int(seed)


def test_json_goes_to_a_file_beside_the_report(run, stub, tmp_path):
    stub(reports.FAILED)
    code, out, _ = run("gate", "a.py", "--json", "here.json")
    data = json.loads((tmp_path / "here.json").read_text())
    assert (code, data) == (1, reports.FAILED.to_json())
    assert "FAIL  token" in out
    assert [path.name for path in tmp_path.iterdir()] == ["here.json"]


def test_json_on_stdout_stands_alone(run, stub):
    stub(reports.FAILED)
    code, out, err = run("gate", "a.py", "--json", "-")
    assert (code, err) == (1, "")
    assert json.loads(out) == reports.FAILED.to_json()


def test_a_failed_write_leaves_the_earlier_file(run, stub, tmp_path, monkeypatch):
    stub(reports.PASSED)
    (tmp_path / "here.json").write_text("earlier")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    code, _, err = run("gate", "a.py", "--json", "here.json")
    assert code == 3
    assert err == "specref: --json here.json cannot be written: No space left on device\n"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [
        ("here.json", "earlier")
    ]


def test_a_report_directory_gets_replay_files_and_the_commands_are_shown(run, stub, tmp_path):
    stub(reports.FAILED)
    _, out, _ = run("gate", "a.py", "--report", "deep/er")
    commands = re.findall(r"repeat  (specref replay (\S+))$", out, re.MULTILINE)
    assert len(commands) == len(reports.FAILED.failures)
    for _, path in commands:
        assert json.loads((tmp_path / path).read_text())["format"] == "specref-replay/1"
    assert "add --report DIR" not in out
    assert (tmp_path / "deep/er/report.json").exists()


@pytest.mark.parametrize(
    ("name", "code", "last"),
    [
        ("failed", 1, "FAIL (still)  my_engine 1.2: "),
        ("passed", 0, "FIXED  my_engine 1.2: "),
        ("sampled", 2, "INCONCLUSIVE  my_engine 1.2: "),
    ],
)
def test_a_replay_says_whether_it_still_fails(name, code, last, run, stub):
    stub(reports.report(*reports.ALL[name].findings[4:5], *reports.ALL[name].failures[:1]))
    got, out, _ = run("replay", "a.json")
    assert got == code
    assert last in out.splitlines()[-1]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["gat"], "no command 'gat' (nearest: gate"),
        (["gate"], "Missing argument"),
        (["gate", "a.py", "b.py"], "see specref gate --help"),
        (["gate", "a.py", "--profil", "ci"], "no option --profil (nearest: --profile"),
        (["--verbose"], "no option --verbose (nearest: --version"),
        (["gate", "a.py", "--profile"], "--profile"),
        (["gate", "a.py", "--profile", "quik"], "no profile 'quik' (nearest: quick)"),
        (["gate", "a.py", "--seed", "x"], "--seed x is neither fresh nor a number"),
        (["gate", "a.py", "--seed", "-1"], "--seed -1 is neither"),
        (["gate", "a.py", "--seed", "2147483648"], "--seed 2147483648 is neither"),
        (["gate", "a.py", "--rules", ","], "--rules is empty; rules: token"),
        (["gate", "a.py"], "there is no file 'a.py'"),
        (
            ["gate", "transformer"],
            "no subject 'transformer' (nearest: transformers, transformers.generate)",
        ),
        (["gate", "json"], "there is no subject 'json'"),
        (["gate", "json:dumps"], "json:dumps has no sample(case, n, seed)"),
        (["gate", "json:dump_s"], "json has no attribute 'dump_s' (nearest: dumps"),
        (["gate", "."], "there is no subject '.'; use a built-in name"),
        (["gate", "./other"], "there is no subject './other' (nearest: other.py)"),
        (["gate", "other.thing"], "'other' is not a package; write module:attribute"),
        (
            ["gate", "a.py", "--json", "no/where/x"],
            "--json no/where/x cannot be written; no/where d",
        ),
        (["gate", "a.py", "--json", "."], "--json . is a directory"),
        (["gate", "a.py", "--report", "taken"], "--report taken cannot be written"),
        (["replay"], "Missing argument"),
        (["replay", "none.json"], "none.json cannot be read"),
        (["replay", "taken"], "taken is not JSON"),
        (["replay", "other.json"], "has format 'specref-replay/99'"),
        (["replay", "list.json"], "list.json has format None"),
        (["explain", "tokn", "--p", "1", "--x", "0"], "no rule 'tokn' (nearest: token"),
        (["explain", "token", "--x", "0"], "--p"),
        (["explain", "token", "--p", "1", "--x", "0"], "--q is missing"),
        (["explain", "one_hot", "--p", "1", "--x", "0", "--u", "1"], "--u has 1 draws"),
    ],
)
def test_mistakes_are_named_and_cost_exit_code_3(args, words, run, tmp_path):
    (tmp_path / "taken").write_text("a file, no JSON")
    (tmp_path / "other.json").write_text('{"format": "specref-replay/99"}')
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "other.py").write_text("thing = 1")
    code, out, err = run(*args)
    assert (code, out) == (3, "")
    assert words in err
    assert err.startswith("specref: ")
    assert err.count("\n") == 1


def test_an_unknown_rule_is_named_before_the_gate_works(run, tmp_path):
    (tmp_path / "a.py").write_text("def sample(case, n, seed): raise AssertionError")
    code, out, err = run("gate", "a.py", "--rules", "tokn")
    assert (code, out) == (3, "")
    assert "no rule 'tokn' (nearest: token" in err


def test_no_command_prints_help_but_is_no_pass(run):
    code, out, _ = run()
    assert code == 3
    assert "Usage: specref" in out


@pytest.mark.parametrize("text", ["exit(0)", "exit()", "exit('bye')", "exit(1)"])
def test_a_subject_that_ends_python_does_not_choose_the_exit_code(text, run, tmp_path):
    (tmp_path / "a.py").write_text(f"import sys; sys.{text}")
    code, _, err = run("gate", "a.py")
    assert code == 3
    assert "the subject ended Python" in err


def test_a_refusal_of_the_gate_is_a_usage_error(run, stub):
    stub(UsageError("there is no such thing; take another"))
    assert run("gate", "a.py") == (3, "", "specref: there is no such thing; take another\n")


def test_an_interrupt_is_no_verdict(run, stub):
    stub(KeyboardInterrupt())
    assert run("gate", "a.py") == (130, "", "specref: interrupted\n")


def test_an_error_of_ours_is_one_line(run, stub):
    stub(ZeroDivisionError("first line\nsecond line"))
    code, out, err = run("gate", "a.py")
    assert (code, out) == (70, "")
    assert err == (
        "specref: internal error: ZeroDivisionError: first line "
        "(set SPECREF_DEBUG=1 to see the traceback)\n"
    )


def test_its_traceback_can_be_asked_for(run, stub, monkeypatch):
    stub(ZeroDivisionError("what"))
    monkeypatch.setenv("SPECREF_DEBUG", "1")
    code, _, err = run("gate", "a.py")
    assert code == 70
    assert err.startswith("Traceback")
    assert "in answer" in err


def test_explain_is_the_explanation(run):
    from specref.explain import explain, read, uniforms

    law, other = "1/2,3/10,1/5", "1/5,1/5,3/5"
    args = ["--p", law, "--p", other, "--p", law, "--q", other, "--x", "2,1", "--u", "0,1/2,0.9"]
    code, out, err = run("explain", "token", *args)
    draft = read("token", [law, other, law], [other], "2,1")
    assert (code, out, err) == (0, explain(draft, uniforms("0,1/2,0.9", draft)) + "\n", "")


def test_rules_and_faults_are_listed_in_full(run):
    for command, registry, told in (
        ("rules", RULES, lambda rule: rule.source),
        ("faults", FAULTS, lambda fault: fault.computed),
    ):
        code, out, err = run(command)
        assert (code, err) == (0, "")
        lines = out.splitlines()[1:]
        assert [line.split()[0] for line in lines] == list(registry)
        assert all(
            line.endswith(told(entry)) for line, entry in zip(lines, registry.values(), strict=True)
        )


def test_the_version_is_told(run):
    assert run("--version") == (0, f"specref {specref.__version__}\n", "")


@pytest.mark.parametrize(
    "args",
    [
        ["rules"],
        ["faults"],
        ["--version"],
        ["explain", "one_hot", "--p", "1/2,1/2", "--x", "0"],
        ["gate", "--help"],
    ],
)
def test_only_gate_and_replay_load_arrays(args):
    text = (
        "import sys; from specref.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text, *args], capture_output=True, text=True, check=True
    )
    assert not {"numpy", "torch", "specref.gate.run"} & set(done.stderr.split())


def test_a_reader_that_leaves_early_is_no_error():
    process = subprocess.Popen(
        [sys.executable, "-m", "specref.cli", "faults"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    process.stdout.close()
    assert process.wait() == 0
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize("args", [["faults"], ["--help"], ["--version"]])
def test_output_that_goes_nowhere_is_told(args):
    for redirect, words in (
        (">/dev/full", "stdout cannot be written: No space left on device"),
        (">&-", "stdout is closed; send it to a file or to /dev/null"),
    ):
        done = subprocess.run(
            ["sh", "-c", f'"$0" -m specref.cli "$@" {redirect}', sys.executable, *args],
            stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (3, f"specref: {words}\n")


@pytest.mark.parametrize("redirect", ["2>&-", "2>/dev/full"])
def test_without_stderr_the_exit_code_still_tells(redirect):
    command = f'"$0" -m specref.cli gate a.py {redirect}'
    done = subprocess.run(["sh", "-c", command, sys.executable], check=False, capture_output=True)
    assert done.returncode == 3


def test_the_power_table_needs_torch(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "specref.subjects.power", raising=False)
    monkeypatch.delitem(sys.modules, "specref.subjects.programs", raising=False)
    code, _, err = run("power", "token")
    assert (code, err) == (3, "specref: power needs torch; pip install 'specref[torch]'\n")


@pytest.mark.parametrize("kind", ["GeneratorExit", "asyncio.CancelledError"])
def test_no_exception_of_a_subject_leaves_with_a_code_of_its_own(kind, run, tmp_path):
    text = f"import asyncio\ndef sample(case, n, seed): raise {kind}('bye')"
    (tmp_path / "a.py").write_text(text)
    code, out, err = run("gate", "a.py")
    assert (code, err) == (1, "")
    assert "CancelledError: bye" in out or "GeneratorExit: bye" in out
    (tmp_path / "a.py").write_text(f"import asyncio\nraise {kind}('bye')")
    code, _, err = run("gate", "a.py")
    assert code == 3
    assert "subject 'a.py' does not import" in err


def test_a_thread_of_a_subject_is_not_waited_for(tmp_path):
    (tmp_path / "a.py").write_text(
        "import threading, time\n"
        "def sample(case, n, seed):\n"
        "    threading.Thread(target=time.sleep, args=(60,)).start()\n"
    )
    program = "from specref import cli; cli.PATIENCE = 0.1; cli.main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "gate", "a.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=50,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "specref: a thread of the subject goes on; it is not waited for\n"
    assert done.stdout.splitlines()[-1].startswith("FAIL")


def test_devices_and_links_stay_what_they_are(run, stub, tmp_path):
    stub(reports.PASSED)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link.json").symlink_to("target.json")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    run("gate", "a.py", "--json", "pipe")
    assert json.loads(os.read(reader, 1 << 20)) == reports.PASSED.to_json()
    os.close(reader)
    run("gate", "a.py", "--json", "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "target.json").read_text()) == reports.PASSED.to_json()


@pytest.mark.parametrize("columns", [40, 200])
def test_tables_are_not_cut_off_on_a_narrow_terminal(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(SystemExit):
        cli.main(["rules"])
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == list(RULES)


def test_output_that_the_terminal_cannot_show_is_escaped(tmp_path):
    (tmp_path / "a.py").write_text("name = '\u00fc'\nimport sys; sys.exit('\u00fc')", "utf-8")
    done = shell("gate", "a.py", cwd=tmp_path, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 3
    assert "\\xfc" in done.stderr


def test_progress_is_shown_on_a_terminal_only(tmp_path):
    (tmp_path / "a.py").write_text("def sample(case, n, seed): return None")
    command = [sys.executable, "-m", "specref.cli", "gate", "a.py"]
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    env.pop("NO_COLOR", None)
    done = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # Linux: the other end is closed
            part = b""
        if not part:
            break
        seen += part
    os.close(ours)
    with done.stdout:
        out = done.stdout.read()
    assert done.wait() == 1
    assert b"first calls" in seen
    assert b"\x1b" not in out
    assert b"sample returned nothing" in out

    piped = shell("gate", "a.py", cwd=tmp_path)
    assert (piped.returncode, piped.stderr) == (1, "")
    assert piped.stdout == out.decode()


def test_end_to_end_a_wrong_sampler_fails_is_repeated_and_is_fixed(tmp_path):
    subject = tmp_path / "argmax.py"
    subject.write_text(SUBJECT.format(first=1))
    done = shell("gate", "argmax.py", "--report", "out", "--json", "-", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert "a subject may print" in done.stderr
    assert report["verdict"] == "fail"
    commands = [f["replay"] for f in report["findings"] if f["verdict"] == "fail"]
    assert commands

    again = shell(*commands[0].split()[1:], cwd=tmp_path)
    assert (again.returncode, "FAIL (still)" in again.stdout) == (1, True), again.stderr

    subject.write_text(SUBJECT.format(first=0))
    fixed = shell(*commands[0].split()[1:], cwd=tmp_path)
    assert (fixed.returncode, "FIXED" in fixed.stdout) == (0, True), fixed.stderr
    whole = shell("gate", "argmax.py", cwd=tmp_path)
    assert whole.returncode == 0, whole.stdout
    assert whole.stdout.splitlines()[-1].startswith("PASS  greedy: 15 claims")
