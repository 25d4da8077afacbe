"""Whole engines: the law of whole sequences, with their ends, held to plain decoding.

`generate` runs its own loop, drafter and random numbers, on models that the gate gives it or on its
own. What it returns is a text with an end, and plain decoding has an exact law of such texts.
"""

from collections.abc import Collection, Sequence
from math import log
from typing import Any

from specref.gate import checks, loops
from specref.gate.chi_square import chi_square, holm, remark
from specref.gate.evidence import RISK, certified_tv, weigh
from specref.gate.generated import UNCERTIFIED, Reader, Reading, impossible, wanted
from specref.gate.models import Request, requests
from specref.gate.report import MEASURED, SAMPLES, Finding, shown
from specref.gate.seeds import states_kept
from specref.gate.sequence_relations import relations
from specref.gate.session import Session
from specref.gate.subject import Problem, describe

CLAIM = "sequences"

MOST_FAILED = 3
"""After so many requests whose texts are wrong, nothing more is asked."""

TRIES = 3
"""Calls of a size that may raise before all of them are taken to."""


def judge(
    session: Session,
    asked: Sequence[Request] | None = None,
    names: Collection[str] | None = None,
) -> list[Finding]:
    """Return the findings on a subject's `generate`: its laws first, then relations between them.

    Args:
        session: of the subject.
        asked: what it is asked for; everything that the profile has (`models.requests`) if left
            out.
        names: the relations to look at; all if left out.

    Raises:
        Hung: a call took too long.
    """
    todo = requests(session.subject, session.profile.thorough) if asked is None else list(asked)
    reader = Reader(session, len(todo))
    with states_kept():
        failure, todo = _trial(session, reader, todo)
        if failure is not None:
            return [failure]
        readings: list[Reading] = []
        for number, request in enumerate(todo):
            session.say(f"whole sequences: {request.name}, {number + 1}/{len(todo)}")
            readings.append(reader.read(request, number))
            if (
                sum(severity != "edge" for _, severity, _ in _failed(reader, readings))
                == MOST_FAILED
            ):
                break  # laws that are wrong may have many cells
        found = _failures(reader, readings) or [_passed(reader, readings)]
        _remark(reader, found[0], readings)
        if any(f.verdict == "fail" and f.severity != "edge" for f in found):
            return found
        return [*found, *relations(reader, readings, names)]


def again(session: Session, claim: str, case: dict[str, Any]) -> list[Finding]:
    """Repeat a claim on the case of an earlier failure, as `judge` does.

    Args:
        session: of the subject.
        claim: "sequences", which is looked at on that request alone, or "metamorphic".
        case: what `Request.to_json` has made of the request.

    Raises:
        ValueError: there is no such request.
        Hung: a call took too long.
    """
    asked = None
    if claim == CLAIM:
        known = requests(session.subject, True)
        asked = [request for request in known if request.name == case["request"]]
        if not asked:
            raise ValueError(f"there is no request {case['request']!r}")
    names = [str(case["relation"])] if "relation" in case else None
    # A law that has gone wrong since says more than the relation that was to be repeated.
    found = judge(session, asked, names)
    return [f for f in found if f.claim == claim or f.verdict == "fail"]


def _trial(
    session: Session, reader: Reader, asked: Sequence[Request]
) -> tuple[Finding | None, list[Request]]:
    """Return the failure of an engine that cannot answer at all, and what it can be asked for.

    An exception may be an outcome with a probability; always, it is a crash. Shapes are never an
    accident. A request for no tokens may be refused.
    """
    answered: list[Request] = []
    for request in asked:
        session.say(f"whole sequences: a call for {request.name}")
        try:
            wanted(request)
        except ImportError:
            continue  # masses that are irrational, and nothing that encloses them
        except Exception as error:
            finding = Finding(CLAIM, session.rule, "", "fail", "crash", None)
            finding.message = f"{request.name}: the model has no law: {describe(error)}"
            return finding, answered
        bad = ""
        for n in (1, 2):
            problems = []
            for seed in range(TRIES):
                outcomes = reader.engine.texts(request, n, seed)
                problems += [out for out in outcomes if isinstance(out, Problem)]
                if not problems or problems[0].kind in ("shape", "dtype"):
                    break
            if len(problems) == n * TRIES or (problems and problems[0].kind in ("shape", "dtype")):
                bad = bad or f"{problems[0]}"
        if not bad:
            answered.append(request)
        elif request.max_tokens or not bad.startswith("exception"):
            finding = Finding(CLAIM, session.rule, "", "fail", "crash", None)
            finding.message, finding.case = f"{request.name}: {bad}", request.to_json()
            return finding, answered
    return None, answered


def _failures(reader: Reader, readings: Sequence[Reading]) -> list[Finding]:
    """Return the failures: the first of each severity, and what else fails like it."""
    wrong: dict[str, list[tuple[Reading, str]]] = {}
    for reading, severity, text in _failed(reader, readings):
        wrong.setdefault(severity, []).append((reading, text))
    found = []
    for severity, bad in wrong.items():
        (first, text), *others = bad
        finding = Finding(CLAIM, reader.session.rule, first.depth, "fail", severity, first.tv)
        finding.message = f"{first.request.name}: {text}"
        if others:
            names = [reading.request.name for reading, _ in others]
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            finding.message += f"; also wrong: {', '.join(names[:3])}{more}"
        if severity == "edge" and len(wrong) == 1:
            worst = max(reading.tv for reading in readings)
            finding.message += (
                f"; otherwise the law of whole texts is right, TV {worst:.2g} at most"
            )
        finding.case = first.request.to_json()
        finding.expected, finding.measured = shown(first.wanted), shown(first.got)
        finding.calls = sum(reading.calls for reading in readings)
        if first.measured is not None:
            parted = {out for out, m in first.got.items() if m != first.wanted.get(out, 0)}
            impossible_ones = {o for o in parted if impossible(o, first.request, first.wanted)}
            finding.where = first.measured.where(impossible_ones or parted)
        if severity == "law":
            finding.nearest_fault = loops.nearest(readings)
        found.append(finding)
    return found


def _failed(reader: Reader, readings: Sequence[Reading]) -> list[tuple[Reading, str, str]]:
    """Return each reading that is wrong, with severity and description; mere edges come last."""
    told = [(reading, *_verdict(reader, reading)) for reading in readings]
    return sorted((t for t in told if t[1]), key=lambda t: t[1] == "edge")


def _verdict(reader: Reader, reading: Reading) -> tuple[str, str]:
    """Return severity and description of what is wrong with a reading, or two empty strings."""
    kind, mass = max(reading.impossible.items(), key=lambda item: item[1], default=("", 0))
    told = f"{kind}, with probability {float(mass):.3g}"
    band = reading.band if reading.counts is None else 0.0
    if mass > band:
        problem = any(str(out) == kind for out in reading.got if isinstance(out, Problem))
        return "crash" if problem else "law", told
    if reading.counts is not None:
        seen = weigh(reading.wanted, reading.counts, reader.session.profile.tv)
        if seen.alarm(reader.tests):
            return "law", (
                f"{seen.rows:,} texts have 10^{seen.log_e / log(10):.0f} times the likelihood "
                "under other laws than that of plain decoding"
            )
    elif reading.tv > band:
        return "law", "whole texts do not follow the law of plain decoding"
    return ("edge", told) if kind else ("", "")


def _passed(reader: Reader, readings: Sequence[Reading]) -> Finding:
    """Return what was found of laws that are right as far as one can see."""
    some = [r for r in readings if r.request.max_tokens]  # of no tokens there is no law to speak of
    measured = [r for r in some if r.counts is None]
    counted = [r for r in some if r.counts is not None]
    finding = Finding(CLAIM, reader.session.rule, SAMPLES if counted else MEASURED, "pass")
    finding.calls = sum(reading.calls for reading in readings)
    finding.message = f"{len(readings)} requests: {', '.join(r.request.name for r in readings)}"
    if measured:
        finding.tv = max(reading.tv for reading in measured)
        finding.severity = "numerics" if finding.tv else ""
        rows = sum(reading.audited for reading in measured)
        finding.bound = min(1.0, log(1 / RISK) / rows) if rows else None
        finding.message += f"; {rows:,} real draws, none outside its cell"
        if finding.tv > checks.band(8, 8, "float32"):
            # Half precision explains so much that a wrong formula could hide in it.
            finding.verdict = "inconclusive"
            finding.message = "no more than rounding explains, which hides faults"
    if counted:
        _certify(reader.session, finding, counted)
        reasons = [*reader.escapes[:1], *(f"the budget is too small: {n}" for n in reader.short)]
        if reasons:
            finding.message += f"; the tape could not follow: {reasons[0]}"
    return finding


def _certify(session: Session, finding: Finding, counted: Sequence[Reading]) -> None:
    """Add the certificates of counts; a request without one was only not refuted."""
    tv = session.profile.tv
    sure = [r for r in counted if r.request.certified]
    bounds = [certified_tv(r.wanted, r.counts or {}) for r in sure]
    finding.tv = max([finding.tv or 0.0, *bounds])
    rows = sum(reading.calls for reading in sure)
    finding.message += f"; {len(sure)} certified by {rows:,} texts"
    if len(sure) < len(counted):
        finding.message += f", the others not refuted by {UNCERTIFIED:,} each"
    if finding.tv > tv:
        finding.verdict = "inconclusive"
        finding.message += f"; the profile wants {tv}"


def _remark(reader: Reader, finding: Finding, readings: Sequence[Reading]) -> None:
    """Say what chi-square makes of the counts, unless calls fail; it decides nothing."""
    if finding.severity == "crash":
        return
    tv = reader.session.profile.tv
    tested = [
        chi_square(reading.wanted, reading.counts, tv, tests=reader.tests)
        for reading in readings
        if reading.counts is not None and len(reading.wanted) > 1
    ]
    adjusted = holm([one.p_value for one in tested], reader.tests)
    text = remark(tested, adjusted, reader.tests)
    finding.message = "; ".join(filter(None, (finding.message, text)))
