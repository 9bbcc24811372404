// What recording costs where it happens: now and then the writing of an event is timed, in the caches that the program
// leaves.
//
// A loop that records one hop again and again finds everything in the nearest cache, and costs half of what a program
// pays. But it can be timed as a whole, with what a wrapper does around the events. Both together tell what a hop costs.
#pragma once

#include <cstdint>

#include "../trace/lane.h"

namespace tracer::dispatch {

enum Timed : uint32_t { kOutermostEnter, kInnerEnter, kTimedExit, kTimedKinds };

// Whether the event that comes next is timed: about one of 64, at places of the trace that no loop of the program is in
// step with.
inline bool is_timed(const trace::Lane* lane) {
  constexpr int kShift = 64 - 6;
  return (reinterpret_cast<uint64_t>(static_cast<uint64_t*>(lane->next)) * 0x9E3779B97F4A7C15ull) >> kShift == 0;
}

// In ticks of a lane: when the work on an event began, the time that the event notes, and when it was written.
void add_timed(Timed kind, uint64_t began, uint64_t noted, uint64_t ended) noexcept;

// Means in nanoseconds, before and after the time that the event notes.
struct TimedEvents {
  uint64_t events = 0;
  uint64_t slow = 0;  // left out: first uses, which write definitions, and interruptions of the thread
  double before = 0, after = 0;
};
struct TimedHops {
  TimedEvents kinds[kTimedKinds];
};

// Of this process and its parents, since forget_timed().
TimedHops timed_hops();
void forget_timed() noexcept;

// Recording a hop of one small tensor in a loop: all of it, in nanoseconds, and those of its events that were timed. With
// `--values scalars` two ops in turns that are called boxed, as the program's were.
struct HopLoop {
  struct Kind {
    double ns = 0;
    TimedHops timed;
  } outermost, inner;
  bool boxed = false;
};

// With the options of the recording that has just stopped; zeros while one is running. Forgets what was timed.
HopLoop loop_of_hops();

}  // namespace tracer::dispatch
