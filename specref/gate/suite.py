"""The gate as pytest tests, one per claim.

    from specref.gate import conformance

    test_sampler = conformance("my_engine.adapter")

gives `test_sampler[token/residual]` and so on. The gate runs once per subject and session, within
the first of its tests; each test looks up what was found about its claim. Under pytest-xdist every
worker that meets one of these tests runs it; `--dist loadfile` sends them all to one.
"""

import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from specref.gate import view
from specref.gate.errors import UsageError, rule_names
from specref.gate.loading import load
from specref.gate.report import CLAIMS, Finding, Report
from specref.gate.subject import Subject

UNLOADED = "subject"
"""Id of the one test of a subject that cannot be loaded."""

_WORST_FIRST = ("fail", "inconclusive", "not run", "pass", "not applicable")


@dataclass
class Gate:
    """What the tests of one subject share.

    Attributes:
        given: the subject as it was named.
        asked: the rules that were asked for, a tuple once they are known to exist, or None for
            those it declares.
        subject: the loaded subject; None if that failed.
        error: why it did.
    """

    given: Any
    asked: Any
    subject: Subject | None = field(init=False, default=None)
    error: str = field(init=False, default="")

    def __post_init__(self) -> None:
        # A test that fails says more than an error while tests are collected.
        try:
            if self.asked is not None:
                self.asked = rule_names(self.asked, "rules")
            self.subject = load(self.given)
        except UsageError as error:
            self.error = str(error)
        except SystemExit as error:
            self.error = f"subject {self.given!r} ends Python when imported (exit {error.code})"

    @property
    def rules(self) -> tuple[str | None, ...]:
        """The rules it is held to; (None,) for losslessness alone."""
        declared = self.subject.rules if self.subject else ()
        return (declared if self.asked is None else self.asked) or (None,)

    @property
    def ids(self) -> list[str]:
        """The ids of its tests, in the order of the claims."""
        if self.subject is None:
            return [UNLOADED]
        return [f"{rule or 'lossless'}/{claim}" for rule in self.rules for claim in CLAIMS]

    @property
    def key(self) -> tuple[Any, ...]:
        """Tells subjects apart."""
        name = self.given if isinstance(self.given, str) else id(self.given)
        return (name, repr(self.asked))

    @property
    def folder(self) -> str:
        """Where its report goes, if there are several."""
        if self.subject is None:
            return UNLOADED  # it gets no report
        words = "-".join((self.subject.spec, *(self.asked or ())))
        return re.sub(r"[^\w.-]+", "_", words).strip("._")

    def report(self, session: pytest.Session) -> Report | UsageError:
        """Return the report of this session, or why there is none; the first call runs the gate."""
        reports = session.config.stash.setdefault(REPORTS, {})
        if self.key not in reports:
            reports[self.key] = self._run(session)
        return reports[self.key]

    def _run(self, session: pytest.Session) -> Report | UsageError:
        from specref import gate

        if self.subject is None:
            return UsageError(self.error)
        profile = session.config.getoption("specref_profile", None) or "quick"
        seed = session.config.getoption("specref_seed", None) or 0
        place = session.config.getoption("specref_report", None)
        try:
            # The verdict is on the sampler: "-W error" must not make its warnings into exceptions.
            with warnings.catch_warnings():
                warnings.simplefilter("default")
                report = gate.check(self.subject, self.asked, profile, seed)
        except UsageError as error:
            return error
        if place:
            report.write(self._place(Path(place), session))
        return report

    def _place(self, directory: Path, session: pytest.Session) -> Path:
        """Return where the report goes: a directory of its own if there are several subjects."""
        gates = {gate.key: gate for gate in map(gate_of, session.items) if gate is not None}
        if len(gates) < 2:
            return directory
        alike = [key for key, gate in gates.items() if gate.folder == self.folder]
        number = alike.index(self.key) + 1
        return directory / (f"{self.folder}-{number}" if number > 1 else self.folder)

    def findings(self, report: Report, test: str) -> list[Finding]:
        """Return the findings that a test answers for; every finding has its test.

        One on a rule that was not asked for goes to the tests of the first rule.
        """
        label, _, claim = test.rpartition("/")
        labels = [rule or "lossless" for rule in self.rules]
        found = []
        for finding in report.findings:
            rule = finding.rule or "lossless"
            if finding.claim == claim and label == (rule if rule in labels else labels[0]):
                found.append(finding)
        return found


REPORTS: pytest.StashKey[dict[Any, Report | UsageError]] = pytest.StashKey()
"""Where a session keeps what the gate found, by subject."""


def gate_of(item: pytest.Item) -> Gate | None:
    """Return the gate behind a test, or None."""
    return getattr(getattr(item, "function", None), "specref_gate", None)


def conformance(subject: Any, rules: Sequence[str] | None = None) -> Callable[..., None]:
    """Return a pytest test that holds a sampler to its claims, one test per claim.

    Assign it to a name that starts with `test_`. A claim that can be neither proved nor refuted
    fails as inconclusive; one that does not apply, or was not reached, is a skip and says why.
    Options: --specref-profile, --specref-seed, --specref-report.

    Args:
        subject: a name, a path or an object, as for `specref.gate.check`. If it cannot be loaded,
            the one test that is made fails and says why.
        rules: hold it to these rules instead of those it declares.
    """
    if isinstance(subject, os.PathLike):
        subject = os.fspath(subject)
    gate = Gate(subject, rules)

    def test(claim: str, request: pytest.FixtureRequest) -> None:
        _settle(gate, claim, request.node)

    test.specref_gate = gate  # type: ignore[attr-defined]
    _place(test, sys._getframe(1))
    parametrised: Callable[..., None] = pytest.mark.parametrize("claim", gate.ids)(test)
    return parametrised


def _place(test: Any, caller: FrameType) -> None:
    """Let pytest name the file that asked for the tests as the place where they stand."""
    test.__module__ = caller.f_globals.get("__name__", test.__module__)
    test.__code__ = test.__code__.replace(
        co_filename=caller.f_code.co_filename, co_firstlineno=caller.f_lineno
    )


def _settle(gate: Gate, claim: str, item: pytest.Item) -> None:
    """End a test as the findings on its claim say."""
    report = gate.report(item.session)
    if isinstance(report, UsageError):
        pytest.fail(str(report), pytrace=False)
    found = gate.findings(report, claim)
    if not found:
        pytest.skip("not applicable: the gate has no such check for this subject")
    for finding in found:
        # What record_property does, less its warning about the family of the junit file.
        facts = {"tv": finding.tv, "depth": finding.depth, "calls": finding.calls}
        item.user_properties += [(k, v) for k, v in facts.items() if v not in (None, "")]
    worst = min((finding.verdict for finding in found), key=_WORST_FIRST.index)
    telling = [finding for finding in found if finding.verdict == worst]
    if worst == "fail":
        pytest.fail(_told(telling, report, item.config), pytrace=False)
    reason = "; ".join(dict.fromkeys(f.message for f in telling if f.message))
    if worst == "inconclusive":
        pytest.fail(f"inconclusive: {reason or 'no reason given'}", pytrace=False)
    if worst != "pass":
        pytest.skip(f"{worst}: {reason}" if reason else worst)


def _told(failures: list[Finding], report: Report, config: pytest.Config) -> str:
    """Return the text of failures; its first line stands in pytest's summary, too."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    width = 80 if terminal is None else config.get_terminal_writer().fullwidth
    blocks = [view.plain(view.block(finding, width, message_first=True)) for finding in failures]
    last = f"{report.name}, profile {report.profile}, seed {report.seed}"
    if any(finding.case and not finding.replay for finding in failures):
        last += f". {view.to_repeat(report, '--specref-report')}"
    return "\n\n".join((*blocks, "\n".join((view.plain(view.notes(report, width)), last))))
