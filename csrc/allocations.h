// Records the blocks of memory that torch's allocators give out and take back.
#pragma once

namespace tracer {

struct AllocationState {
  bool wanted = false;
  bool cpu = false;       // the CPU's allocator is seen
  bool reported = false;  // and blocks that others report to torch's profiler: of CUDA and other devices, and shared memory
};

// From now on in this process, or no longer. The slots that were taken stay taken: without a recording they pass calls on.
void follow_allocations(bool wanted);
AllocationState allocation_state();

}  // namespace tracer
