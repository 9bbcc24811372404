// What the running thread had of the processor so far: its CPU time, and how long it was ready to run and did not.
#pragma once

#include <cstdint>

namespace tracer::trace {

struct ThreadTime {
  uint64_t cpu_ns;
  uint64_t ready_ns;  // kUnknownTime where the kernel does not count it
};

// System calls only: some microseconds.
ThreadTime time_of_thread() noexcept;

}  // namespace tracer::trace
