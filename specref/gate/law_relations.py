"""What must not change a law under sampling parameters: relations that need no reference.

Each takes a request and makes another that has the same law, or one that is known beforehand. They
hold for every preset, or say of which requests they hold (CONVENTIONS.md). Both laws are measured,
and compared within what rounding explains of both; requests that rounding may decide are left out.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specref.gate.answers import Answer, Caller, Masses, distance, shown
from specref.gate.asks import CORE, FILTERS, GRID, SAID, TELLING, Ask, asked_of, settings
from specref.gate.errors import nearest
from specref.gate.report import MEASURED, Finding
from specref.gate.session import Session
from specref.gate.subject import Problem, Subject

COLD = 2.0**-6
"""A temperature so low that its law is greedy's up to a bound that is computed."""


@dataclass(frozen=True)
class Twin:
    """A request, and what its law has to be.

    Attributes:
        ask: the request.
        other: another one that has the same law; None where the law is all mass on one token.
        places: the token of `other` that each token of `ask` is; or, for a law on one token, that.
        slack: a distance that is allowed besides rounding.
    """

    ask: Ask
    other: Ask | None
    places: tuple[int, ...]
    slack: float = 0.0


Twins = Callable[[Ask, Caller, Sequence[str]], Iterator[Twin]]
"""From a request, the subject and its parameters to what has to be equal."""


def top_k_one(ask: Ask, caller: Caller, parameters: Sequence[str]) -> Iterator[Twin]:
    """Yield top_k = 1, which is greedy where the likeliest token is alone."""
    if "top_k" in parameters and not ask.asked and (best := _best(ask)) is not None:
        yield Twin(ask.with_(top_k=1), None, (best,))
        if "temperature" in parameters:
            yield Twin(ask.with_(top_k=1), ask.with_(temperature=0.0), _same(ask))


def cold(ask: Ask, caller: Caller, parameters: Sequence[str]) -> Iterator[Twin]:
    """Yield temperature 0, which is greedy, and a low one, which is nearly so."""
    if "temperature" in parameters and not ask.asked and (best := _best(ask)) is not None:
        yield Twin(ask.with_(temperature=0.0), None, (best,))
        gap = ask.logits[best] - max(s for x, s in enumerate(ask.logits) if x != best)
        rest = (ask.vocab - 1) * math.exp(-gap / COLD)
        yield Twin(ask.with_(temperature=COLD), None, (best,), rest)


def scaled(ask: Ask, caller: Caller, parameters: Sequence[str]) -> Iterator[Twin]:
    """Yield logits / T at temperature 1, which have the law of temperature T if that acts first."""
    names = ask.preset.names
    first = all(names.index("temperature") < names.index(name) for name in ask.filters)
    if "temperature" not in parameters or not first or not set(ask.asked) <= {*FILTERS}:
        return
    for temperature in (0.5, 2.0):
        logits = _exactly(s / temperature for s in ask.logits)
        if logits:
            yield Twin(ask.with_(temperature=temperature), ask.with_(logits), _same(ask))


def shifted(ask: Ask, caller: Caller, parameters: Sequence[str]) -> Iterator[Twin]:
    """Yield logits plus a constant; a repetition penalty looks at their signs."""
    logits = _exactly(s + 8 for s in ask.logits)
    if logits and "repetition_penalty" not in ask.asked:
        yield Twin(ask, ask.with_(logits), _same(ask))


def padded(ask: Ask, caller: Caller, parameters: Sequence[str]) -> Iterator[Twin]:
    """Yield the row with tokens of logit minus infinity at its end."""
    yield Twin(ask, ask.with_([*ask.logits, *[-math.inf] * 3]), _same(ask))


def relabelled(ask: Ask, caller: Caller, parameters: Sequence[str]) -> Iterator[Twin]:
    """Yield the row in reverse order; equal logits are told apart by the order of tokens."""
    if len(set(ask.logits)) < ask.vocab:
        return
    last = ask.vocab - 1
    given: dict[str, Any] = {
        name: [last - x for x in ask.given[name]]
        for name in ("prompt", "output", "allowed", "eos")
        if name in ask.given
    }
    if "bias" in ask.given:
        given["bias"] = {last - x: b for x, b in ask.given["bias"].items()}
    yield Twin(ask, ask.with_(ask.logits[::-1], **given), tuple(range(last, -1, -1)))


def off(ask: Ask, caller: Caller, parameters: Sequence[str]) -> Iterator[Twin]:
    """Yield the values that switch parameters off, one by one and all at once."""
    if ask.asked:
        return
    neutral = {name: _neutral(ask, name) for name in parameters}
    for name, value in neutral.items():
        yield Twin(ask.with_(**_with_context(name, value)), ask, _same(ask))
    every: dict[str, Any] = {}
    for name, value in neutral.items():
        every |= _with_context(name, value)
    yield Twin(ask.with_(**every), ask, _same(ask))


def idempotent(ask: Ask, caller: Caller, parameters: Sequence[str]) -> Iterator[Twin]:
    """Yield what was measured, as logits: a law again, or filtered twice.

    The logarithms of a law have that law. A second top_k, min_p or epsilon finds nothing to drop;
    a second top_p may.
    """
    repeatable = {"top_k", "min_p", "epsilon"}
    if len(ask.filters) > 1 or not set(ask.asked) <= {*repeatable, "temperature"}:
        return
    if ask.asked == ["temperature"]:
        return
    got = caller.alone(ask).got
    if isinstance(got, Problem) or not any(got):
        return
    if not ask.asked:
        with np.errstate(divide="ignore"):
            logs = np.log(np.array(got)).astype(np.float32).tolist()
        other = ask.with_(logs)
        yield Twin(ask, other, _same(ask), other.noise)
    else:
        kept = [s if mass else -math.inf for s, mass in zip(ask.logits, got, strict=True)]
        yield Twin(ask, ask.with_(kept), _same(ask))


@dataclass(frozen=True)
class Relation:
    """One relation.

    Attributes:
        says: what has to hold, for people.
        twins: makes what is compared.
    """

    says: str
    twins: Twins


RELATIONS = {
    "top_k_one": Relation("top_k = 1 is greedy", top_k_one),
    "cold": Relation("temperature 0 is greedy, and the limit of low temperatures", cold),
    "scaled": Relation("logits / T at temperature 1 have the law of temperature T", scaled),
    "shifted": Relation("a constant added to all logits changes nothing", shifted),
    "padded": Relation("tokens of logit -inf at the end change nothing", padded),
    "relabelled": Relation("renaming tokens renames the law", relabelled),
    "off": Relation("values that switch parameters off change nothing", off),
    "idempotent": Relation("the law, or what a filter leaves, as logits has that law", idempotent),
}
"""Relations by the name that reports show."""


def judge(session: Session, caller: Caller) -> list[Finding]:
    """Return a finding for each relation that fails, or one for all that hold.

    Args:
        session: with the subject.
        caller: speaks to it.
    """
    session.say("relations between laws")
    subject = session.subject
    every = [asked_of(row, one, subject.preset) for row in TELLING for one in _few(subject)]
    base = [ask for ask in every if not ask.refused]
    held: dict[str, int] = {}
    found: list[Finding] = []
    for name in RELATIONS:
        count = 0
        for ask in base:
            looked, finding = _look(session, caller, name, ask)
            count += looked
            if finding:
                found.append(finding)
                break
        held |= {name: count} if count else {}
    if found:
        return found
    text = f"{len(held)} relations between laws, on {sum(held.values())} pairs: {', '.join(held)}"
    finding = Finding("metamorphic", session.rule, MEASURED, "pass", message=text)
    finding.calls = caller.calls
    return [finding]


def again(session: Session, caller: Caller, ask: Ask, data: Mapping[str, Any]) -> list[Finding]:
    """Look at the relation that failed once more, on the request that it failed on.

    Raises:
        ValueError: data that names no relation.
    """
    name = str(data.get("relation"))
    if name not in RELATIONS:
        near = nearest(str(name), RELATIONS)
        raise ValueError(f"case.relation is {name!r}{near}, not one of {', '.join(RELATIONS)}")
    looked, finding = _look(session, caller, name, ask)
    text = f"{name}: {RELATIONS[name].says}; {looked} pairs"
    return [finding or Finding("metamorphic", session.rule, MEASURED, "pass", message=text)]


def _few(subject: Subject) -> list[dict[str, Any]]:
    """Return the requests that relations start from: nothing, each parameter, all of `CORE`."""
    names = subject.parameters
    found: list[dict[str, Any]] = [{}, *(settings([name], False)[1] for name in names)]
    core = {name: GRID[name][0] for name in CORE if name in names}
    return found if core in found else [*found, core]


def _look(session: Session, caller: Caller, name: str, ask: Ask) -> tuple[int, Finding | None]:
    """Return how many pairs were compared, and the finding on the first that differs."""
    looked = 0
    for twin in RELATIONS[name].twins(ask, caller, session.subject.parameters):
        parts = [part for part in (twin.ask, twin.other) if part is not None]
        if any(part.refused or not part.firm for part in parts):
            continue
        looked += 1
        answers = [caller.alone(part) for part in parts]
        why, apart, wanted = _compared(twin, answers)
        if why:
            beside = f" beside {twin.other}" if twin.other else ""
            text = f"{name}: {RELATIONS[name].says}; {twin.ask}{beside}: {why}"
            severity = "law" if wanted else "crash"
            finding = Finding("metamorphic", session.rule, MEASURED, "fail", severity, apart, text)
            finding.case = {**ask.to_json(), "relation": name}
            if wanted:
                got = answers[0].got
                assert not isinstance(got, Problem)
                finding.expected, finding.measured = shown(wanted), shown(got)
            finding.calls = caller.calls
            return looked, finding
    return looked, None


def _compared(twin: Twin, answers: Sequence[Answer]) -> tuple[str, float | None, Masses]:
    """Return what is wrong with a pair, the distance of its laws, and what the first should be."""
    masses: list[Masses] = []
    for answer in answers:
        if isinstance(answer.got, Problem):
            place = "the second has none, " if masses else ""
            return f"{place}{answer.got}", None, ()
        masses.append(answer.got)
    if twin.other is None:
        wanted = tuple(float(x == twin.places[0]) for x in range(twin.ask.vocab))
    else:
        wanted = tuple(masses[1][place] for place in twin.places)
    lost = 0.0 if twin.other is None else math.fsum(masses[1]) - math.fsum(wanted)
    apart = max(distance(masses[0], wanted), lost)
    limit = sum(answer.ask.band for answer in answers) + twin.slack
    if apart > limit:
        return f"TV {apart:.3g}", apart, wanted
    return "", apart, wanted


def _same(ask: Ask) -> tuple[int, ...]:
    return tuple(range(ask.vocab))


def _best(ask: Ask) -> int | None:
    """Return the likeliest token, if it is alone by far more than rounding."""
    best = max(ask.logits)
    near = [x for x, s in enumerate(ask.logits) if best - s < 0.25]
    return near[0] if len(near) == 1 else None


def _exactly(logits: Iterator[float]) -> tuple[float, ...]:
    """Return logits if float32 holds them exactly, else nothing."""
    row = tuple(logits)
    return row if all(float(np.float32(s)) == s for s in row) else ()


def _neutral(ask: Ask, name: str) -> Any:
    """Return the value that switches a parameter off."""
    none = {
        "temperature": 1.0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "epsilon": 0.0,
        "eta": 0.0, "top_n_sigma": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0,
        "frequency_penalty": 0.0, "bias": {}, "allowed": list(range(ask.vocab)), "min_tokens": 0,
        "top_k": 0 if ask.preset.top_k_off <= 0 else ask.vocab,
    }  # fmt: skip
    return none[name]


def _with_context(name: str, value: Any) -> dict[str, Any]:
    """Return a parameter with what it looks at."""
    given: dict[str, Any] = {name: value}
    if name == "min_tokens":
        given["eos"] = [1]
    if name == "min_tokens" or name.endswith("_penalty"):
        given |= SAID
    return given
