"""The law that is sampled from is not the one that the request asks for.

Most are laws of the next token, with the arguments of `logits.law` but for the preset: which one it
should follow is in the registry. They are as exact as the right law, since they are made of the
same rows. At the end are loops that apply parameters to part of the rows of a round, or once per
round; they are for targets that are a `logits.Process`, and leave others alone.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import unwrap
from typing import Any, TypeAlias

from specref.dist import Law, Number, entries, rational
from specref.draft import Node
from specref.faults.fault import Fault, Found, masses_of
from specref.faults.proposals import significant
from specref.faults.rounds import Round, exchanging, masked, until_end, with_rows
from specref.logits import PRESETS, Parameters, Process, Row, Score, filtered, law
from specref.logits.filters import epsilon
from specref.logits.parameters import OFF, forbids
from specref.logits.presets import PENALTIES
from specref.logits.processors import Context as Said
from specref.model import Context

Tokens: TypeAlias = Sequence[int]

TRANSFORMERS, VLLM = PRESETS["transformers"], PRESETS["vllm"]
FILTERS = ("top_k", "top_p", "min_p", "typical_p", "epsilon", "eta", "top_n_sigma")


def without(parameters: Parameters, *names: str) -> Parameters:
    """Return parameters of which some are off."""
    return replace(parameters, **{name: OFF[name] for name in names})


def exchanged(
    logits: Iterable[Any],
    parameters: Parameters,
    prompt: Tokens,
    output: Tokens,
    wrong: Mapping[str, Callable[[Row], Row]],
) -> Found:
    """Return the law that transformers' steps give when some of them are exchanged.

    Args:
        logits, parameters, prompt, output: as for `logits.law`.
        wrong: by the name of a step, what takes its place where it acts.
    """
    scores = entries(logits, "logits")
    acts = TRANSFORMERS.read(parameters, len(scores))
    Said(prompt, output, len(scores))  # refuses tokens out of range
    for name in TRANSFORMERS.names:
        if not acts[name]:
            continue
        if name in wrong:
            row = wrong[name](filtered(scores))
        else:
            alone = without(parameters, *(other for other in OFF if other != name))
            row = filtered(scores, alone, prompt=prompt, output=output)
        scores = tuple(row.scores.get(x) for x in range(row.vocab))
    return law(scores)


def grammar_at(parameters: Parameters, output: Tokens) -> Parameters:
    """Return parameters of which the grammar stays in its state after `output`."""
    allowed = parameters.allowed
    if not callable(allowed):
        return parameters
    return replace(parameters, allowed=tuple(allowed(tuple(output))))


def settled(parameters: Parameters, output: Tokens) -> Parameters:
    """Return parameters whose masks are those after `output`, whatever they are asked for."""
    asked = grammar_at(parameters, output)
    if len(output) >= asked.min_tokens:
        return without(asked, "min_tokens")
    return replace(asked, min_tokens=len(output) + 1)


def falling(row: Row) -> list[int]:
    """Return the tokens by falling weight, equal ones by rising id."""
    return [x for group in row.order() for x in group]


def share_sign(row: Row, tokens: Tokens, share: Number) -> int:
    """Return the sign of the mass of tokens minus a share."""
    pair = tokens[0], tokens[-1]
    return row.sign(row.sum(tokens), row.sum(row.scores), share, "top_p", pair)


def temperature_ignored(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Sample at temperature 1, whatever was asked for; a test at temperature 1 sees nothing."""
    return law(logits, replace(parameters, temperature=1), prompt=prompt, output=output)


def target_unfiltered(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Take the model's own law: neither temperature nor filters reach the verified rows."""
    asked = without(parameters, "temperature", *FILTERS)
    return law(logits, asked, prompt=prompt, output=output)


def temperature_multiplied(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Multiply the logits by the temperature, so that a high one sharpens."""

    def wrong(row: Row) -> Row:
        return row.changed(lambda _, score: score.times(parameters.temperature))

    if parameters.temperature == 0:
        return law(logits, parameters, prompt=prompt, output=output)
    return exchanged(logits, parameters, prompt, output, {"temperature": wrong})


def temperature_last(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Filter at temperature 1, and divide the logits that stay by the temperature."""
    steps = [name for name in TRANSFORMERS.steps if name != "temperature"]
    late = replace(TRANSFORMERS, steps=(*steps, "temperature"))
    return law(logits, parameters, late, prompt=prompt, output=output)


def sampled_greedily(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Take the likeliest token at every temperature."""
    return law(logits, replace(parameters, temperature=0), prompt=prompt, output=output)


def greedy_sampled(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Sample at temperature 1 where temperature 0 is asked for."""
    asked = replace(parameters, temperature=1) if parameters.temperature == 0 else parameters
    return law(logits, asked, prompt=prompt, output=output)


def logits_softmaxed_twice(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Treat the probabilities of the model as if they were logits; those that are 0 stay 0."""
    again = [mass if mass else None for mass in masses_of(law(logits))]
    return law(again, parameters, prompt=prompt, output=output)


def masked_as_zero(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Replace logits that are NaN or minus infinity by 0, which is the logit of a likely token.

    Masked tokens become NaN where infinities are subtracted. Where a logit was NaN to begin with,
    no law is right, and `logits.law` refuses it.
    """

    def lost(value: Any) -> bool:
        number = not isinstance(value, Score)
        return value is None or (number and (value != value or forbids(value)))

    read = [rational(0) if lost(value) else value for value in entries(logits, "logits")]
    return law(read, parameters, prompt=prompt, output=output)


def bias_ignored(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Leave out the bias."""
    return law(logits, without(parameters, "bias"), prompt=prompt, output=output)


def penalties_ignored(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Leave out the repetition, presence and frequency penalties."""
    return law(logits, without(parameters, *PENALTIES), VLLM, prompt=prompt, output=output)


def processors_ignored(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Leave out all that depends on the text or names tokens: bias, penalties, masks, min_tokens.

    Only temperature and filters are kept.
    """
    asked = without(parameters, *PENALTIES, "bias", "allowed", "min_tokens")
    return law(logits, asked, prompt=prompt, output=output)


def penalties_lag(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Count for the penalties what came before the last token, which is not entered yet."""
    earlier = tuple(output)[:-1]
    return law(logits, settled(parameters, output), VLLM, prompt=prompt, output=earlier)


def grammar_lags(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Ask the grammar for its state before the last token."""
    asked = grammar_at(parameters, tuple(output)[:-1])
    return law(logits, asked, prompt=prompt, output=output)


def prompt_unpenalised(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Count for the repetition penalty what was emitted, and not the prompt."""
    return law(logits, parameters, output=output)


def prompt_penalised(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Count for the presence and frequency penalties the prompt too."""
    return law(logits, parameters, replace(VLLM, counted="all"), prompt=prompt, output=output)


def penalty_divides_negative(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Divide logits by the repetition penalty also where they are negative, which raises them."""
    came = Counter((*prompt, *output))

    def wrong(row: Row) -> Row:
        share = 1 / parameters.repetition_penalty
        return row.changed(lambda x, score: score.times(share) if x in came else score)

    return exchanged(logits, parameters, prompt, output, {"repetition_penalty": wrong})


def frequency_counted_once(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Subtract the frequency penalty once from every token that came, however often it came."""
    both = parameters.presence_penalty + parameters.frequency_penalty
    asked = replace(parameters, presence_penalty=both, frequency_penalty=0)
    return law(logits, asked, VLLM, prompt=prompt, output=output)


def filter_ascending(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Sort upwards under a top-k and top-p mask for falling order: the least likely tokens stay."""

    def top_k(row: Row) -> Row:
        return row.keep(falling(row)[::-1][: parameters.top_k])

    def top_p(row: Row) -> Row:
        rising = falling(row)[::-1]
        count = 1
        while share_sign(row, rising[:count], parameters.top_p) < 0:
            count += 1
        return row.keep(rising[:count])

    return exchanged(logits, parameters, prompt, output, {"top_k": top_k, "top_p": top_p})


def top_k_cuts_ties(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Keep exactly k tokens, those of low id first, where all that equal the k-th should stay."""
    strict = replace(TRANSFORMERS, top_k_ties="lowest")
    return law(logits, parameters, strict, prompt=prompt, output=output)


def top_k_drops_the_last(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Keep what is above the k-th likeliest token, which itself is dropped; one token stays."""

    def wrong(row: Row) -> Row:
        kth = falling(row)[: parameters.top_k][-1]
        groups = row.order()
        above = groups[: [kth in group for group in groups].index(True)]
        return row.keep(x for group in above or groups[:1] for x in group)

    return exchanged(logits, parameters, prompt, output, {"top_k": wrong})


def nucleus_exceeds(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Go on until the kept mass is above top_p: where it is just reached, one token too many."""
    beyond = replace(TRANSFORMERS, nucleus="exceeds")
    return law(logits, parameters, beyond, prompt=prompt, output=output)


def nucleus_stays_below(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Drop the token with which the mass comes to exceed top_p; the likeliest always stays."""

    def wrong(row: Row) -> Row:
        order = falling(row)
        count = 1
        while count < len(order) and (share_sign(row, order[: count + 1], parameters.top_p) <= 0):
            count += 1
        return row.keep(order[:count])

    return exchanged(logits, parameters, prompt, output, {"top_p": wrong})


def cumulative_sum_rounded(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Add up the nucleus in bfloat16: behind a large mass small ones vanish, and it never ends."""

    def wrong(row: Row) -> Row:
        masses = masses_of(row.law(rational(1, 10**30)))
        kept, total = [], rational(0)
        for x in falling(row):
            if total >= parameters.top_p:
                break
            kept.append(x)
            total = significant(total + significant(masses[x], 8), 8)
        return row.keep(kept or falling(row)[:1])

    return exchanged(logits, parameters, prompt, output, {"top_p": wrong})


def top_p_before_top_k(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Take the nucleus of the whole law, and the k likeliest of it."""
    steps = [name for name in TRANSFORMERS.steps if name != "top_k"]
    at = steps.index("top_p") + 1
    swapped = replace(TRANSFORMERS, steps=(*steps[:at], "top_k", *steps[at:]))
    return law(logits, parameters, swapped, prompt=prompt, output=output)


def min_p_absolute(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Hold masses to min_p itself, not to its share of the largest mass; the likeliest stay."""

    def wrong(row: Row) -> Row:
        return row.keep(epsilon(row, parameters.min_p))

    return exchanged(logits, parameters, prompt, output, {"min_p": wrong})


def min_p_of_logits(
    logits: Iterable[Any], parameters: Parameters, prompt: Tokens = (), output: Tokens = ()
) -> Found:
    """Hold logits to a share of the largest logit, as if they were masses; the likeliest stay."""

    def wrong(row: Row) -> Row:
        best = row.order()[0]
        bar = row.scores[best[0]].times(parameters.min_p)
        above = row.changed(lambda _, score: score - bar)
        kept = [x for x, d in above.scores.items() if d.sign() == 0 or above.positive(x)]
        return row.keep([*best, *kept])

    return exchanged(logits, parameters, prompt, output, {"min_p": wrong})


def under(
    now: Round, ask: Callable[[Parameters, Context], tuple[Parameters, Context]]
) -> Callable[[Node, Context], Law]:
    """Return what gives a row under other parameters.

    Args:
        now: the round; its target's own rows stay if that is no `Process`.
        ask: from the parameters and the text of a row to the parameters and the output that its law
            is computed with.
    """
    process = unwrap(now.p)
    if not isinstance(process, Process):
        return lambda node, text: node.p

    def late(text: Context) -> Law:
        parameters, output = ask(process.parameters or Parameters(), text)
        found = law(
            process.logits(text),
            parameters,
            process.preset,
            prompt=process.prompt,
            output=output,
            digits=process.digits,
            bits=process.bits,
        )
        return masses_of(found)

    model = until_end(now, masked(now, late))
    return lambda node, text: model(text)


@exchanging("submitted")
def min_p_on_bonus_only(now: Round, root: Node) -> Node:
    """Leave min_p out of the rows that are verified; the row of the bonus has it."""
    raw = under(now, lambda asked, text: (without(asked, "min_p"), text))
    return with_rows(
        root, now.here, lambda node, text: raw(node, text) if node.children else node.p
    )


@exchanging("submitted")
def bonus_row_unmasked(now: Round, root: Node) -> Node:
    """Compute a mask for every draft and none for the row behind the last; a bonus ignores it."""
    raw = under(now, lambda asked, text: (without(asked, "allowed"), text))

    def row(node: Node, text: Context) -> Law:
        return node.p if node.children or node is root else raw(node, text)

    return with_rows(root, now.here, row)


@exchanging("submitted")
def grammar_asked_once_per_round(now: Round, root: Node) -> Node:
    """Ask the grammar for its state at the start of a round, and mask all its rows by that.

    A token that the grammar forbids after an accepted draft can then come out.
    """
    return with_rows(
        root, now.here, under(now, lambda asked, text: (grammar_at(asked, now.here), text))
    )


@exchanging("submitted")
def penalties_counted_once_per_round(now: Round, root: Node) -> Node:
    """Penalise all rows of a round by what came before it: a draft that repeats costs nothing."""
    return with_rows(
        root, now.here, under(now, lambda asked, text: (settled(asked, text), now.here))
    )


FAULTS = (
    Fault(
        "temperature_ignored", "token", "requests",
        "The law at temperature 1.",
        "Logits are divided by the temperature.",
        law=temperature_ignored,
        links=("ohdearquant/lattice#388", "ohdearquant/lattice#974"),
    ),
    Fault(
        "target_unfiltered", "token", "requests",
        "The law of the model, at temperature 1 and without filters.",
        "Temperature and filters reach every row that is verified.",
        law=target_unfiltered,
        links=("vllm-project/vllm#9834", "vllm-project/vllm#10198"),
    ),
    Fault(
        "temperature_multiplied", "token", "requests",
        "Logits are multiplied by the temperature.",
        "Logits are divided by the temperature.",
        law=temperature_multiplied,
    ),
    Fault(
        "temperature_last", "token", "requests",
        "Filters look at the law at temperature 1; the temperature acts on what they leave.",
        "The temperature acts before the filters.",
        law=temperature_last,
    ),
    Fault(
        "sampled_greedily", "token", "requests",
        "The likeliest token is certain at every temperature.",
        "At temperatures above 0 tokens are sampled.",
        law=sampled_greedily,
        links=("sgl-project/sglang#31214", "sgl-project/sglang#39253"),
    ),
    Fault(
        "greedy_sampled", "token", "requests",
        "Temperature 0 is sampled as temperature 1.",
        "At temperature 0 the likeliest token is certain.",
        law=greedy_sampled,
        links=("jaymody/speculative-sampling#3", "vllm-project/vllm#3951"),
    ),
    Fault(
        "logits_softmaxed_twice", "token", "requests",
        "Probabilities are taken for logits, and the request acts on them.",
        "The request acts on the logits.",
        law=logits_softmaxed_twice,
        links=("vllm-project/vllm-ascend#6685",),
    ),
    Fault(
        "masked_as_zero", "token", "requests",
        "Logits that are NaN or minus infinity become 0.",
        "Minus infinity is no mass, and NaN is an error.",
        law=masked_as_zero,
        links=("vllm-project/vllm-ascend#14116",),
    ),
    Fault(
        "bias_ignored", "token", "requests",
        "The bias is left out.",
        "The bias is added to the logits.",
        law=bias_ignored,
        links=("vllm-project/vllm#38202", "vllm-project/vllm#38467"),
    ),
    Fault(
        "penalties_ignored", "token", "requests",
        "Repetition, presence and frequency penalties are left out.",
        "Penalties act, or are refused.",
        law=penalties_ignored, preset="vllm",
        links=("NVIDIA/TensorRT-LLM#17701",),
    ),
    Fault(
        "processors_ignored", "token", "requests",
        "Bias, penalties, masks and min_tokens are left out.",
        "All that is asked for acts on every row.",
        law=processors_ignored,
        links=("intel/ipex-llm#9963",),
    ),
    Fault(
        "penalties_lag", "token", "requests",
        "Penalties count what came before the last token.",
        "Penalties count the last token too.",
        law=penalties_lag, preset="vllm",
    ),
    Fault(
        "grammar_lags", "token", "requests",
        "The grammar is asked for its state before the last token.",
        "The mask is that of the state behind the last token.",
        law=grammar_lags,
        links=("vllm-project/vllm#44297",),
    ),
    Fault(
        "prompt_unpenalised", "token", "requests",
        "The repetition penalty counts what was emitted.",
        "The repetition penalty counts the prompt too.",
        law=prompt_unpenalised,
    ),
    Fault(
        "prompt_penalised", "token", "requests",
        "Presence and frequency penalties count the prompt too.",
        "They count what was emitted.",
        law=prompt_penalised, preset="vllm",
    ),
    Fault(
        "penalty_divides_negative", "token", "requests",
        "The repetition penalty divides negative logits too, which raises them.",
        "Positive logits are divided, and others multiplied.",
        law=penalty_divides_negative,
    ),
    Fault(
        "frequency_counted_once", "token", "requests",
        "The frequency penalty is subtracted once from every token that came.",
        "It is subtracted as often as the token came.",
        law=frequency_counted_once, preset="vllm",
    ),
    Fault(
        "filter_ascending", "token", "requests",
        "Top-k and top-p keep the least likely tokens.",
        "They keep the likeliest.",
        law=filter_ascending,
        links=("RBLN-SW/vllm-rbln#58",),
    ),
    Fault(
        "top_k_cuts_ties", "token", "requests",
        "Top-k keeps exactly k tokens, of equal ones those of low id.",
        "Tokens that equal the k-th stay.",
        law=top_k_cuts_ties,
    ),
    Fault(
        "top_k_drops_the_last", "token", "requests",
        "Top-k keeps the tokens above the k-th likeliest.",
        "The k-th likeliest stays.",
        law=top_k_drops_the_last,
    ),
    Fault(
        "nucleus_exceeds", "token", "requests",
        "The nucleus goes on until its mass is above top_p.",
        "It ends where its mass reaches top_p.",
        law=nucleus_exceeds,
    ),
    Fault(
        "nucleus_stays_below", "token", "requests",
        "The token with which the mass comes to exceed top_p is dropped.",
        "That token stays.",
        law=nucleus_stays_below,
    ),
    Fault(
        "cumulative_sum_rounded", "token", "requests",
        "The mass of the nucleus is added up in bfloat16, where small masses vanish.",
        "Sums are kept in float32 or better.",
        law=cumulative_sum_rounded,
        links=("NVIDIA/Megatron-LM#7182",),
    ),
    Fault(
        "top_p_before_top_k", "token", "requests",
        "The nucleus is taken first, of the whole law, and top-k of what it leaves.",
        "Top-p looks at the law that top-k leaves.",
        law=top_p_before_top_k,
    ),
    Fault(
        "min_p_absolute", "token", "requests",
        "Tokens of mass min_p or more are kept.",
        "The bar is min_p times the largest mass.",
        law=min_p_absolute,
    ),
    Fault(
        "min_p_of_logits", "token", "requests",
        "Tokens are kept whose logit is at least min_p times the largest logit.",
        "The bar is min_p times the largest mass.",
        law=min_p_of_logits,
    ),
    Fault(
        "min_p_on_bonus_only", "token", "requests",
        "Rows that are verified have no min_p; the row of the bonus has it.",
        "Every row is the law that was asked for.",
        loop=min_p_on_bonus_only,
        links=("vllm-project/vllm#42744", "vllm-project/vllm#42802"),
    ),
    Fault(
        "bonus_row_unmasked", "token", "requests",
        "The row behind the last draft has no mask.",
        "There are masks for all drafts and one more.",
        loop=bonus_row_unmasked,
        links=("vllm-project/vllm#50952",),
    ),
    Fault(
        "grammar_asked_once_per_round", "token", "requests",
        "All rows of a round are masked by the grammar's state at its start.",
        "Each row is masked by the state behind the drafts before it.",
        loop=grammar_asked_once_per_round,
        links=("vllm-project/vllm#44297",),
    ),
    Fault(
        "penalties_counted_once_per_round", "token", "requests",
        "All rows of a round are penalised by what came before it.",
        "Each row counts the drafts before it too.",
        loop=penalties_counted_once_per_round,
    ),
)  # fmt: skip
"""The faults of this family."""
