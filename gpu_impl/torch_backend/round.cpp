// One round of a batch on a CPU: every request walks from its root to the token that ends it.
//
// What walk.py does for all requests at once, this does for one after the other, in the same order
// of operations. All residuals are max(a p - c q, 0), and the four walks are:
//
// - ratio: a draft x is accepted at a coin u if u (M / Q) q(x) < p(x) - c q(x). M is what is left
//   of the target behind refused siblings, the mass of (p - c q)+, and Q what is left of q (1, if
//   siblings are drawn with replacement). Where x is refused, c grows by M / Q.
// - certain: one coin for all siblings, which is looked up in the sums of their p.
// - match: the target draws, and the walk follows the child that has its token.
// - block: weights min(w p / q, 1) down a chain, and coins from its end up.
//
// Nothing here depends on other requests, so neither do results on threads, on the batch, or on
// whether rows are read ahead.

#include <cmath>

#include "rows.h"

namespace {

using namespace rows;

// As in status.py.
enum Status {
    BAD_TARGET = 1,
    BAD_DRAFT = 2,
    ZERO_DRAFT = 4,
    BAD_TOKEN = 8,
    EMPTY_RESIDUAL = 16,
    EQUAL_SIBLINGS = 32,
    BAD_PARAMETERS = 64
};
enum Terminal { BONUS, RESIDUAL, TARGET, FALLBACK };
enum Decision { UNTESTED, REFUSED, ACCEPTED };

// As in specref.philox.
enum Domain { DRAFT, COIN, LAST };

enum class Rule : int32_t { RATIO, RATIO_WITHOUT, CERTAIN, MATCH, BLOCK };

// What Python hands over; native_round.py has the same fields in the same order.
struct Round {
    const Side *target, *draft;  // no draft where the rule does not look at its laws
    const Asked *asked, *draft_asked;
    const Laws* draft_laws;                   // of draft rows, if the drafter has kept them
    const void *tokens, *begin, *parents;     // no parents: chains
    const int64_t *draft_row, *draft_tokens;  // either may be missing
    const int64_t *seed, *start;              // missing, if draws are given:
    const double *coins, *last;
    int64_t requests, nodes, depth, fallback;
    double lenience;     // 1: none
    double single, acc;  // thresholds, if there are any
    int32_t wide[3];     // whether tokens, begin, parents are int64, not int32
    Rule rule;
    int32_t thresholds, lazy, threads;
    // Results; logprobs, tests and the draws may be missing.
    int32_t *emitted, *counts, *accepted, *terminal, *status;
    float* logprobs;
    uint8_t* tests;
    double *coins_used, *last_used;
};

int64_t number(const void* from, int32_t wide, int64_t i) {
    if (wide) return static_cast<const int64_t*>(from)[i];
    return static_cast<const int32_t*>(from)[i];
}

// Philox4x32-10, see specref.philox.
double uniform(uint64_t seed, uint64_t start, uint64_t node, Domain domain) {
    uint32_t a = uint32_t(start), b = uint32_t(start >> 32), c = uint32_t(node), d = domain;
    uint32_t k = uint32_t(seed), m = uint32_t(seed >> 32);
    for (int i = 0; i < 10; i++) {
        uint64_t left = 0xD2511F53ull * a, right = 0xCD9E8D57ull * c;
        a = uint32_t(right >> 32) ^ b ^ k, b = uint32_t(right);
        c = uint32_t(left >> 32) ^ d ^ m, d = uint32_t(left);
        k += 0x9E3779B9u, m += 0xBB67AE85u;
    }
    return double((uint64_t(a) << 21) | (b >> 11)) * 0x1p-53;
}

// How a request ended.
struct Ended {
    int64_t depth = 0, emitted = -1;
    int32_t kind = BONUS, status = 0;
};

// The forest as links, what is known of each node, and what came out. Results are kept here until
// every request is done: with a workspace, arguments may be the results of the round before.
struct Batch {
    const Round& round;
    int32_t vocab;
    bool ahead = false;  // whether all rows have been read
    std::vector<int64_t> begin, child, sibling, draft_row;  // -1: none
    std::vector<int32_t> column;                            // of each target token in a draft row
    Side draft_side{};
    std::vector<Law> target, draft;  // of nodes whose rows have been read
    std::vector<Ended> ended;
    // From where a request begins: the nodes that it came to, and what it emits behind each.
    std::vector<int64_t> path;
    std::vector<int32_t> text;
    std::vector<double> weight;  // block: that of each node of the chain
    std::vector<float> logprobs;
    std::vector<uint8_t> tests;

    explicit Batch(const Round& given)
        : round(given),
          vocab(given.target->width),
          begin(given.requests + 1),
          child(given.nodes, -1),
          sibling(given.nodes, -1),
          target(given.nodes),
          ended(given.requests),
          path(given.nodes, -1),
          text(given.nodes, -1) {
        if (round.draft) draft_side = *round.draft, draft_row.resize(round.nodes, -1);
        if (round.draft) draft.resize(round.nodes);
        if (round.rule == Rule::BLOCK) weight.resize(round.nodes, 1);
        if (round.logprobs) logprobs.resize(round.nodes);
        if (round.tests) tests.resize(round.nodes, UNTESTED);
    }

    // Makes links; returns whether the forest is one. It has been checked, but what is read and
    // written hangs on it.
    bool link() {
        for (int64_t b = 0; b <= round.requests; b++)
            begin[b] = number(round.begin, round.wide[1], b);
        if (begin[0] != 0 || begin[round.requests] != round.nodes) return false;
        std::vector<int64_t> youngest(round.nodes, -1);
        for (int64_t b = 0; b < round.requests; b++) {
            int64_t first = begin[b], end = begin[b + 1];
            if (end <= first || end > round.nodes) return false;
            for (int64_t node = first + 1; node < end; node++) {
                int64_t above = node - 1;
                if (round.parents) {
                    int64_t parent = number(round.parents, round.wide[2], node);
                    if (parent < 0 || parent >= node - first) return false;
                    above = first + parent;
                }
                (youngest[above] < 0 ? child[above] : sibling[youngest[above]]) = node;
                youngest[above] = node;
            }
        }
        return true;
    }

    // Finds the draft row of each node, and the column of each token in it.
    void find_drafts() {
        int64_t rows = draft_side.rows;
        for (int64_t b = 0; b < round.requests; b++)
            for (int64_t node = begin[b]; node < begin[b + 1]; node++) {
                int64_t row = -1;
                if (round.draft_row)
                    row = round.draft_row[node];
                else if (rows == round.nodes)
                    row = node;
                else if (child[node] >= 0)  // chains of which the last node has no row
                    row = node - b;
                if (0 <= row && row < rows) draft_row[node] = row;
            }
        if (!round.draft_tokens) return;
        column.resize(vocab, -1);
        for (int32_t v = 0; v < draft_side.width; v++) {
            int64_t token = round.draft_tokens[v];
            if (0 <= token && token < vocab) column[token] = v;
        }
        draft_side.place = column.data(), draft_side.vocab = vocab;
    }

    // Reads all rows at once, on all threads.
    void read_ahead(int threads) {
        std::vector<Place> places(round.nodes), wanted;
        for (int64_t b = 0; b < round.requests; b++)
            for (int64_t node = begin[b]; node < begin[b + 1]; node++)
                places[node] = {node, b, node};
        laws_of(*round.target, *round.asked, places.data(), round.nodes, threads, target.data());
        if (round.draft && !round.draft_laws) {
            for (const Place& place : places)
                if (child[place.node] >= 0 && draft_row[place.node] >= 0)
                    wanted.push_back({draft_row[place.node], place.request, place.node});
            std::vector<Law> found(wanted.size());
            laws_of(draft_side, *round.draft_asked, wanted.data(), int64_t(wanted.size()), threads,
                    found.data());
            for (size_t i = 0; i < wanted.size(); i++) draft[wanted[i].node] = found[i];
        }
        ahead = true;
    }

    // The token of a node, -1 where none can have been drafted.
    int64_t token(int64_t node) const {
        int64_t token = number(round.tokens, round.wide[0], node);
        return token < -1 || token >= vocab ? -1 : token;
    }

    double coin(int64_t request, int64_t node) const {
        if (round.coins) return round.coins[node];
        uint64_t local = uint64_t(node - begin[request]);
        return uniform(round.seed[request], round.start[request], local, COIN);
    }

    double last(int64_t request) const {
        if (round.last) return round.last[request];
        return uniform(round.seed[request], round.start[request], 0, LAST);
    }

    void write() const;
};

// A child of the node that a request has come to.
struct Child {
    int64_t node, token;
    bool equal;  // an earlier sibling has the same token
};

// One request on its way. It ends when it knows its last token, or the law of it:
// max(a p - c q, 0) at `at`, off the tokens in `out`.
class Walk {
public:
    Walk(Batch& batch, int64_t request, int threads, Scratch& scratch)
        : batch(batch),
          round(batch.round),
          request(request),
          root(batch.begin[request]),
          threads(threads),
          scratch(scratch),
          at(root),
          ended(batch.ended[request]) {}

    void run() {
        if (round.rule == Rule::BLOCK) {
            block();
        } else {
            while (!done) {
                batch.path[root + ended.depth] = at;
                if (fell_back(visit(at)))
                    break;
                else if (round.rule == Rule::CERTAIN)
                    certain();
                else if (round.rule == Rule::MATCH)
                    match();
                else
                    ratio();
            }
        }
        end();
        write();
    }

private:
    Batch& batch;
    const Round& round;
    const int64_t request, root;
    const int threads;
    Scratch& scratch;
    int64_t at;
    bool done = false;
    double a = 1, c = 0;
    std::vector<Child> children;
    std::vector<int32_t> out;
    Ended& ended;

    // token, rrs_with, rrs_without: the drafts behind one node.
    void ratio() {
        if (!has_children()) return finish(BONUS);
        const Law& q = visit_draft(at);
        bool no_law = q.none(), refused = false, without = round.rule == Rule::RATIO_WITHOUT;
        if (no_law) flag(BAD_DRAFT);
        double behind = 0, left = 1, rest = 1;  // c_j, M_j, Q_j
        for (const Child& child : children) {
            if (!drafted(child) || no_law) continue;
            if (without && child.equal) {
                flag(EQUAL_SIBLINGS);
                continue;
            }
            double share = mass_at(batch.draft_side, draft_place(at), q, child.token);
            if (!(share > 0)) {
                flag(ZERO_DRAFT);
                continue;
            }
            double wanted = target_mass(at, child.token) - behind * share;
            double step = left / rest;
            bool accepts = coin(child.node) * step * share * round.lenience < wanted;
            judge(child.node, accepts);
            if (accepts) return advance(child.node);
            refused = true;
            behind += step;
            if (without) rest -= share;
            if (&child == &children.back()) break;
            left = mass_of(residual(1, behind), threads, scratch);
            // What is left of q is nothing, too, if all of its tokens were refused.
            if (!(left > 0) || !(rest > 0)) break;
        }
        if (refused) c = behind;
        finish(refused ? RESIDUAL : TARGET);
    }

    // one_hot, target_only: the drafts behind one node.
    void certain() {
        if (!has_children()) return finish(BONUS);
        double u = coin(children[0].node), sum = 0;
        bool tried = false;
        int64_t taken = -1;
        for (const Child& child : children) {
            if (!drafted(child) || child.equal) continue;
            tried = true;
            double share = target_mass(at, child.token);
            sum += share;
            bool kept = u < sum;
            if (round.thresholds)  // lossy, see lossy.py
                kept = share > 0 && (u * round.acc < sum || share >= round.single);
            if (taken >= 0) continue;  // what is wrong with the others is said all the same
            judge(child.node, kept);
            if (kept) taken = child.node;
        }
        if (taken >= 0) return advance(taken);
        if (tried)
            for (const Child& child : children) out.push_back(int32_t(child.token));
        finish(tried ? RESIDUAL : TARGET);
    }

    // match, greedy: the drafts behind one node.
    void match() {
        if (!has_children()) return finish(BONUS);
        int64_t drawn = draw(residual(1, 0), coin(children[0].node), threads, scratch).token;
        int64_t taken = -1;
        for (const Child& child : children) {
            if (!drafted(child) || child.equal || taken >= 0) continue;
            judge(child.node, child.token == drawn);
            if (child.token == drawn) taken = child.node;
        }
        if (taken >= 0) return advance(taken);
        ended.emitted = drawn;
        finish(RESIDUAL);
    }

    // block: down the chain for its weights, and up again for its coins.
    void block() {
        double* weight = &batch.weight[root];
        int64_t* path = &batch.path[root];
        int64_t length = 0;
        bool cut = false;  // whether drafts behind the chain cannot be used
        path[0] = at;
        while (!visit(at).none() && has_children()) {
            const Law& q = visit_draft(at);
            if (q.none()) flag(BAD_DRAFT);
            cut = true;
            if (!drafted(children[0]) || q.none()) break;
            double share = mass_at(batch.draft_side, draft_place(at), q, children[0].token);
            if (!(share > 0)) {
                flag(ZERO_DRAFT);
                break;
            }
            cut = false;
            double next = weight[length] * (target_mass(at, children[0].token) / share);
            weight[++length] = next > 1 ? 1 : next;
            path[length] = at = children[0].node;
        }
        // From the deepest up: the whole chain is kept with its weight, less of it with the share
        // of its residual in what is left then; the root keeps what comes up to it.
        for (int64_t kept = length;; kept--) {
            at = path[kept];
            double chance = weight[kept];
            if (kept < length && kept > 0 && chance != 1) {  // 1 stays 1, and needs no row
                double spare = mass_of(residual(weight[kept], 1), threads, scratch);
                chance = spare / (spare + (1 - weight[kept]));
            }
            bool accepts = coin(at) < chance || kept == 0;
            if (kept) judge(at, accepts);
            if (!accepts) continue;
            ended.depth = kept;
            if (kept < length) a = weight[kept], c = 1;
            finish(kept < length ? RESIDUAL : cut ? TARGET : BONUS);
            break;
        }
        fell_back(batch.target[at]);
    }

    // Draws the last token, unless it is known.
    void end() {
        if (ended.emitted >= 0) return;
        double u = batch.last(request);
        Drawn drawn = draw(residual(a, c), u, threads, scratch);
        if (!(drawn.mass > 0)) {
            flag(EMPTY_RESIDUAL);
            finish(TARGET);
            out.clear();
            drawn = draw(residual(1, 0), u, threads, scratch);
        }
        ended.emitted = drawn.token;
    }

    // Ends with the likeliest entry of a target row that is no law; returns whether it is none.
    bool fell_back(const Law& p) {
        if (!p.none()) return false;
        if (p.bad) flag(BAD_TARGET);
        if (p.lawless) flag(BAD_PARAMETERS);
        ended.emitted = p.best < 0 ? round.fallback : p.best;
        finish(FALLBACK);
        return true;
    }

    // Writes down the text, and its logprobs.
    void write() {
        const int64_t* path = &batch.path[root];
        for (int64_t step = 0; step <= ended.depth; step++) {
            bool last = step == ended.depth;
            int64_t token = last ? ended.emitted : batch.token(path[step + 1]);
            batch.text[root + step] = int32_t(token);
            if (!round.logprobs) continue;
            double found = std::log(target_mass(path[step], token));
            if (last && ended.kind == FALLBACK) found = NAN;
            batch.logprobs[root + step] = float(found);
        }
    }

    void finish(Terminal kind) { done = true, ended.kind = kind; }
    void flag(Status status) { ended.status |= status; }
    void advance(int64_t child) { at = child, ended.depth++; }
    void judge(int64_t node, bool accepted) {
        if (round.tests) batch.tests[node] = accepted ? ACCEPTED : REFUSED;
    }
    double coin(int64_t node) const { return batch.coin(request, node); }

    // Gathers the children of the node; returns whether there are any.
    bool has_children() {
        children.clear();
        for (int64_t node = batch.child[at]; node >= 0; node = batch.sibling[node])
            children.push_back({node, batch.token(node), false});
        if (children.size() > 1) {
            // In the order of tokens, equal ones stand together, the first one first.
            std::vector<Child*> order;
            for (Child& child : children) order.push_back(&child);
            std::sort(order.begin(), order.end(), [](const Child* x, const Child* y) {
                return x->token != y->token ? x->token < y->token : x->node < y->node;
            });
            for (size_t i = 1; i < order.size(); i++)
                order[i]->equal = order[i]->token >= 0 && order[i]->token == order[i - 1]->token;
        }
        return !children.empty();
    }

    // Returns whether a child has a token that can have been drafted, and flags why not.
    bool drafted(const Child& child) {
        if (child.token >= 0) return true;
        if (number(round.tokens, round.wide[0], child.node) != -1) flag(BAD_TOKEN);
        return false;
    }

    // Rows

    Place target_place(int64_t node) const { return {node, request, node}; }
    Place draft_place(int64_t node) const { return {batch.draft_row[node], request, node}; }

    const Law& visit(int64_t node) {
        Law& law = batch.target[node];
        if (!batch.ahead)
            law = law_of(*round.target, *round.asked, target_place(node), threads, scratch);
        return law;
    }

    const Law& visit_draft(int64_t node) {
        Law& law = batch.draft[node];
        if (batch.draft_row[node] < 0)
            law.bad = true;  // there is none
        else if (round.draft_laws)
            law = law_at(*round.draft_laws, batch.draft_row[node]);
        else if (!batch.ahead)
            law = law_of(batch.draft_side, *round.draft_asked, draft_place(node), threads, scratch);
        return law;
    }

    double target_mass(int64_t node, int64_t token) const {
        return mass_at(*round.target, target_place(node), batch.target[node], token);
    }

    // max(a p - c q, 0) at the node, off `out`.
    Residual residual(double a, double c) const {
        Residual found{{round.target, target_place(at), &batch.target[at], a}, {}, nullptr, 0};
        if (c > 0) found.q = {&batch.draft_side, draft_place(at), &batch.draft[at], c};
        if (!out.empty()) found.out = out.data(), found.excluded = int64_t(out.size());
        return found;
    }
};

// Writes the results out.
void Batch::write() const {
    for (int64_t b = 0; b < round.requests; b++) {
        const Ended& end = ended[b];
        int64_t row = b * (round.depth + 1);
        for (int64_t step = 0; step <= round.depth; step++) {
            int64_t at = begin[b] + step;
            bool there = step <= end.depth, accepted = step < end.depth;
            round.emitted[row + step] = there ? text[at] : -1;
            if (round.logprobs) round.logprobs[row + step] = there ? logprobs[at] : NAN;
            if (step < round.depth)
                round.accepted[row - b + step] = accepted ? int32_t(path[at + 1] - begin[b]) : -1;
        }
        round.counts[b] = int32_t(end.depth + 1);
        round.terminal[b] = end.kind, round.status[b] = end.status;
    }
    if (!round.tests) return;
    std::copy(tests.begin(), tests.end(), round.tests);
    for (int64_t b = 0; b < round.requests; b++) {
        for (int64_t node = begin[b]; node < begin[b + 1]; node++)
            round.coins_used[node] = coin(b, node);
        round.last_used[b] = last(b);
    }
}

}  // namespace

// Verifies a round; returns a Result.
extern "C" int specref_verify(const Round* round) {
    try {
        Batch batch(*round);
        if (!batch.link()) return OUTSIDE;
        if (round->draft) batch.find_drafts();
        int64_t rows = round->nodes * (round->draft ? 2 : 1);
        int threads = useful(rows * batch.vocab, round->threads);
        if (threads > 1 && !round->lazy) batch.read_ahead(threads);
        Shared shared(round->requests, threads);
        parallel(round->requests, shared.outer, [&](int64_t request, Scratch& scratch) {
            Walk(batch, request, shared.inner, scratch).run();
        });
        batch.write();
        return DONE;
    } catch (const std::bad_alloc&) {
        return NO_MEMORY;
    }
}
