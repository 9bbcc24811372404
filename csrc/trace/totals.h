// What a trace file holds, counted in one pass over its chunks, those of killed processes and what is left of a ring included.
// The smallest reader of the format that can do so (docs/decisions.md): it knows nothing of times, names, shapes or sources.
#pragma once

#include <cstdint>
#include <string>

namespace tracer::trace {

struct Totals {
  std::string gone;  // what became of the file at the path, if it is not that recording's any more; then nothing is counted
  uint64_t bytes = 0, hops = 0, op_calls = 0, open_hops = 0;
  uint64_t api_calls = 0, activities = 0;  // of CUDA
  uint32_t threads = 0, processes = 0;
  bool compiled_code = false;  // a process called some whose kernels are not recorded
  bool not_joined = false;     // a process started a Python that could not join
  uint32_t replaced = 0;       // programs that began another one by exec
  uint32_t still_running = 0, not_stopped = 0;  // of the other processes, those that live, and those that died
  uint64_t max_bytes = 0, lost_hops = 0, overwritten_hops = 0, overwritten_calls = 0, overwritten_activities = 0;
  uint64_t other_definitions = 0;
  uint64_t damaged_chunks = 0;  // that hold what no recorder writes: another process has changed the file
};

// Of the recording of this session, which this process has closed.
Totals count_totals(const std::string& path, uint64_t session);

}  // namespace tracer::trace
