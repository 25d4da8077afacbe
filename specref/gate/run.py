"""Run the checks on a subject, strongest depth first, and collect the findings."""

import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import specref
from specref.gate import batches, relations, requests, samples, seeding, sequences
from specref.gate.cases import Case, fixtures, sampled_fixtures
from specref.gate.errors import UsageError, nearest, rule_names
from specref.gate.exact import NOT_THIS_RULE, Exact, Instrument
from specref.gate.learned import Learned
from specref.gate.loading import load
from specref.gate.replays import read_replay
from specref.gate.report import CLAIMS, MEASURED, Finding, Report
from specref.gate.seeds import one_thread, seed_of, states_kept
from specref.gate.session import PROFILES, Profile, Progress, Session
from specref.gate.subject import Hung, Problem, Subject
from specref.rules import RULES

__all__ = ["PROFILES", "Profile", "check", "replay"]


def check(
    subject: Any,
    rules: Sequence[str] | None = None,
    profile: str = "quick",
    seed: int = 0,
    progress: Progress | None = None,
) -> Report:
    """Prove or refute that a sampler keeps the target distribution.

    Args:
        subject: a name, a path or an object (`gate.loading.load`).
        rules: hold it to these rules instead of those it declares.
        profile: a key of `PROFILES`.
        seed: of all draws the gate makes itself; 0 <= seed < 2^31.
        progress: is told what is being done.

    Returns:
        A report with one finding or more per claim and rule; `report.verdict` sums them up.

    Raises:
        UsageError: an unknown subject, rule or profile, or a seed out of range.
    """
    loaded = subject if isinstance(subject, Subject) else load(subject)
    if rules is not None:
        loaded = _held_to(loaded, rule_names(rules, "rules"))
    report = _report(loaded, profile, seed)
    with closing(loaded):
        for number, rule in enumerate(loaded.rules or (None,)):
            session = Session(loaded.held_to(rule), rule, report, progress or _silent)
            with states_kept():
                try:
                    runs = loaded.call is not None and _smoke(session)
                    with one_thread():
                        if runs:
                            _around(session, _judge(session, Exact.judge))
                        if number == 0:  # they know no rule
                            _whole(session)
                except Hung as hung:
                    _hung(session, hung)
            _close(session)
    return report


def replay(path: str | Path, progress: Progress | None = None, *, subject: Any = None) -> Report:
    """Repeat one failure from a replay file; the report holds the findings on that case alone.

    Args:
        path: a file that `Report.write` wrote.
        progress: is told what is being done.
        subject: instead of the one that is named in the file; an object has no name there.

    Raises:
        UsageError: no such file, one that is no replay file, or nothing that it could be tried on.
    """
    data = read_replay(path)
    claim, rule = data["claim"], data["rule"]
    named = data["subject"] if subject is None else subject
    if named is None:
        raise UsageError(
            f"{path} is of a subject that was passed as an object; repeat it in code, with "
            "specref.gate.replay(path, subject=...)"
        )
    loaded = load(named)
    if rule is not None:
        loaded = _held_to(loaded, rule_names([rule], "rule")).held_to(rule)
    case = data["case"]
    of_round = "shape" in case
    needed = "sample" if of_round else "generate" if "request" in case else "law"
    if _functions(loaded)[needed] is None:
        raise UsageError(f"{path} is of a subject that has {needed}, and {loaded.spec} has none")
    if of_round:
        drawn = case["shape"]
        shape = "chain" if isinstance(drawn, int) else "tree" if isinstance(drawn, list) else drawn
        if shape != loaded.shape:
            raise UsageError(f"{path} is of a {shape}, but {loaded.spec} verifies {loaded.shape}s")
    report = _report(loaded, data["profile"], data["seed"])
    session = Session(loaded, rule, report, progress or _silent)
    with closing(loaded), states_kept():
        try:
            with one_thread():
                if not of_round:
                    again = sequences.again if needed == "generate" else requests.again
                    session.findings += again(session, claim, case)
                elif _smoke(session) and claim != "smoke":
                    _judge(session, lambda exact: _again(session, exact, claim, case))
        except ValueError as error:
            raise UsageError(f"{path} is damaged: {error}; write it anew with --report") from None
        except Hung as hung:
            _hung(session, hung)
    if data["severity"] == "contract":
        _call_contract(session, "the whole run found it lossless, but not this rule")
    report.findings += [f for f in session.findings if f.claim == claim or f.verdict == "fail"]
    return report


AROUND = {"metamorphic": relations, "batch": batches, "seeds": seeding}
"""Claims about what stands around single rounds, and who looks at them."""

REASONS = {
    "rounds": "needs a measured law",
    "audit": "needs a measured law",
    "parameters": "looked at once, under the first rule",
    "sequences": "looked at once, under the first rule",
    "metamorphic": "no relation is known to hold here",
    "batch": "no two requests stand beside each other",
    "seeds": "its seed does not decide its draws",
}
"""Why a claim that was not settled does not apply."""


def _absent(subject: Subject, claim: str) -> str:
    """Return which function a claim is about, if the subject does not have it, or ""."""
    if claim == "metamorphic" and (subject.law or subject.generate):
        return ""
    about = {"parameters": "law", "proposal": "propose", "sequences": "generate"}
    name = about.get(claim, "sample")
    return f"the subject has no {name}" if _functions(subject)[name] is None else ""


def _functions(subject: Subject) -> dict[str, Any]:
    """Return the functions of a subject that claims are about, by name."""
    return {
        "sample": subject.call,
        "propose": subject.propose,
        "generate": subject.generate,
        "law": subject.law,
    }


def _silent(_: str) -> None:
    """Show no progress."""


def _again(session: Session, exact: Exact, claim: str, case: dict[str, Any]) -> bool:
    """Repeat a claim about rounds, or about what stands around them."""
    if claim not in AROUND:
        return exact.again(claim, case)
    session.findings += AROUND[claim].again(session, claim, case, exact.instrument)
    return True


def _judge(session: Session, ask: Callable[[Exact], bool]) -> Instrument | None:
    """Ask the first instrument that can follow the subject; count samples if none can.

    Returns:
        The instrument that could; None if none.
    """
    before, reasons = list(session.findings), list[str]()
    for instrument in _instruments(session):
        with instrument.ready():
            followed = ask(Exact(session, instrument))
        if followed:
            for finding in session.findings:
                if finding.claim == "audit" and reasons:
                    finding.message += f"; the tape could not follow: {reasons[0]}"
            return instrument
        reasons += session.escapes
        session.findings, session.escapes = list(before), []
    session.report.escapes += [r for r in reasons if r not in session.report.escapes]
    session.findings += [*samples.judge(session), *session.doubts[:1]]
    return None


def _around(session: Session, instrument: Instrument | None) -> None:
    """Look at what stands around single rounds, once these are known to be right."""
    if _wrong(session):
        return
    with nullcontext() if instrument is None else instrument.ready():
        for module in AROUND.values():
            session.findings += module.judge(session, instrument)


def _wrong(session: Session) -> bool:
    """Whether the law, or a stream, was refuted: everything else would fail for that alone."""
    return any(f.verdict == "fail" and f.severity != "edge" for f in session.findings)


def _whole(session: Session) -> None:
    """Look at what a subject has beside rounds: a law under parameters, and whole sequences."""
    subject = session.subject
    if subject.law is not None:
        try:
            session.findings += requests.judge(session)
        except ImportError as error:  # enclosures need a package that not everybody has
            finding = Finding("parameters", session.rule, "", "inconclusive", message=str(error))
            session.findings.append(finding)
    if subject.generate is not None:
        session.findings += sequences.judge(session)


def _instruments(session: Session) -> Iterator[Instrument]:
    """Yield what may read the subject's law, the strongest first."""
    if "torch" in sys.modules:  # it has run: without torch, the tape has nothing to see
        from specref.gate.taped import Taped

        yield Taped(session)
    yield Learned(session)


def _report(subject: Subject, profile: str, seed: int) -> Report:
    if profile not in PROFILES:
        raise UsageError(
            f"there is no profile {profile!r}{nearest(profile, PROFILES)}; "
            f"profiles: {', '.join(PROFILES)}"
        )
    if not isinstance(seed, int) or not 0 <= seed < 1 << 31:
        raise UsageError(f"seed = {seed!r} is no integer in 0 <= seed < 2^31")
    return Report(
        subject.spec,
        subject.name,
        subject.source,
        profile,
        seed,
        ", ".join(dict.fromkeys(subject.held_to(rule).drafts for rule in subject.rules or (None,))),
        versions=_versions(),
    )


def _held_to(subject: Subject, rules: tuple[str, ...]) -> Subject:
    """Return the subject, held to other rules than it declares."""
    shapes = {RULES[rule].shape for rule in rules}
    if len(shapes) > 1:
        raise UsageError(f"{', '.join(rules)} are for chains and for trees; gate them separately")
    if subject.rules and shapes - {subject.shape}:
        raise UsageError(f"{subject.spec} verifies {subject.shape}s, {', '.join(rules)} do not")
    shape = subject.shape if subject.rules or not rules else shapes.pop()
    return replace(subject, rules=rules, shape=shape)


def _versions() -> dict[str, str]:
    found = {"specref": specref.__version__, "python": platform.python_version()}
    for name in ("numpy", "torch", "transformers"):
        if find_spec(name) is not None:
            found[name] = metadata.version(name)
    return found


def _smoke(session: Session) -> bool:
    """Whether the subject runs at all; a finding says so."""
    session.say("first calls")
    shape = session.subject.shape
    width = session.width
    small, *large = fixtures(shape, False, width)[0], *sampled_fixtures(shape, width)
    todo = [session.fit(f) for f in (small, *large)]
    for fixture in todo:
        case, _ = session.cases(fixture)[0]
        text = _trial(session, case)
        session.dtype = case.dtype
        if text:
            data = case.to_json()
            session.findings.append(
                Finding("smoke", session.rule, "", "fail", "crash", None, text, data)
            )
            return False
    session.findings.append(Finding("smoke", session.rule, "", "pass"))
    return True


def _hung(session: Session, hung: Hung) -> None:
    """Say what hung, in place of the finding that it runs; claims that are settled stay so."""
    claim = "sequences" if hung.what == "generate" else "smoke"
    session.findings = [finding for finding in session.findings if finding.claim != claim]
    finding = Finding(claim, session.rule, "", "fail", "crash", None, str(hung))
    finding.case = hung.case.to_json()
    if hung.n > 1:  # it may be slow, and honest
        finding.verdict, finding.severity, finding.case = "inconclusive", "", None
        finding.message += "; raise its time_limit if it needs that long"
    session.findings.insert(0, finding)


def _trial(session: Session, case: Case) -> str:
    """Return what is wrong with calls on a case, or ""."""
    failed: list[int] = []
    for number, n in enumerate((1, 1, 1, 1, 2, 2, 3, 16)):
        outcomes = session.subject.sample(case, n, seed_of(session.seed, number))
        if case.changed():
            return "sample writes to the tensors that the case gave it; work on copies"
        bad = [out for out in outcomes if isinstance(out, Problem)]
        # Once in a while an exception is an outcome with a probability; always, it is a crash.
        failed += [n] * (len(bad) == n)
        always = failed in ([1, 1, 1, 1], [2, 2, 3, 16])
        for problem in bad:
            if problem.kind in ("shape", "dtype") or always:
                return str(problem)
    return ""


def _tell_contract(session: Session) -> None:
    """Call a failure "contract" where the measured law is lossless, but not that of the rule."""
    joint = next((f for f in session.findings if f.claim == "joint"), None)
    if joint is None or joint.depth != MEASURED:
        return
    failed = {f.claim for f in session.findings if f.severity in ("law", "crash", "edge")}
    if joint.severity == "contract":  # of a lossy rule: its own support and rounds may differ too
        _call_contract(session, NOT_THIS_RULE)
    elif joint.verdict == "pass" and not failed & {"support", "rounds"}:
        own = "its texts follow the law of the rule's, but it is not this rule"
        _call_contract(session, own if session.lossy else NOT_THIS_RULE)


def _call_contract(session: Session, reason: str) -> None:
    claims = {"acceptance", "residual", "bonus"} | ({"support"} if session.lossy else set())
    for finding in session.findings:
        if finding.severity == "law" and finding.claim in claims:
            finding.severity = "contract"
            finding.message += f"; {reason}"


def _close(session: Session) -> None:
    """Put the findings in order, and add the claims that were not reached."""
    _tell_contract(session)
    smoke = next((f.verdict for f in session.findings if f.claim == "smoke"), "pass")
    wrong = _wrong(session)
    done = {finding.claim for finding in session.findings}
    for claim in CLAIMS:
        if claim in done:
            continue
        verdict, reason = "not applicable", _absent(session.subject, claim)
        if not reason and (smoke != "pass" or (wrong and claim in AROUND)):
            verdict = "not run"
            reason = "after the smoke failure" if smoke != "pass" else "after the failures above"
        reason = reason or REASONS.get(claim, "no rule is declared")
        session.findings.append(Finding(claim, session.rule, "", verdict, message=reason))
    order = list(CLAIMS)
    session.findings.sort(key=lambda finding: order.index(finding.claim))
    session.report.findings += session.findings
