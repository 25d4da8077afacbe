/* The rule `token` as a runner: one file of C99 that the gate can speak to.
 *
 *     cc -std=c99 -O2 -o chain chain.c
 *     specref gate --command ./chain
 *     specref gate --command "./chain --fault residual_is_target"
 *
 * One JSON object per line in, one out (specref/gate/runner.py describes them). Requests come
 * without spaces and hold nothing but integers, so strstr and strtoull read them.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names as in specref.FAULTS. */
enum fault { NONE, RESIDUAL_IS_TARGET, BONUS_FROM_LAST_DRAFT_ROW, COIN_REUSED, FAULTS };
static const char *const fault_names[FAULTS] = {
    "", "residual_is_target", "bonus_from_last_draft_row", "coin_reused"};

/* A chain: row i of p and q is the law of the token after i drafted tokens. */
typedef struct {
    size_t vocab, gamma;
    double *p, *q;
    uint64_t *tokens;
} chain;

static void *allocated(void *memory)
{
    if (!memory) {
        fputs("chain: out of memory\n", stderr);
        exit(1);
    }
    return memory;
}

/* The rule. */

/* First token whose cumulative weight exceeds u times the total; never one of weight 0. */
static size_t inverse_cdf(const double *weights, size_t vocab, double u)
{
    double total = 0, sum = 0;
    size_t last = 0;
    for (size_t x = 0; x < vocab; x++)
        total += weights[x];
    for (size_t x = 0; x < vocab; x++) {
        if (weights[x] <= 0)
            continue;
        sum += weights[x];
        last = x;
        if (u * total < sum)
            break;
    }
    return last;
}

/* The token after a refusal: from (p - q)+, or from p where rounding has left nothing of that. */
static size_t correction(const double *p, const double *q, size_t vocab, double u, double *scratch)
{
    double total = 0;
    for (size_t x = 0; x < vocab; x++) {
        scratch[x] = p[x] > q[x] ? p[x] - q[x] : 0;
        total += scratch[x];
    }
    return inverse_cdf(total > 0 ? scratch : p, vocab, u);
}

/* One round on given draws: a coin per drafted token, then the terminal draw. Returns its length. */
static size_t verify(const chain *c, const double *u, enum fault fault, double *scratch,
                     uint64_t *out)
{
    size_t at = 0;
    for (; at < c->gamma; at++) {
        const double *p = c->p + at * c->vocab, *q = c->q + at * c->vocab;
        uint64_t x = c->tokens[at];
        if (u[at] * q[x] < p[x]) {
            out[at] = x;
            continue;
        }
        if (fault == RESIDUAL_IS_TARGET)
            out[at] = inverse_cdf(p, c->vocab, u[c->gamma]);
        else
            out[at] = correction(p, q, c->vocab, u[fault == COIN_REUSED ? at : c->gamma], scratch);
        return at + 1;
    }
    const double *bonus = c->p + at * c->vocab;
    if (fault == BONUS_FROM_LAST_DRAFT_ROW && at > 0)
        bonus = c->q + (at - 1) * c->vocab;
    out[at] = inverse_cdf(bonus, c->vocab, u[c->gamma]);
    return at + 1;
}

/* Draws in "sample": splitmix64, of which the upper 24 bits are one draw. */
static double next_draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 40) / (1 << 24);
}

/* Lines in. */

/* Returns the next line without its end, in a buffer that the next call reuses; NULL at the end. */
static char *next_line(void)
{
    static char *line;
    static size_t size;
    size_t length = 0;
    for (;;) {
        if (size - length < 4096)
            line = allocated(realloc(line, size = size * 2 + 8192));
        if (!fgets(line + length, (int)(size - length < 1 << 30 ? size - length : 1 << 30), stdin))
            return length ? line : NULL;
        length += strlen(line + length);
        if (length && line[length - 1] == '\n') {
            line[length - 1] = '\0';
            return line;
        }
    }
}

/* Returns what stands behind a key, given with its quotes and colon; NULL if it is absent. */
static const char *behind(const char *line, const char *key)
{
    const char *found = strstr(line, key);
    return found ? found + strlen(key) : NULL;
}

/* Returns the integers behind a key, a single one or all in nested lists; NULL if it is absent. */
static uint64_t *numbers(const char *line, const char *key, size_t *count)
{
    const char *at = behind(line, key);
    size_t size = 16;
    int depth = 0;
    *count = 0;
    if (!at)
        return NULL;
    uint64_t *out = allocated(malloc(size * sizeof *out));
    for (; *at; at++) {
        if (*at == '[')
            depth++;
        else if (*at == ']')
            depth--;
        else if (*at >= '0' && *at <= '9') {
            char *end;
            if (*count == size)
                out = allocated(realloc(out, (size *= 2) * sizeof *out));
            out[(*count)++] = strtoull(at, &end, 10);
            at = end - 1;
        } else if (*at != ',')
            break;
        if (depth <= 0)
            break;
    }
    return out;
}

/* Returns one integer behind a key, 0 if it is absent. */
static uint64_t number(const char *line, const char *key)
{
    const char *at = behind(line, key);
    return at ? strtoull(at, NULL, 10) : 0;
}

/* Returns laws given as bits of float32, row by row, each divided by its sum; NULL if absent. */
static double *laws(const char *line, const char *key, size_t rows, size_t vocab)
{
    size_t count;
    uint64_t *bits = numbers(line, key, &count);
    double *out = NULL;
    if (bits && count == rows * vocab) {
        out = allocated(malloc(count * sizeof *out));
        for (size_t row = 0; row < rows; row++) {
            double total = 0, *law = out + row * vocab;
            for (size_t x = 0; x < vocab; x++) {
                uint32_t word = (uint32_t)bits[row * vocab + x];
                float weight;
                memcpy(&weight, &word, sizeof weight);
                total += law[x] = weight;
            }
            for (size_t x = 0; x < vocab; x++)
                law[x] /= total;
        }
    }
    free(bits);
    return out;
}

/* Fills in the chain of a request; returns what is wrong with it, or NULL. */
static const char *read_chain(const char *line, chain *c)
{
    c->vocab = (size_t)number(line, "\"vocab\":");
    c->tokens = numbers(line, "\"tokens\":", &c->gamma);
    if (!c->vocab || !c->tokens)
        return "vocab and tokens are needed";
    for (size_t at = 0; at < c->gamma; at++)
        if (c->tokens[at] >= c->vocab)
            return "a drafted token is outside the vocabulary";
    c->p = laws(line, "\"p\":", c->gamma + 1, c->vocab);
    c->q = laws(line, "\"q\":", c->gamma + 1, c->vocab);
    return c->p && c->q ? NULL : "p and q need a row of the vocabulary for each node";
}

/* Lines out. */

static void refuse(uint64_t id, const char *text)
{
    printf("{\"id\":%llu,\"error\":\"%s\"}\n", (unsigned long long)id, text);
}

/* Answers with n rounds: on the draws given as integers, or on own ones if there are none. */
static void answer(uint64_t id, const chain *c, const uint64_t *draws, size_t n, uint64_t seed,
                   enum fault fault)
{
    size_t width = c->gamma + 1;
    double *u = allocated(malloc(width * sizeof *u));
    double *scratch = allocated(malloc(c->vocab * sizeof *scratch));
    uint64_t *out = allocated(malloc(width * sizeof *out));
    printf("{\"id\":%llu,\"rows\":[", (unsigned long long)id);
    for (size_t row = 0; row < n; row++) {
        for (size_t at = 0; at < width; at++)
            u[at] = draws ? (double)draws[row * width + at] / (1 << 24) : next_draw(&seed);
        size_t length = verify(c, u, fault, scratch, out);
        for (size_t at = 0; at < length; at++)
            printf("%s%llu", at ? "," : row ? ",[" : "[", (unsigned long long)out[at]);
        putchar(']');
    }
    puts("]}");
    free(u);
    free(scratch);
    free(out);
}

static void handle(const char *line, enum fault fault)
{
    uint64_t id = number(line, "\"id\":");
    chain c = {0, 0, NULL, NULL, NULL};
    size_t count = 0;
    uint64_t *draws = numbers(line, "\"draws\":", &count);
    const char *wrong = read_chain(line, &c);
    if (wrong)
        refuse(id, wrong);
    else if (draws && count % (c.gamma + 1))
        refuse(id, "draws need a column for each drafted token and one more");
    else if (draws)
        answer(id, &c, draws, count / (c.gamma + 1), 0, fault);
    else
        answer(id, &c, NULL, (size_t)number(line, "\"n\":"), number(line, "\"seed\":"), fault);
    free(c.p);
    free(c.q);
    free(c.tokens);
    free(draws);
}

int main(int count, char **words)
{
    enum fault fault = NONE;
    if (count == 3 && !strcmp(words[1], "--fault"))
        for (int at = 1; at < FAULTS; at++)
            if (!strcmp(words[2], fault_names[at]))
                fault = (enum fault)at;
    if (count > 1 && fault == NONE) {
        fputs("usage: chain [--fault NAME]; NAME is one of", stderr);
        for (int at = 1; at < FAULTS; at++)
            fprintf(stderr, " %s", fault_names[at]);
        fputs("\n", stderr);
        return 2;
    }
    for (char *line; (line = next_line());) {
        uint64_t version = number(line, "\"specref\":");
        if (version == 1)
            printf("{\"name\":\"chain.c%s%s\",\"rules\":[\"token\"],"
                   "\"modes\":[\"sample\",\"decide\"]}\n",
                   fault ? " with " : "", fault_names[fault]);
        else if (version)
            refuse(0, "this runner speaks version 1 of the protocol");
        else
            handle(line, fault);
        fflush(stdout);
    }
    return 0;
}
