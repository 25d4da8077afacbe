"""Check a certificate of `specref gate SUBJECT --certificate FILE`, trusting nothing of specref.

    python checker.py certificate.json

This file is the smallest thing that one has to trust; it needs Python's standard library alone. In
exact fractions it redoes this: every value of the draws of a case lies in exactly one cell; the
cells have the stated law; the drafts are all that there are, with the chances that q gives them;
over all of them, continued by the target, the law has the stated distance from the target's own.

It does not run the subject. That the subject does on each cell what is written there is what it
takes from the certificate, with the bound on what may have been missed. It says so where drafts are
the subject's own: their chances are then taken as given, too.
"""

import json
import sys
from collections import Counter
from fractions import Fraction
from itertools import pairwise
from math import log, prod
from typing import Any

WAYS = ("with_replacement", "without_replacement", "likeliest", "own")
UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def need(fact: bool, message: str) -> None:
    """Refuse the certificate unless a fact holds."""
    if not fact:
        raise ValueError(message)


def law(weights: Any) -> Any:
    """Return weights divided by their exact sum."""
    need(min(weights) >= 0, f"a law has the weight {min(weights)}")
    return tuple(w / Fraction(sum(weights)) for w in weights)


def model(table: Any) -> Any:
    """Return a function from a text to the law of the next token, which hangs on the last one."""
    rows = {tuple(last): law([Fraction(float.fromhex(w)) for w in row]) for last, row in table}
    return lambda text: rows.get(text[-1:], rows[()])


def total(pairs: Any) -> Any:
    """Return mass by outcome: a text, or a string for an error."""
    masses: Any = Counter()
    for outcome, weight in pairs:
        masses[outcome if isinstance(outcome, str) else tuple(outcome)] += Fraction(weight)
    return masses


def mass(box: Any) -> Any:
    """Return the probability of low <= k < high for draws k: uniform on 0 <= k < n, or a law's."""
    sides = (Fraction(b - a, v) if isinstance(v, int) else sum(v[a:b]) for v, a, b in box)
    return prod(sides, start=Fraction(1))


def cover(boxes: Any, what: str, at: int = 0) -> None:
    """Check that draws which agree with all these boxes before number `at` lie in exactly one.

    What is drawn next may hang on the draws before it, so they are taken one by one.
    """
    if any(len(box) == at for box in boxes):
        return need(len(boxes) == 1, f"{what}s overlap")
    draw = boxes[0][at][0]
    need(all(box[at][0] == draw for box in boxes), f"{what}s differ in what is drawn next")
    ends = (0, draw) if isinstance(draw, int) else range(len(draw) + 1)
    edges = sorted({*ends, *(end for box in boxes for end in box[at][1:])})
    need((edges[0], edges[-1]) == (ends[0], ends[-1]), f"a {what} lies outside of its draws")
    for low, high in pairwise(edges):
        inside = [box for box in boxes if box[at][1] <= low and high <= box[at][2]]
        need(bool(inside) or mass([(draw, low, high)]) == 0, f"a {what} is missing")
        if inside:
            cover(inside, what, at + 1)
    return None


def drawn(case: Any, q: Any, shape: Any, how: str) -> Any:
    """Return the box of draws that give a draft: each token hangs on an earlier one, or on 0."""
    box: Any = []
    texts: Any = [()]
    for x, parent in zip(case["tokens"], case["parents"], strict=True):
        row = list(q(texts[parent]))
        for sibling in (text for text in texts[1:] if text[:-1] == texts[parent]):
            if how != "with_replacement":
                row[sibling[-1]] = Fraction(-1 if how == "likeliest" else 0)
        if how == "likeliest":
            row = [Fraction(y == row.index(max(row))) for y in range(len(row))]
        box.append((law(row), x, x + 1))
        texts.append((*texts[parent], x))
    for node, text in enumerate(texts):
        fits = case["parents"].count(node) <= [*shape, 0][len(text)]
        need(fits, f"token {node} of the draft has more below it than the shape allows")
    return box


def complete(masses: Any, p: Any, length: int) -> Any:
    """Let the target continue every text to `length` tokens."""
    done, todo = [], list(masses.items())
    while todo:
        text, weight = todo.pop()
        if isinstance(text, str) or len(text) >= length:
            done.append((text, weight))
        else:
            todo += [((*text, x), weight * w) for x, w in enumerate(p(text)) if w]
    return total(done)


def check_case(case: Any, draws: Any) -> Any:
    """Check the cells of one draft, and return the law that they make."""
    boxes = []
    for sides, outcome, stated in case["cells"]:
        need(all(type(a) is type(b) is int and a < b for _, a, b in sides), "a cell is empty")
        boxes.append([(draws[v], a, b) for v, a, b in sides])
        exact = mass(boxes[-1])
        need(exact == Fraction(stated), f"the cell of {outcome} has mass {exact}, not {stated}")
    cover(boxes, "cell")
    found = total((outcome, stated) for _, outcome, stated in case["cells"])
    need(sum(found.values()) == 1, "the masses of the cells do not sum to 1")
    need(found == total(case["law"]), "the cells have another law than is stated")
    return found


def check_models(data: Any, draws: Any, how: str, dtype: str) -> str:
    """Check all drafts of one pair of models; return the distance and what it means."""
    p, q, shape = model(data["p"]), model(data["q"]), data["shape"]
    emitted, boxes, missed = [], [], 0.0
    need(how in WAYS, f"there is no way to draft that is called {how}")
    for case in data["cases"]:
        try:
            weight = Fraction(case["weight"])
            if how != "own":
                boxes.append(drawn(case, q, shape, how))
                need(mass(boxes[-1]) == weight, f"its weight is {mass(boxes[-1])}, not {weight}")
            missed += float(weight) * case["missed"]
            emitted += [(o, weight * m) for o, m in check_case(case, draws).items()]
        except ValueError as error:
            raise ValueError(f"draft {case['tokens']}: {error}") from None
    if how != "own":
        cover(boxes, "draft")
    need(sum(m for _, m in emitted) == 1, "the weights of the drafts do not sum to 1")
    length, vocab = len(shape) + 1, len(p(()))
    got, wanted = complete(total(emitted), p, length), complete({(): Fraction(1)}, p, length)
    tv = sum(abs(got[text] - wanted[text]) for text in {*got, *wanted}) / 2
    need(tv == Fraction(data["tv"]), f"the TV is {tv}, not {data['tv']}")
    band = length * (4 * vocab + 2 * log(vocab) + 15) * max(UNIT[dtype], 2.0**-24)
    word = "exact" if tv == 0 else "numerics" if tv <= band + missed else "FAIL"
    need(word == data["verdict"], f"the verdict is {word}, not {data['verdict']}")
    return f"TV {tv} = {float(tv):.3g}, {word} (rounding {band:.1e}, missed {missed:.1e})"


def main(path: str = "certificate.json") -> int:
    """Check a file: print a line for each pair of models, and the first thing that is wrong."""
    place, pairs = path, []
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        need(data["format"] == "specref-certificate/1", f"the format is {data['format']}")
        draws = [v if isinstance(v, int) else law([*map(Fraction, v)]) for v in data["draws"]]
        for part in data["rules"]:
            for pair in part["models"]:
                place = f"{part['rule']}, {pair['fixture']}"
                told = check_models(pair, draws, part["drafts"], part["dtype"])
                print(f"{place}: {len(pair['cases'])} drafts {part['drafts']}, {told}")
                pairs.append(pair)
            for audit in part["audit"]:
                print(f"{part['rule']}, not checked here: {audit['result']}")
        need(bool(pairs), "nothing is in it")
        for rule, models, why in data["left_out"]:
            print(f"left out: {rule}, {models}: {why}")
    except Exception as error:
        print(f"REFUSED  {place}: {type(error).__name__}: {error}")
        return 1
    good = sum(pair["verdict"] != "FAIL" for pair in pairs)
    cases = [case for pair in pairs for case in pair["cases"]]
    cells = sum(len(case["cells"]) for case in cases)
    print(f"the law of {data['name']} is the target's on {good} of {len(pairs)} pairs of models")
    print(f"verified: {cells} cells, {len(cases)} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
