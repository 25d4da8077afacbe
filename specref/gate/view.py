"""A report for people: lines of text, at any width, with or without colour.

Everything here reads findings and judges nothing. Lines are `rich.text.Text`, so that the terminal
gets colour and everything else the same words without it. Only ASCII is added to what subjects say.
"""

import struct
from ast import literal_eval
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from textwrap import wrap
from typing import Any

from rich.text import Text

from specref.gate.report import CLAIMS, MEASURED, SAMPLES, Finding, Report

NARROW, WIDE = 80, 120
"""Widths that lines are laid out for; prose wider than that is hard to read."""

MOST_OUTCOMES = 16
MOST_TOKENS = 12

_STYLES = {"pass": "green", "fail": "bold red", "inconclusive": "yellow"}
_ORDER = ("pass", "fail", "inconclusive", "not run", "not applicable")


def plain(lines: Iterable[Text]) -> str:
    """Return lines as text without colour."""
    return "\n".join(line.plain.rstrip() for line in lines)


def whole(report: Report, width: int = 80, option: str = "--report") -> Iterator[Text]:
    """Yield the lines of a report: one per finding, a block per failure, a sentence.

    Args:
        report: what to show.
        width: columns.
        option: what the reader would have to pass to get replay files.
    """
    width = _usable(width)
    yield from _head(report, width)
    if report.findings:
        yield Text()
        yield from _overview(report.findings, width)
    remarks = list(notes(report, width))
    if remarks:
        yield Text()
        yield from remarks
    for finding in report.failures:
        yield Text()
        yield from block(finding, width)
    if any(f.case and not f.replay for f in report.failures):
        yield Text()
        yield from _prose(to_repeat(report, option), width)
    yield Text()
    yield from sentence(report, width)


def block(finding: Finding, width: int = 80, message_first: bool = False) -> Iterator[Text]:
    """Yield the lines of one finding: what is wrong, on which case, by how much, what it resembles.

    Args:
        finding: a failure, mostly; whatever is known of it is shown.
        width: columns.
        message_first: begin with the message, for readers who show one line of it.
    """
    width = _usable(width)
    size = _tv(finding) if finding.tv else ""
    depth = f"by {finding.depth}" if finding.depth else ""
    facts = ", ".join(filter(None, (finding.severity, size, depth)))
    title = Text.assemble((_word(finding.verdict), _style(finding)), f"  {finding.id}  {facts}")
    title.rstrip()
    message = _clean(finding.message)
    if message_first:
        yield from (Text(message or CLAIMS[finding.claim]), Text(), title)
    else:
        yield title
        yield from _prose(message, width, "  ")
    yield Text()
    for label, lines in _sections(finding, width - 10):
        for number, line in enumerate(lines):
            yield Text(f"  {label if number == 0 else '':<8}").append(line)


def to_repeat(report: Report, option: str) -> str:
    """Return what a reader can do who wants to repeat one failure."""
    if report.source:
        return f"To repeat one failure alone, add {option} DIR."
    return (
        f"An object has no command that repeats a failure; {option} DIR writes the cases, and "
        "specref.gate.replay(FILE, subject=...) repeats one."
    )


def notes(report: Report, width: int = 80) -> Iterator[Text]:
    """Yield what a reader of the numbers must know: what they are exact or certified up to."""
    width = _usable(width)
    bounds: dict[float, list[str]] = defaultdict(list)
    for rule in dict.fromkeys(finding.rule for finding in report.findings):
        ours = [f for f in report.findings if f.rule == rule]
        known = [f.bound for f in ours if f.bound is not None]
        if known and any(f.depth == MEASURED and f.tv is not None for f in ours):
            bounds[max(known)].append(rule or "lossless")
    for bound, rules in bounds.items():
        whose = f" ({', '.join(rules)})" if len(bounds) > 1 else ""
        yield from _prose(
            f"A TV by {MEASURED} is exact but for what may have gone unseen; the audit bounds "
            f"that by a TV of {bound:.2g} on average{whose}.",
            width,
        )
    if any(
        f.depth == SAMPLES and f.tv is not None and f.verdict != "fail" for f in report.findings
    ):
        yield from _prose("A TV by samples is a certified bound.", width)
    if report.escapes:
        yield from _prose("The law could not be measured everywhere. What left the tape:", width)
        for escape in report.escapes[:4]:
            yield from _prose(_clean(escape), width, "  ")
        if len(report.escapes) > 4:
            yield Text(f"  and {len(report.escapes) - 4} more")


def sentence(report: Report, width: int = 80) -> Iterator[Text]:
    """Yield the last words: the verdict, and per rule how many claims came out how."""
    width = _usable(width)
    by_rule: dict[str, list[Finding]] = defaultdict(list)
    for finding in report.findings:
        by_rule[finding.rule or "lossless"].append(finding)
    clauses = "; ".join(f"{rule}: {_tally(found)}" for rule, found in by_rule.items())
    verdict = report.verdict.upper()
    lines = list(_prose(f"{verdict}  {clauses or 'nothing was checked'}", width, hanging="      "))
    lines[0].stylize(_STYLES[report.verdict], 0, len(verdict))
    yield from lines


def _style(finding: Finding) -> str:
    return _STYLES.get(finding.verdict, "dim")


def _usable(width: int) -> int:
    return max(NARROW, min(width, WIDE))


def _word(verdict: str) -> str:
    """Return a verdict as it stands in the list: what needs attention is in capitals."""
    return {"not applicable": "n/a", "pass": "pass", "not run": "not run"}.get(
        verdict, verdict.upper()
    )


def _tally(findings: Sequence[Finding]) -> str:
    """Say how many of one rule's claims came out how, and at which depth or severity."""
    claims = {finding.claim for finding in findings}
    parts = [f"{len(claims)} {'claim' if len(claims) == 1 else 'claims'}"]
    if len(findings) > len(claims):
        parts[0] += f" in {len(findings)} findings"
    counts = Counter(finding.verdict for finding in findings)
    for verdict in _ORDER:
        if not counts[verdict]:
            continue
        kinds = [f for f in findings if f.verdict == verdict]
        if verdict == "pass":
            depths = Counter(f.depth for f in kinds if f.depth)
            told = ", ".join(f"{n} by {depth}" for depth, n in depths.items())
        elif verdict == "fail":
            told = ", ".join(dict.fromkeys(f.severity for f in kinds if f.severity))
        else:
            told = ""
        parts.append(f"{counts[verdict]} {verdict}" + (f" ({told})" if told else ""))
    return ", ".join(parts)


def _head(report: Report, width: int) -> Iterator[Text]:
    named = report.name if report.name == report.subject else f"{report.name} ({report.subject})"
    lines = wrap(_clean(named), width)
    yield Text(lines[0], style="bold")
    yield from (Text(line) for line in lines[1:])
    facts = [f"profile {report.profile}", f"seed {report.seed}"]
    if report.drafts:
        facts.append(f"drafts {report.drafts.replace('_', ' ')}")
    if report.calls:
        facts.append(f"{report.calls:,} runs measured")
    facts += [f"{name} {version}" for name, version in report.versions.items()]
    yield from _prose(", ".join(facts), width)


def _overview(findings: Sequence[Finding], width: int) -> Iterator[Text]:
    """Yield one entry per finding; a message that does not fit on its line goes below it."""

    def wide(texts: Iterable[str]) -> int:
        return max((len(text) for text in texts), default=0)

    word = wide(_word(f.verdict) for f in findings)
    parts = [(f.id, f.depth, _tv(f), f.severity) for f in findings]
    sizes = [wide(part[column] for part in parts) for column in range(4)]
    for finding, part in zip(findings, parts, strict=True):
        columns = [f"{cell:<{size}}" for cell, size in zip(part, sizes, strict=True) if size]
        aligned, message = "  ".join(columns), _clean(finding.message)
        line = Text.assemble((f"{_word(finding.verdict):<{word}}", _style(finding)), "  ")
        for body in (aligned, aligned.rstrip()):
            if line.cell_len + len(body) + 2 + len(message) <= width:
                yield line.append(f"{body}  {message}")
                break
        else:
            yield line.append(aligned)
            yield from _prose(message, width, " " * (word + 4))


def _tv(finding: Finding) -> str:
    """Write the TV; that of samples is a bound, but for a failure."""
    if finding.tv is None:
        return ""
    sign = " <=" if finding.depth == SAMPLES and finding.verdict != "fail" else ""
    return f"TV{sign} {finding.tv:.2g}"


def _sections(finding: Finding, width: int) -> Iterator[tuple[str, list[Text]]]:
    """Yield (label, lines) of the parts of a block."""

    def told(text: str) -> list[Text]:
        return list(_prose(text, width))

    yield "claim", told(f"{finding.id.partition('/')[0]}: {CLAIMS.get(finding.claim, '')}")
    if finding.case:
        yield "case", list(_case(finding.case, width))
    if finding.expected or finding.measured:
        yield "laws", list(_laws(finding.expected, finding.measured or {}, width))
    parted = _parted(finding.expected, finding.measured)
    if parted:
        yield "part", told(parted)
    if finding.nearest_fault:
        yield "fault", list(_fault(finding.nearest_fault, width))
    if finding.where:
        yield "where", told(_clean(finding.where))
    if finding.replay:
        yield "repeat", [Text(finding.replay, style="bold")]  # never wrapped: it is to be copied


def _case(case: Mapping[str, Any], width: int) -> Iterator[Text]:
    """Yield the case: its rows of p and q as short fractions, and what is drafted."""
    numbers = _Numbers()
    if "fixture" in case:
        lines = list(_fixture(case, numbers, width))
    elif "p" in case and "tokens" in case:
        lines = list(_draft(case, numbers, width))
    else:
        lines = [f"{key}: {_short(value)}" for key, value in case.items()]
    for line in lines:
        yield from _prose(line, width, hanging="  ") if len(line) > width else [Text(line)]
    if numbers.rounded:
        yield from _prose("(fractions stand for the nearest float32)", width)


def _draft(case: Mapping[str, Any], numbers: "_Numbers", width: int) -> Iterator[str]:
    tokens, parents = list(case["tokens"]), list(case["parents"])
    chain = parents == list(range(len(tokens)))
    vocab = len(case["p"][0])
    many = "token" if len(tokens) == 1 else "tokens"
    yield f"a {'chain' if chain else 'tree'} of {len(tokens)} drafted {many}, V = {vocab}"
    made = case.get("logits")
    sources = [("p", case["p"]), ("q", case["q"])]
    if made:
        sources += [("p logits", made[0]), ("q logits", made[1])]
    below: dict[int, list[int]] = defaultdict(list)
    for node, parent in enumerate(parents, start=1):
        below[parent].append(node)
    rows: list[tuple[str, Sequence[str], str]] = []
    for node in range(len(tokens) + 1):
        for name, table in sources:
            if name.startswith("q") and node not in below:
                continue  # nothing is proposed behind a leaf
            note = ""
            if name == "q":
                drafted = [str(tokens[child - 1]) for child in below[node]]
                note = f"drafted {', '.join(drafted)}"
                if not chain:
                    note += f" (nodes {', '.join(map(str, below[node]))})"
            rows.append((f"{name}[{node}]", table[node], note))
    yield from _aligned(rows, numbers, width)


def _fixture(case: Mapping[str, Any], numbers: "_Numbers", width: int) -> Iterator[str]:
    shape = case.get("shape")
    drafts = f"depth {shape}" if isinstance(shape, int) else f"widths {_short(shape)}"
    yield f"models {case['fixture']!r}" + (f", drafts of {drafts}" if shape is not None else "")
    p, q = case.get("p"), case.get("q")
    if not isinstance(p, list) or not isinstance(q, list):
        return
    if len(p) > 1:
        yield "laws by last token:"
    draft = {tuple(context): row for context, row in q}
    rows: list[tuple[str, Sequence[str], str]] = []
    for context, row in p:
        after = tuple(context)
        label = f"after {_short(list(after))}" if after else "start"
        rows.append((f"p {label}", row, ""))
        if after in draft:
            rows.append((f"q {label}", draft[after], ""))
    yield from _aligned(rows, numbers, width)
    for key, value in case.items():
        if key not in ("fixture", "p", "q", "shape"):
            yield f"{key}: {_short(value)}"


def _aligned(
    rows: Sequence[tuple[str, Sequence[str], str]], numbers: "_Numbers", width: int
) -> Iterator[str]:
    """Yield labelled rows in columns by token, or token by token where there are too many."""
    written = [(label, [numbers.write(w) for w in row], note) for label, row, note in rows]
    label_size = max((len(label) for label, _, _ in written), default=0)
    vocab = max((len(row) for _, row, _ in written), default=0)
    sizes = [
        max(len(str(x)), *(len(row[x]) for _, row, _ in written if x < len(row)))
        for x in range(vocab)
    ]
    note_size = max((len(note) for _, _, note in written), default=0)
    if vocab <= MOST_TOKENS and label_size + sum(sizes) + 2 * vocab + 2 + note_size <= width:
        heads = "  ".join(f"{x:>{size}}" for x, size in enumerate(sizes))
        yield f"{'token':<{label_size}}  {heads}"
        for label, row, note in written:
            cells = "  ".join(f"{w:>{size}}" for w, size in zip(row, sizes, strict=False))
            yield f"{label:<{label_size}}  {cells}  {note}".rstrip()
        return
    for (label, row, note), (_, exact, _) in zip(written, rows, strict=True):
        order = sorted(range(len(row)), key=lambda x: -_Numbers.value(exact[x]))
        shown = [f"{x}: {row[x]}" for x in order[:MOST_TOKENS] if row[x] != "0"]
        rest = sum(w != "0" for w in row) - len(shown)
        more = f", and {rest} more tokens" if rest > 0 else ""
        yield f"{label:<{label_size}}  {', '.join(shown)}{more}" + (f"; {note}" if note else "")


class _Numbers:
    """Writes float32 numbers, which cases hold in hexadecimal, as short as they can be told.

    Attributes:
        rounded: whether a fraction was written that stands for the float32 nearest to it.
    """

    def __init__(self) -> None:
        self.rounded = False

    @staticmethod
    def value(text: str) -> float:
        return float.fromhex(text)

    def write(self, text: str) -> str:
        value = self.value(text)
        if value != value or value in (float("inf"), float("-inf")):
            return str(value)
        exact = Fraction(value)
        if exact.denominator <= 1024:
            return str(exact)
        simple = exact.limit_denominator(1000)
        if simple and _float32(float(simple)) == value:
            self.rounded = True
            return str(simple)
        for digits in range(5, 18):
            short = f"{value:.{digits}g}"
            if _float32(float(short)) == value or float(short) == value:
                return short
        return repr(value)


def _float32(value: float) -> float:
    (rounded,) = struct.unpack("f", struct.pack("f", value))
    return float(rounded)


@dataclass(frozen=True)
class _Row:
    """One outcome of the two laws that are compared."""

    outcome: str
    expected: Fraction
    measured: Fraction

    @property
    def gap(self) -> Fraction:
        return self.measured - self.expected


def _laws(
    expected: Mapping[str, str] | None, measured: Mapping[str, str], width: int
) -> Iterator[Text]:
    """Yield the two laws side by side; rows that carry the deviation are marked."""
    if expected is None:
        rows = [_Row(_clean(o), Fraction(0), Fraction(m)) for o, m in measured.items()]
    else:
        rows = _rows(expected, measured)
    shown = _telling(rows)
    marks = _marks(rows) if expected is not None else {}
    # Of ways to write the masses, the most exact one that leaves room for the rest of the line.
    for most, beside in ((40, True), (24, True), (17, True), (17, False), (9, False)):
        cells = [tuple(_mass(m, most, beside) for m in (r.expected, r.measured)) for r in shown]
        left, right = (max(8, *(len(cell[side]) for cell in cells)) for side in (0, 1))
        room = width - left - right - 31
        if room >= min(24, max(len(row.outcome) for row in shown)):
            break
    size = max(7, min(room, max(len(row.outcome) for row in shown)))
    if expected is None:
        yield Text(f"{'outcome':<{size}}  measured")
        for row, (_, b) in zip(shown, cells, strict=True):
            yield Text(f"{_clip(row.outcome, size):<{size}}  {b}")
    else:
        yield Text(f"{'outcome':<{size}}  {'expected':<{left}}  {'measured':<{right}}  difference")
        for row, (a, b) in zip(shown, cells, strict=True):
            gap = f"{float(row.gap):+.3g}" if row.gap else "0"
            mark = marks.get(row.outcome, "")
            line = Text(f"{_clip(row.outcome, size):<{size}}  {a:<{left}}  {b:<{right}}  {gap:<10}")
            if mark:
                line.stylize("bold")
                line.append(f"  <- {mark}", style="bold red")
            line.rstrip()
            yield line
    hidden = len(rows) - len(shown)
    if hidden:
        sizes = sum(abs(row.gap) for row in rows) - sum(abs(row.gap) for row in shown)
        text = f"and {hidden} more outcomes"
        if expected is not None:
            text += f", which add {float(sizes) / 2:.2g} to the TV"
        yield from _prose(text, width)


def _rows(expected: Mapping[str, str], measured: Mapping[str, str]) -> list[_Row]:
    outcomes = [*expected, *(outcome for outcome in measured if outcome not in expected)]
    keys = {outcome: _key(outcome) for outcome in outcomes}
    outcomes.sort(key=lambda outcome: keys[outcome])
    return [
        _Row(_clean(o), Fraction(expected.get(o, "0")), Fraction(measured.get(o, "0")))
        for o in outcomes
    ]


def _key(outcome: str) -> tuple[int, Any]:
    tokens = _tokens(outcome)
    return (1, outcome) if tokens is None else (0, tokens)


def _tokens(outcome: str) -> tuple[int, ...] | None:
    """Return the tokens that an outcome lists, or None if it is something else."""
    if not outcome.startswith("("):
        return None
    try:
        value = literal_eval(outcome)
    except (ValueError, SyntaxError):
        return None
    flat = isinstance(value, tuple) and all(isinstance(x, int) for x in value)
    return value if flat else None


def _telling(rows: list[_Row]) -> list[_Row]:
    """Return all rows if they are few, else those that differ most, in their order."""
    if len(rows) <= MOST_OUTCOMES:
        return rows
    chosen = sorted(rows, key=lambda row: (-abs(row.gap), -row.measured))[: MOST_OUTCOMES - 4]
    return [row for row in rows if row in chosen]


def _marks(rows: Sequence[_Row]) -> dict[str, str]:
    """Return what to write behind an outcome: impossible ones, and those that carry the TV."""
    marks = {row.outcome: "impossible" for row in rows if row.measured and not row.expected}
    largest = max((abs(row.gap) for row in rows), default=Fraction(0))
    # What impossible outcomes take is missing elsewhere; that needs no mark of its own.
    if 2 * sum(row.gap for row in rows if row.outcome in marks) >= largest:
        return marks
    for row in rows:
        if row.outcome not in marks and 2 * abs(row.gap) >= largest:
            often = "too often" if row.gap > 0 else "too rarely"
            marks[row.outcome] = often if row.measured else "never"
    return marks


def _mass(mass: Fraction, most: int, beside: bool) -> str:
    """Write a probability: as a fraction of that many characters at most, else as a float.

    Args:
        mass: the probability.
        most: longest fraction.
        beside: write the float beside fractions that are hard to read.
    """
    text = str(mass)
    if len(text) <= 9:
        return text
    decimal = f"{float(mass):.8g}"
    if len(text) > most:
        return f"~{decimal}"
    return f"{text} ({decimal})" if beside else text


def _parted(expected: Mapping[str, str] | None, measured: Mapping[str, str] | None) -> str:
    """Say at which token of the text the two laws part, or nothing where that is no question."""
    if not expected or not measured:
        return ""
    laws: list[dict[tuple[int, ...], Fraction]] = []
    for given in (expected, measured):
        read = {_tokens(outcome): Fraction(mass) for outcome, mass in given.items()}
        if None in read:
            return ""
        laws.append({text: mass for text, mass in read.items() if text is not None})
    wanted, got = laws
    length = max(len(text) for text in (*wanted, *got))
    gaps = [Fraction(0)]
    for cut in range(1, length + 1):
        gap: defaultdict[Any, Fraction] = defaultdict(Fraction)
        for sign, masses in ((1, got), (-1, wanted)):
            for text, mass in masses.items():
                gap[text[:cut]] += sign * mass
        gaps.append(sum((abs(g) for g in gap.values()), Fraction(0)) / 2)
    if length < 2 or not gaps[-1]:
        return ""
    at = next(cut for cut in range(1, length + 1) if gaps[cut] * 10 >= gaps[-1])
    before = f"TV {float(gaps[at - 1]):.2g} up to token {at - 1}, " if at > 1 else "TV "
    return f"at token {at}: {before}{float(gaps[at]):.2g} with it"


def _fault(nearest: Mapping[str, Any], width: int) -> Iterator[Text]:
    matches = list(nearest.get("matches") or [])
    resembles = nearest.get("resembles")
    if matches:
        first, *others = matches
        text = f"this is the law of {first}"
        if others:
            more = f" and {len(others) - 3} more" if len(others) > 3 else ""
            text += f" (and, on these cases, of {', '.join(others[:3])}{more})"
    elif resembles:
        text = f"no known fault has this law; the nearest is {resembles}"
    else:
        text = "no known fault has this law"
    yield from _prose(text, width)
    if nearest.get("computed"):
        yield from _prose(_clean(str(nearest["computed"])), width, "  ")
    if nearest.get("should"):
        yield from _prose(f"Instead: {nearest['should']}", width, "  ")
    if nearest.get("links"):
        yield from _prose(f"Seen in {', '.join(nearest['links'])}", width, "  ")


def _prose(text: str, width: int, indent: str = "", hanging: str | None = None) -> Iterator[Text]:
    """Wrap between words: a path that is wider than the line stays whole."""
    rest = indent if hanging is None else hanging
    for line in wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words=False,
    ):
        yield Text(line)


def _clip(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 3]}..."


def _clean(text: str) -> str:
    """Return text on one line without control characters: subjects may say anything."""
    return "".join(
        c if c.isprintable() else " " if c.isspace() else c.encode("unicode_escape").decode()
        for c in text
    )


def _short(value: Any) -> str:
    """Write JSON data briefly: lists as tuples, hexadecimal floats as decimals."""
    if isinstance(value, list):
        return f"({', '.join(_short(v) for v in value)})"
    if isinstance(value, dict):
        return ", ".join(f"{k} {_short(v)}" for k, v in value.items())
    if isinstance(value, str) and value.lstrip("-").startswith("0x"):
        return _Numbers().write(value)
    return _clean(str(value))
