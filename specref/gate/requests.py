"""The law that sampling parameters ask for: a subject's `law` held to the exact one of its preset.

A request is one row of logits with what is asked of it (`asks`). The subject's probabilities are
compared with `specref.logits.law` under the preset that it declares: the same tokens stay, no mass
is off by more than float32 explains, rows sum to one, and rows in one call are as each is alone.
Where rounding may decide which tokens stay, nothing is held against the subject, and the finding
counts such requests.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from specref.dist import Law
from specref.faults import FAULTS
from specref.gate import law_relations
from specref.gate.answers import Answer, Caller, agrees, distance, paired, shown
from specref.gate.asks import STABLE, Ask, asks, from_json
from specref.gate.errors import UsageError
from specref.gate.report import MEASURED, Finding, NearestFault
from specref.gate.session import Session
from specref.gate.subject import Problem, Subject
from specref.logits import PRESETS, Enclosure, Preset

MOST = 128
"""So many requests tell presets and known faults apart."""


def judge(session: Session) -> list[Finding]:
    """Hold the subject's law to its preset, and to what must not change it.

    Returns:
        Findings of the claims "parameters" and "metamorphic"; the second is left out where some
        request of the first has no law at all.

    Raises:
        UsageError: the subject has a parameter that its preset has not.
    """
    caller = Caller(session.subject)
    found = judge_laws(session, caller)
    if any(finding.severity == "crash" for finding in found):
        return found
    return found + law_relations.judge(session, caller)


def judge_laws(session: Session, caller: Caller) -> list[Finding]:
    """Hold the subject's law to its preset; arguments and errors as in `judge`."""
    subject = session.subject
    preset = declared(subject)
    session.say("laws under sampling parameters")
    seen: list[Answer] = []
    for ask in asks(preset, subject.parameters, session.profile.thorough):
        seen.append(caller.alone(ask))
        got = seen[-1].got
        # Where the first call fails, all will; where one hangs, so may the next.
        if isinstance(got, Problem) and (len(seen) == 1 or got.kind == "time"):
            break
    found = _failures(session, seen, caller.calls) or _together(session, seen, caller)
    return found or [_passed(session, seen, caller.calls, subject.parameters)]


def declared(subject: Subject) -> Preset:
    """Return the preset of a subject.

    Raises:
        UsageError: the subject has a parameter that its preset has not.
    """
    preset = subject.preset
    for name in subject.parameters:
        if name not in preset.names:
            have = [other.name for other in PRESETS.values() if name in other.names]
            if not have:
                continue  # of `generate`
            raise UsageError(
                f"{subject.spec}.parameters has {name!r}, which preset {preset.name!r} has not; "
                f"leave it out, or declare one that has: {', '.join(have)}"
            )
    return preset


def _failures(session: Session, seen: Sequence[Answer], calls: int) -> list[Finding]:
    """Return a finding for each kind of failure, with the smallest request that shows it."""
    kinds: dict[str, list[Answer]] = {}
    for one in seen:
        severity, _ = one.fault
        if severity:
            # What leaks a little where much is wrong, too, needs no finding of its own.
            kind = one.got.kind if isinstance(one.got, Problem) else "law"
            kinds.setdefault(kind, []).append(one)
    if not kinds:
        edges = _wrong_edges(seen)
        kinds |= {"edges": edges} if edges else {}
    right = [one for one in seen if not one.fault[0]]
    found = []
    for bad in kinds.values():
        worst = next((one for one in bad if one.fault[0] != "edge"), bad[0])
        finding = _finding(session, worst, _common(bad, len(seen)), calls)
        finding.nearest_fault = nearest(bad, right)
        found.append(finding)
    return found


def _wrong_edges(seen: Sequence[Answer]) -> list[Answer]:
    """Return the exact edges of a filter, if every one of them fell to the other side.

    One alone may be rounding, by a logarithm say. All of them are another convention.
    """
    edges: dict[str, list[Answer]] = {}
    for one in seen:
        if one.ask.edge:
            edges.setdefault(one.ask.edge, []).append(one)
    for group in edges.values():
        if not any(one.reached for one in group):
            return group
    return []


def _common(bad: Sequence[Answer], count: int) -> str:
    """Say how many requests fail, and what all of them have in common."""
    if len(bad) == 1:
        return ""
    names = [n for n in bad[0].ask.asked if all(n in one.ask.asked for one in bad)]
    what = f", all of which ask for {' and '.join(names)}" if names else ""
    return f"{len(bad)} of {count} requests fail{what}"


def _finding(session: Session, one: Answer, said: str, calls: int) -> Finding:
    severity, why = one.fault
    if not severity:  # an exact edge, on the side that all others are on, too
        severity = "law"
        why = f"{one.ask.edge} is met exactly, and the law is that of another bound"
    text = "; ".join(filter(None, (f"{one.ask}: {why}", said)))
    finding = Finding("parameters", session.rule, MEASURED, "fail", severity, one.tv, text)
    finding.case, finding.calls = one.ask.to_json(), calls
    if not isinstance(one.got, Problem):
        finding.expected, finding.measured = one.ask.expected, shown(one.got)
    return finding


def _together(session: Session, seen: Sequence[Answer], caller: Caller) -> list[Finding]:
    """Ask for several rows in one call, and compare each with what it was alone."""
    groups: dict[tuple[int, str], list[Answer]] = {}
    for one in seen:
        if len(one.ask.asked) <= 1 or len(one.ask.asked) >= min(4, len(session.subject.parameters)):
            groups.setdefault((one.ask.vocab, repr(one.ask.given)), []).append(one)
    for group in groups.values():
        rows = [*group, group[0]]
        found = caller.together([one.ask for one in rows])
        for at, (alone, here) in enumerate(zip(rows, found, strict=True)):
            why = _parted(alone, here)
            if why:
                finding = _finding(session, here, "", caller.calls)
                finding.severity = finding.severity or "law"
                finding.message = f"{alone.ask}: as row {at} of {len(rows)} in one call, {why}"
                finding.case = {
                    **alone.ask.to_json(),
                    "beside": [[s.hex() for s in one.ask.logits] for one in rows],
                    "row": at,
                }
                return [finding]
    return []


def _parted(alone: Answer, here: Answer) -> str:
    """Say how a row in company differs from the row alone, or nothing."""
    severity, why = here.fault
    if severity or isinstance(here.got, Problem) or not here.ask.firm:
        return why
    assert not isinstance(alone.got, Problem)
    apart = distance(*paired(alone.got, here.ask, here.got))
    return f"TV {apart:.3g} from the row alone" if apart > 2 * here.ask.band else ""


def _passed(session: Session, seen: Sequence[Answer], calls: int, names: Sequence[str]) -> Finding:
    """Return the finding of a law that nothing was wrong with, and how much was looked at.

    Args:
        session: with the subject.
        seen: every answer.
        calls: of the subject.
        names: parameters of which something has to be said.
    """
    firm = [one for one in seen if one.ask.firm]
    edges = [one for one in seen if one.ask.edge]
    rows = len({one.ask.logits for one in seen})
    preset = session.subject.preset.name
    text = f"{len(firm):,} requests on {rows} rows of logits, as preset {preset!r} reads them"
    near = len(seen) - len(firm) - len(edges)
    text += f"; {len(edges)} more meet a bound exactly" if edges else ""
    text += f"; {near} are within rounding of a bound, and say nothing" if near else ""
    told = {name for one in (*firm, *edges) for name in one.ask.asked}
    silent = [name for name in names if name not in told]
    text += f"; nothing could be said of {', '.join(silent)}" if silent else ""
    largest = max((one.tv or 0.0 for one in firm), default=0.0)
    verdict, severity = ("inconclusive", "") if silent else ("pass", "numerics" if largest else "")
    finding = Finding("parameters", session.rule, MEASURED, verdict, severity, largest, text)
    finding.calls = calls
    return finding


# The name of the fault.

Reads = Callable[[Ask], Law]
"""From a request to the law that a candidate makes of it."""


class Unsettled(Exception):
    """A candidate whose law float32 cannot tell here."""


def nearest(bad: Sequence[Answer], right: Sequence[Answer]) -> NearestFault | None:
    """Return what is known to make these laws of these requests: other presets, and faults.

    Args:
        bad: requests with a wrong law, smallest first.
        right: requests whose law is right; a candidate makes the same of them.
    """
    telling = [one for one in bad if not isinstance(one.got, Problem)]
    if not telling:
        return None
    # In long rows, what a candidate drops may hang on rounding; short ones tell more.
    short = [one for one in telling if one.ask.vocab <= STABLE]
    firm = [one for one in right if one.ask.firm and (not short or one.ask.vocab <= STABLE)]
    chosen = _spread(short or telling) + _spread(firm)
    preset = telling[0].ask.preset
    faults = {name: _by_fault(f.law) for name, f in FAULTS.items() if f.law is not None}
    every = {f"preset {p.name}": _by_preset(p) for p in PRESETS.values() if p != preset}
    for candidates, open_ in (
        (every, False),
        (faults, False),
        ({f"{name} ignored": _without(name) for name in telling[0].ask.asked}, False),
        (faults, True),
    ):
        names = [n for n, reads in candidates.items() if _matches(reads, chosen, open_)]
        if names and candidates is every:
            names += [
                name
                for name, reads in faults.items()
                if _acts(name, chosen) and _matches(reads, chosen, False)
            ]
        if names:
            return _named(names)
    return None


def _acts(name: str, chosen: Sequence[Answer]) -> bool:
    """Whether a fault shows on any of these requests: where it does not, it is its own preset."""
    fault = FAULTS[name]
    assert fault.law is not None
    wrong, right = _by_fault(fault.law), _by_preset(PRESETS[fault.preset])
    for one in chosen:
        try:
            if distance(wrong(one.ask), right(one.ask)) > one.ask.band:
                return True
        except (Unsettled, ValueError, ZeroDivisionError):
            continue
    return False


def _named(names: list[str]) -> NearestFault:
    fault = FAULTS.get(names[0])
    return {
        "matches": names,
        "resembles": None,
        "computed": fault.computed if fault else _computed(names[0]),
        "should": fault.should if fault else "",
        "links": list(fault.links) if fault else [],
    }


def _computed(name: str) -> str:
    """Say what is computed by what is no fault of the registry."""
    kind, _, preset = name.partition(" ")
    if kind == "preset":
        return (
            f"this is what preset {preset!r} makes of the parameters; if that is meant, declare "
            f"preset = {preset!r}"
        )
    return f"this is the law if {kind} is not asked for"


def _spread(seen: Sequence[Answer]) -> list[Answer]:
    """Return requests from smallest to largest, not too many."""
    return list(seen[:: max(1, -(-len(seen) // MOST))])


def _by_preset(preset: Preset) -> Reads:
    def reads(ask: Ask) -> Law:
        other = replace(ask, preset=preset)
        if other.refused or not (other.firm or other.edge):
            raise Unsettled
        return other.law

    return reads


def _by_fault(wrong: Callable[..., Any]) -> Reads:
    def reads(ask: Ask) -> Law:
        found = wrong(ask.logits, ask.parameters, **ask.context)
        return found.inside() if isinstance(found, Enclosure) else tuple(found)

    return reads


def _without(name: str) -> Reads:
    return lambda ask: ask.with_(**{name: None}).law


def _matches(reads: Reads, chosen: Sequence[Answer], open_: bool) -> bool:
    """Whether a candidate makes the measured laws of all requests of which it says something.

    Args:
        reads: the candidate.
        chosen: requests, some of them with a wrong law.
        open_: whether nothing is said where the same masses stand at other tokens: a fault may
            take other ones of equal tokens than the sampler, or of tokens that rounding makes so.
    """
    hits = 0
    for one in chosen:
        assert not isinstance(one.got, Problem)
        try:
            law = reads(one.ask)
        except Unsettled:
            continue
        except (ValueError, ArithmeticError):
            return False
        if agrees(one.got, one.ask, law):
            hits += bool(one.fault[0] or one.ask.edge)
        elif not open_ or distance(sorted(one.got), sorted(law)) > one.ask.band:
            return False
    return hits > 0


# One failure again.


def again(session: Session, claim: str, data: Mapping[str, Any]) -> list[Finding]:
    """Repeat one failure on its case data; findings on that case alone.

    Args:
        session: with the subject.
        claim: "parameters" or "metamorphic".
        data: the `case` of the finding.

    Raises:
        ValueError: data that is no request; the message says which part.
        UsageError: as `judge`.
    """
    ask = from_json(data, declared(session.subject))
    caller = Caller(session.subject)
    if claim == "metamorphic":
        return law_relations.again(session, caller, ask, data)
    seen = [caller.alone(ask)]
    findings = _failures(session, seen, caller.calls)
    if not findings and "beside" in data:
        findings = _together(session, [caller.alone(one) for one in _company(ask, data)], caller)
    return findings or [_passed(session, seen, caller.calls, ask.asked)]


def _company(ask: Ask, data: Mapping[str, Any]) -> list[Ask]:
    """Return the rows of one call, without the first one's repetition at its end."""
    rows = data["beside"]
    if not isinstance(rows, list) or len(rows) < 2:
        raise ValueError("case.beside is not a list of rows")
    found = [from_json({**data, "logits": row}, ask.preset) for row in rows[:-1]]
    if any(one.vocab != ask.vocab for one in found):
        raise ValueError(f"case.beside has rows that are not of V = {ask.vocab}")
    return found
