"""What the gate found, as data: findings, verdicts, JSON."""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any, TypedDict

from specref.dist import as_fraction

FORMAT = "specref-report/1"
REPLAY_FORMAT = "specref-replay/1"

CLAIMS = {
    "smoke": "it runs, and returns rounds of the agreed form",
    "parameters": "the law that it draws from is the one that the sampling parameters ask for",
    "support": "every draw gives a token that the target allows",
    "acceptance": "it accepts drafts with the rule's chances",
    "residual": "after a rejection it draws from the rule's residual",
    "bonus": "after full acceptance it draws from the target's last row",
    "proposal": "its drafts follow the q that it declares",
    "joint": "the joint law of a round, continued by the target, is the target's",
    "rounds": "the joint law of several rounds is the target's too",
    "sequences": "whole sequences, with their ends, follow the law of plain decoding",
    "metamorphic": "what must not change the law does not change it",
    "stream": "its draws are fresh: no state is used twice",
    "batch": "a request gets the same law whatever stands beside it in the batch",
    "seeds": "its seed decides its draws, and nothing else does",
    "audit": "real draws fall where the measured law says",
}
"""What is claimed of a subject, in the order checked."""

SEVERITIES = ("law", "edge", "stream", "contract", "crash")
"""What kind of failure, whatever the claim."""

MEASURED = "measured law"
SAMPLES = "samples"


class NearestFault(TypedDict):
    """What is known of a law that was measured.

    Attributes:
        matches: names of the faults, or "rule NAME", that have exactly this law; best guess first.
        resembles: if none has, one that comes near, or None.
        computed, should: what the first of them computes, and what it should.
        links: where it was seen.
    """

    matches: list[str]
    resembles: str | None
    computed: str
    should: str
    links: list[str]


@dataclass
class Finding:
    """The result of one check.

    Attributes:
        claim: a key of `CLAIMS`.
        rule: the rule it was held to, or None for losslessness alone.
        depth: "measured law", "samples", or "" where neither applies.
        verdict: "pass", "fail", "inconclusive", "not run" or "not applicable".
        severity: of a failure: "law", "edge", "stream", "contract" or "crash"; of a pass whose TV
            is not zero: "numerics".
        tv: total variation; the largest seen of a pass, that of the case shown of a failure; for
            samples the certified bound.
        message: one sentence for people.
        case: the case that fails, as JSON data; None for a pass.
        expected, measured: laws on that case, by outcome, as fractions.
        nearest_fault: known faults with exactly this law, or the one it resembles.
        where: operation and source line of the comparison that set the cuts, where known.
        replay: the command that repeats it, once a replay file is written; none for an object.
        calls: runs of the subject that went into it.
        bound: audited bound on what a measured TV may have missed, on average over the pairs of
            models.
    """

    claim: str
    rule: str | None
    depth: str
    verdict: str
    severity: str = ""
    tv: float | None = None
    message: str = ""
    case: dict[str, Any] | None = None
    expected: dict[str, str] | None = None
    measured: dict[str, str] | None = None
    nearest_fault: NearestFault | None = None
    where: str = ""
    replay: str = ""
    calls: int = 0
    bound: float | None = None

    @property
    def id(self) -> str:
        """A readable id: rule/claim."""
        return f"{self.rule or 'lossless'}/{self.claim}"


@dataclass
class Report:
    """All findings about one subject.

    Attributes:
        subject: how it was named; `name` is what it calls itself.
        source: what loads it again from any directory; empty for an object that was passed.
        profile, seed: what the gate was run with.
        drafts: the drafts that it was tried on.
        findings: every check, passed ones too, in order.
        escapes: what kept the tape from reading the law.
        calls, cells: runs of the subject that were measured, and cells found.
        versions: of what matters for the result.
        measurements: for a certificate, what was measured under each rule.
    """

    subject: str
    name: str
    source: str
    profile: str
    seed: int
    drafts: str = ""
    findings: list[Finding] = field(default_factory=list)
    escapes: list[str] = field(default_factory=list)
    calls: int = 0
    cells: int = 0
    versions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.measurements: list[Any] = []  # `checks.Measurement`; not part of the data

    @property
    def verdict(self) -> str:
        """Return "fail" if anything failed, else "inconclusive" if anything was, else "pass"."""
        verdicts = {finding.verdict for finding in self.findings}
        if "fail" in verdicts:
            return "fail"
        if verdicts & {"inconclusive", "not run"} or "pass" not in verdicts:
            return "inconclusive"
        return "pass"

    @property
    def failures(self) -> list[Finding]:
        """The findings that failed."""
        return [finding for finding in self.findings if finding.verdict == "fail"]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data; `format` carries the version."""
        return {
            "format": FORMAT,
            "verdict": self.verdict,
            **{k: v for k, v in asdict(self).items() if k != "findings"},
            "findings": [asdict(finding) for finding in self.findings],
        }

    def write(self, directory: str | Path) -> Path:
        """Write report.json and one replay file per failure; return the directory.

        A later report into the same directory replaces the earlier one. Of a subject that was
        passed as an object, the files hold the cases; `gate.replay` wants the object then.
        """
        place = Path(directory)
        place.mkdir(parents=True, exist_ok=True)
        for old in place.glob("[0-9][0-9]-*.json"):
            old.unlink()
        for number, finding in enumerate(self.failures, start=1):
            if finding.case is None:
                continue
            label = f"{number:02d}-{finding.rule or 'lossless'}-{finding.claim}"
            path = place / f"{label}.json"
            data = {
                "format": REPLAY_FORMAT,
                "subject": self.source or None,
                "profile": self.profile,
                "seed": self.seed,
                "claim": finding.claim,
                "rule": finding.rule,
                "severity": finding.severity,
                "case": finding.case,
            }
            if self.source:
                finding.replay = f"specref replay {quote(str(path))}"
            save(path, json.dumps(data, indent=1) + "\n")
        save(place / "report.json", json.dumps(self.to_json(), indent=1) + "\n")
        return place


def save(path: Path, text: str) -> None:
    """Write whole or not at all: an interrupt leaves the earlier file.

    A link goes on pointing where it does, and what is no file, such as /dev/null, is written to.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o666 & ~_umask())  # mkstemp makes files that only the owner can read
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def shown(law: Mapping[Any, Any]) -> dict[str, str]:
    """Return a law for a report: outcomes as text, masses as exact fractions."""
    ordered = sorted(law.items(), key=lambda item: (str(type(item[0])), str(item[0])))
    return {str(outcome): str(as_fraction(mass)) for outcome, mass in ordered if mass}
