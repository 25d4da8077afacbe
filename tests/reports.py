"""Reports made by hand, to look at and to feed to the doors of the gate."""

import struct
from fractions import Fraction as F
from itertools import product

from specref.gate.report import CLAIMS, Finding, Report


def float32(value):
    return struct.unpack("f", struct.pack("f", float(value)))[0]


def row(*weights):
    """Return a row of a case as reports hold it: float32 numbers in hexadecimal."""
    return [float32(F(w)).hex() for w in weights]


def case(p, q, tokens, parents, rule="token", **more):
    return {"rule": rule, "p": p, "q": q, "tokens": tokens, "parents": parents, **more}


def report(*findings, **more):
    facts = {"subject": "my_engine.adapter", "name": "my_engine 1.2", "profile": "quick", "seed": 0}
    facts |= {
        "source": "my_engine.adapter",
        "drafts": "with_replacement",
        "versions": {"specref": "0.1.0", "torch": "2.13.0"},
    }
    return Report(**(facts | more), findings=list(findings))


def law(claim, tv=0.0, message="155 cases", **more):
    """Return a passing finding by measured law."""
    severity = "numerics" if tv else ""
    return Finding(claim, "token", "measured law", "pass", severity, tv, message, **more)


def absent(claim, message, verdict="not applicable", rule="token"):
    return Finding(claim, rule, "", verdict, message=message)


HALVES = row("1/2", "1/2", 0)
QUARTERS = row("1/4", "1/4", "1/2")

FORBIDDEN = Finding(
    "support",
    "token",
    "measured law",
    "fail",
    "edge",
    2.0**-24,
    "a forbidden token, with probability 1/16777216",
    case([HALVES, HALVES], [QUARTERS, QUARTERS], [2], [0]),
    {"(0,)": "1/2", "(1,)": "1/2"},
    {
        "(0,)": "16777215/33554432",
        "(1,)": "16777215/33554432",
        "(2, 0)": "1/33554432",
        "(2, 1)": "1/33554432",
    },
    {
        "matches": ["inclusive_compare"],
        "resembles": None,
        "computed": "A draft is accepted if u <= p/q.",
        "should": "A draft is accepted if u < p/q: u can be 0.",
        "links": ["sgl-project/sglang#35771"],
    },
    where="le at my_engine/verify.py:42",
    replay="specref replay a-rather-long-directory/specref-report/01-token-support.json",
    calls=14,
)

RESIDUAL = Finding(
    "residual",
    "token",
    "measured law",
    "fail",
    "law",
    1 / 6,
    "draws corrections from another law than the rule's residual",
    case(
        [row("2/5", "3/10", "1/5", "1/10"), row("1/10", "2/5", "1/5", "3/10"), row(1, 0, 0, 0)],
        [row("1/10", "1/10", "3/10", "1/2"), row("3/10", "1/5", "2/5", "1/10"), row(0, 0, 0, 1)],
        [3, 2],
        [0, 1],
    ),
    {
        "(0,)": "12/25",
        "(1,)": "8/25",
        "(3, 1)": "1/25",
        "(3, 3)": "3/50",
        "(3, 2, 0)": "5368709120000001/53687091200000010",
    },
    {
        "(0,)": "12/25",
        "(1,)": "8/25",
        "(3, 1)": "1/20",
        "(3, 3)": "1/20",
        "(3, 2, 0)": "5368709119999999/53687091200000010",
    },
    {
        "matches": [],
        "resembles": "residual_softmaxed",
        "computed": "The correction is drawn from the softmax of (p - q)+.",
        "should": "(p - q)+ is divided by its sum.",
        "links": ["huggingface/transformers#28508"],
    },
    where="searchsorted at my_engine/verify.py:57",
)

TEXTS = {f"({a}, {b}, {c}, {d}, 0)": (a, b, c, d) for a, b, c, d in product((0, 1), repeat=4)}

JOINT = Finding(
    "joint",
    "token",
    "measured law",
    "fail",
    "law",
    0.19,
    "the law of pair is not the target's, first seen at token 2",
    {
        "fixture": "pair",
        "p": [[[], row("3/4", "1/4")], [[0], row("1/4", "3/4")], [[1], row("1/2", "1/2")]],
        "q": [[[], row("1/4", "3/4")], [[0], row("3/4", "1/4")], [[1], row("1/4", "3/4")]],
        "shape": 4,
    },
    dict.fromkeys(TEXTS, "1/16"),
    {
        text: str(F(1, 16) + F((-1) ** b, 64) + F((-1) ** d, 2**24))
        for text, (_, b, _, d) in TEXTS.items()
    },
    {
        "matches": [f"fault_{letter}" for letter in "abcdef"],
        "resembles": None,
        "computed": "The bonus is drawn from q.",
        "should": "The bonus is drawn from p.",
        "links": [],
    },
)  # fmt: skip

PASSED = report(
    Finding("smoke", "token", "", "pass"),
    law("support"),
    law("acceptance", 1.6e-07),
    law("residual", 4.8e-08),
    law("bonus"),
    absent("proposal", "the subject has no propose"),
    law("joint", 3.2e-08, "50 pairs of models, up to 5 tokens", calls=825),
    law("rounds", 5.6e-08, "two rounds, 3 tokens"),
    law("stream", 0.0, "states at every draw, two rows of a call"),
    Finding(
        "audit",
        "token",
        "measured law",
        "pass",
        message="1048576 real draws, none outside its cell",
        bound=1.4e-05,
    ),
    calls=825,
    cells=770,
)

FAILED = report(
    Finding("smoke", "token", "", "pass"),
    FORBIDDEN,
    law("acceptance", 1.6e-07),
    RESIDUAL,
    law("bonus"),
    absent("proposal", "the subject has no propose"),
    JOINT,
    law("rounds", 5.6e-08, "two rounds, 3 tokens"),
    Finding(
        "stream",
        "token",
        "measured law",
        "fail",
        "stream",
        0.0,
        "two rows of one call are not independent",
        JOINT.case,
    ),
    Finding("audit", "token", "measured law", "pass", message="4096 real draws", bound=0.0034),
    calls=1095,
    cells=770,
)

SAMPLED = report(
    Finding("smoke", "token", "", "pass"),
    Finding("support", "token", "samples", "pass", message="none impossible among 69,631 rows"),
    Finding("acceptance", "token", "samples", "pass", "", 0.03, "certified by 69,631 rows"),
    Finding("residual", "token", "samples", "pass", "", 0.021, "certified by 69,631 rows"),
    Finding(
        "bonus",
        "token",
        "samples",
        "inconclusive",
        "",
        0.0871,
        "TV <= 0.087 is all that 69,631 rows certify; not <= 0.05",
    ),
    absent("proposal", "the subject has no propose"),
    Finding("joint", "token", "samples", "pass", "", 0.034, "certified by 69,631 rows"),
    absent("rounds", "needs the measured law"),
    Finding("stream", "token", "samples", "pass", message="2048 pairs of neighbouring rows"),
    absent("audit", "no law was measured"),
    escapes=[f"numpy.random.Generator.{name} in step {name!r}" for name in "abcdef"],
)

CRASHED = report(
    Finding(
        "smoke",
        "rrs_without",
        "",
        "fail",
        "crash",
        message="exception: RuntimeError: expected a\x1b[31m chain, got\na tree (my_engine.py:9)",
        case=case(
            [row("5/8", "1/4", "1/8")] * 5,
            [row("1/8", "3/8", "1/2")] * 5,
            [2, 1, 0, 2],
            [0, 0, 1, 1],
            "rrs_without",
        ),
    ),
    *(
        absent(claim, "after the smoke failure", "not run", "rrs_without")
        for claim in list(CLAIMS)[1:]
    ),
    *(absent(claim, "no rule is declared", "not applicable", None) for claim in ("bonus", "joint")),
    name="a sampler whose name is long, has \u00fcml\u00e4uts, and says a lot about itself",
    subject="/a/path/to/some/adapter.py:Sampler",
)

LOW = float32("0.6") - 2.0**-24
STRANGE = report(
    Finding(
        "support",
        "token",
        "measured law",
        "fail",
        "crash",
        2.0**-24,
        "exception: RuntimeError: probability tensor contains either `inf`, `nan` or element < 0, "
        "with probability 1/16777216",
        case(
            [[LOW.hex(), *row("2/5")]] * 2,
            [row("3/5", "2/5")] * 2,
            [0],
            [0],
            logits=[[row("0.40546501", 0)] * 2, [row("0.405465096", 0)] * 2],
        ),
        {"(0, 0)": "10066329/16777216", "(0, 1)": "6710887/16777216"},
        {
            "(0, 0)": "10066328/16777216",
            "(0, 1)": "6710887/16777216",
            "exception: RuntimeError: probability tensor contains either `inf`, `nan` or "
            "element < 0": "1/16777216",
        },
        {"matches": [], "resembles": None, "computed": "", "should": "", "links": []},
    ),
    Finding(
        "joint",
        None,
        "samples",
        "fail",
        "law",
        0.0823,
        "odds against a faithful sampler: 10^12 to 1, after 4,096 rows",
        case([row(*["1/64"] * 60, "1/16")] * 2, [row(*["1/64"] * 60, "1/16")] * 2, [60], [0]),
        {"allowed": "1"},
        {"allowed": "4000/4096", "forbidden token": "96/4096"},
    ),
    Finding("stream", None, "samples", "fail", "stream", None, "all 64 rows are equal", {"odd": 3}),
)

ALL = {
    "passed": PASSED,
    "failed": FAILED,
    "sampled": SAMPLED,
    "crashed": CRASHED,
    "strange": STRANGE,
    "empty": report(),
}
