// Rows on a CPU, see rows.py: what there is to know of them, and what goes over them (rows.cpp).

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace rows {

constexpr int BLOCK = 4096, CHUNK = 8 * BLOCK;

// What Python hands over; native.py has the same fields in the same order.

struct Side {
    const void* x;
    const float* bias;
    const uint32_t* allowed;
    const int32_t* place;
    int64_t stride, words, rows, requests, nodes;  // the last three: how many there are
    int32_t width, vocab, dtype, probs;            // dtype: 0 float32, 1 bfloat16, 2 float16
};

enum Filter { TOP_K = 1, TOP_P = 2, MIN_P = 4 };

struct Asked {
    const float* temperature;
    const int32_t* top_k;
    const float *top_p, *min_p;
    float coldest, hottest;
    int32_t each[4];  // of these four: 1 if every request has its own, 0 if one number is for all
    int32_t groups, group[4], hot[4];
    int32_t top_k_all, top_p_all, highest, exceeds;
    int32_t top_p_zero, whole_top_k;  // top_p_zero: 0 one, 1 off, 2 refused
};

struct Laws {  // see laws.py
    float *top, *scale, *cut;
    int32_t *low, *high;
    double* total;
    int32_t* best;
    uint8_t *bad, *lawless;
};

enum Result { NO_MEMORY = 0, DONE = 1, OUTSIDE = 2 };

// One row: where it lies, whose parameters it has, and whose mask.
struct Place {
    int64_t row, request, node;
};

// The scalars of one row.
struct Law {
    float top, scale, cut;
    int32_t low, high;
    double total;
    int32_t best;
    bool bad, lawless;

    bool none() const { return bad || lawless; }
};

inline Law law_at(const Laws& laws, int64_t i) {
    return {laws.top[i],   laws.scale[i], laws.cut[i],      laws.low[i],         laws.high[i],
            laws.total[i], laws.best[i],  laws.bad[i] != 0, laws.lawless[i] != 0};
}

// by p(v), one of the two terms of a residual.
struct Share {
    const Side* side;
    Place place;
    const Law* law;
    double by;
};

// max(a p - c q, 0) off some tokens; there is no q where c is not positive.
struct Residual {
    Share p, q;
    const int32_t* out;  // tokens that are excluded; negative ones are none
    int64_t excluded;
};

struct Drawn {
    int32_t token;  // -1 where there is no mass
    double mass;
};

// What a thread works in.
struct Scratch {
    alignas(64) float x[BLOCK], y[BLOCK], weights[BLOCK];
};

// One row each, on up to `threads` threads.
Law law_of(const Side&, const Asked&, const Place&, int threads, Scratch&);
double mass_of(const Residual&, int threads, Scratch&);
Drawn draw(const Residual&, double u, int threads, Scratch&);
double mass_at(const Side&, const Place&, const Law&, int64_t token);  // 0 outside 0 <= token < V

// Many rows at once.
void laws_of(const Side&, const Asked&, const Place*, int64_t n, int threads, Law*);

// Does tasks on threads of its own: no runtime that other libraries have, too, or that forks break.
// Throws std::bad_alloc if one of them did.
template <class Task>
void parallel(int64_t tasks, int threads, Task task) {
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};
    auto work = [&] {
        try {
            std::unique_ptr<Scratch> scratch(new Scratch);
            for (int64_t i; !failed && (i = next++) < tasks;) task(i, *scratch);
        } catch (const std::bad_alloc&) {
            failed = true;
        }
    };
    std::vector<std::thread> others;
    try {
        others.reserve(std::max(threads, 1));
        while (int64_t(others.size()) + 1 < std::min<int64_t>(threads, tasks))
            others.emplace_back(work);
    } catch (const std::system_error&) {  // no more threads: those that there are do it
    } catch (const std::bad_alloc&) {
    }
    work();
    for (auto& other : others) other.join();
    if (failed) throw std::bad_alloc();
}

// How many threads are worth starting.
inline int useful(int64_t columns, int threads) {
    return int(std::min<int64_t>(threads, 1 + columns / (1 << 17)));
}

// Threads over tasks, and over the rows inside of each where there are fewer tasks than threads.
struct Shared {
    int outer, inner;

    Shared(int64_t tasks, int threads)
        : outer(int(std::max<int64_t>(1, std::min<int64_t>(tasks, threads)))),
          inner(std::max(1, threads / outer)) {}
};

}  // namespace rows
