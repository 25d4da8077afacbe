"""The proofs in proofs/coq compile, assume nothing, and are about the rules that are shipped.

The last is a comparison: the definitions that the theorems are about are evaluated by Coq on
generated cases, and the laws that come out must be those of `specref`, exactly.
"""

import random
import re
import shutil
import subprocess
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest

from specref.choice import law
from specref.decode import round_law, sequence_law
from specref.dist import normalise, rational
from specref.draft import Node
from specref.lemma import INSTANCES, divided
from specref.model import Table
from specref.rules import RULES
from specref.stops import Stops

SOURCES = sorted((Path(__file__).parent / "coq").glob("*.v"))
TABLE = Path(__file__).parent / "coq" / "THEOREMS.md"
PACKAGES = "coq libcoq-mathcomp-ssreflect libcoq-mathcomp-algebra libcoq-mathcomp-zify"
STATED = re.compile(r"^ *(?:Theorem|Corollary) (\w+)", re.MULTILINE)
PROVED = re.compile(r"^ *(?:Theorem|Corollary|Lemma) ([\w']+)", re.MULTILINE)

# The Coq term of every rule, applied to the vocabulary and the models.
RULE = {
    "token": "token V p q",
    "one_hot": "one_hot V p",
    "match": "match_ V p",
    "greedy": "greedy V p",
    "rrs_with": "rrs_with V p q",
    "rrs_without": "rrs_without V p q",
    "target_only": "target_only V p",
    "block": "block V p q",
    "traversal": "traversal V p q",
    "traversal_with": "traversal_with V p q",
}
CHAINS = ("token", "one_hot", "block")
DISTINCT = ("rrs_without", "traversal")

# The lemma's verifier, as an instance of which rule: how it commits, and the declared laws.
VERIFIER = {
    "token": "@immediate _ _) (drawn_by q again",
    "block": "@deferred _ _) (drawn_by q again",
    "rrs_without": "@immediate _ _) (drawn_by q (without V)",
    "traversal": "@deferred _ _) (drawn_by q (without V)",
    "target_only": "@immediate _ _) (@certain _ _",
}

# Rules with a plan, and the numbers of siblings per level.
PLANNED = {
    "one_shot": (1,),
    "k_seq": (2, 1),
    "spec_hub": (2,),
    "importance": (2,),
    "greedy_multi": (2, 1),
    "transport": (1, 2),
    "nested_transport": (2,),
}


def run(folder, *command):
    """Return what a program of Coq prints; fail with what it says if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def evaluate(folder, name, lines):
    """Compile a file that imports all of ours; return what its commands print."""
    modules = " ".join(path.stem for path in SOURCES)
    head = (
        "From Coq Require Import ZArith QArith Qcanon.\n"
        "From mathcomp Require Import all_ssreflect ssralg ssrnum.\n"
        f"From specref Require Import {modules}.\n"
        "Set Printing Depth 1000000.\n"
    )
    (folder / f"{name}.v").write_text(head + "\n".join(lines), encoding="utf-8")
    return run(folder, "coqc", "-w", "none", "-R", ".", "specref", f"{name}.v")


@pytest.fixture(scope="module")
def proofs(tmp_path_factory):
    """Compile all files, in the order of what they need, and return their folder."""
    if not shutil.which("coqc"):
        pytest.skip(f"needs Coq: apt-get install -y --no-install-recommends {PACKAGES}")
    folder = tmp_path_factory.mktemp("coq")
    for path in SOURCES:
        shutil.copy(path, folder)
    names = [path.name for path in SOURCES]
    for name in run(folder, "coqdep", "-sort", "-R", ".", "specref", *names).split():
        run(folder, "coqc", "-w", "none", "-R", ".", "specref", name)
    return folder


def test_nothing_is_assumed(proofs, record_property):
    names = [f"{path.stem}.{name}" for path in SOURCES for name in PROVED.findall(path.read_text())]
    assert len(names) > 100
    lines = [f"Definition all_{i} := @{name}." for i, name in enumerate(names)]
    lines.append(f"Definition all := ({', '.join(f'all_{i}' for i in range(len(names)))}).")
    assert evaluate(proofs, "Assumed", [*lines, "Print Assumptions all."]).split() == (
        "Closed under the global context".split()
    )
    theorems = [name for path in SOURCES for name in STATED.findall(path.read_text())]
    record_property("theorems", f"{len(theorems)}, without assumptions: {', '.join(theorems)}")


def test_an_assumption_would_be_seen(proofs):
    lines = ["Lemma gap : False.", "Admitted.", "Print Assumptions gap."]
    assert "gap" in evaluate(proofs, "Gap", lines)


def test_the_table_names_every_theorem():
    stated = {name for path in SOURCES for name in STATED.findall(path.read_text())}
    listed = set(re.findall(r"`(\w+_\d\w*)`", TABLE.read_text(encoding="utf-8")))
    assert listed == stated


def row(dice, vocab):
    """Return a random law, with zeros."""
    while True:
        weights = [dice.randint(0, 5) for _ in range(vocab)]
        if sum(weights):
            return normalise([rational(w) for w in weights])


def models(dice, vocab, levels):
    """Return a target and a draft that depend on the whole text, up to `levels` tokens of it."""
    texts = [()]
    for text in texts:
        if len(text) < levels:
            texts += [(*text, x) for x in range(vocab)]
    return tuple(
        Table({text: row(dice, vocab) for text in texts}, name=name) for name in ("target", "draft")
    )


def drafted(dice, q, depth, width, distinct, text=()):
    """Return a random draft that q can draw, as pairs (token, drafts below it).

    Chains have the depth that is asked, branches of trees at most that.
    """
    if depth == 0:
        return ()
    able = [x for x, mass in enumerate(q(text)) if mass > 0]
    if distinct:
        tokens = dice.sample(able, min(len(able), dice.randint(1, width)))
    else:
        tokens = dice.choices(able, k=dice.randint(1, width))
    least = depth - 1 if width == 1 else 0
    return tuple(
        (x, drafted(dice, q, dice.randint(least, depth - 1), width, distinct, (*text, x)))
        for x in tokens
    )


def node(p, q, draft, text=()):
    """Return the root of a draft for our rules."""
    children = tuple((x, node(p, q, below, (*text, x))) for x, below in draft)
    return Node(p(text), q(text), children)


def pairs(root):
    """Return a draft of ours as pairs (token, drafts below it)."""
    return tuple((x, pairs(child)) for x, child in root.children)


def tree(draft):
    """Return the Coq term of a draft."""
    term = "Last"
    for x, below in reversed(draft):
        term = f"(Child {x}%N {tree(below)} {term})"
    return term


def tokens(text):
    """Return the Coq term of a text."""
    return f"[:: {'; '.join(map(str, text))}]%N" if text else "[::]"


def number(value):
    """Return the Coq term of a rational."""
    return f"(frac {value.numerator} {value.denominator})"


def row_of(weights):
    """Return the Coq term of a list of rationals."""
    listed = [number(rational(w)) for w in weights]
    return f"[:: {'; '.join(listed)}]" if listed else "[::]"


def declared(p, q):
    """Return the commands that define the models."""
    for name, model in (("p", p), ("q", q)):
        rows = "; ".join(
            f"({tokens(text)}, {row_of(weights)})" for text, weights in model.rows.items()
        )
        yield f"Definition {name} := table [:: {rows}]."


def cases(seed, vocab):
    """Yield (name, models, Coq term, law of ours)."""
    dice = random.Random(seed)
    for name, term in RULE.items():
        chain = name in CHAINS
        width = 1 if chain else 3
        for depth in (0, 1, 2, 3 if chain else 2):
            p, q = models(dice, vocab, depth)
            draft = drafted(dice, q, depth, width, name in DISTINCT)
            root = node(p, q, draft)
            ours = law(partial(RULES[name].verify, root))
            yield f"{name} on {draft}", (p, q), f"of_draft ({term}) {tree(draft)}", ours
        for shape in [1, 2] if chain or name == "match" else [(2,), (1, 2)]:
            p, q = models(dice, vocab, 2)
            widths = (1,) * shape if isinstance(shape, int) else shape
            plan = {
                "with_replacement": f"with_replacement q {tokens(widths)} [::]",
                "without_replacement": f"without_replacement V q {tokens(widths)} [::]",
            }.get(RULES[name].draft.__name__)
            if plan is None:
                (root,) = [RULES[name].draft(p, q, shape, None, ())]
                plan = f"given _ {tree(pairs(root))}"
            ours = round_law(RULES[name], p, q, shape)
            yield f"{name}, {shape}", (p, q), f"of_round V ({term}) ({plan})", ours
    for name, how in VERIFIER.items():
        for weight in (rational(0), rational(3, 7), rational(1)):
            p, q = models(dice, vocab, 2)
            draft = drafted(dice, q, 2, 1 if name == "block" else 2, name in DISTINCT)
            verifier = partial(INSTANCES[name], node(p, q, draft), weight)
            ours = {text or (): mass for text, mass in law(verifier).items()}
            term = f"of_lemma V p ({how}) {tree(draft)} {number(weight)}"
            yield f"lemma, {name}, {weight} on {draft}", (p, q), term, ours
    for name, widths in PLANNED.items():
        for weight in (rational(3, 7), rational(1)):
            p, q = models(dice, vocab, 2)
            verifier, made = INSTANCES[name], partial(RULES[name].draft, p, q, widths)
            draft = dice.choice(sorted(law(lambda choose, made=made: pairs(made(choose, ())))))
            ours = {
                text or (): mass
                for text, mass in law(partial(verifier, node(p, q, draft), weight)).items()
            }
            commit = f"@{verifier.commit.__name__} _ _"
            plan = planned(verifier, p, q, draft, weight)
            term = f"of_plan V p ({commit}) {plan} {tree(draft)} {number(weight)}"
            yield f"plan, {name}, {weight} on {draft}", (p, q), term, ours
    for gamma, limit in ((1, 2), (2, 2), (1, 3)):
        p, q = models(dice, vocab, limit + gamma)
        ours = sequence_law("token", p, q, gamma, Stops(limit, eos=2))
        term = f"of_sequence V p q {tokens((2,))} {limit} {gamma}"
        yield f"sequences of {limit} by {gamma}", (p, q), term, ours


def planned(verifier, p, q, draft, weight):
    """Return the Coq terms of the shares, and of what is owed besides, at every text of a draft.

    Below the root the weight is 1: the draft has one level, or commitment is immediate.
    """
    shares, besides, todo = [], [], [((), draft, weight)]
    while todo:
        text, children, r = todo.pop()
        todo += [((*text, x), below, 1) for x, below in children]
        owed = tuple(r * w for w in p(text))
        share, left = divided(verifier.plan, verifier.draft, q(text), owed, len(children))
        tuple_ = tuple(x for x, _ in children)
        listed = row_of(share[tuple_])
        shares.append(f"(({tokens(text)}, {tokens(tuple_)}), {listed})")
        besides.append(f"({tokens(text)}, {row_of(left)})")
    return f"[:: {'; '.join(shares)}] [:: {'; '.join(besides)}]"


def read(printed):
    """Return the law that `Tie.printed` prints."""
    found, at = {}, 0
    while at < len(printed):
        end = at + 1 + printed[at]
        found[tuple(printed[at + 1 : end])] = Fraction(printed[end], printed[end + 1])
        at = end + 2
    return found


# Of four tokens, since the third sibling of three is certain.
@pytest.mark.parametrize(("seed", "vocab"), [(1, 3), (2, 4)])
def test_the_definitions_are_the_rules(proofs, seed, vocab):
    made = list(cases(seed, vocab))
    lines = [f"Definition V := {tokens(range(vocab))}."]
    for at, (_, pair, term, _) in enumerate(made):
        lines += [f"Module Case{at}.", *declared(*pair), f"Eval vm_compute in {term}."]
        lines.append(f"End Case{at}.")
    printed = re.findall(r"= \[::(.*?)\]\s+: seq Z", evaluate(proofs, f"Tied{seed}", lines), re.S)
    assert len(printed) == len(made)
    for (name, _, _, ours), theirs in zip(made, printed, strict=True):
        expected = {
            text: Fraction(int(m.numerator), int(m.denominator)) for text, m in ours.items()
        }
        found = read([int(n) for n in re.findall(r"-?\d+", theirs)])
        assert {t: m for t, m in found.items() if m} == {t: m for t, m in expected.items() if m}, (
            name
        )
