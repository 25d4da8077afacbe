"""Commands that gate samplers: gate, replay, map, power."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from specref.cli.app import CODES, FAIL, INCONCLUSIVE, PASS, app
from specref.cli.output import (
    complain,
    drawable_file,
    print_all,
    say,
    table,
    writable_file,
    write,
    writing,
)
from specref.faults import FAULTS
from specref.gate.errors import UsageError, nearest
from specref.rules import RULES

if TYPE_CHECKING:
    from specref.gate.report import Report


@app.command()
def gate(
    subject: Annotated[
        str | None,
        typer.Argument(help="A built-in name, package.module, module:attribute, or a .py file."),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(help="Gate a program in any language, which speaks JSON lines, instead."),
    ] = None,
    rules: Annotated[
        str | None, typer.Option(help="Hold it to these rules (a,b) instead of its own.")
    ] = None,
    profile: Annotated[str, typer.Option(help="Budget: quick or ci.")] = "quick",
    seed: Annotated[str, typer.Option(help="Seed of the gate's draws, or fresh.")] = "0",
    json_file: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write the report as JSON; - for stdout."),
    ] = None,
    report_to: Annotated[
        str | None,
        typer.Option(
            "--report", metavar="DIR", help="Write report.json and a replay file per failure."
        ),
    ] = None,
    certificate: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Write the measured cells, for checker.py to check on its own."
        ),
    ] = None,
) -> None:
    """Prove or refute that a sampler keeps the target distribution."""
    named = _named(subject, command)
    number = _seed(seed)
    asked = None if rules is None else [rule.strip() for rule in rules.split(",") if rule.strip()]
    if asked == []:
        raise UsageError(f"--rules is empty; rules: {', '.join(RULES)}")
    _writable(json_file, report_to, certificate)
    with _gate() as (door, progress):
        from specref.gate.run import PROFILES

        if profile not in PROFILES:
            known = ", ".join(PROFILES)
            near = nearest(profile, PROFILES)
            raise UsageError(f"there is no profile {profile!r}{near}; profiles: {known}")
        report = door.check(named, asked, profile, number, progress)
    code = CODES[report.verdict]
    if report_to is not None:
        with writing("--report", report_to):
            report.write(report_to)
    if certificate is not None and not _certified(report, certificate):
        code = code or INCONCLUSIVE
    if json_file is not None:
        from specref.gate.report import save

        text = json.dumps(report.to_json(), indent=1) + "\n"
        if json_file == "-":
            write(text)
            raise typer.Exit(code)
        with writing("--json", json_file):
            save(Path(json_file), text)
    _show(report)
    raise typer.Exit(code)


@app.command()
def replay(
    file: Annotated[str, typer.Argument(help="A replay file that --report wrote.")],
) -> None:
    """Repeat one failure: it still fails, or is fixed."""
    with _gate() as (door, progress):
        report = door.replay(file, progress)
    words = {"fail": "FAIL (still)", "pass": "FIXED"}
    last = words.get(report.verdict, report.verdict.upper())
    _show(report, f"{last}  {report.name}: {', '.join(f.id for f in report.findings)}")
    raise typer.Exit(CODES[report.verdict])


@app.command("map")
def draw_map(
    subject: Annotated[str, typer.Argument(help="As for gate.")],
    out: Annotated[str, typer.Option(metavar="FILE", help="The picture, .svg or .png.")],
    rule: Annotated[
        str | None, typer.Option(help="Compare with this rule instead of its own.")
    ] = None,
) -> None:
    """Draw which random numbers lead to which tokens, or the law of whole sequences.

    A sampler of rounds is drawn beside its rule, an engine that generates beside plain decoding.
    """
    drawable_file("--out", out)
    with _gate():
        from specref.gate.loading import load

        loaded = load(subject)
        if loaded.call is None and loaded.generate is not None:
            from specref.gate import chart

            if rule is not None:
                raise UsageError(f"--rule {rule}: whole sequences are held to plain decoding")
            name, readings = chart.sequence_charts(loaded)
            with writing("--out", out):
                chart.save(name, readings, out)
            said = [f"{r.request.name}: TV {r.tv:.3g} by {r.depth}" for r in readings]
        else:
            from specref.gate.map import area, decision_map, save

            found = decision_map(loaded, rule)
            with writing("--out", out):
                save(found, out)
            parted, distance = float(area(found.differing)), float(found.tv)
            said = [
                f"{found.name} against {found.rule}, TV {distance:.3g} on one drafted token;",
                f"outcomes differ on {parted:.3g} of all draws",
            ]
    say(f"{out}: {said[0]}")
    for line in said[1:]:
        say(line)


@app.command()
def power(
    names: Annotated[
        list[str] | None, typer.Argument(help="Faults or rules; all of them if left out.")
    ] = None,
    ways: Annotated[
        str | None, typer.Option(help="Ways to draw, as torch,NumPy; all of them if left out.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes.")] = os.cpu_count() or 1,
    markdown: Annotated[bool, typer.Option(help="Print the table as Markdown.")] = False,
) -> None:
    """Gate every known fault and every honest rule, drawn in every way: what the gate can see."""
    for name in names or ():
        if name not in FAULTS and name not in RULES:
            near = nearest(name, [*FAULTS, *RULES])
            raise UsageError(f"there is no fault or rule {name!r}{near}; see specref faults")
    if jobs < 1:
        raise UsageError(f"--jobs {jobs} is not positive")
    stdout = sys.stdout

    def print_line(cells: Sequence[str]) -> None:
        with redirect_stdout(stdout):
            say("| " + " | ".join(cells) + " |")

    with _gate() as (_, progress):
        try:
            from specref.subjects.power import SAMPLERS, rows
            from specref.subjects.programs import WAYS
        except ModuleNotFoundError as error:
            raise UsageError(f"power needs {error.name}; pip install 'specref[torch]'") from None
        asked = list(WAYS) if ways is None else [way.strip() for way in ways.split(",")]
        for way in asked:
            if way not in WAYS:
                near = nearest(way, WAYS)
                raise UsageError(f"there is no way {way!r}{near}; ways: {', '.join(WAYS)}")
        heads = ("sampler", "rule", "fails", "named", *asked)
        cells: list[tuple[str, ...]] = []
        wrong: list[str] = []
        if markdown:
            print_line(heads)
            print_line(["---"] * len(heads))
        for row in rows(names or SAMPLERS, asked, jobs, progress or (lambda name: None)):
            told = (row.told(way) for way in asked)
            cells.append((row.name, row.base, row.fails, row.named, *told))
            wrong += [row.name] * (not row.right)
            if markdown:  # at once: the whole table takes an hour
                print_line(cells[-1])
    if not markdown:
        table(heads, cells)
    if wrong:
        complain(f"not told for what they are: {', '.join(wrong)}")
    raise typer.Exit(FAIL if wrong else PASS)


def _named(subject: str | None, command: str | None) -> str:
    """Return the name of what is to be gated: a subject or a command."""
    if subject is not None and command is not None:
        raise UsageError(f"both SUBJECT {subject} and --command are given; drop one of them")
    if command is not None:
        return f"command: {command}"
    if subject is None:
        raise UsageError("Missing argument 'SUBJECT' (or --command); see specref gate --help")
    return subject


def _seed(text: str) -> int:
    if text == "fresh":
        from secrets import randbelow

        number = randbelow(1 << 31)
        complain(f"fresh seed {number}; repeat with --seed {number}")
        return number
    if not text.isdecimal() or int(text) >= 1 << 31:
        raise UsageError(f"--seed {text} is neither fresh nor a number in 0 <= N < 2^31")
    return int(text)


@contextmanager
def _gate() -> Iterator[tuple[Any, Callable[[str], None] | None]]:
    """Give the gate and a progress callback; a subject that ends Python is refused.

    What a subject prints goes to stderr: stdout belongs to the report.
    """
    from specref import gate

    console = Console(stderr=True)
    status = console.status("starting", spinner="line") if console.is_terminal else nullcontext()
    try:
        with redirect_stdout(sys.stderr), status as shown:
            yield gate, None if shown is None else lambda text: shown.update(Text(text))
    except SystemExit as error:
        raise UsageError(
            f"the subject ended Python with exit code {error.code}; a sampler must return"
        ) from None


def _certified(report: "Report", place: str) -> bool:
    """Write the certificate of a run; False, and say so, if there is nothing to certify."""
    from specref.gate.certificate import certificate, dumped
    from specref.gate.report import save

    data = certificate(report)
    if not any(part["models"] for part in data["rules"]):
        reasons = report.escapes or [why for _, _, why in data["left_out"]] or ["no rounds ran"]
        complain(f"--certificate {place} is not written, no law was measured: {reasons[0]}")
        return False
    with writing("--certificate", place):
        save(Path(place), dumped(data))
    return True


def _writable(json_file: str | None, report_to: str | None, certificate: str | None) -> None:
    """Refuse places that cannot be written before the gate has worked for minutes."""
    if report_to is not None:
        with writing("--report", report_to):
            Path(report_to).mkdir(parents=True, exist_ok=True)
        if not os.access(report_to, os.W_OK | os.X_OK):
            raise UsageError(f"--report {report_to} cannot be written; choose another directory")
    if json_file is not None and json_file != "-":
        writable_file("--json", json_file)
    if certificate is not None:
        writable_file("--certificate", certificate)


def _show(report: "Report", last: str = "") -> None:
    """Print a report, or the blocks of a replay and one last line."""
    from specref.gate import view

    width = Console().width
    if not last:
        print_all(view.whole(report, width))
        return
    lines: list[Text] = []
    for finding in report.findings:
        lines += [*view.block(finding, width), Text()]
    style = {"fail": "bold red", "pass": "green"}.get(report.verdict, "yellow")
    print_all([*lines, Text(last, style=style)])
