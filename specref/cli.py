"""The command line: a thin door to the gate and to the reference.

Exit codes: 0 pass, 1 fail, 2 inconclusive, 3 usage, 70 an error of ours, 130 interrupted.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specref import __version__
from specref.faults import FAULTS
from specref.rules import RULES

if TYPE_CHECKING:
    from specref.gate.report import Report

PASS, FAIL, INCONCLUSIVE, USAGE, INTERNAL, INTERRUPTED = 0, 1, 2, 3, 70, 130
CODES = {"pass": PASS, "fail": FAIL, "inconclusive": INCONCLUSIVE}

# Typer may carry its own copy of click; this is the base of what its parser raises either way.
ParseError: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

app = typer.Typer(
    add_completion=False,
    no_args_is_help=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Exact reference for speculative decoding, and the gate that holds samplers to it.\n\n"
    "Exit codes: 0 pass, 1 fail, 2 inconclusive, 3 usage.",
)


class Refusal(Exception):
    """The command cannot be carried out as given; the message names the argument and the cure."""


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a subject's name may hold what the terminal cannot
            stream.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if args is None else args)
    sys.exit(_run(words))


def _run(words: list[str]) -> int:
    try:
        code = app(args=words or ["--help"], prog_name="specref", standalone_mode=False)
        if not words:
            return USAGE  # in a script, a lost argument must not look like a pass
    except (Refusal, ParseError) as error:
        _complain(_advice(error, words))
        return USAGE
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else INTERNAL
    except Exception as error:
        if os.environ.get("SPECREF_DEBUG"):
            import traceback

            traceback.print_exc()
        lines = str(error).splitlines() or [""]
        _complain(
            f"internal error: {type(error).__name__}: {lines[0]} "
            "(set SPECREF_DEBUG=1 to see the traceback)"
        )
        return INTERNAL
    if code == INTERRUPTED:
        _complain("interrupted")
    return code if isinstance(code, int) else PASS


def _advice(error: Exception, words: Sequence[str]) -> str:
    """Return what an error says, with the nearest names where something is unknown."""
    if isinstance(error, Refusal):
        return str(error)
    said: Callable[[], str] = getattr(error, "format_message", error.__str__)
    text, context = said().strip(), getattr(error, "ctx", None)
    if context is None:
        return text
    command = context.command
    known: Iterable[str] = getattr(command, "commands", {})
    if "No such command" in text and words:
        text = f"there is no command {words[0]!r}{_nearest(words[0], known)}"
        return f"{text}; commands: {', '.join(known)}"
    option = getattr(error, "option_name", None)
    if "No such option" in text and option:
        options = [name for param in command.params for name in param.opts if name[:2] == "--"]
        text = f"there is no option {option}{_nearest(option, options)}"
        if options:
            text += f"; options: {', '.join(options)}"
        return text
    return f"{text.rstrip('.')}; see {context.command_path} --help"


def _nearest(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), 3, cutoff=0.4)
    return f" (nearest: {', '.join(near)})" if near else ""


def _complain(text: str) -> None:
    sys.stderr.write(f"specref: {text}\n")


def _version(wanted: bool) -> None:
    if wanted:
        _say(f"specref {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


@app.command()
def gate(
    subject: Annotated[
        str,
        typer.Argument(help="A built-in name, package.module, module:attribute, or a .py file."),
    ],
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
) -> None:
    """Prove or refute that a sampler keeps the target distribution."""
    number = _seed(seed)
    asked = None if rules is None else [rule.strip() for rule in rules.split(",") if rule.strip()]
    if asked == []:
        raise Refusal(f"--rules is empty; rules: {', '.join(RULES)}")
    _writable(json_file, report_to)
    with _gate() as (door, progress):
        from specref.gate.run import PROFILES

        if profile not in PROFILES:
            known = ", ".join(PROFILES)
            near = _nearest(profile, PROFILES)
            raise Refusal(f"there is no profile {profile!r}{near}; profiles: {known}")
        report = door.check(subject, asked, profile, number, progress)
    if report_to is not None:
        with _writing("--report", report_to):
            report.write(report_to)
    if json_file is not None:
        from specref.gate.report import save

        text = json.dumps(report.to_json(), indent=1) + "\n"
        if json_file == "-":
            _write(text)
            raise typer.Exit(CODES[report.verdict])
        with _writing("--json", json_file):
            save(Path(json_file), text)
    _show(report)
    raise typer.Exit(CODES[report.verdict])


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


@app.command()
def explain(
    rule: Annotated[str, typer.Argument(help="A rule; see specref rules.")],
    p: Annotated[
        list[str], typer.Option(help="Target law, 1/2,3/10,1/5; once, or once per position.")
    ],
    x: Annotated[str, typer.Option(help="Drafted tokens, 2,0: a chain, or siblings for trees.")],
    q: Annotated[
        list[str] | None, typer.Option(help="Draft law, written as --p; some rules need none.")
    ] = None,
    u: Annotated[
        str | None, typer.Option(help="Draws: a coin per drafted token, then the terminal draw.")
    ] = None,
) -> None:
    """Show one round step by step, in exact fractions."""
    from specref.explain import explain as told
    from specref.explain import read, uniforms

    _known_rule(rule)
    try:
        draft = read(rule, p, q or [], x)
        draws = None if u is None else uniforms(u, draft)
    except ValueError as error:
        raise Refusal(str(error)) from None
    _say(told(draft, draws))


@app.command("rules")
def list_rules() -> None:
    """List the acceptance rules."""
    rows = [
        (name, rule.shape, "yes" if rule.lossless else "no", rule.draft.__name__, rule.source)
        for name, rule in RULES.items()
    ]
    _table(("rule", "shape", "lossless", "drafter", "source"), rows)


@app.command("faults")
def list_faults() -> None:
    """List the known faults: wrong samplers seen in the wild."""
    rows = [(fault.name, fault.base, fault.family, fault.computed) for fault in FAULTS.values()]
    _table(("fault", "rule", "family", "what is computed"), rows)


@app.command()
def power(
    names: Annotated[
        list[str] | None, typer.Argument(help="Faults or rules; all of them if left out.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes.")] = os.cpu_count() or 1,
    markdown: Annotated[bool, typer.Option(help="Print the table as Markdown.")] = False,
) -> None:
    """Gate every known fault and every honest rule, at each depth: what the gate can see."""
    for name in names or ():
        if name not in FAULTS and name not in RULES:
            near = _nearest(name, [*FAULTS, *RULES])
            raise Refusal(f"there is no fault or rule {name!r}{near}; see specref faults")
    if jobs < 1:
        raise Refusal(f"--jobs {jobs} is not positive")
    with _gate() as (_, progress):
        from specref.subjects.power import rows

        found = list(rows(names or [*RULES, *FAULTS], jobs, progress or (lambda name: None)))
    heads = ("sampler", "rule", "measured law", "named", "calls", "samples", "rows")
    cells = [
        (
            row.name, row.base, row.measured, "" if row.honest else "yes" if row.named else "NO",
            str(row.calls), row.samples, f"{row.rows:,}",
        )
        for row in found
    ]  # fmt: skip
    if markdown:
        lines = ["| " + " | ".join(line) + " |" for line in (heads, ["---"] * len(heads), *cells)]
        _say("\n".join(lines))
    else:
        _table(heads, cells)
    wrong = [row.name for row in found if not row.right]
    if wrong:
        _complain(f"not told for what they are: {', '.join(wrong)}")
    raise typer.Exit(FAIL if wrong else PASS)


def _known_rule(rule: str) -> None:
    if rule not in RULES:
        raise Refusal(
            f"there is no rule {rule!r}{_nearest(rule, RULES)}; rules: {', '.join(RULES)}"
        )


def _seed(text: str) -> int:
    if text == "fresh":
        from secrets import randbelow

        number = randbelow(1 << 31)
        _complain(f"fresh seed {number}; repeat with --seed {number}")
        return number
    if not text.isdecimal() or int(text) >= 1 << 31:
        raise Refusal(f"--seed {text} is neither fresh nor a number in 0 <= N < 2^31")
    return int(text)


@contextmanager
def _gate() -> Iterator[tuple[Any, Callable[[str], None] | None]]:
    """Give the gate and a progress callback; turn its refusals into ours.

    What a subject prints goes to stderr: stdout belongs to the report.
    """
    from specref import gate
    from specref.gate.subject import UsageError

    console = Console(stderr=True)
    status = console.status("starting") if console.is_terminal else nullcontext()
    try:
        with redirect_stdout(sys.stderr), status as shown:
            yield gate, None if shown is None else lambda text: shown.update(Text(text))
    except UsageError as error:
        raise Refusal(str(error)) from None
    except SystemExit as error:
        raise Refusal(
            f"the subject ended Python with exit code {error.code}; a sampler must return"
        ) from None


def _writable(json_file: str | None, report_to: str | None) -> None:
    """Refuse places that cannot be written before the gate has worked for minutes."""
    if report_to is not None:
        with _writing("--report", report_to):
            Path(report_to).mkdir(parents=True, exist_ok=True)
    if json_file is not None and json_file != "-":
        place = Path(json_file)
        if place.is_dir():
            raise Refusal(f"--json {json_file} is a directory; name a file")
        if not os.access(place.parent, os.W_OK):
            raise Refusal(f"--json {json_file} cannot be written; {place.parent} is not writable")


@contextmanager
def _writing(option: str, place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Refusal(f"{option} {place} cannot be written: {error.strerror}") from None


def _show(report: "Report", last: str = "") -> None:
    """Print a report, or the blocks of a replay and one last line."""
    from specref.gate import view

    width = Console().width
    if not last:
        _print(view.whole(report, width))
        return
    lines: list[Text] = []
    for finding in report.findings:
        lines += [*view.block(finding, width), Text()]
    style = {"fail": "bold red", "pass": "green"}.get(report.verdict, "yellow")
    _print([*lines, Text(last, style=style)])


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; piped, one line per row at full width, so that it can be searched."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for at, head in enumerate(heads):
        table.add_column(head, overflow="fold", no_wrap=at + 1 < len(heads))
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    _print([table], None if sys.stdout.isatty() else 1000)


def _print(things: Iterable[Any], width: int | None = None) -> None:
    """Print Text and tables to stdout, with colour if it is a terminal that has some."""
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        for thing in things:
            console.print(thing, soft_wrap=isinstance(thing, Text))
    _write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _say(text: str) -> None:
    _write(text + "\n")


def _write(text: str) -> None:
    """Write to stdout; a reader that has gone is no error, and the exit code still tells."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
