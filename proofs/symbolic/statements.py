"""Statements of the theory, each proved step by step by sympy, and printed.

Every function returns its `Page`: the steps in order, each an equation whose two sides were shown
to be the same expression, or an inequality whose gap was shown to be >= 0. Minima, maxima and
absolute values are taken apart by cases: where a >= b, a is b + t with t >= 0.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import sympy


@dataclass
class Page:
    """A statement and the steps of its proof.

    Attributes:
        statement: what is proved.
        names: the symbols that may occur.
        steps: the lines of the proof, as they are printed.
    """

    statement: str
    names: dict[str, Any] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)

    def let(self, names: str, **assumptions: bool) -> None:
        """Declare symbols; they are numbers >= 0 if nothing else is said."""
        for name in names.split():
            self.names[name] = sympy.Symbol(name, **(assumptions or {"nonnegative": True}))

    def read(self, text: str, where: dict[str, str]) -> Any:
        """Return a text as an expression, with some symbols replaced."""
        expression = sympy.sympify(text, locals=self.names)
        for name, value in where.items():
            expression = expression.subs(self.names[name], self.read(value, {}))
        return expression

    def equal(self, says: str, left: str, right: str, **where: str) -> None:
        """Add the step left = right.

        Args:
            says: what the step is.
            left, right: the sides.
            where: what a symbol is, in this case.

        Raises:
            ArithmeticError: the sides are not the same.
        """
        sides = [self.read(text, where) for text in (left, right)]
        if sympy.simplify(sympy.expand(sympy.expand(sides[0]) - sympy.expand(sides[1]))) != 0:
            raise ArithmeticError(f"{says}: {left} is {sides[0]}, and {right} is {sides[1]}")
        self.steps.append(f"{says}: {left} = {right}{_case(where)}")

    def at_least(self, says: str, left: str, right: str, gap: str, **where: str) -> None:
        """Add the step left >= right, as their difference is `gap`, which is >= 0.

        Raises:
            ArithmeticError: it is not the difference, or it is not seen to be >= 0.
        """
        if self.read(gap, where).is_nonnegative is not True:
            raise ArithmeticError(f"{says}: is {gap} >= 0?")
        self.equal(says, f"{left} - ({right})", gap, **where)
        self.steps[-1] = f"{says}: {left} >= {right}, the gap is {gap}{_case(where)}"

    def show(self) -> str:
        """Return the page as text."""
        lines = [f"  {at}. {step}" for at, step in enumerate(self.steps, start=1)]
        return "\n".join([self.statement, *lines])


def _case(where: dict[str, str]) -> str:
    return "".join(f", where {name} = {value}" for name, value in where.items())


def identities() -> Page:
    """Prove the three identities of the master lemma (`specref.lemma.OneByOne`).

    s is the law of the next child, o = r b what is owed, at one token; sums are over all tokens.
    """
    page = Page(
        "With a = min(1, o/s), w = (o - s)+, S = sum w and r = sum o: (i) s a = min(s, o); "
        "(ii) 1 - sum min(s, o) = 1 - r + S; (iii) min(s, o) + w = o, and (1 - r + S) r' b' = w "
        "for r' = S / (S + 1 - r), b' = w / S."
    )
    page.let("s S W", positive=True)
    page.let("o r t u w")
    # o / s = 1 + t or 1 - u.
    page.equal("(i), what a child receives", "s*Min(1, o/s)", "Min(s, o)", o="s*(1 + t)")
    page.equal("(i)", "s*Min(1, o/s)", "Min(s, o)", o="s*(1 - u)")
    page.equal("(iii)", "Min(s, o) + Max(o - s, 0)", "o", o="s + t")
    page.equal("(iii)", "Min(s, o) + Max(o - s, 0)", "o", s="o + t")
    page.equal("(ii), (iii) summed over tokens gives sum min = r - S", "1 - (r - S)", "1 - r + S")
    page.equal("(iii), a refusal hands on what is left", "(1 - r + S)*(S/(S + 1 - r))*(w/S)", "w")
    page.equal("at the root the weight stays 1", "S/(S + 1 - r)", "1", r="1")
    return page


def one_minus_tv() -> Page:
    """Prove that sum min(p, q) = 1 - TV, and that no lossless rule accepts more of one draft."""
    page = Page("The best acceptance of one draft from q is sum min(p, q) = 1 - TV(p, q).")
    page.let("p q t u TV slack rest")
    for where in ({"p": "q + t"}, {"q": "p + t"}):
        page.equal("at a token", "Min(p, q)", "(p + q - Abs(p - q))/2", **where)
    page.equal("summed, as laws sum to 1 and Abs(p - q) to 2 TV", "(1 + 1 - 2*TV)/2", "1 - TV")
    page.at_least("a draft is kept with chance 1 - slack", "q", "q*(1 - slack)", "q*slack")
    page.at_least("x is emitted with p = kept + rest", "p", "p - rest", "rest")
    kept = "so kept mass is min(p, q) at most, which `token` keeps"
    page.equal(kept, "q*1", "Min(p, q)", p="q + t")
    page.equal("and where p/q = 1 - u", "q*(p/q)", "Min(p, q)", p="q*(1 - u)")
    return page


def expected_length() -> Page:
    """Prove Leviathan et al. (2023), Eq. 1: the mean number of tokens of a round."""
    page = Page(
        "If each of gamma drafts is accepted with chance beta, given those before it, a round "
        "emits (1 - beta^(gamma + 1)) / (1 - beta) tokens in the mean."
    )
    page.let("b", positive=True)
    page.let("g", integer=True, nonnegative=True)
    mean = "(1 - b**(g + 1))/(1 - b)"
    page.equal("gamma = 0: one token", mean, "1", g="0")
    page.equal(
        "the next draft is kept with chance b^(g + 1), and adds one token",
        f"{mean} + b**(g + 1)",
        "(1 - b**(g + 2))/(1 - b)",
    )
    page.equal("b = 1: all drafts and the bonus", "Sum(1, (l, 0, g))", "g + 1")
    return page


def improvement() -> Page:
    """Prove Leviathan et al. (2023), Theorem 3.8, Corollary 3.9, and when one draft more pays."""
    page = Page(
        "If a draft takes c of the time of a target call, decoding is faster by the factor "
        "(1 - alpha^(gamma + 1)) / ((1 - alpha) (gamma c + 1))."
    )
    page.let("a c", positive=True)
    page.let("g", integer=True, nonnegative=True)
    mean, next_mean = "(1 - a**(g + 1))/(1 - a)", "(1 - a**(g + 2))/(1 - a)"
    page.equal(
        "tokens over time, where plain decoding has 1 over 1",
        f"({mean})/(g*c + 1)",
        "(1 - a**(g + 1))/((1 - a)*(g*c + 1))",
    )
    page.equal("Corollary 3.9, gamma = 1", f"({mean})/(g*c + 1)", "(1 + a)/(1 + c)", g="1")
    page.equal("it is above 1 iff alpha > c", "(1 + a)/(1 + c) - 1", "(a - c)/(1 + c)")
    page.equal(
        "one draft more pays iff a^(g + 1) (1 + g c) > c N(g)",
        f"(({next_mean})/((g + 1)*c + 1) - ({mean})/(g*c + 1))*((g + 1)*c + 1)*(g*c + 1)",
        f"a**(g + 1)*(1 + g*c) - c*({mean})",
    )
    return page


def block_weights() -> Page:
    """Prove the closed forms of `block` (`specref.closed.chain`): its weights, what it emits."""
    page = Page(
        "P_i, the weight of i tokens, is the least product of p/q over j+1..i, 0 <= j <= i. The i "
        "tokens are kept, with or without others behind them, with chance P_i; over all drafts, "
        "which have mass Q, y is the correction with mass (R p(y) - Q q(y))+, R = P_i Q."
    )
    page.let("ratio least t P p q Q")
    page.let("S", positive=True)
    page.at_least(
        "a factor keeps the order of products",
        "ratio*(least + t)",
        "ratio*least",
        "ratio*t",
    )
    page.equal(
        "P_i = min(1, ratio P_{i-1}) adds the empty product",
        "Min(1, ratio*least)",
        "Min(ratio*least, 1)",
    )
    for where in ({"P": "(q + t)/p"}, {"q": "P*p + t"}):
        page.equal(
            "a token behind them is drafted and kept with q min(1, P p/q) = min(q, P p)",
            "Min(q, P*p)",
            "P*p - Max(P*p - q, 0)",
            **where,
        )
    page.equal(
        "summed, P - S; else their own coin h is asked: kept with P in all",
        "(P - S) + (1 - (P - S))*(S/(S + 1 - P))",
        "P",
    )
    page.equal("h lets S pass, the mass of the correction", "(1 - (P - S))*(S/(S + 1 - P))", "S")
    for where in ({"P": "(q + t)/p"}, {"q": "P*p + t"}):
        page.equal("over all drafts", "Q*Max(P*p - q, 0)", "Max(Q*P*p - Q*q, 0)", **where)
    return page


def k_seq_bound() -> Page:
    """Prove that K-SEQ is valid for g <= rho, that rho = K is valid, and SpecTr's guarantee."""
    page = Page(
        "K-SEQ emits no token too often if g = (1 - (1 - beta)^K) / beta <= rho; rho = K always "
        "fulfils it; and then it accepts 1 - (1 - 1/K)^K of the optimum, or more."
    )
    page.let("K i", integer=True, positive=True)
    page.let("beta p q x y t slack")
    page.let("g", positive=True)
    page.equal("g, one test", "1*beta", "1 - (1 - beta)**K", K="1")
    page.equal(
        "g, one test more is reached with chance (1 - beta)^K",
        "(1 - (1 - beta)**K) + beta*(1 - beta)**K",
        "1 - (1 - beta)**(K + 1)",
    )
    page.at_least(
        "x is accepted with g min(q, p/rho), g p/rho at most, with rho = g + slack",
        "p",
        "g*p/(g + slack)",
        "p*slack/(g + slack)",
    )
    page.equal(
        "rho = K: g is a sum of K powers of y = 1 - beta, each 1 or less, as the next is smaller",
        "y**i - y**(i + 1)",
        "y**i*(1 - y)",
    )
    page.equal(
        "no rule accepts more of x than min(p, K q), K times what one test takes",
        "Min(p, K*q)",
        "K*Min(p/K, q)",
        p="K*q + K*t",
    )
    page.equal("the same", "Min(p, K*q)", "K*Min(p/K, q)", q="p/K + t")
    page.equal(
        "f = 1 - y^K, with y = 1 - x, is concave in y, hence in x",
        "diff(1 - y**K, y, 2)",
        "-K*(K - 1)*y**(K - 2)",
    )
    page.equal("f(0) = 0, so f(s/K) >= s f(1/K)", "1 - (1 - x)**K", "0", x="0")
    page.equal(
        "acceptance is f(beta), and beta >= optimum/K: take s = optimum",
        "1 - (1 - x)**K",
        "1 - (1 - 1/K)**K",
        x="1/K",
    )
    return page


STATEMENTS: dict[str, Callable[[], Page]] = {
    "identities": identities,
    "one_minus_tv": one_minus_tv,
    "expected_length": expected_length,
    "improvement": improvement,
    "block_weights": block_weights,
    "k_seq_bound": k_seq_bound,
}
"""The statements by name."""
