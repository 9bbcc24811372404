// Records the blocks of memory that torch's allocators give out and take back.
#pragma once

namespace tracer {

struct AllocationState {
  bool wanted = false;
  bool cpu = false;   // the CPU's allocator is seen
  bool cuda = false;  // CUDA's is; false too where libc10_cuda is not loaded
};

// From now on in this process, or no longer. The slots that were taken stay taken: without a recording they pass calls on.
void follow_allocations(bool wanted);
AllocationState allocation_state();

}  // namespace tracer
