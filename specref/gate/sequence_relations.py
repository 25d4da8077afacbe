"""Relations between laws of whole sequences: what changes in a request must change accordingly.

None of them needs the target's law. Each is looked at where it applies; one that holds is named in
the finding, one that fails is a finding of its own.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from fractions import Fraction
from itertools import permutations
from typing import Any

from specref.dist import tv as distance
from specref.gate.evidence import ALARM, weigh
from specref.gate.generated import Masses, Reader, Reading
from specref.gate.models import Failing, Request, ToyModel
from specref.gate.report import MEASURED, SAMPLES, Finding, shown
from specref.gate.seeds import ambient, seed_of
from specref.gate.subject import Problem
from specref.stops import Stops

ROWS, FEW_ROWS = 256, 64
"""Rows of a large call, on toy models and on the subject's own."""

MOST_LARGE = 3
"""So many requests get a large call: those with the most texts."""

CALLS = 16
"""Rows of the calls that are compared text by text."""

Held = Finding | bool
"""A failure; or whether the relation applies, and then it holds."""


def relations(
    reader: Reader, readings: Sequence[Reading], names: Collection[str] | None = None
) -> list[Finding]:
    """Return the failures, or one finding that names the relations that hold.

    Args:
        reader: of the engine.
        readings: laws that are known already.
        names: the relations to look at; all if left out.
    """
    known = [*readings, *_more(reader, readings)]
    held: list[str] = []
    failures: list[Finding] = []
    for name, look in RELATIONS.items():
        if names is not None and name not in names:
            continue
        reader.session.say(f"whole sequences: {name}")
        found = look(reader, known)
        if isinstance(found, Finding):
            found.message = f"{name}: {found.message}"
            found.case = {**(found.case or {}), "relation": name}
            failures.append(found)
        elif found:
            held.append(name)
    if not failures and held:
        depth = SAMPLES if any(r.counts is not None for r in known) else MEASURED
        finding = Finding("metamorphic", reader.session.rule, depth, "pass")
        many = "1 relation" if len(held) == 1 else f"{len(held)} relations"
        finding.message = f"whole sequences, {many}: {', '.join(held)}"
        return [finding]
    return failures


def _more(reader: Reader, readings: Sequence[Reading]) -> list[Reading]:
    """Read small requests to a subject's own models, for relations between them."""
    found = []
    for number, reading in enumerate(readings):
        request = reading.request
        if isinstance(request.model, ToyModel) or request.eos or request.parameters:
            continue
        if getattr(request.model, "profile", "") == "ci":
            continue
        for at, (length, eos) in enumerate(((1, ()), (2, ()), (2, (0,)))):
            if length < request.max_tokens or (eos and length == request.max_tokens):
                name = f"{request.name}, {length} tokens" + ", EOS 0" * bool(eos)
                small = Request(name, request.model, length, eos)
                found.append(reader.read(small, 100 + 10 * number + at))
    return found


def shorter(reader: Reader, readings: Sequence[Reading]) -> Held:
    """A lower limit cuts texts and does nothing else."""
    return _same(
        reader,
        (
            (few, many, few.request.stops)
            for few, many in _pairs(readings)
            if few.request.eos == many.request.eos
            and few.request.max_tokens < many.request.max_tokens
        ),
        "the texts of '{}' are not those of '{}', cut",
    )


def cut_at_eos(reader: Reader, readings: Sequence[Reading]) -> Held:
    """Tokens that end a text cut it and do nothing else."""
    return _same(
        reader,
        (
            (ended, endless, ended.request.stops)
            for ended, endless in _pairs(readings)
            if ended.request.eos
            and not endless.request.eos
            and ended.request.max_tokens == endless.request.max_tokens
        ),
        "the texts of '{}' are not those of '{}', cut behind the first EOS",
    )


def _pairs(readings: Sequence[Reading]) -> Iterator[tuple[Reading, Reading]]:
    for a, b in permutations(readings, 2):
        if a.request.model is b.request.model:
            yield a, b


def _same(reader: Reader, triples: Iterator[tuple[Reading, Reading, Stops]], text: str) -> Held:
    """Compare each first law with the second, cut."""
    applies = False
    for one, other, stops in triples:
        applies = True
        cut: Masses = defaultdict(Fraction)
        for outcome, mass in other.got.items():
            cut[outcome if isinstance(outcome, Problem) else stops.cut(outcome)] += mass
        gap = float(distance(one.got, cut))
        if gap > one.limit(one.got) + other.limit(cut):
            said = text.format(one.request.name, other.request.name)
            finding = _failure(reader, one.request, said, "law", one.depth)
            finding.tv = gap
            finding.expected, finding.measured = shown(cut), shown(one.got)
            return finding
    return applies


def independent_rows(reader: Reader, readings: Sequence[Reading]) -> Held:
    """Rows of one call are independent, and each has the law of a call of one."""
    own = bool(reader.session.subject.models)
    most = reader.session.profile.calls // (100 if own else 10)
    measured = [r for r in readings if r.measured and r.calls**2 <= most]
    if measured:
        reading = max(measured, key=lambda r: r.calls)
        pair = reader.program(reading.request, 2)
        if not pair.exact:
            return False
        product = {(a, b): x * y for a, x in reading.got.items() for b, y in reading.got.items()}
        gap = float(distance(pair.law, product))
        if gap <= 2 * reading.band:
            return True
        got: Any = pair.law
    else:
        reading = min((r for r in readings if len(r.wanted) > 1), key=lambda r: len(r.wanted))
        seed = seed_of(reader.session.seed, 3_000)
        rows = reader.engine.texts(reading.request, 4 * ROWS, seed)
        counts = Counter(zip(rows[::2], rows[1::2], strict=True))
        product = {
            (a, b): x * y for a, x in reading.wanted.items() for b, y in reading.wanted.items()
        }
        if not weigh(product, counts, 0.05).alarm(reader.tests):
            return True
        got = {both: Fraction(count, counts.total()) for both, count in counts.items()}
        gap = float(distance(got, product))
    text = "two rows of one call are not independent, or do not follow the law of a call of one"
    finding = _failure(reader, reading.request, text, "stream", reading.depth)
    finding.tv, finding.expected, finding.measured = gap, shown(product), shown(got)
    return finding


def large_calls(reader: Reader, readings: Sequence[Reading]) -> Held:
    """A row of a call of many has the law of a call of one."""
    chosen = [r for r in readings if r.measured is not None and len(r.wanted) > 1]
    chosen.sort(key=lambda r: len(r.wanted))
    # Models of its own may be real ones, and slow.
    n, most = (FEW_ROWS, 1) if reader.session.subject.models else (ROWS, MOST_LARGE)
    for number, reading in enumerate(chosen[-most:]):
        seed = seed_of(reader.session.seed, 3_100 + number)
        counts = Counter(reader.engine.texts(reading.request, n, seed))
        if weigh(reading.got, counts, 0.05).alarm(reader.tests):
            text = f"calls of {n} rows follow another law than calls of one row"
            problem = next((out for out in counts if isinstance(out, Problem)), None)
            severity = "law"
            if problem is not None:
                severity, text = "crash", f"in calls of {n} rows: {problem}"
            finding = _failure(reader, reading.request, text, severity, reading.depth)
            got = {out: Fraction(count, n) for out, count in counts.items()}
            finding.tv = float(distance(got, reading.got))
            finding.expected, finding.measured = shown(reading.got), shown(got)
            return finding
    return bool(chosen)


def _call(reader: Reader, reading: Reading, seed: int, state: int, model: Any = None) -> Any:
    """Return the texts of one call, with every global random state set to begin with."""
    ambient(state)
    return reader.engine.texts(reading.request, CALLS, seed, model)


def _richest(readings: Sequence[Reading]) -> Reading:
    return max(readings, key=lambda r: len(r.wanted))


def _repeats(reader: Reader, reading: Reading) -> bool:
    """Whether a call that is repeated, from equal global states, gives the same again."""
    seed = seed_of(reader.session.seed, 3_200)
    _, one, other = (_call(reader, reading, seed, 1) for _ in range(3))
    return bool(one == other)


def _decides(reader: Reader, reading: Reading) -> bool:
    """Whether the seed alone decides what comes."""
    seed = seed_of(reader.session.seed, 3_200)
    return bool(_call(reader, reading, seed, 1) == _call(reader, reading, seed, 2))


def same_seed(reader: Reader, readings: Sequence[Reading]) -> Held:
    """The same seed gives the same texts, if the subject's seed is said to, or does so at all."""
    reading = _richest(readings)
    if _decides(reader, reading):
        return True
    if not reader.session.subject.seeded:
        return False
    text = "two calls with one seed gave other texts"
    return _failure(reader, reading.request, text, "stream", "")


def other_seed(reader: Reader, readings: Sequence[Reading]) -> Held:
    """Other seeds give other texts."""
    reading = _richest(readings)
    alike = float(max(reading.wanted.values()))
    if alike ** (3 * CALLS) > ALARM or not _decides(reader, reading):
        return False
    seeds = [seed_of(reader.session.seed, 3_200 + number) for number in range(4)]
    if len({tuple(_call(reader, reading, seed, 1)) for seed in seeds}) > 1:
        return True
    text = "calls with other seeds gave the same texts"
    return _failure(reader, reading.request, text, "stream", "")


def history(reader: Reader, readings: Sequence[Reading]) -> Held:
    """What was asked before does not matter."""
    reading = _richest(readings)
    seed = seed_of(reader.session.seed, 3_200)

    def others() -> None:
        for number, other in enumerate(sorted(readings, key=lambda r: r is not reading)):
            reader.engine.texts(other.request, 3, seed_of(reader.session.seed, 3_300 + number))

    others()
    first, again, more = (_call(reader, reading, seed, 1) for _ in range(3))
    if again != more:
        return False  # it may draw from elsewhere
    others()
    if first == again == _call(reader, reading, seed, 1):
        return True
    text = "behind other requests, the same call gave other texts"
    return _failure(reader, reading.request, text, "stream", "")


def retry(reader: Reader, readings: Sequence[Reading]) -> Held:
    """A call that is repeated after the model has failed in it gives what it would have given."""
    toys = [r for r in readings if isinstance(r.request.model, ToyModel)]
    if not toys or not _repeats(reader, reading := _richest(toys)):
        return False
    seed = seed_of(reader.session.seed, 3_200)
    expected = _call(reader, reading, seed, 1, Failing(reading.request.model, 0))
    for at in (1, 2, 3, 5, 8, 13):
        model = Failing(reading.request.model, at)
        _call(reader, reading, seed, 1, model)
        if not model.failed:
            break
        found = _call(reader, reading, seed, 1, model)
        if found != expected:
            text = f"after an error in call {at} of the model, the request gave other texts"
            return _failure(reader, reading.request, text, "law", "")
    return True


def fresh_states(reader: Reader, readings: Sequence[Reading]) -> Held:
    """No state of a generator is used twice, in one call or in several."""
    if not reader.taped:
        return False
    from specref.gate import stream

    reading, seed = _richest(readings), reader.session.seed
    text = stream.repeated_states(
        lambda rows, number: reader.engine.texts(reading.request, rows, seed_of(seed, number)), seed
    )
    return _failure(reader, reading.request, text, "stream", "") if text else True


def _failure(reader: Reader, request: Request, text: str, severity: str, depth: str) -> Finding:
    finding = Finding("metamorphic", reader.session.rule, depth, "fail", severity)
    finding.message, finding.case = text, request.to_json()
    return finding


RELATIONS: dict[str, Callable[[Reader, Sequence[Reading]], Held]] = {
    "fresh states": fresh_states,
    "same seed": same_seed,
    "other seed": other_seed,
    "history": history,
    "independent rows": independent_rows,
    "large calls": large_calls,
    "shorter": shorter,
    "cut at EOS": cut_at_eos,
    "retry": retry,
}
"""Every relation by the name that reports show."""
