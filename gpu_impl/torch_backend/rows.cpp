// Rows on a CPU: the scalars of laws, residual masses and draws, see rows.py, in single precision.
//
// Rows are read in blocks. Every sum has one fixed order, given by a row's length alone, so that a
// result does not depend on threads, on other rows, or on where a row lies. Products are not
// contracted (-ffp-contract=off): equal rows have equal masses, bit by bit, and p - q is 0 there.

#include "rows.h"

#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>

namespace rows {
namespace {

constexpr int LANES = 16, GROUP = 256, BINS = 2048;
constexpr float INF = std::numeric_limits<float>::infinity();

typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef float Half __attribute__((vector_size(32)));
typedef int32_t HalfInts __attribute__((vector_size(32)));
typedef float Quarter __attribute__((vector_size(16)));
typedef double Doubles __attribute__((vector_size(64)));

// Vectors

inline Floats all(float x) { return Floats{} + x; }

inline Floats load(const float* x) {
    Floats v;
    std::memcpy(&v, x, sizeof v);
    return v;
}

inline Floats fused(Floats a, Floats b, Floats c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    Floats r;
    for (int i = 0; i < LANES; i++) r[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return r;
#else
    return a * b + c;
#endif
}

// exp(t) for t <= 0, within about one unit in the last place; 0 below -87.3, where floats of full
// precision end; exactly 1 at 0. t = n log 2 + r, and a polynomial in r (Taylor's is close enough).
inline Floats exponential(Floats t) {
    const Floats shift = all(12582912.0f);
    Floats least = all(-87.3f);
    Ints live = t >= least;
    t = t > least ? t : least;
    Floats n = fused(t, all(1.44269504f), shift);
    Ints bits = (Ints)n << 23;
    n -= shift;
    Floats r = fused(n, all(-0.693145752f), t);
    r = fused(n, all(-1.42860682e-6f), r);
    Floats y = all(0.0013814599f);
    y = fused(y, r, all(0.008368717f));
    y = fused(y, r, all(0.04166839f));
    y = fused(y, r, all(0.16666521f));
    y = fused(y, r, all(0.49999994f));
    y = fused(y, r * r, r);
    y += 1.0f;
    return (Floats)(((Ints)y + bits) & live);
}

inline float largest(Floats v) {
    Half half[2];
    Quarter quarter[2];
    std::memcpy(half, &v, sizeof v);
    half[0] = half[0] > half[1] ? half[0] : half[1];
    std::memcpy(quarter, half, sizeof quarter);
    Quarter x = quarter[0] > quarter[1] ? quarter[0] : quarter[1];
    float a = x[0] > x[2] ? x[0] : x[2], b = x[1] > x[3] ? x[1] : x[3];
    return a > b ? a : b;
}

inline bool any(Ints v) {
    HalfInts half[2];
    int64_t quarter[4];
    std::memcpy(half, &v, sizeof v);
    half[0] |= half[1];
    std::memcpy(quarter, half, sizeof quarter);
    return (quarter[0] | quarter[1] | quarter[2] | quarter[3]) != 0;
}

// A sum in double precision, of terms that come by 16.
struct Sum {
    Doubles low{}, high{};

    void add(Floats v) {
        Half halves[2];
        std::memcpy(halves, &v, sizeof v);
        low += __builtin_convertvector(halves[0], Doubles);
        high += __builtin_convertvector(halves[1], Doubles);
    }
    void scale(double by) { low *= by, high *= by; }
    double value() const {
        Doubles v = low + high;
        return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
    }
};

// Adds a group of terms, term(i) those of columns i to i + 15; few of them per float lane.
template <class Term>
inline void add_group(Sum& sum, Term term) {
    Floats a{}, b{}, c{}, d{};
    for (int i = 0; i < GROUP; i += 4 * LANES) {
        a += term(i);
        b += term(i + LANES);
        c += term(i + 2 * LANES);
        d += term(i + 3 * LANES);
    }
    sum.add((a + b) + (c + d));
}

inline float group_largest(const float* x) {
    Floats a = all(-INF), b = a;
    for (int i = 0; i < GROUP; i += 2 * LANES) {
        Floats v = load(x + i), w = load(x + i + LANES);
        a = v > a ? v : a;  // a NaN is never larger
        b = w > b ? w : b;
    }
    return largest(a > b ? a : b);
}

// Rows

inline float bits_to_float(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

inline float half_to_float(uint16_t h) {
    uint32_t sign = uint32_t(h & 0x8000) << 16, rest = h & 0x7fff;
    // A product moves the exponent, so that subnormals come out right.
    float x = bits_to_float(rest << 13) * 0x1p112f;
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits_to_float(bits | sign | (rest >= 0x7c00 ? 0x7f800000u : 0u));
}

struct Row {
    const Side& side;
    const char* x;
    const float* bias = nullptr;
    const uint32_t* allowed = nullptr;

    Row(const Side& side, const Place& place) : side(side) {
        x = static_cast<const char*>(side.x) + place.row * side.stride * (side.dtype ? 2 : 4);
        if (side.bias) bias = side.bias + place.request * side.width;
        if (side.allowed) allowed = side.allowed + place.node * side.words;
    }

    float at(int v) const {
        if (side.dtype == 0) return reinterpret_cast<const float*>(x)[v];
        uint16_t half = reinterpret_cast<const uint16_t*>(x)[v];
        return side.dtype == 1 ? bits_to_float(uint32_t(half) << 16) : half_to_float(half);
    }

    // The logits, with bias and mask, of a block of columns; in `buffer` unless they can be had
    // without a copy. Nothing can come behind the last column.
    const float* block(int first, float* buffer) const {
        int count = std::min(BLOCK, side.width - first);
        if (side.dtype == 0) {
            auto from = reinterpret_cast<const float*>(x) + first;
            if (count == BLOCK && !bias && !allowed) return from;
            std::memcpy(buffer, from, count * sizeof(float));
        } else {
            auto from = reinterpret_cast<const uint16_t*>(x) + first;
            if (side.dtype == 1)
                for (int i = 0; i < count; i++) buffer[i] = bits_to_float(uint32_t(from[i]) << 16);
            else
                for (int i = 0; i < count; i++) buffer[i] = half_to_float(from[i]);
        }
        if (bias)
            for (int i = 0; i < count; i++) buffer[i] += bias[first + i];
        if (allowed)
            for (int i = 0; i < count; i++)
                if (!(allowed[(first + i) / 32] >> (i % 32) & 1)) buffer[i] = -INF;
        std::fill(buffer + count, buffer + BLOCK, side.probs ? 0.0f : -INF);
        return buffer;
    }
};

// Tokens above a logit, and those between two ids that are equal to it.
struct Cut {
    float at = -INF;
    int32_t low = 0, high = std::numeric_limits<int32_t>::max();

    void meet(const Cut& other) {
        if (other.at > at) {
            *this = other;
        } else if (other.at == at) {
            low = std::max(low, other.low);
            high = std::min(high, other.high);
        }
    }
    bool keeps(float x, int v) const { return x > at || (x == at && low <= v && v <= high); }

    // Returns the least logit that stays in a block. Where some that are equal to it stay and some
    // do not, the block is copied without the latter.
    float least(const float*& x, int first, float* buffer) const {
        int last = first + BLOCK - 1;
        if (at == -INF || (low <= first && last <= high)) return at;
        if (high < first || last < low) return std::nextafter(at, INF);
        if (x != buffer) std::memcpy(buffer, x, BLOCK * sizeof(float));
        for (int i = 0; i < BLOCK; i++)
            if (buffer[i] == at && !(low <= first + i && first + i <= high)) buffer[i] = -INF;
        x = buffer;
        return at;
    }
};

// Relative masses of tokens: exp((x - top) scale), or x itself in a row of probabilities.
struct Shape {
    float top, scale;
    bool probs;

    Floats operator()(Floats x) const {
        if (probs) return x > 0.0f ? x : Floats{};
        return exponential((x - top) * scale);
    }
};

// The first look at a row

struct Token {
    float x;
    int32_t v;
};

// The k likeliest tokens so far, and all that are as likely as the last of them.
struct Likeliest {
    size_t k = 0, room = 0;
    float least = -FLT_MAX;
    std::vector<Token> found;

    void start(size_t count) { k = count, room = k + k / 2 + 64, least = -FLT_MAX, found.clear(); }

    void offer(const float* x, int first) {
        for (int at = 0; at < GROUP; at += LANES) {
            if (!any(load(x + at) >= least)) continue;
            for (int i = at; i < at + LANES; i++)
                if (x[i] >= least) found.push_back({x[i], first + i});
            if (found.size() > room) trim();
        }
    }
    void trim() {
        if (found.size() <= k) return;
        auto above = [](const Token& a, const Token& b) { return a.x > b.x; };
        std::nth_element(found.begin(), found.begin() + (k - 1), found.end(), above);
        least = found[k - 1].x;
        auto below = [this](const Token& token) { return !(token.x >= least); };
        found.erase(std::remove_if(found.begin(), found.end(), below), found.end());
        room = std::max(room, 2 * found.size());  // many equal ones
    }
};

struct Look {
    float top = -INF;
    int32_t best = -1;
    bool bad = false;
    double sum = 0;  // of relative masses
};

// What one row is asked for.
struct Want {
    float scale = 1;
    int32_t k = 0;
    double p = 1, m = 0;
    bool greedy = false, lawless = false;
    int on = 0;  // filters that act
    bool sums = false;
    float sum_scale = 1;  // the scale of the law that the first sum is of

    Want(const Asked& asked, const Side& side, int64_t request) {
        if (side.probs) {
            sums = true;
            return;
        }
        float t = asked.temperature[request * asked.each[0]];
        k = asked.top_k[request * asked.each[1]];
        p = asked.top_p[request * asked.each[2]];
        m = asked.min_p[request * asked.each[3]];
        greedy = t == 0;
        bool fine = greedy || (t > 0 && t < INF && t >= asked.coldest && t <= asked.hottest);
        fine = fine && k >= 0 && p >= 0 && p <= 1 && m >= 0 && m <= 1;
        fine = fine && (asked.whole_top_k || k < side.width) && !(asked.top_p_zero == 2 && p == 0);
        lawless = !fine;
        if (lawless || greedy) return;
        scale = std::min(1.0f / t, FLT_MAX);
        sums = true, sum_scale = scale;
        bool some_p = p < 1 && !(asked.top_p_zero == 1 && p == 0);
        bool some_k = k > 0 && k < side.width;
        int meant = (some_k ? TOP_K : 0) | (some_p ? TOP_P : 0) | (m > 0 ? MIN_P : 0);
        int before = 0;
        for (int g = 0; g < asked.groups; g++) {
            int now = asked.group[g] & meant;
            if (now && !on) sums = false;
            if (now & TOP_P && !before) sums = true, sum_scale = asked.hot[g] ? scale : 1;
            before |= now & (TOP_K | MIN_P);
            on |= now;
        }
    }
};

void look(const Row& row, int chunk, const Want& want, Likeliest* likeliest, Scratch& s,
          Look& out) {
    int begin = chunk * CHUNK, end = std::min(begin + CHUNK, row.side.width);
    bool probs = row.side.probs;
    Ints widest{}, negative{};
    Sum sum;
    for (int first = begin; first < end; first += BLOCK) {
        const float* block = row.block(first, s.x);
        for (int at = first; at < std::min(first + BLOCK, end); at += GROUP) {
            const float* x = block + (at - first);
            for (int i = 0; i < GROUP; i += LANES) {
                Ints size = (Ints)load(x + i) & 0x7fffffff;  // more than that of infinity: a NaN
                widest = size > widest ? size : widest;
            }
            if (probs)
                for (int i = 0; i < GROUP; i += LANES) negative |= load(x + i) < 0.0f;
            float top = group_largest(x);
            if (top > out.top) {
                int i = 0;
                while (x[i] != top) i++;
                out.best = at + i;
                // What was summed so far counts relative to the new top.
                if (!probs) sum.scale(std::exp((double(out.top) - top) * want.sum_scale));
                out.top = top;
            }
            if (likeliest && top >= likeliest->least) likeliest->offer(x, at);
            if (!want.sums || top == -INF) continue;
            Shape shape{out.top, want.sum_scale, probs};
            add_group(sum, [&](int i) { return shape(load(x + i)); });
        }
    }
    out.sum = sum.value();
    out.bad = any((widest > 0x7f800000) | negative) || out.top == INF;
    if (!out.bad) return;
    out.top = -INF, out.best = -1;
    for (int first = begin; first < end; first += BLOCK) {
        const float* x = row.block(first, s.x);
        for (int i = 0; i < std::min(BLOCK, end - first); i++)
            if (x[i] > out.top && x[i] < INF) out.top = x[i], out.best = first + i;
    }
}

Look joined(const Look* looks, int count, float scale, bool probs) {
    Look row;
    for (int c = 0; c < count; c++) {
        if (looks[c].top > row.top) row.top = looks[c].top, row.best = looks[c].best;
        row.bad = row.bad || looks[c].bad;
    }
    for (int c = 0; c < count; c++) {
        if (looks[c].top == -INF) continue;
        double apart = (double(looks[c].top) - row.top) * scale;
        row.sum += looks[c].sum * (probs ? 1 : std::exp(apart));
    }
    row.bad = row.bad || row.best < 0 || (probs && !(row.sum > 0 && row.sum < INF));
    return row;
}

// Filters

// Returns the relative mass of what a cut keeps, and the smallest logit of that.
double kept_mass(const Row& row, const Shape& shape, const Cut& cut, Scratch& s, float* smallest) {
    Sum sum;
    Floats low = all(INF);
    for (int first = 0; first < row.side.width; first += BLOCK) {
        const float* x = row.block(first, s.x);
        float least = cut.least(x, first, s.x);
        for (int at = 0; at < BLOCK; at += GROUP) {
            if (group_largest(x + at) < least) continue;
            add_group(sum, [&](int i) {
                Floats v = load(x + at + i);
                Ints kept = v >= least;
                low = (kept & (v < low) & (v > -INF)) ? v : low;
                return kept ? shape(v) : Floats{};
            });
        }
    }
    if (smallest) *smallest = -largest(-low);
    return sum.value();
}

// Relative masses of a list of tokens, each as everywhere else.
std::vector<double> masses(const std::vector<Token>& tokens, const Shape& shape) {
    std::vector<double> found(tokens.size());
    for (size_t i = 0; i < tokens.size(); i += LANES) {
        Floats v = all(-INF);
        size_t count = std::min<size_t>(LANES, tokens.size() - i);
        for (size_t j = 0; j < count; j++) v[j] = tokens[i + j].x;
        v = shape(v);
        for (size_t j = 0; j < count; j++) found[i + j] = v[j];
    }
    return found;
}

void sort(std::vector<Token>& tokens, bool highest) {
    std::sort(tokens.begin(), tokens.end(), [=](const Token& a, const Token& b) {
        return a.x != b.x ? a.x > b.x : highest ? a.v > b.v : a.v < b.v;
    });
}

// Returns the smallest logit of relative mass >= share.
float logit_of(double share, float top, float scale) {
    double wanted = std::log(share);
    auto enough = [&](float x) { return (double(x) - top) * scale >= wanted; };
    float x = std::min(float(top + wanted / scale), top);
    while (!enough(x)) x = std::nextafter(x, INF);
    for (float y; x > -INF && enough(y = std::nextafter(x, -INF));) x = y;
    return x;
}

// Returns the cut behind the first `count` tokens of a sorted list.
Cut cut_behind(const std::vector<Token>& tokens, size_t count, bool highest) {
    const Token& last = tokens[count - 1];
    Cut cut;
    cut.at = last.x;
    if (count < tokens.size() && tokens[count].x == last.x) {
        if (highest)
            cut.low = last.v;
        else
            cut.high = last.v;
    }
    return cut;
}

size_t with_ties(const std::vector<Token>& tokens, size_t count, size_t limit) {
    while (count < limit && tokens[count].x == tokens[count - 1].x) count++;
    return count;
}

// Returns how many of the first `limit` tokens reach a mass; limit + 1 if they do not.
size_t reaching(const std::vector<double>& by, size_t limit, double wanted, bool exceeds,
                double& sum) {
    for (size_t i = 0; i < limit; i++) {
        sum += by[i];
        if (exceeds ? sum > wanted : sum >= wanted) return i + 1;
    }
    return limit + 1;
}

struct Kept {
    Cut cut;
    double total;
};

// The law of a row of which at most the listed tokens stay: the k likeliest and their equals.
Kept narrow(const Row& row, const Asked& asked, const Want& want, const Look& seen,
            std::vector<Token>& tokens, Scratch& s) {
    sort(tokens, asked.highest);
    Shape hot{seen.top, want.scale, false}, cold{seen.top, 1, false};
    std::vector<double> hot_masses = masses(tokens, hot), cold_masses;
    size_t n = tokens.size();
    bool cut = false;     // whether the tokens that are still in are listed
    bool raised = false;  // whether min-p has acted
    float least = -INF;
    for (int g = 0; g < asked.groups; g++) {
        int now = asked.group[g] & want.on;
        float scale = asked.hot[g] ? want.scale : 1;
        if (!asked.hot[g] && cold_masses.empty()) cold_masses = masses(tokens, cold);
        const auto& by = asked.hot[g] ? hot_masses : cold_masses;
        size_t limit = n;
        if (now & TOP_P) {
            double whole = seen.sum, sum = 0;
            if (cut || limit < tokens.size()) {
                whole = 0;
                for (size_t i = 0; i < limit; i++) whole += by[i];
            } else if (raised) {
                whole = kept_mass(row, asked.hot[g] ? hot : cold, Cut{least}, s, nullptr);
            }
            size_t count = reaching(by, limit, want.p * whole, asked.exceeds, sum);
            if (count <= limit) n = asked.top_p_all ? with_ties(tokens, count, limit) : count;
        }
        if (now & TOP_K) {
            size_t count = std::min<size_t>(want.k, limit);
            n = std::min(n, asked.top_k_all ? with_ties(tokens, count, limit) : count);
            cut = true;
        }
        if (now & MIN_P) {
            least = std::max(least, logit_of(want.m, seen.top, scale));
            while (n > 1 && tokens[n - 1].x < least) n--;
            raised = true;
        }
    }
    double total = 0;
    for (size_t i = 0; i < n; i++) total += hot_masses[i];
    return {cut_behind(tokens, n, asked.highest), total};
}

// Returns what top-p keeps of the tokens above `least`, whose relative mass is `whole`.
//
// A token of mass below (1 - p) whole / V is not in it: all of them together have less than 1 - p.
// The others are counted in bins by logit, and the bin in which the mass is reached is sorted.
Kept nucleus(const Row& row, const Asked& asked, const Want& want, const Shape& shape, float least,
             double whole, Scratch& s) {
    float rim = float(std::log(0.5 * (1 - want.p) * whole / row.side.width));
    float step = BINS / rim;
    Floats outside;  // bins that nobody looks at, as many as lanes, so that none waits for another
    for (int i = 0; i < LANES; i++) outside[i] = BINS + 1 + i;
    auto bins = [&](Floats x) {
        Floats t = (x - shape.top) * shape.scale;
        Floats bin = t * step;
        bin = ((t >= rim) & (x >= least)) ? bin : outside;
        return __builtin_convertvector(bin, Ints);
    };
    float floor = std::max(least, float(shape.top + double(rim) / shape.scale * 1.0001));
    std::vector<double> histogram(2 * (BINS + 1 + LANES));
    for (int first = 0; first < row.side.width; first += BLOCK) {
        const float* x = row.block(first, s.x);
        for (int at = 0; at < BLOCK; at += GROUP) {
            if (group_largest(x + at) < floor) continue;
            alignas(64) float mass[GROUP];
            alignas(64) int32_t bin[GROUP];
            for (int i = 0; i < GROUP; i += LANES) {
                Floats v = load(x + at + i), e = shape(v);
                Ints b = bins(v);
                std::memcpy(mass + i, &e, sizeof e);
                std::memcpy(bin + i, &b, sizeof b);
            }
            // Two histograms: neighbours need not wait for each other.
            for (int i = 0; i < GROUP; i += 2) {
                histogram[2 * bin[i]] += mass[i];
                histogram[2 * bin[i + 1] + 1] += mass[i + 1];
            }
        }
    }
    double wanted = want.p * whole, sum = 0;
    int full = 0;
    for (;; full++) {
        if (full > BINS) return {Cut{least}, -1};  // rounding: the mass is that of all
        double next = sum + (histogram[2 * full] + histogram[2 * full + 1]);
        if (asked.exceeds ? next > wanted : next >= wanted) break;
        sum = next;
    }
    std::vector<Token> tokens;
    for (int first = 0; first < row.side.width; first += BLOCK) {
        const float* x = row.block(first, s.x);
        for (int at = 0; at < BLOCK; at += 4 * LANES) {
            Ints hits[4];
            for (int j = 0; j < 4; j++) hits[j] = bins(load(x + at + j * LANES)) == full;
            if (!any(hits[0] | hits[1] | hits[2] | hits[3])) continue;
            for (int i = 0; i < 4 * LANES; i++)
                if (hits[i / LANES][i % LANES]) tokens.push_back({x[at + i], first + at + i});
        }
    }
    sort(tokens, asked.highest);
    std::vector<double> by = masses(tokens, shape);
    size_t count = std::min(reaching(by, tokens.size(), wanted, asked.exceeds, sum), tokens.size());
    if (asked.top_p_all) {
        size_t more = with_ties(tokens, count, tokens.size());
        while (count < more) sum += by[count++];
    }
    return {cut_behind(tokens, count, asked.highest), sum};
}

// The law of a row that min-p and top-p alone cut.
Kept wide(const Row& row, const Asked& asked, const Want& want, const Look& seen, Scratch& s) {
    Cut cut;
    double total = -1;
    for (int g = 0; g < asked.groups; g++) {
        int now = asked.group[g] & want.on;
        Shape shape{seen.top, asked.hot[g] ? want.scale : 1, false};
        Cut before = cut;
        if (now & MIN_P) {
            cut.meet(Cut{logit_of(want.m, seen.top, shape.scale)});
            total = -1;
        }
        if (now & TOP_P) {
            double whole = before.at == -INF ? seen.sum : kept_mass(row, shape, before, s, nullptr);
            Kept kept = nucleus(row, asked, want, shape, before.at, whole, s);
            cut.meet(kept.cut);
            bool final = asked.hot[g] && cut.at == kept.cut.at;
            total = final ? kept.total : -1;
        }
    }
    if (total < 0) {
        Shape hot{seen.top, want.scale, false};
        float smallest;
        total = kept_mass(row, hot, cut, s, &smallest);
        if (smallest > cut.at) cut = Cut{smallest};
    }
    return {cut, total};
}

Law law(const Row& row, const Asked& asked, const Want& want, const Look& seen,
        Likeliest* likeliest, Scratch& s) {
    Kept kept{Cut{}, 1};
    float top = seen.best < 0 ? 0 : seen.top;
    if (row.side.probs) {
        kept.cut.at = 0;
        kept.total = seen.bad ? 1 : seen.sum;
    } else if (seen.bad || want.lawless) {
        // nobody reads what is left
    } else if (want.greedy) {
        kept.cut = Cut{top, seen.best, seen.best};
    } else if (want.on & TOP_K) {
        likeliest->trim();
        kept = narrow(row, asked, want, seen, likeliest->found, s);
    } else if (want.on) {
        kept = wide(row, asked, want, seen, s);
    } else {
        kept.total = seen.sum;
    }
    int32_t high = std::min(kept.cut.high, row.side.width - 1);
    return {top,        want.scale, kept.cut.at, kept.cut.low, high,
            kept.total, seen.best,  seen.bad,    want.lawless};
}

// Residuals

// Side of a difference a p - c q: relative masses times a factor, which is the sum of two floats:
// where masses nearly cancel, as 1 - 1 / (1 + 2^-26), one alone would leave nothing.
struct Term {
    const Row row;
    Shape shape;
    Cut cut;
    float factor, rest;
    bool none;

    explicit Term(const Share& share)
        : row(*share.side, share.place),
          shape{share.law->top, share.law->scale, share.side->probs != 0},
          cut{share.law->cut, share.law->low, share.law->high},
          factor(float(share.by / share.law->total)),
          rest(float(share.by / share.law->total - factor)),
          none(share.law->bad || share.by == 0) {
        if (shape.probs) cut = Cut{};
        if (cut.high >= row.side.width - 1) cut.high = Cut{}.high;  // so is what pads a block
    }

    // The logits of a block of target tokens, and the least that stays.
    float read(const float*& x, int first, float* buffer) const {
        const int32_t* place = row.side.place;
        if (!place) {
            x = row.block(first, buffer);
            return cut.least(x, first, buffer);
        }
        for (int i = 0; i < BLOCK; i++) {
            int v = first + i < row.side.vocab ? place[first + i] : -1;
            float found = v < 0 ? -INF : row.at(v);
            buffer[i] = cut.keeps(found, v) ? found : -INF;
        }
        x = buffer;
        return -INF;
    }
    Floats operator()(Floats x, float least) const { return x >= least ? shape(x) : Floats{}; }
};

// A residual with its terms made ready.
struct Terms {
    Term left, other;
    const Term* right;
    const int32_t* out;
    int64_t excluded;
    int blocks, chunks;

    explicit Terms(const Residual& of)
        : left(of.p),
          other(of.q.side && of.q.by > 0 ? of.q : of.p),
          right(of.q.side && of.q.by > 0 && !other.none ? &other : nullptr),
          out(of.out),
          excluded(of.out ? of.excluded : 0) {
        const Side& side = *of.p.side;
        int width = side.place ? side.vocab : side.width;
        blocks = (width + BLOCK - 1) / BLOCK, chunks = (width + CHUNK - 1) / CHUNK;
    }
    Terms(const Terms&) = delete;  // `right` points into itself
};

// Returns the mass of max(a p - c q, 0) in a block, off excluded tokens; writes it out if asked.
double weigh(const Terms& of, int block, Scratch& s, float* weights) {
    const Term &p = of.left, *q = of.right;
    const int32_t* out = of.out;
    int first = block * BLOCK;
    if (weights) std::fill(weights, weights + BLOCK, 0.0f);
    if (p.none) return 0;
    const float *x, *y = nullptr;
    float least = p.read(x, first, s.x), other = 0;
    for (int64_t j = 0; j < of.excluded; j++) {
        if (out[j] < first || out[j] >= first + BLOCK) continue;
        if (x != s.x) std::memcpy(s.x, x, sizeof s.x);
        x = s.x;
        s.x[out[j] - first] = -INF;
    }
    Sum sum;
    for (int at = 0; at < BLOCK; at += GROUP) {
        float top = group_largest(x + at);
        if (top < least || top == -INF) continue;
        if (q && !y) other = q->read(y, first, s.y);
        add_group(sum, [&](int i) {
            Floats a = p(load(x + at + i), least), w = a * p.factor;
            if (q) {
                Floats b = (*q)(load(y + at + i), other);
                w = (w - b * q->factor) + (a * p.rest - b * q->rest);
                w = w > 0.0f ? w : Floats{};
            }
            if (weights) std::memcpy(weights + at + i, &w, sizeof w);
            return w;
        });
    }
    return sum.value();
}

void weigh_chunk(const Terms& of, int chunk, double* sums, Scratch& s) {
    int first = chunk * (CHUNK / BLOCK), end = std::min(first + CHUNK / BLOCK, of.blocks);
    for (int b = first; b < end; b++) sums[b] = weigh(of, b, s, nullptr);
}

double sum_of(const double* sums, int blocks) {
    double mass = 0;
    for (int b = 0; b < blocks; b++) mass += sums[b];
    return mass;
}

std::vector<double> weighed(const Terms& of, int threads, Scratch& s) {
    std::vector<double> sums(of.blocks);
    threads = useful(int64_t(of.blocks) * BLOCK, threads);
    if (threads > 1)
        parallel(of.chunks, threads,
                 [&](int64_t c, Scratch& own) { weigh_chunk(of, int(c), sums.data(), own); });
    else
        for (int c = 0; c < of.chunks; c++) weigh_chunk(of, c, sums.data(), s);
    return sums;
}

// Returns the first token at which the weights exceed u times their mass, or -1.
int32_t find(const Terms& of, const double* sums, double mass, double u, Scratch& s) {
    double wanted = u * mass, before = 0;
    int block = -1;
    for (int b = 0; b < of.blocks; b++) {
        if (!(sums[b] > 0)) continue;
        if (block >= 0) before += sums[block];
        block = b;  // the last one that has any, if rounding leaves none to exceed it
        if (before + sums[b] > wanted) break;
    }
    if (block < 0) return -1;
    weigh(of, block, s, s.weights);
    int32_t last = -1;
    for (int i = 0; i < BLOCK; i++) {
        if (!(s.weights[i] > 0)) continue;
        before += s.weights[i];
        last = block * BLOCK + i;
        if (before > wanted) break;
    }
    return last;
}

Law whole_row(const Side& side, const Asked& asked, const Place& place, Scratch& s) {
    Row row(side, place);
    Want want(asked, side, place.request);
    Likeliest likeliest;
    likeliest.start(want.k);
    auto keep = want.on & TOP_K ? &likeliest : nullptr;
    int chunks = (side.width + CHUNK - 1) / CHUNK;
    std::vector<Look> looks(chunks);
    for (int c = 0; c < chunks; c++) look(row, c, want, keep, s, looks[c]);
    Look seen = joined(looks.data(), chunks, want.sum_scale, side.probs);
    return law(row, asked, want, seen, keep, s);
}

}  // namespace

// Rows, for others

Law law_of(const Side& side, const Asked& asked, const Place& place, int threads, Scratch& s) {
    if (useful(side.width, threads) == 1) return whole_row(side, asked, place, s);
    Law found;
    laws_of(side, asked, &place, 1, threads, &found);
    return found;
}

void laws_of(const Side& side, const Asked& asked, const Place* places, int64_t n, int threads,
             Law* laws) {
    threads = useful(n * side.width, threads);
    if (threads == 1 || n >= 2 * threads) {
        parallel(n, threads, [&](int64_t i, Scratch& s) {
            laws[i] = whole_row(side, asked, places[i], s);
        });
        return;
    }
    int chunks = (side.width + CHUNK - 1) / CHUNK;
    std::vector<Look> looks(n * chunks);
    std::vector<Likeliest> kept(n * chunks);
    parallel(n * chunks, threads, [&](int64_t task, Scratch& s) {
        int64_t i = task / chunks;
        Want want(asked, side, places[i].request);
        kept[task].start(want.k);
        auto keep = want.on & TOP_K ? &kept[task] : nullptr;
        look(Row(side, places[i]), int(task % chunks), want, keep, s, looks[task]);
    });
    parallel(n, threads, [&](int64_t i, Scratch& s) {
        Want want(asked, side, places[i].request);
        Likeliest& first = kept[i * chunks];
        for (int c = 1; c < chunks; c++) {
            auto& more = kept[i * chunks + c].found;
            first.found.insert(first.found.end(), more.begin(), more.end());
        }
        Look seen = joined(&looks[i * chunks], chunks, want.sum_scale, side.probs);
        laws[i] = law(Row(side, places[i]), asked, want, seen, &first, s);
    });
}

double mass_of(const Residual& residual, int threads, Scratch& s) {
    Terms of(residual);
    return sum_of(weighed(of, threads, s).data(), of.blocks);
}

Drawn draw(const Residual& residual, double u, int threads, Scratch& s) {
    Terms of(residual);
    std::vector<double> sums = weighed(of, threads, s);
    double mass = sum_of(sums.data(), of.blocks);
    return {find(of, sums.data(), mass, u, s), mass};
}

double mass_at(const Side& side, const Place& place, const Law& law, int64_t token) {
    if (law.bad || token < 0 || token >= (side.place ? side.vocab : side.width)) return 0;
    int column = side.place ? side.place[token] : int(token);
    if (column < 0) return 0;
    Row row(side, place);
    if (row.allowed && !(row.allowed[token / 32] >> (token % 32) & 1)) return 0;
    float x = row.at(column);
    if (row.bias) x += row.bias[token];
    if (side.probs) return x / law.total;
    if (!Cut{law.cut, law.low, law.high}.keeps(x, column)) return 0;
    return std::exp((double(x) - law.top) * law.scale) / law.total;
}

}  // namespace rows

// Rows, for Python

using namespace rows;

struct Picked {
    const Side* side;
    const int64_t *rows, *requests, *nodes;

    Place operator[](int64_t i) const { return {rows[i], requests[i], nodes[i]}; }

    // Whether every index is one.
    bool inside(int64_t n) const {
        auto all_below = [n](const int64_t* index, int64_t count) {
            return std::all_of(index, index + n, [=](int64_t i) { return 0 <= i && i < count; });
        };
        return all_below(rows, side->rows) && all_below(requests, side->requests) &&
               (!side->allowed || all_below(nodes, side->nodes));
    }
};

extern "C" {

// Writes the laws of n rows; returns a Result.
int specref_laws(const Picked* picked, const Asked* asked, int64_t n, const Laws* laws,
                 int threads) {
    if (!picked->inside(n)) return OUTSIDE;
    try {
        std::vector<Place> places(n);
        std::vector<Law> found(n);
        for (int64_t i = 0; i < n; i++) places[i] = (*picked)[i];
        laws_of(*picked->side, *asked, places.data(), n, threads, found.data());
        for (int64_t i = 0; i < n; i++) {
            const Law& law = found[i];
            laws->top[i] = law.top, laws->scale[i] = law.scale, laws->cut[i] = law.cut;
            laws->low[i] = law.low, laws->high[i] = law.high, laws->total[i] = law.total;
            laws->best[i] = law.best, laws->bad[i] = law.bad, laws->lawless[i] = law.lawless;
        }
        return DONE;
    } catch (const std::bad_alloc&) {
        return NO_MEMORY;
    }
}

// Writes the masses of max(a p - c q, 0) of n rows and, if u is given, draws of them;
// returns a Result.
int specref_mass(const Picked* p, const Laws* p_laws, const Picked* q, const Laws* q_laws,
                 int64_t n, const double* a, const double* c, const int32_t* out,
                 int64_t excluded, const double* u, int32_t* token, double* mass, int threads) {
    if (!p->inside(n) || (q && !q->inside(n))) return OUTSIDE;
    try {
        Shared shared(n, useful(n * p->side->width, threads));
        parallel(n, shared.outer, [&](int64_t i, Scratch& s) {
            Law left = law_at(*p_laws, i), right = q ? law_at(*q_laws, i) : Law{};
            Residual of{{p->side, (*p)[i], &left, a[i]}, {}, out ? out + i * excluded : nullptr,
                        excluded};
            if (q) of.q = {q->side, (*q)[i], &right, c[i]};
            if (!u) {
                mass[i] = mass_of(of, shared.inner, s);
                return;
            }
            Drawn drawn = rows::draw(of, u[i], shared.inner, s);
            token[i] = drawn.token, mass[i] = drawn.mass;
        });
        return DONE;
    } catch (const std::bad_alloc&) {
        return NO_MEMORY;
    }
}

}  // extern "C"
