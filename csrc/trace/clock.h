// The clock of the hot path: the TSC where it is invariant, else CLOCK_MONOTONIC.
#pragma once

#include <ctime>

#include "records.h"
#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace tracer::trace {

inline uint64_t nanoseconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return uint64_t(now.tv_sec) * 1'000'000'000 + uint64_t(now.tv_nsec);
}

#if defined(__x86_64__)
inline bool has_invariant_tsc() {
  unsigned a, b, c, d;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8));
}
inline const bool kUseTsc = has_invariant_tsc();
inline uint64_t ticks() { return __builtin_expect(kUseTsc, 1) ? __rdtsc() : nanoseconds(CLOCK_MONOTONIC); }
inline ClockKind clock_kind() { return kUseTsc ? kTsc : kMonotonic; }
#elif defined(__aarch64__)
inline uint64_t ticks() {
  uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
}
inline ClockKind clock_kind() { return kTsc; }
#else
inline uint64_t ticks() { return nanoseconds(CLOCK_MONOTONIC); }
inline ClockKind clock_kind() { return kMonotonic; }
#endif

struct ClockPair {
  uint64_t ticks, ns;
};

// Both clocks at one moment: of a few readings the one with the least time between.
inline ClockPair read_clocks() {
  ClockPair best{};
  uint64_t least = ~0ull;
  for (int i = 0; i < 5; ++i) {
    uint64_t before = ticks(), ns = nanoseconds(CLOCK_MONOTONIC), after = ticks();
    if (after - before < least) least = after - before, best = {before + (after - before) / 2, ns};
  }
  return best;
}

}  // namespace tracer::trace
