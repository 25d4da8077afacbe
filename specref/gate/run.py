"""Run the checks on a subject, strongest depth first, and collect the findings."""

import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import specref
from specref.gate import samples
from specref.gate.cases import Case, fixtures, sampled_fixtures
from specref.gate.errors import UsageError, nearest, rule_names
from specref.gate.exact import NOT_THIS_RULE, Exact, Instrument
from specref.gate.learned import Learned
from specref.gate.replays import read_replay
from specref.gate.report import CLAIMS, MEASURED, Finding, Report
from specref.gate.seeds import one_thread, seed_of, states_kept
from specref.gate.session import PROFILES, Profile, Progress, Session
from specref.gate.subject import Hung, Problem, Subject, load
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
        subject: a name, a path or an object (`gate.subject.load`).
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
        for rule in loaded.rules or (None,):
            session = Session(loaded.held_to(rule), rule, report, progress or _silent)
            with states_kept():
                try:
                    if _smoke(session):
                        with one_thread():
                            _judge(session, Exact.judge)
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
    drawn = data["case"]["shape"]
    shape = "chain" if isinstance(drawn, int) else "tree" if isinstance(drawn, list) else drawn
    if shape != loaded.shape:
        raise UsageError(f"{path} is of a {shape}, but {loaded.spec} verifies {loaded.shape}s")
    report = _report(loaded, data["profile"], data["seed"])
    session = Session(loaded, rule, report, progress or _silent)
    with closing(loaded), states_kept():
        try:
            if _smoke(session) and claim != "smoke":
                with one_thread():
                    _judge(session, lambda exact: exact.again(claim, data["case"]))
        except Hung as hung:
            _hung(session, hung)
    if data["severity"] == "contract":
        _call_contract(session, "the whole run found it lossless, but not this rule")
    report.findings += [f for f in session.findings if f.claim == claim or f.verdict == "fail"]
    return report


def _silent(_: str) -> None:
    """Show no progress."""


def _judge(session: Session, ask: Callable[[Exact], bool]) -> None:
    """Ask the first instrument that can follow the subject; count samples if none can."""
    before, reasons = list(session.findings), list[str]()
    for instrument in _instruments(session):
        with instrument.ready():
            followed = ask(Exact(session, instrument))
        if followed:
            for finding in session.findings:
                if finding.claim == "audit" and reasons:
                    finding.message += f"; the tape could not follow: {reasons[0]}"
            return
        reasons += session.escapes
        session.findings, session.escapes = list(before), []
    session.report.escapes += [r for r in reasons if r not in session.report.escapes]
    session.findings += [*samples.judge(session), *session.doubts[:1]]


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
    session.findings = [finding for finding in session.findings if finding.claim != "smoke"]
    finding = Finding("smoke", session.rule, "", "fail", "crash", None, str(hung))
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
    smoked = session.findings[0].claim == "smoke" and session.findings[0].verdict != "pass"
    done = {finding.claim for finding in session.findings}
    reasons = {
        "proposal": "the subject has no propose",
        "rounds": "needs a measured law",
        "audit": "needs a measured law",
    }
    for claim in CLAIMS:
        if claim in done:
            continue
        if smoked:
            finding = Finding(claim, session.rule, "", "not run", message="after the smoke failure")
        else:
            reason = reasons.get(claim, "no rule is declared")
            finding = Finding(claim, session.rule, "", "not applicable", message=reason)
        session.findings.append(finding)
    order = list(CLAIMS)
    session.findings.sort(key=lambda finding: order.index(finding.claim))
    session.report.findings += session.findings
