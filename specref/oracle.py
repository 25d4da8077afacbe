"""What a round earns, the most that any lossless verifier could earn, and which drafters allow it.

`lengths` says how many tokens a rule emits per round, exactly. `optimal_length` is the yardstick: a
linear program over all lossless verifiers of a drafter at once. `non_anticipating` looks at the
drafter alone: whether it lets a node exist or not with a view to the node's own token.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from specref.choice import Choose, law
from specref.decode import check_shape, complete, find_rule, target_law
from specref.decode import round_law as by_enumeration
from specref.dist import Law, Number, as_fraction, rational
from specref.draft import Drafter, Node, Shape, depth, nodes
from specref.lemma import Siblings
from specref.model import Context, Model, exact_pair
from specref.rules import Rule

Text: TypeAlias = tuple[int, ...]

RoundLaw: TypeAlias = Callable[[str, Model, Model, Shape, Context], dict[Text, Number]]
"""From (name of a rule, p, q, shape, context) to the law of what one round emits."""


class Lengths(NamedTuple):
    """How much one round of a rule emits.

    Attributes:
        law: probability by number of emitted tokens.
        expected: mean number of emitted tokens, the "expected length".
        accepted: mean number of accepted tokens, one less: E[tau]. None for rules that go on behind
            a correction (`Rule.off_path`): what they emit does not tell.
    """

    law: dict[int, Number]
    expected: Number
    accepted: Number | None


def lengths(
    rule: str | Rule,
    p: Model,
    q: Model,
    *,
    shape: Shape,
    context: Context = (),
    by: RoundLaw | None = None,
) -> Lengths:
    """Return the exact law of the number of tokens that one round emits, and its means.

    Args:
        rule: a name in `RULES` or a `Rule`.
        p, q: target and draft, callables from a context to a law.
        shape: depth of a chain, or widths of a tree.
        context: what stands before the round.
        by: where the law of the round comes from; `closed.round_law` is faster than the
            enumeration that is used when it is left out.

    >>> from specref.model import Table
    >>> p = Table({(): ["1/2", "3/10", "1/5"]}, order=0)
    >>> q = Table({(): ["1/5", "1/5", "3/5"]}, order=0)
    >>> print(lengths("token", p, q, shape=2).expected)
    49/25

    Raises:
        KeyError: an unknown rule.
        ValueError: a shape that the rule is not for, or models that do not return laws over the
            same tokens.
    """
    entry = find_rule(rule)
    check_shape(entry, shape)
    p, q = exact_pair(p, q, context)
    if by is None:
        emitted = by_enumeration(entry, p, q, shape, context)
    else:
        emitted = by(entry.name, p, q, shape, context)
    counts: defaultdict[int, Number] = defaultdict(lambda: rational(0))
    for text, mass in emitted.items():
        counts[len(text)] += mass
    expected = sum(count * mass for count, mass in counts.items())
    return Lengths(dict(sorted(counts.items())), expected, None if entry.off_path else expected - 1)


def hits(rule: str | Rule, p: Model, q: Model, *, shape: Shape, context: Context = ()) -> Number:
    """Return the probability that a round ends in a hit: a correction that had been drafted too.

    A hit is not counted as accepted: what was drafted below it is lost. Papers on several drafts
    at one position often count it, since there nothing lies below.

    Args: as for `lengths`.

    Raises:
        KeyError: an unknown rule.
        ValueError: as for `lengths`.
    """
    entry = find_rule(rule)
    check_shape(entry, shape)
    p, q = exact_pair(p, q, context)

    def program(choose: Choose) -> bool:
        root = entry.draft(p, q, shape, choose, context)
        return entry.verify(root, choose) in paths(root)

    return law(program).get(True, rational(0))


def paths(root: Node) -> frozenset[Text]:
    """Return the text of every node, that of the root being empty; equal siblings share theirs."""
    found: set[Text] = set()
    todo: list[tuple[Node, Text]] = [(root, ())]
    while todo:
        node, text = todo.pop()
        found.add(text)
        todo += [(child, (*text, x)) for x, child in node.children]
    return frozenset(found)


def optimal_length(
    p: Model, q: Model, shape: Shape, draft: Drafter, context: Context = ()
) -> float:
    """Return the most tokens per round that a lossless verifier can emit on a drafter's drafts.

    A verifier that continues with plain target sampling is, as far as anyone can see, a table: how
    much of the mass of each draft is emitted as which text, a node's path and one more token. The
    table is lossless iff, for every sequence of depth + 1 tokens, what it emits of the sequence's
    beginnings, each continued by the target, adds up to the target's mass. That is linear, and so
    is the expected length: the maximum is found by linear programming (HiGHS), in floats.

    Drafts with the same paths are one here: nothing that is emitted tells them apart, and any
    division of their joint mass is open to a verifier.

    Args:
        p, q: target and draft, callables from a context to a law.
        shape: depth of a chain, or widths of a tree.
        draft: the drafter.
        context: what stands before the round.

    Raises:
        ValueError: models that do not return laws over the same tokens.
        RuntimeError: the solver gave up.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    p, q = exact_pair(p, q, context)

    drafts = law(lambda choose: paths(draft(p, q, shape, choose, context)))
    length = depth(shape) + 1
    target = target_law(p, length, context)
    rows = {key: row for row, key in enumerate([*drafts, *target])}
    begun = {text[:cut] for text in target for cut in range(1, length + 1)}
    continued = {text: complete({text: 1}, p, length, context) for text in begun}
    below = defaultdict(list)
    for text in begun:
        below[text[:-1]].append(text)
    gain: list[int] = []
    entries: list[tuple[float, int, int]] = []
    for tree in drafts:
        for path in tree:
            for text in below[path]:
                column = len(gain)
                gain.append(len(text))
                entries.append((1.0, rows[tree], column))
                for whole, mass in continued[text].items():
                    entries.append((float(mass), rows[whole], column))
    values, at_rows, at_columns = zip(*entries, strict=True)
    solved = linprog(
        [-tokens for tokens in gain],
        A_eq=coo_array((values, (at_rows, at_columns)), shape=(len(rows), len(gain))).tocsc(),
        b_eq=[float(mass) for mass in (*drafts.values(), *target.values())],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if not solved.success:
        raise RuntimeError(f"HiGHS found no optimum: {solved.message}")
    return -float(solved.fun)


class Anticipation(NamedTuple):
    """A drafted token whose law, given what was drafted before it, is not the declared one.

    Attributes:
        tokens: tokens of the nodes 1, 2, ... drafted before it.
        parents: the parent of each, and last the parent of the token in question.
        declared: law of that token as declared [V].
        actual: its law given `tokens`, in the drafts that do have it [V].
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    declared: tuple[Fraction, ...]
    actual: tuple[Fraction, ...]


@dataclass(frozen=True)
class Causality:
    """Whether a drafter is non-anticipating, and if not, the smallest proof of it.

    It is true exactly when there is no counterexample.
    """

    counterexample: Anticipation | None

    def __bool__(self) -> bool:
        return self.counterexample is None


def non_anticipating(
    drafter: Drafter,
    p: Model,
    q: Model,
    *,
    shape: Shape,
    siblings: Siblings,
    context: Context = (),
) -> Causality:
    """Say whether every drafted token has its declared law, given all that was drafted before it.

    A rule that takes tokens for draws from declared laws needs two things of its drafter: that they
    are, and that no node was kept or dropped because of its own token or a later one. Both show in
    one place: among the drafts that begin alike and have a next node, the token of that node must
    have the declared law. A drafter may stop *after* any token that it submits; one that withholds
    a token because of what it is fails here, and biases the output (DSpark, appendix A).

    It is enough for every rule of the form `lemma.OneByOne`: take away the node drawn last. It was
    the last child of its parent, and by the identities there, trying it and then accepting the
    parent emits, over its token, just what accepting the parent emits without it. Rules that plan
    for a whole tuple of siblings also need their number not to depend on them.

    "Before" means a lower number. A drafter whose numbers are not the order drawn may fail here and
    be harmless; one that passes is harmless.

    Rules that read every draft as certain (`Rule.any_draft`) need none of this.

    Args:
        drafter: the drafter; nodes are numbered in the order drawn.
        p, q: target and draft, callables from a context to a law of exact numbers.
        shape: depth of a chain, or widths of a tree.
        siblings: the declared law of a node's i-th child, given those before it:
            `lemma.drawn_with`, `lemma.drawn_without`, or `lemma.certain`, which declares that the
            draft is a function of the models.
        context: what stands before the draft.

    >>> from specref.draft import with_replacement, without_replacement
    >>> from specref.lemma import drawn_with
    >>> from specref.model import Table
    >>> half = Table({(): ["1/2", "1/2"]}, order=0)
    >>> bool(non_anticipating(with_replacement, half, half, shape=(2,), siblings=drawn_with))
    True
    >>> non_anticipating(
    ...     without_replacement, half, half, shape=(2,), siblings=drawn_with
    ... ).counterexample.actual
    (Fraction(0, 1), Fraction(1, 1))
    """

    def program(choose: Choose) -> tuple[tuple[int, int, Law], ...]:
        order = nodes(drafter(p, q, shape, choose, context))
        steps = {
            child.index: (x, node.index, siblings(node, i))
            for node in order
            for i, (x, child) in enumerate(node.children)
        }
        return tuple(steps[at] for at in range(1, len(order)))

    actual: defaultdict[tuple[Text, Text], dict[int, Number]] = defaultdict(dict)
    declared: defaultdict[tuple[Text, Text], dict[Law, None]] = defaultdict(dict)
    for draft, mass in law(program).items():
        tokens = tuple(x for x, _, _ in draft)
        parents = tuple(parent for _, parent, _ in draft)
        for at, (x, _, row) in enumerate(draft):
            before = tokens[:at], parents[: at + 1]
            actual[before][x] = actual[before].get(x, 0) + mass
            declared[before][row] = None
    for before in sorted(actual, key=lambda before: (len(before[0]), before)):
        total = sum(actual[before].values())
        for row in declared[before]:
            found = tuple(rational(actual[before].get(x, 0)) / total for x in range(len(row)))
            if found != row:
                said, done = (tuple(as_fraction(w) for w in law_) for law_ in (row, found))
                return Causality(Anticipation(*before, said, done))
    return Causality(None)
