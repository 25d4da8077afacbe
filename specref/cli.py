"""The command line: a thin door to the gate and to the reference.

Exit codes: 0 pass, 1 fail, 2 inconclusive, 3 usage, 70 an error of ours, 130 interrupted.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specref import __version__
from specref.faults import FAULTS
from specref.gate.errors import UsageError, known_rule, nearest
from specref.rules import RULES

if TYPE_CHECKING:
    from specref.gate.report import Report
    from specref.logits.show import Reading

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


PATIENCE = 5.0
"""Seconds that threads of a subject may take to end once the gate is done."""


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit code."""
    if sys.stdout is None:
        _complain("stdout is closed; send it to a file or to /dev/null")
        sys.exit(USAGE)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a subject's name may hold what the terminal cannot
            stream.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if args is None else args)
    code = _run(words)
    if args is None:  # the process is ours alone
        _leave_within(PATIENCE, code)
    sys.exit(code)


def _leave_within(seconds: float, code: int) -> None:
    """See to it that the process ends, whatever threads a subject left behind."""
    left = [thread for thread in threading.enumerate() if not thread.daemon]
    if left == [threading.main_thread()]:
        return

    def leave() -> None:
        _complain("a thread of the subject goes on; it is not waited for")
        os._exit(code)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()


def _run(words: list[str]) -> int:
    try:
        code = app(args=words or ["--help"], prog_name="specref", standalone_mode=False)
        if not words:
            return USAGE  # in a script, a lost argument must not look like a pass
    except (UsageError, ParseError) as error:
        _complain(_advice(error, words))
        return USAGE
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else INTERNAL
    except OSError as error:
        return _internal(error) if error.filename else _unwritten(error)
    except BaseException as error:
        return _internal(error)
    if code == INTERRUPTED:
        _complain("interrupted")
    return code if isinstance(code, int) else PASS


def _internal(error: BaseException) -> int:
    """Tell of an error that is ours."""
    if os.environ.get("SPECREF_DEBUG"):
        import traceback

        traceback.print_exception(error)
    lines = str(error).splitlines() or [""]
    _complain(
        f"internal error: {type(error).__name__}: {lines[0]} "
        "(set SPECREF_DEBUG=1 to see the traceback)"
    )
    return INTERNAL


def _unwritten(error: OSError) -> int:
    """Tell that stdout cannot be written; a reader that has gone is no error."""
    _drop(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return PASS
    _complain(f"stdout cannot be written: {error.strerror}")
    return USAGE


def _advice(error: Exception, words: Sequence[str]) -> str:
    """Return what an error says, with the nearest names where something is unknown."""
    if isinstance(error, UsageError):
        return str(error)
    said: Callable[[], str] = getattr(error, "format_message", error.__str__)
    text, context = said().strip(), getattr(error, "ctx", None)
    if context is None:
        return text
    command = context.command
    known: Iterable[str] = getattr(command, "commands", {})
    if "No such command" in text and words:
        text = f"there is no command {words[0]!r}{nearest(words[0], known)}"
        return f"{text}; commands: {', '.join(known)}"
    option = getattr(error, "option_name", None)
    if "No such option" in text and option:
        options = [name for param in command.params for name in param.opts if name[:2] == "--"]
        text = f"there is no option {option}{nearest(option, options)}"
        if options:
            text += f"; options: {', '.join(options)}"
        return text
    return f"{text.rstrip('.')}; see {context.command_path} --help"


def _complain(text: str) -> None:
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"specref: {text}\n")
        sys.stderr.flush()
    except OSError:  # the exit code still tells
        _drop(sys.stderr)


def _drop(stream: TextIO) -> None:
    """Let what is left in a buffer go nowhere, lest Python fail with it when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


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
        with _writing("--report", report_to):
            report.write(report_to)
    if certificate is not None and not _certified(report, certificate):
        code = code or INCONCLUSIVE
    if json_file is not None:
        from specref.gate.report import save

        text = json.dumps(report.to_json(), indent=1) + "\n"
        if json_file == "-":
            _write(text)
            raise typer.Exit(code)
        with _writing("--json", json_file):
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
    """Draw which random numbers lead to which tokens, beside the reference."""
    with _gate():
        from specref.gate.map import area, decision_map, drawable, save

        drawable(out)
        _writable_file("--out", out)
        found = decision_map(subject, rule)
        with _writing("--out", out):
            save(found, out)
    parted, distance = float(area(found.differing)), float(found.tv)
    _say(f"{out}: {found.name} against {found.rule}, TV {distance:.3g} on one drafted token;")
    _say(f"outcomes differ on {parted:.3g} of all draws")


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

    known_rule(rule)
    try:
        draft = read(rule, p, q or [], x)
        draws = None if u is None else uniforms(u, draft)
    except ValueError as error:
        raise UsageError(str(error)) from None
    _say(told(draft, draws))


@app.command("law")
def law_of(
    logits: Annotated[
        str | None, typer.Option(help="One per token, 2,1,-inf; or shipped, on which presets part.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Exponentials of logits instead, 4,2,1/3.")
    ] = None,
    preset: Annotated[str, typer.Option(help="Whose reading: see --compare.")] = "transformers",
    compare: Annotated[bool, typer.Option("--compare", help="Show what each makes of it.")] = False,
    temperature: Annotated[str, typer.Option(help="0 is greedy.")] = "1",
    top_k: Annotated[int | None, typer.Option(help="Keep the K likeliest.")] = None,
    top_p: Annotated[str, typer.Option(help="Keep the likeliest up to a mass.")] = "1",
    min_p: Annotated[str, typer.Option(help="Keep this share of the largest mass.")] = "0",
    typical_p: Annotated[str, typer.Option(help="Keep the most typical up to a mass.")] = "1",
    epsilon: Annotated[str, typer.Option(help="Keep at least this mass.")] = "0",
    eta: Annotated[str, typer.Option(help="The same, lowered by the entropy.")] = "0",
    top_n_sigma: Annotated[str, typer.Option(help="Keep logits near the largest.")] = "0",
    repetition_penalty: Annotated[str, typer.Option(help="For tokens that came.")] = "1",
    presence_penalty: Annotated[str, typer.Option(help="For tokens that came.")] = "0",
    frequency_penalty: Annotated[str, typer.Option(help="For each time they came.")] = "0",
    prompt: Annotated[str, typer.Option(help="Tokens that came before, 0,2.")] = "",
    output: Annotated[str, typer.Option(help="Tokens that were emitted, 1,1.")] = "",
) -> None:
    """Print the law of the next token that a request asks for, exactly, as a library reads it."""
    from specref.logits import Parameters, Undecided, law, parting, show
    from specref.logits import weights as logarithms

    if (logits is None) == (weights is None):
        raise UsageError("pass either --logits 2,1,0 or --weights 4,2,1")
    try:
        if logits == "shipped":
            row: Sequence[Any] = parting.SHIPPED
        else:
            row = logits.split(",") if logits else logarithms((weights or "").split(","))
        asked = Parameters(
            temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, typical_p=typical_p,
            epsilon=epsilon, eta=eta, top_n_sigma=top_n_sigma,
            repetition_penalty=repetition_penalty, presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty,
        )  # fmt: skip
        before, after = _tokens("--prompt", prompt), _tokens("--output", output)
        if compare:
            _compare_presets(show.readings(row, asked, prompt=before, output=after))
            return
        found = law(row, asked, preset, prompt=before, output=after, digits=show.DIGITS + 1)
    except (ValueError, ImportError) as error:
        raise UsageError(str(error)) from None
    except Undecided as error:
        _complain(str(error))
        raise typer.Exit(INCONCLUSIVE) from None
    rows = show.runs([[mass] for mass in show.masses(found)])
    _table(("token", "mass"), [(tokens, *cells) for tokens, cells in rows])


def _tokens(option: str, text: str) -> list[int]:
    """Read a list of tokens; nothing is an empty one."""
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f"{option} {text} is not a list of tokens, 0,2")
    return [int(part) for part in parts]


def _compare_presets(found: Sequence["Reading"]) -> None:
    """Print the laws that presets read, and mark the tokens on which they part."""
    from specref.logits.show import beside, runs

    letters = [chr(ord("A") + at) for at in range(len(found))]
    read = [one for one in found if one.row is not None]
    if read:
        rows = [(tokens, *cells) for tokens, cells in runs(beside(found))]
        _table(("token", *letters[: len(read)], "part"), rows)
    for letter, one in zip(letters, read, strict=False):
        _say(f"{letter}  {', '.join(one.presets)}")
    for one in found:
        if one.row is None:
            _say(f"-  {one.error}")


@app.command("rules")
def list_rules() -> None:
    """List the acceptance rules, and the tokens that each emits per round on a standard pair.

    The pair is p = (1/2, 3/10, 1/5) and q = (1/5, 1/5, 3/5) at every position (p's likeliest token
    alone for rules that are made for such targets); chains have two drafts, trees two siblings at
    each of two levels.
    """
    from specref import closed
    from specref.compare import STANDARD, sharpened
    from specref.oracle import lengths

    rows = []
    for name, rule in RULES.items():
        p, q = STANDARD
        shape = 2 if rule.shape == "chain" else (2, 2)
        target = sharpened(p) if rule.one_hot_target else p
        found = lengths(name, target, q, shape=shape, by=closed.round_law)
        lossless = "yes" if rule.lossless else "no"
        emitted = _fraction(found.expected)
        rows.append((name, rule.shape, lossless, rule.draft.__name__, emitted, rule.source))
    _table(("rule", "shape", "lossless", "drafter", "emitted", "source"), rows)


@app.command("compare")
def compare_rules(
    p: Annotated[str, typer.Option(help="Target law at every position, 1/2,3/10,1/5.")],
    q: Annotated[str, typer.Option(help="Draft law, written as --p.")],
    rules: Annotated[
        str | None, typer.Option(help="Rules, token,block; all that are for the shape if left out.")
    ] = None,
    gamma: Annotated[int | None, typer.Option(help="Drafts of a chain.")] = None,
    widths: Annotated[
        str | None, typer.Option(help="Siblings at each level of a tree, 2,2.")
    ] = None,
) -> None:
    """Set rules side by side: acceptance, expected tokens, share of the optimum, and TV.

    The optimum is that of the best lossless verifier of the same drafts that leaves the target of
    later tokens alone. All drafts are enumerated, so time grows exponentially with their number.
    """
    from specref.compare import compare, constant
    from specref.decode import check_shape

    try:
        shape = _shape(gamma, widths)
        target, drafter = constant(p, "--p"), constant(q, "--q")
        if len(target(())) != len(drafter(())):
            raise UsageError(f"--p has {len(target(()))} tokens and --q {len(drafter(()))}")
        names = _rules_for(shape) if rules is None else [n.strip() for n in rules.split(",")]
        for name in names:
            known_rule(name)
            check_shape(RULES[name], shape)
        found = list(compare(names, target, drafter, shape))
    except ValueError as error:
        raise UsageError(str(error)) from None
    rows = [
        (
            one.rule,
            "-" if one.acceptance is None else _fraction(one.acceptance),
            _fraction(one.emitted),
            f"{one.share:.4f}",
            _fraction(one.tv),
        )
        for one in found
    ]
    _table(("rule", "acceptance", "emitted", "of optimum", "TV"), rows)


def _shape(gamma: int | None, widths: str | None) -> int | tuple[int, ...]:
    """Read --gamma or --widths."""
    if (gamma is None) == (widths is None):
        raise UsageError("pass either --gamma N, for chains, or --widths 2,2, for trees")
    if gamma is not None:
        if gamma < 0:
            raise UsageError(f"--gamma {gamma} is negative; 0 drafts or more")
        return gamma
    assert widths is not None
    parts = [part.strip() for part in widths.split(",")]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise UsageError(f"--widths {widths} is not a list of positive numbers, 2,2")
    return tuple(int(part) for part in parts)


def _rules_for(shape: int | tuple[int, ...]) -> list[str]:
    """Return the rules that are for a shape, on any target."""
    kind = "chain" if isinstance(shape, int) else "tree"
    widest = 1 if isinstance(shape, int) else max(shape, default=1)
    return [
        name
        for name, rule in RULES.items()
        if rule.shape == kind
        and not rule.one_hot_target
        and (rule.width is None or widest <= rule.width)
    ]


def _fraction(value: Any) -> str:
    """Write a number as a fraction, where it is short, and as a decimal."""
    exact = str(value)
    if "/" not in exact:
        return exact
    return f"{exact} = {float(value):.4f}" if len(exact) <= 16 else f"{float(value):.6g}"


@app.command()
def growth(
    rule: Annotated[str, typer.Argument(help="A rule; see specref rules.")] = "token",
    vocab: Annotated[str, typer.Option(help="Sizes of the vocabulary, growing.")] = "2,4,8",
    gamma: Annotated[int, typer.Option(help="Levels of the draft, from 1 up to this.")] = 5,
    width: Annotated[int, typer.Option(help="Siblings at each level, for rules on trees.")] = 2,
    limit: Annotated[
        float, typer.Option(help="Seconds after which larger sizes are left out.")
    ] = 10,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw it, too: a picture, .svg or .png.")
    ] = None,
) -> None:
    """Measure how the cost of exact laws grows with V and gamma, by both oracles."""
    from specref.decode import check_shape
    from specref.growth import measure, plot

    known_rule(rule)
    sizes = [part.strip() for part in vocab.split(",")]
    if not all(part.isdecimal() and int(part) > 1 for part in sizes):
        raise UsageError(f"--vocab {vocab} is not a list of numbers above 1, 2,4,8")
    if gamma < 1 or width < 1 or not limit > 0:
        raise UsageError("--gamma, --width and --limit are positive")
    if out is not None:
        if not out.endswith((".svg", ".png")):
            raise UsageError(f"--out {out} is neither .svg nor .png")
        _writable_file("--out", out)
    chain = RULES[rule].shape == "chain"
    shapes = [n if chain else (width,) * n for n in range(1, gamma + 1)]
    try:
        check_shape(RULES[rule], shapes[0])
    except ValueError as error:
        raise UsageError(str(error)) from None
    points = []
    for point in measure(rule, [int(part) for part in sizes], shapes, limit):
        points.append(point)
        spent = "left out" if point.seconds is None else f"{point.seconds:.4f} s"
        _say(f"V = {point.vocab}  gamma = {point.gamma}  {point.oracle:6}  {spent}")
    if out is not None:
        with _writing("--out", out):
            plot(points, out)


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
            _say("| " + " | ".join(cells) + " |")

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
        _table(heads, cells)
    if wrong:
        _complain(f"not told for what they are: {', '.join(wrong)}")
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
        _complain(f"fresh seed {number}; repeat with --seed {number}")
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
        reasons = report.escapes or [why for _, _, why in data["left_out"]] or ["it does not run"]
        _complain(f"--certificate {place} is not written, no law was measured: {reasons[0]}")
        return False
    with _writing("--certificate", place):
        save(Path(place), dumped(data))
    return True


def _writable(json_file: str | None, report_to: str | None, certificate: str | None) -> None:
    """Refuse places that cannot be written before the gate has worked for minutes."""
    if report_to is not None:
        with _writing("--report", report_to):
            Path(report_to).mkdir(parents=True, exist_ok=True)
        if not os.access(report_to, os.W_OK | os.X_OK):
            raise UsageError(f"--report {report_to} cannot be written; choose another directory")
    if json_file is not None and json_file != "-":
        _writable_file("--json", json_file)
    if certificate is not None:
        _writable_file("--certificate", certificate)


def _writable_file(option: str, name: str) -> None:
    place = Path(name)
    if place.is_dir():
        raise UsageError(f"{option} {name} is a directory; name a file")
    if not os.access(place.parent, os.W_OK):
        why = "is not writable" if place.parent.exists() else "does not exist"
        raise UsageError(f"{option} {name} cannot be written; {place.parent} {why}")


@contextmanager
def _writing(option: str, place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"{option} {place} cannot be written: {error.strerror}") from None


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
    """Print a table; piped or on a narrow terminal, one line per row, with nothing cut off."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for at, head in enumerate(heads):
        table.add_column(head, overflow="fold", no_wrap=at + 1 < len(heads))
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    columns = list(zip(heads, *rows, strict=True))[:-1]
    beside = sum(max(map(len, column)) + 2 for column in columns)
    fits = sys.stdout.isatty() and Console().width >= beside + 20
    _print([table], None if fits else 1000)


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
        _drop(sys.stdout)


if __name__ == "__main__":
    main()
