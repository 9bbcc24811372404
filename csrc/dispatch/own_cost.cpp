#include "own_cost.h"

#include <algorithm>
#include <atomic>

#include "../trace/clock.h"

namespace tracer::dispatch {
namespace {

constexpr uint64_t kMostTicks = 8192;

struct alignas(64) Sums {
  std::atomic<uint64_t> events{0}, slow{0}, before{0}, after{0};
};
Sums sums[kTimedKinds];

struct Clock {
  double ns_per_tick, reading_ns;
};

// The shortest of a few rounds: half a millisecond in all.
Clock measure_clock() {
  constexpr int kRounds = 20, kReadings = 2'000;
  trace::ClockPair begin = trace::read_clocks();
  uint64_t least = ~0ull;
  for (int round = 0; round < kRounds; ++round) {
    uint64_t first = trace::ticks(), last = first;
    for (int i = 0; i < kReadings; ++i) last = trace::ticks();
    least = std::min(least, last - first);
  }
  trace::ClockPair end = trace::read_clocks();
  double ns_per_tick = double(end.ns - begin.ns) / double(std::max<uint64_t>(end.ticks - begin.ticks, 1));
  return {ns_per_tick, double(least) / kReadings * ns_per_tick};
}

}  // namespace

void add_timed(Timed kind, uint64_t began, uint64_t noted, uint64_t ended) noexcept {
  if (noted < began || noted > ended) return;  // the recording ended meanwhile, and its chunk is gone
  Sums& of = sums[kind];
  constexpr auto relaxed = std::memory_order_relaxed;
  if (ended - began > kMostTicks) {
    of.slow.fetch_add(1, relaxed);
    return;
  }
  of.events.fetch_add(1, relaxed);
  of.before.fetch_add(noted - began, relaxed);
  of.after.fetch_add(ended - noted, relaxed);
}

TimedHops timed_hops() {
  const Clock clock = measure_clock();
  TimedHops found;
  for (uint32_t i = 0; i < kTimedKinds; ++i) {
    const Sums& of = sums[i];
    uint64_t events = of.events;
    if (!events) continue;
    // An event reads the clock once, one that is timed three times: each part has half a reading too much.
    auto mean = [&](uint64_t ticks) { return std::max(double(ticks) / double(events) * clock.ns_per_tick - clock.reading_ns / 2, 0.0); };
    found.kinds[i] = {events, of.slow, mean(of.before), mean(of.after)};
  }
  return found;
}

void forget_timed() noexcept {
  for (Sums& of : sums) of.events = of.slow = of.before = of.after = 0;
}

}  // namespace tracer::dispatch
