"""Samplers that have a `law`: honest ones in float32, that read parameters as libraries do; others.

None of them uses `specref.logits`. `Honest` works row by row in NumPy: its steps, ties and
boundaries are attributes. `Torch` works on whole batches. Wrong ones change one thing.
"""

import numpy as np

F = np.float32
CORE = ("temperature", "top_k", "top_p", "min_p")
PENALTIES = ("repetition_penalty", "frequency_penalty", "presence_penalty")


def softmax(scores):
    """Return the float32 softmax of a row; minus infinity has mass 0."""
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def dropped(scores, keep):
    """Return scores with all tokens but these at minus infinity."""
    return np.where(keep, scores, F(-np.inf))


class Honest:
    """A sampler of one row at a time.

    Attributes:
        steps: in the order in which they act.
        exact_k: whether exactly k tokens stay, low ids first; else all that equal the k-th.
        ties: which of equal tokens the nucleus takes first, "lowest" or "highest"; or "all".
        output_only: whether presence and frequency look at the output alone.
    """

    preset = "vllm"
    parameters = (*CORE, *PENALTIES, "bias", "allowed", "min_tokens")
    steps = ("allowed", "bias", "min_tokens", *PENALTIES, "temperature", "min_p", "top_k", "top_p")
    exact_k, ties, output_only = True, "lowest", True

    @property
    def name(self):
        return type(self).__name__

    def law(self, logits, params):
        return np.stack([softmax(self.scores(row, params)) for row in logits])

    def scores(self, row, params):
        scores = row.copy()
        for step in self.steps:
            if step in params:
                scores = getattr(self, step)(scores, params[step], params)
        return scores

    def said(self, params, output_only=False):
        return [] if output_only else params["prompt"], params["output"]

    def counts(self, scores, params, output_only=False):
        prompt, output = self.said(params, output_only)
        return np.bincount([*prompt, *output], minlength=len(scores)).astype(F)

    def allowed(self, scores, tokens, params):
        return dropped(scores, np.isin(np.arange(len(scores)), tokens))

    def bias(self, scores, bias, params):
        scores = scores.copy()
        for x, value in bias.items():
            scores[x] += F(value)
        return scores

    def min_tokens(self, scores, least, params):
        ended = len(params["output"]) >= least
        return scores if ended else dropped(scores, ~np.isin(np.arange(len(scores)), params["eos"]))

    def repetition_penalty(self, scores, penalty, params):
        changed = np.where(scores > 0, scores / F(penalty), scores * F(penalty))
        return np.where(self.counts(scores, params) > 0, changed, scores)

    def presence_penalty(self, scores, penalty, params):
        return scores - F(penalty) * (self.counts(scores, params, self.output_only) > 0)

    def frequency_penalty(self, scores, penalty, params):
        return scores - F(penalty) * self.counts(scores, params, self.output_only)

    def temperature(self, scores, temperature, params):
        if temperature == 0:
            return dropped(scores, np.arange(len(scores)) == scores.argmax())
        return scores / F(temperature)

    def top_k(self, scores, k, params):
        if not 0 < k < len(scores):
            return scores
        if self.exact_k:
            keep = np.zeros(len(scores), bool)
            keep[np.argsort(-scores, kind="stable")[:k]] = True
            return dropped(scores, keep)
        return dropped(scores, scores >= np.sort(scores)[-k])

    def top_p(self, scores, mass, params):
        masses = softmax(scores)
        if self.ties == "all":
            above = np.array([masses[masses > m].sum(dtype=F) for m in masses])
            return dropped(scores, above < F(mass)) if mass < 1 else scores
        places = np.arange(len(scores)) * (-1 if self.ties == "highest" else 1)
        order = np.lexsort((places, -masses))
        sums = np.cumsum(masses[order], dtype=F)
        keep = np.zeros(len(scores), bool)
        keep[order] = self.enough(sums, masses[order], F(mass))
        return dropped(scores, keep) if mass < 1 else scores

    def enough(self, sums, masses, mass):
        before = np.concatenate([[F(0)], sums[:-1]])
        return (before < mass) | (np.arange(len(sums)) == 0)

    def min_p(self, scores, share, params):
        masses = softmax(scores)
        return dropped(scores, masses >= F(share) * masses.max())


class Vllm(Honest):
    """Steps and ties of preset vllm."""


class FlashInfer(Honest):
    """Filters on probabilities; all that are tied stay."""

    preset = "flashinfer"
    parameters = (*CORE, "bias", "allowed", "min_tokens")
    steps = ("allowed", "bias", "min_tokens", "temperature", "top_k", "top_p", "min_p")
    exact_k, ties = False, "all"


class Joint(FlashInfer):
    """top_k and top_p look at the same law."""

    preset = "flashinfer_joint"

    def top_k(self, scores, k, params):
        kept = super().top_k(scores, k, params)
        if "top_p" not in params:
            return kept
        nucleus = super().top_p(scores, params["top_p"], params)
        return dropped(kept, nucleus > -np.inf)

    def top_p(self, scores, mass, params):
        return scores if "top_k" in params else super().top_p(scores, mass, params)


class LlamaCpp(Honest):
    """The temperature comes last, and penalties look at everything."""

    preset = "llama_cpp"
    parameters = (*CORE, *PENALTIES, "top_n_sigma", "bias", "allowed")
    steps = ("bias", "allowed", *PENALTIES, "top_n_sigma", "top_k", "top_p", "min_p", "temperature")
    output_only = False

    def top_n_sigma(self, scores, n, params):
        finite = scores[scores > -np.inf]
        return dropped(scores, scores >= scores.max() - F(n) * finite.std()) if n else scores


class Mlx(Honest):
    """The nucleus keeps ties, and comes first."""

    preset = "mlx"
    parameters = (*CORE, *PENALTIES, "bias", "allowed")
    steps = (
        "bias", "allowed", "repetition_penalty", "presence_penalty", "frequency_penalty",
        "top_p", "min_p", "top_k", "temperature",
    )  # fmt: skip
    ties, output_only = "all", False


class Eagle(Honest):
    """top_p before top_k."""

    preset = "eagle"
    parameters = ("temperature", "top_k", "top_p")
    steps = ("temperature", "top_p", "top_k")
    exact_k, ties = False, "highest"


class TrtLlm(Honest):
    """Filters in the usual order; the k-th value keeps its ties."""

    preset = "trt_llm"
    parameters = ("temperature", "top_k", "top_p", "bias", "allowed", "min_tokens")
    exact_k = False


class Torch:
    """Whole batches in torch, as preset transformers reads the parameters."""

    name, preset, parameters = "Torch", "transformers", CORE

    def law(self, logits, params):
        import torch

        scores = torch.from_numpy(logits.copy())
        low = torch.tensor(float("-inf"))
        temperature = params.get("temperature", 1.0)
        if temperature == 0:
            return torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]).tolist()
        scores = scores / temperature
        k = params.get("top_k", 0)
        if 0 < k < scores.shape[-1]:
            scores = torch.where(scores < scores.topk(k).values[:, -1:], low, scores)
        mass = params.get("top_p", 1.0)
        if mass < 1:
            rising, order = scores.sort(dim=-1, stable=True)
            drop = rising.softmax(-1).cumsum(-1) <= 1 - mass
            drop[:, -1] = False
            scores = torch.where(drop.gather(-1, order.argsort(-1)), low, scores)
        masses = scores.softmax(-1)
        least = params.get("min_p", 0.0) * masses.amax(-1, keepdim=True)
        return torch.where(masses < least, low, scores).softmax(-1)


class LogDomain(Vllm):
    """Keeps logarithms of masses, so that bounds which are met exactly may be missed."""

    def enough(self, sums, masses, mass):
        with np.errstate(divide="ignore"):
            logs = np.log(masses) - np.log(masses.sum(dtype=F))
        return super().enough(np.cumsum(np.exp(logs), dtype=F), masses, mass)


HONEST = (Vllm, FlashInfer, Joint, LlamaCpp, Mlx, Eagle, TrtLlm, Torch, LogDomain)


# Wrong ones. Those that a known fault describes follow preset transformers, as most faults do.


class Transformers(Honest):
    """Preset transformers, row by row."""

    preset = "transformers"
    parameters = (*CORE, "repetition_penalty", "bias", "allowed")
    steps = ("bias", "repetition_penalty", "allowed", "temperature", "top_k", "top_p", "min_p")
    exact_k, ties = False, "highest"


def leaving_out(base, *names):
    """Return a sampler class without some steps; it still declares them."""
    kept = tuple(step for step in base.steps if step not in names)
    return type(f"Without{''.join(name.title() for name in names)}", (base,), {"steps": kept})


class NanAsZero(Transformers):
    """Masked tokens become NaN on the way, and NaN becomes 0, a likely logit."""

    def scores(self, row, params):
        return super().scores(np.where(row > -np.inf, row, F(0)), params)


class Ascending(Transformers):
    """Sorts upwards under a mask for falling order."""

    def top_k(self, scores, k, params):
        finite = np.flatnonzero(scores > -np.inf)
        rising = finite[np.lexsort((-finite, scores[finite]))]
        return dropped(scores, np.isin(np.arange(len(scores)), rising[:k]))

    def top_p(self, scores, mass, params):
        masses = softmax(scores)
        order = np.lexsort((-np.arange(len(scores)), masses))
        order = order[scores[order] > -np.inf]
        keep = np.zeros(len(scores), bool)
        keep[order] = self.enough(np.cumsum(masses[order], dtype=F), masses[order], F(mass))
        return dropped(scores, keep)


class AlwaysGreedy(Transformers):
    """Takes the likeliest token at every temperature."""

    def scores(self, row, params):
        return super().scores(row, {**params, "temperature": 0.0})


def bfloat16(value):
    """Round a float32 to 8 significant bits, to even."""
    bits = int(np.asarray(value, F).view(np.uint32))
    return np.array((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000, np.uint32).view(F)


class HalfSums(Transformers):
    """Adds masses up in bfloat16, highest first."""

    def top_p(self, scores, mass, params):
        masses = softmax(scores)
        order = np.lexsort((-np.arange(len(scores)), -masses))
        total, keep = F(0), np.zeros(len(scores), bool)
        for x in order:
            if total >= mass:
                break
            keep[x] = True
            total = bfloat16(total + bfloat16(masses[x]))
        return dropped(scores, keep)


class ExactK(Transformers):
    """Cuts ties at the k-th value."""

    exact_k = True


class Exceeds(Transformers):
    """Goes on until the kept mass is above top_p."""

    def enough(self, sums, masses, mass):
        before = np.concatenate([[F(0)], sums[:-1]])
        return before <= mass


class TemperatureLast(Transformers):
    """Filters at temperature 1."""

    steps = (*(s for s in Transformers.steps if s != "temperature"), "temperature")


class MinPOfLogits(Transformers):
    """Holds logits to a share of the largest logit."""

    def min_p(self, scores, share, params):
        best = scores.max()
        return dropped(scores, (scores >= F(share) * best) | (scores == best))


class Twice(Transformers):
    """Takes masses for logits; those that are 0 stay impossible."""

    def scores(self, row, params):
        masses = softmax(row)
        return super().scores(np.where(row > -np.inf, masses, F(-np.inf)), params)


class OutputOnly(Transformers):
    """Counts for the repetition penalty what was emitted, and not the prompt."""

    def said(self, params, output_only=False):
        return [], params["output"]


class DividesNegative(Transformers):
    """Divides negative logits by the repetition penalty, which raises them."""

    def repetition_penalty(self, scores, penalty, params):
        return np.where(self.counts(scores, params) > 0, scores / F(penalty), scores)


class FirstRowMasked(Transformers):
    """Applies the allowed tokens to the first row of a call only."""

    def law(self, logits, params):
        free = {name: value for name, value in params.items() if name != "allowed"}
        first = super().law(logits[:1], params)
        return np.concatenate([first, super().law(logits[1:], free)]) if len(logits) > 1 else first


class RowsSwapped(Transformers):
    """Answers each row of a call with the law of the row before it."""

    def law(self, logits, params):
        return np.roll(super().law(logits, params), 1, axis=0)


class NanWhenCold(Transformers):
    """Divides by a temperature of 0."""

    def temperature(self, scores, temperature, params):
        with np.errstate(all="ignore"):
            return scores / F(temperature)

    def law(self, logits, params):
        with np.errstate(all="ignore"):
            return super().law(logits, params)


class Overflows(Transformers):
    """Takes exponentials without subtracting the largest logit."""

    def law(self, logits, params):
        with np.errstate(all="ignore"):
            powers = np.exp(np.stack([self.scores(row, params) for row in logits]))
            return powers / powers.sum(-1, keepdims=True)


class NotRenormalised(Transformers):
    """Drops tokens from the law and leaves the rest as it was."""

    def law(self, logits, params):
        plain = {n: v for n, v in params.items() if n not in ("top_k", "top_p", "min_p")}
        whole = super().law(logits, plain)
        return np.where(super().law(logits, params) > 0, whole, F(0))


class Leaks(Transformers):
    """Gives every token a little, also those that are ruled out."""

    def law(self, logits, params):
        return np.maximum(super().law(logits, params), F(1e-9))


class NeutralMisread(Transformers):
    """Takes neutral values for requests: top_k = 0 keeps one token."""

    def top_k(self, scores, k, params):
        return super().top_k(scores, max(k, 1), params)


class PromptToo(Vllm):
    """Counts for the presence and frequency penalties the prompt too."""

    output_only = False


class CountedOnce(Vllm):
    """Subtracts the frequency penalty once from every token that came."""

    def frequency_penalty(self, scores, penalty, params):
        return self.presence_penalty(scores, penalty, params)


class FavoursTheFirst(Transformers):
    """Gives token 0 a little more."""

    def scores(self, row, params):
        scores = super().scores(row, params)
        scores[0] += F(0.25)
        return scores


class SometimesExceeds(Vllm):
    """Misses a bound that is met exactly, but not everywhere."""

    def enough(self, sums, masses, mass):
        return super().enough(sums, masses, mass + F(1e-7) if mass < 0.3 else mass)
