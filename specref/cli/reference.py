"""Commands that look at the reference: explain, law, rules, compare, growth, faults."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specref.cli.app import INCONCLUSIVE, app
from specref.cli.output import complain, drawable_file, fraction, say, table, writing
from specref.faults import FAULTS
from specref.gate.errors import UsageError, known_rule
from specref.rules import RULES

if TYPE_CHECKING:
    from specref.logits.show import Reading


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
    say(told(draft, draws))


@app.command("law")
def law_of(
    logits: Annotated[
        str | None, typer.Option(help="One per token, 2,1,-inf; or shipped, on which presets part.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Exponentials of logits instead, 4,2,1/3.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Whose reading: see --compare; transformers if left out.")
    ] = None,
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
    if compare and preset is not None:
        raise UsageError(f"--compare shows all presets; leave out either it or --preset {preset}")
    try:
        if logits == "shipped":
            row: Sequence[Any] = parting.SHIPPED
        else:
            listed = weights if logits is None else logits
            parts = listed.split(",") if listed else []
            row = logarithms(parts) if logits is None else parts
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
        reading = "transformers" if preset is None else preset
        found = law(row, asked, reading, prompt=before, output=after, digits=show.DIGITS + 1)
    except (ValueError, ImportError) as error:
        raise UsageError(str(error)) from None
    except Undecided as error:
        complain(str(error))
        raise typer.Exit(INCONCLUSIVE) from None
    rows = show.runs([[mass] for mass in show.masses(found)])
    table(("token", "mass"), [(tokens, *cells) for tokens, cells in rows])


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
    if not read:
        reasons = dict.fromkeys(one.error for one in found)  # the same one where it is not theirs
        raise UsageError("; ".join(reasons))
    rows = [(tokens, *cells) for tokens, cells in runs(beside(found))]
    table(("token", *letters[: len(read)], "part"), rows)
    for letter, one in zip(letters, read, strict=False):
        say(f"{letter}  {', '.join(one.presets)}")
    for one in found:
        if one.row is None:
            say(f"-  {one.error}")


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
        emitted = fraction(found.expected)
        rows.append((name, rule.shape, lossless, rule.draft.__name__, emitted, rule.source))
    table(("rule", "shape", "lossless", "drafter", "emitted", "source"), rows)


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
            "-" if one.acceptance is None else fraction(one.acceptance),
            fraction(one.emitted),
            f"{one.share:.4f}",
            fraction(one.tv),
        )
        for one in found
    ]
    table(("rule", "acceptance", "emitted", "of optimum", "TV"), rows)


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
        drawable_file("--out", out)
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
        say(f"V = {point.vocab}  gamma = {point.gamma}  {point.oracle:6}  {spent}")
    if out is not None:
        with writing("--out", out):
            plot(points, out)


@app.command("faults")
def list_faults() -> None:
    """List the known faults: wrong samplers seen in the wild."""
    rows = [(fault.name, fault.base, fault.family, fault.computed) for fault in FAULTS.values()]
    table(("fault", "rule", "family", "what is computed"), rows)
