"""Relations: what must not change the law of a round, or changes it in a known way.

Each relation turns cases into others whose law follows from it, and is applied where it is true: to
a sampler that declares a rule, draft by draft, as far as the rule's own exact law has it; to one
that declares none, over all drafts, as far as every lossless sampler has it. This is metamorphic
testing (Chen, Cheung and Yiu 1998): cases that nobody would write down, and that need no second
sampler, such as those with p = q, with no draft at all, or with tokens renamed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from specref.dist import as_fraction
from specref.draft import DRAFTS, Drafter
from specref.gate.cases import Case, Fixture, Floats, fixtures, rounds_fixture, sampled_fixtures
from specref.gate.checks import Mass, rule_law
from specref.gate.comparison import (
    Asked,
    Check,
    Result,
    counted,
    noted,
    off,
    over,
    refusal,
    summary,
)
from specref.gate.errors import UsageError, nearest
from specref.gate.exact import Instrument
from specref.gate.report import Finding
from specref.gate.seeds import seed_of, states_kept
from specref.gate.session import Session
from specref.model import Context
from specref.rules import RULES, Rule
from specref.stops import Text

CLAIM = "metamorphic"

KEPT = "inputs kept"
"""The relation between what was handed over, and what is there after the call."""

PADDING = 2
"""Tokens of mass 0 that a vocabulary is padded with."""

MOST_SIBLINGS = 3
"""Siblings of the widest level."""

MOST_DRAFTS = 4
"""Drafts of a small fixture that a rule is asked about one by one, its likeliest; of others, four
times as many."""

WRITES = 8
"""Cases of a relation whose inputs are looked at after a call."""


@dataclass(frozen=True)
class Relation:
    """What is changed, and what follows.

    Attributes:
        says: what is wrong if it does not hold.
        checks: the changed cases and their laws; none where the relation is not true.
        bases: the fixtures whose cases are changed, the larger ones for sharp instruments.
        may_refuse: a sampler that raises is left alone: what is asked is not part of every
            interface.
    """

    says: str
    checks: Callable[[Session, Fixture], list[Check]]
    bases: Callable[[Session, bool], list[Fixture]]
    may_refuse: bool = False


def judge(
    session: Session, instrument: Instrument | None = None, names: Iterable[str] | None = None
) -> list[Finding]:
    """Return a finding for each relation that does not hold, or one for all that do.

    Args:
        session: whose subject is asked.
        instrument: that could follow the subject; None to count.
        names: of the relations to look at; None for all.
    """
    asked = Asked(session, instrument)
    todo = [
        (name, fixture)
        for name in (RELATIONS if names is None else names)
        for fixture in RELATIONS[name].bases(session, asked.fine)
    ]
    return _judged(asked, todo)


def again(
    session: Session, claim: str, data: Mapping[str, Any], instrument: Instrument | None = None
) -> list[Finding]:
    """Repeat one relation on the fixture of an earlier failure.

    Raises:
        UsageError: the data names no relation.
    """
    name = str(data.get("of", data.get("relation")))
    if claim != CLAIM or name not in RELATIONS:
        raise UsageError(
            f"there is no relation {name!r}{nearest(name, RELATIONS)}; "
            f"relations: {', '.join(RELATIONS)}"
        )
    return _judged(Asked(session, instrument), [(name, Fixture.from_json(data))])


def _judged(asked: Asked, todo: Iterable[tuple[str, Fixture]]) -> list[Finding]:
    session = asked.session
    failures: dict[str, Finding] = {}
    held: dict[str, list[Result]] = {}
    refused: dict[str, str] = {}
    with states_kept():
        for name, fixture in todo:
            relation = RELATIONS[name]
            checks = relation.checks(session, fixture)
            if not checks or name in failures or name in refused:
                continue
            session.say(name)
            if relation.may_refuse and (text := _refused(session, checks)):
                refused[name] = text
                continue
            found = _hold(asked, checks, name)
            held.setdefault(name, []).append(found)
            if found.verdict == "fail":
                text = f"{name}: {relation.says}; on {fixture.name}, {found.label}"
                data = {**fixture.to_json(), "relation": name}
                failures[name] = found.finding(CLAIM, session, text, data)
            held.setdefault(KEPT, []).append(Result("pass", ""))
            if KEPT not in failures and (label := _written(session, checks)):
                data = {**fixture.to_json(), "relation": KEPT, "of": name}
                text = f"{KEPT}: it writes to what the case gave it; on {fixture.name}, {label}"
                wrong = Finding(CLAIM, session.rule, "", "fail", "contract", None, text, data)
                failures[KEPT] = wrong
    if failures:
        return list(failures.values())
    return [summary(session, CLAIM, "relations", held, refused)] if held else []


def _hold(asked: Asked, checks: list[Check], name: str) -> Result:
    """Measure every check, or count them together; return a failure if there is one."""
    session = asked.session
    subject = off(session.subject) if name == OFF else None
    results = []
    for check in checks:
        got = asked.check(check, subject)
        if got is None:
            seed = seed_of(session.seed, 2_000 + list(RELATIONS).index(name))
            return counted(session, checks, subject or session.subject, seed)
        if got.verdict == "fail":
            return got
        results.append(got)
    worst = max(results, key=lambda result: result.tv)
    worst.calls = sum(result.calls for result in results)
    return worst


def _refused(session: Session, checks: list[Check]) -> str:
    for check in checks:
        for case, _ in check.drafts:
            text = refusal(session.subject, case, session.seed)
            if text:
                return text
    return ""


def _written(session: Session, checks: list[Check]) -> str:
    """Return the label of a check whose inputs a plain call changes, or ""."""
    pairs = [(check.label, case) for check in checks for case, _ in check.drafts]
    for number, (label, case) in enumerate(pairs[:WRITES]):
        session.subject.sample(case, 4, seed_of(session.seed, 3_000 + number))
        if case.changed():
            return label
    return ""


# The laws that follow


def _rule(session: Session) -> Rule | None:
    return RULES[session.rule] if session.rule else None


def _cases(
    session: Session, fixture: Fixture, drafter: Drafter | None = None
) -> list[tuple[Case, Fraction]]:
    """Return the drafts of a fixture, with their probabilities: its likeliest, of a rule."""
    asked = replace(session, subject=replace(session.subject, drafter=drafter)) if drafter else None
    found = (asked or session).cases(fixture)
    if session.rule:
        most = MOST_DRAFTS * (4 if fixture.vocab > 3 else 1)
        found = sorted(found, key=lambda pair: pair[1], reverse=True)[:most]
    return [(noted(session, case), weight) for case, weight in found]


def _label(case: Case) -> str:
    return f"draft {' '.join(map(str, case.tokens))}" if case.tokens else "no draft"


def _positive(masses: Mapping[Any, Fraction]) -> Mass:
    return {outcome: mass for outcome, mass in masses.items() if mass}


def _moved(
    session: Session,
    fixture: Fixture,
    drafts: list[tuple[Case, Fraction]],
    change: Callable[[Case], Case],
    rename: Callable[[Text], Text] = tuple,
) -> list[Check]:
    """Return checks of changed cases: their law is that of the cases, renamed.

    Args:
        session: who is held to it.
        fixture: the changed models.
        drafts: the cases, with weights.
        change: from a case to the one that is verified instead.
        rename: from a text on the case to the same text on the changed one.
    """
    rule = _rule(session)
    if rule is None:
        changed = tuple((noted(session, change(case)), weight) for case, weight in drafts)
        return [over(session, fixture, changed)]
    checks = []
    for case, _ in drafts:
        other = noted(session, change(case))
        law = rule_law(rule, case.root())
        if law is None or other == case:
            continue
        wanted = _positive({rename(text): mass for text, mass in law.items()})
        if wanted == _positive(rule_law(rule, other.root()) or {}):  # else it is not true of it
            checks.append(Check(_label(other), ((other, Fraction(1)),), wanted))
    return checks


def _rows(fixture: Fixture, change: Callable[[Floats, Floats], tuple[Floats, Floats]]) -> Fixture:
    """Return the fixture with each pair of rows changed."""
    pairs = {context: change(fixture.p[context], fixture.q[context]) for context in fixture.p}
    p, q = ({context: pair[at] for context, pair in pairs.items()} for at in (0, 1))
    return replace(fixture, p=p, q=q)


# The relations


def _no_drafts(session: Session, fixture: Fixture) -> list[Check]:
    """Verify nothing: what is drawn is the target's, as behind any number of drafts."""
    rule = _rule(session)
    checks = []
    for context in fixture.p:
        case = _empty(session, fixture, context)
        law: Mapping[Any, Any] | None
        law = rule_law(rule, case.root()) if rule else _first(session, fixture, context)
        if law is not None:
            label = f"after {' '.join(map(str, context)) or 'nothing'}"
            checks.append(Check(label, ((case, Fraction(1)),), _positive(law)))
    return checks


def _empty(session: Session, fixture: Fixture, context: Context) -> Case:
    p, q = fixture.floats(context)
    return noted(session, Case((p,), (q,), (), (), session.rule, session.subject.shape))


def _first(session: Session, fixture: Fixture, context: Context = ()) -> Mass:
    """Return the law of one token of the target, as texts."""
    row = fixture.target(context, session.dtype)
    return {(x,): as_fraction(mass) for x, mass in enumerate(row) if mass}


def _equal_laws(session: Session, fixture: Fixture) -> list[Check]:
    """Draft with the target itself: all is kept, by rules that promise it."""
    rule = _rule(session)
    if rule is None or not rule.accepts_all_when_equal:
        return []
    equal = _rows(fixture, lambda p, q: (p, p))
    checks = []
    for case, _ in _cases(session, equal):
        law = rule_law(rule, case.root())
        if law is not None and all(len(text) > case.gamma for text in law):
            one, sure = Fraction(1), {KEEPS: Fraction(1)}
            read = partial(_keeps, case.gamma)
            checks.append(Check(_label(case), ((case, one),), sure, read, rounding=REFUSES))
    return checks


KEEPS, REFUSES = "every draft kept", "a draft refused"


def _keeps(gamma: int, text: Text) -> str:
    return KEEPS if len(text) > gamma else REFUSES


def _disjoint_laws(session: Session, fixture: Fixture) -> list[Check]:
    """Draft what the target forbids: a round is one token, drawn from the target."""
    if fixture.vocab < 2:
        return []
    apart = _rows(fixture, _apart)
    rule = _rule(session)
    drafts = _cases(session, apart)
    if rule is None:
        # Drafters that take the likeliest may fill up with what q never draws.
        tried = {x for case, _ in drafts for x, parent in _drafted(case) if parent == 0}
        free = all(apart.p[()][x] == 0 for x in tried)
        return [Check("all drafts", tuple(drafts), _first(session, apart))] if free else []
    checks = []
    for case, _ in drafts:
        law = rule_law(rule, case.root())
        if law is not None and all(len(text) == 1 for text in law):
            checks.append(Check(_label(case), ((case, Fraction(1)),), _positive(law)))
    return checks


def _drafted(case: Case) -> Iterable[tuple[int, int]]:
    """Return the tokens of a draft, each with its parent."""
    return zip(case.tokens, case.parents, strict=True)


def _apart(p: Floats, q: Floats) -> tuple[Floats, Floats]:
    """Return p on the even tokens, if it has any, and q on what is left."""
    kept = tuple(w if x % 2 == 0 else 0.0 for x, w in enumerate(p))
    kept = kept if any(kept) else p
    others = tuple(w if not kept[x] else 0.0 for x, w in enumerate(q))
    if not any(others):
        others = tuple(float(not weight) for weight in kept)
    return _scaled(kept), _scaled(others)


def _scaled(row: Floats) -> Floats:
    return tuple(float(np.float32(weight / sum(row))) for weight in row)


def _relabelled(session: Session, fixture: Fixture) -> list[Check]:
    """Rename the tokens x to x + 1 mod V: the first and the last are others then."""
    vocab = fixture.vocab

    def change(case: Case) -> Case:
        p, q = (tuple(map(_turned, rows)) for rows in (case.p, case.q))
        tokens = tuple((x + 1) % vocab for x in case.tokens)
        return Case(p, q, tokens, case.parents, case.rule, case.shape)

    def rename(text: Text) -> Text:
        return tuple((x + 1) % vocab for x in text)

    return _moved(session, relabelled(fixture), _cases(session, fixture), change, rename)


def relabelled(fixture: Fixture) -> Fixture:
    """Return the fixture with its tokens renamed x to x + 1 mod V."""
    p, q = (
        {tuple((x + 1) % len(row) for x in c): _turned(row) for c, row in table.items()}
        for table in (fixture.p, fixture.q)
    )
    return replace(fixture, p=p, q=q)


def _turned(row: Floats) -> Floats:
    return (*row[-1:], *row[:-1])


def _padded_vocabulary(session: Session, fixture: Fixture) -> list[Check]:
    """Append tokens of mass 0, as vocabularies are padded to multiples of 64."""

    def padded(row: Floats) -> Floats:
        return (*row, *[0.0] * PADDING)

    def change(case: Case) -> Case:
        p, q = (tuple(map(padded, rows)) for rows in (case.p, case.q))
        return Case(p, q, case.tokens, case.parents, case.rule, case.shape)

    wider = _rows(fixture, lambda p, q: (padded(p), padded(q)))
    return _moved(session, wider, _cases(session, fixture), change)


def _placeholders(session: Session, fixture: Fixture) -> list[Check]:
    """Pad shorter drafts with -1, before laws that nobody may look at."""
    if not session.subject.placeholders or session.subject.shape != "chain":
        return []
    gamma = max(2, fixture.gamma)
    checks: list[Check] = []
    for count in range(gamma):
        short = replace(fixture, shape=count)
        drafts = _cases(session, short) if count else [(_empty(session, fixture, ()), Fraction(1))]
        checks += _padded_checks(session, short, drafts, gamma)
    return checks


def _padded_checks(
    session: Session, short: Fixture, drafts: list[tuple[Case, Fraction]], gamma: int
) -> list[Check]:
    rule = _rule(session)
    if rule is None:
        padded = tuple((padded_draft(session, case, gamma), weight) for case, weight in drafts)
        return [replace(over(session, short, padded), label=f"{gamma - short.gamma} placeholders")]
    checks = []
    for case, _ in drafts:
        law = rule_law(rule, case.root())
        if law is not None:
            other = padded_draft(session, case, gamma)
            checks.append(Check(_label(other), ((other, Fraction(1)),), _positive(law)))
    return checks


def padded_draft(session: Session, case: Case, gamma: int) -> Case:
    """Return the draft with placeholders up to `gamma`; the laws behind them are other ones."""
    missing = gamma - len(case.tokens)
    p = (*case.p, *[case.p[0][::-1]] * missing)
    q = (*case.q[: len(case.tokens)], *[case.q[0][::-1]] * (missing + 1))
    tokens = (*case.tokens, *[-1] * missing)
    return noted(session, Case(p, q, tokens, tuple(range(gamma)), case.rule, case.shape))


def _sibling_order(session: Session, fixture: Fixture) -> list[Check]:
    """Turn the order of siblings round, subtrees and all, for rules that do not look at it."""
    rule = _rule(session)
    if rule is None or rule.shape == "chain" or rule.sibling_order_matters:
        return []
    free = rule.any_draft and not session.subject.chosen
    drafter = DRAFTS["without_replacement"] if free else None
    return _moved(session, fixture, _cases(session, fixture, drafter), _turned_round)


def _turned_round(case: Case) -> Case:
    """Return the draft with the children of each node in the other order, numbered by level."""
    below: dict[int, list[int]] = {}
    for at, parent in enumerate(case.parents, start=1):
        below.setdefault(parent, []).append(at)
    order, parents, level = [0], list[int](), [0]
    while level:
        following = []
        for node in level:
            for child in reversed(below.get(node, [])):
                parents.append(order.index(node))
                order.append(child)
                following.append(child)
        level = following
    p, q = (tuple(rows[at] for at in order) for rows in (case.p, case.q))
    tokens = tuple(case.tokens[at - 1] for at in order[1:])
    return Case(p, q, tokens, tuple(parents), case.rule, case.shape)


def _more_siblings(session: Session, fixture: Fixture) -> list[Check]:
    """Add siblings: over all drafts, the first token stays the target's."""
    if session.lossy or isinstance(fixture.shape, int):
        return []
    checks = []
    for count in range(1, fixture.shape[0] + 1):
        try:
            drafts = session.cases(replace(fixture, shape=(count,)))
        except (UsageError, ValueError):
            continue  # the drafter is not made for so many
        found = tuple((noted(session, case), weight) for case, weight in drafts)
        label = f"{count} sibling{'s' * (count > 1)}"
        wanted = _first(session, fixture)
        checks.append(Check(label, found, wanted, read=lambda text: text[:1]))
    return checks


def _switched_off(session: Session, fixture: Fixture) -> list[Check]:
    """Switch off what makes it lossy: over all drafts, texts are the target's."""
    if session.subject.off is None:
        return []
    whole = replace(session, rule=None)
    return [over(session, fixture, tuple(_cases(whole, fixture)))]


# The fixtures


def _small(session: Session) -> Fixture:
    """Return a small fixture, for laws that are learned or counted."""
    shape, width = session.subject.shape, session.width
    if shape == "chain":
        return session.fit(rounds_fixture(shape, width=width))
    known = {fixture.name: fixture for fixture in fixtures(shape, False, width)}
    return session.fit(known.get("small", next(reversed(known.values()))))


def _mixed(session: Session, fine: bool) -> list[Fixture]:
    made = sampled_fixtures(session.subject.shape, session.width)
    return [session.fit(made[0]) if fine else _small(session)]


def _zeros(session: Session, fine: bool) -> list[Fixture]:
    made = sampled_fixtures(session.subject.shape, session.width)
    return [session.fit(made[-1]) if fine else _small(session)]


def _wide(session: Session, fine: bool) -> list[Fixture]:
    """Return a fixture as wide as siblings are added."""
    if session.subject.shape == "chain":
        return []
    small = _small(session)
    return [small if session.width else replace(small, shape=(MOST_SIBLINGS,))]


def _two_levels(session: Session, fine: bool) -> list[Fixture]:
    """Return fixtures of one level of siblings and, where that is cheap, of two."""
    found = _mixed(session, fine)
    if fine and session.subject.shape == "tree" and session.width is None:
        found.append(replace(_small(session), name="small, two levels", shape=(2, 2)))
    return found


OFF = "switched off"

RELATIONS = {
    "no drafts": Relation(
        "a round without drafts does not draw from the target", _no_drafts, _zeros, may_refuse=True
    ),
    "equal laws": Relation("where p = q, a draft is refused", _equal_laws, _mixed),
    "disjoint laws": Relation(
        "where p and q share no token, a round is not one token of the target",
        _disjoint_laws,
        _mixed,
    ),
    "relabelled": Relation(
        "with tokens renamed x -> x + 1 mod V, the law is not the renamed one", _relabelled, _mixed
    ),
    "padded vocabulary": Relation(
        "more tokens, of mass 0, change the law", _padded_vocabulary, _zeros
    ),
    "placeholders": Relation("placeholders behind a draft change the law", _placeholders, _mixed),
    "more siblings": Relation(
        "the first token depends on the number of siblings", _more_siblings, _wide, may_refuse=True
    ),
    "sibling order": Relation("the order of siblings changes the law", _sibling_order, _two_levels),
    OFF: Relation("with its switch off, it is not lossless", _switched_off, _mixed),
}
"""Every relation on single rounds by name, beside `KEPT`."""
