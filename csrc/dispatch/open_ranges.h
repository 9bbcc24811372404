// The ranges that are open, by the threads that began them. What is open when a window of the recording begins, or a chunk of
// a ring, is said again there.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "../python/context.h"
#include "../trace/lane.h"

namespace tracer::dispatch {

struct OpenRange {
  uint64_t number = 0, begin = 0;  // begin: ticks of the clock
  std::string name;
  python::ContextNow context = {};
  trace::Relaxed<uint32_t> said = 0;             // the recording that has its begin; 0: none
  trace::Relaxed<const void*> thread = nullptr;  // that began it; nullptr: that thread has ended
  std::atomic<bool> left = false;                // by whoever ended it in another thread, or by the thread that began it
  OpenRange *around = nullptr, *inside = nullptr;  // the one that the thread began before it, after it
};

// Of one thread.
struct OpenRanges {
  OpenRange *outermost, *innermost, *spare;
  uint32_t count, swept;  // also of those that others have ended; how many were left when these were looked for
  uint64_t said;          // the chunk that they were said in last; 0: one of them was said nowhere
};
extern constinit thread_local OpenRanges open_ranges __attribute__((tls_model("initial-exec")));

// A range of the calling thread begins, and is said where something is recorded.
OpenRange* begin_range(const char* name);
// By any thread. The range is gone then.
void end_range(OpenRange* range) noexcept;
// A forked child is in no range of its parent's.
void forget_open_ranges();

// What the lane has to know of them before an outermost hop.
void say_open_ranges(trace::Lane* lane) noexcept;

}  // namespace tracer::dispatch
