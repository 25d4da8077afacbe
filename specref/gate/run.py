"""Run the checks on a subject, strongest depth first, and collect the findings."""

import platform
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import specref
from specref.gate import samples
from specref.gate.cases import Case, fixtures, sampled_fixtures
from specref.gate.report import CLAIMS, MEASURED, Finding, Report, read_replay
from specref.gate.seeds import seed_of, states_kept
from specref.gate.session import PROFILES, Profile, Progress, Session
from specref.gate.subject import Problem, Subject, UsageError, known_rule, load, nearest
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
        loaded = _held_to(loaded, tuple(rules))
    report = _report(loaded, profile, seed)
    for rule in loaded.rules or (None,):
        session = Session(loaded, rule, report, progress or _silent)
        with states_kept():
            if _smoke(session) and not (find_spec("torch") and _exact(session)):
                session.findings += samples.judge(session)
        _close(session)
    return report


def replay(path: str | Path, progress: Progress | None = None) -> Report:
    """Repeat one failure from a replay file; the report holds the findings on that case alone.

    Raises:
        UsageError: no such file, or one that is no replay file.
    """
    data = read_replay(path)
    claim, rule = data["claim"], data["rule"]
    loaded = load(data["subject"])
    if rule is not None:
        loaded = _held_to(loaded, (rule,))
    report = _report(loaded, data["profile"], data["seed"])
    session = Session(loaded, rule, report, progress or _silent)
    with states_kept():
        if _smoke(session) and claim != "smoke":
            if find_spec("torch"):
                from specref.gate.exact import Exact

                Exact(session).again(claim, data["case"])
            if session.escapes or not find_spec("torch"):
                session.findings = samples.judge(session)
    _tell_contract(session)
    report.findings += [f for f in session.findings if f.claim == claim or f.verdict == "fail"]
    return report


def _silent(_: str) -> None:
    """Show no progress."""


def _exact(session: Session) -> bool:
    from specref.gate.exact import Exact

    return Exact(session).judge()


def _report(subject: Subject, profile: str, seed: int) -> Report:
    if profile not in PROFILES:
        raise UsageError(
            f"there is no profile {profile!r}{nearest(profile, PROFILES)}; "
            f"profiles: {', '.join(PROFILES)}"
        )
    if not 0 <= seed < 1 << 31:
        raise UsageError(f"seed = {seed} is outside 0 <= seed < 2^31")
    return Report(subject.spec, subject.name, profile, seed, subject.drafts, versions=_versions())


def _held_to(subject: Subject, rules: tuple[str, ...]) -> Subject:
    """Return the subject, held to other rules than it declares."""
    shapes = {RULES[known_rule(rule)].shape for rule in rules}
    if len(shapes) > 1:
        raise UsageError(f"{', '.join(rules)} are for chains and for trees; gate them separately")
    if subject.rules and shapes - {subject.shape}:
        raise UsageError(f"{subject.spec} verifies {subject.shape}s, {', '.join(rules)} do not")
    if subject.rules or not rules:
        return replace(subject, rules=rules)
    entry = RULES[rules[0]]
    return replace(
        subject, rules=rules, shape=entry.shape, drafter=entry.draft, drafts=entry.draft.__name__
    )


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
    todo = [session.fit(f) for f in (fixtures(shape, False)[0], *sampled_fixtures(shape))]
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
            if problem.kind in ("shape", "dtype", "hang") or always:
                return str(problem)
    return ""


def _tell_contract(session: Session) -> None:
    """Call a failure "contract" where the measured law is lossless, but not that of the rule."""
    failed = {f.claim for f in session.findings if f.verdict == "fail"}
    lossless = any(
        f.claim == "joint" and f.verdict == "pass" and f.depth == MEASURED for f in session.findings
    )
    if not lossless or failed & {"support", "rounds"}:
        return
    for finding in session.findings:
        if finding.severity == "law" and finding.claim in ("acceptance", "residual", "bonus"):
            finding.severity = "contract"
            finding.message += "; it is lossless, but not this rule"


def _close(session: Session) -> None:
    """Put the findings in order, and add the claims that were not reached."""
    _tell_contract(session)
    smoked = session.findings[0].verdict == "fail"
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
