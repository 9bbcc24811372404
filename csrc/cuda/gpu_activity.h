// Kernels, copies and fills of the GPU, as CUPTI delivers them after they have run.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace tracer::cuda {

struct ActivityCounts {
  std::atomic<uint64_t> kernels{0}, memcpys{0}, memsets{0};   // written
  std::atomic<uint64_t> graph_kernels{0};                     // of the kernels, those that a CUDA graph ran
  std::atomic<uint64_t> dropped{0};                           // not written: CUPTI or we had no room
  std::atomic<uint64_t> buffers{0};                           // most buffers in CUPTI's hands at once
};
extern ActivityCounts activity_counts;
constexpr uint64_t kActivityBufferBytes = 1 << 20;

// Returns "" or why not.
std::string enable_activities();
// Delivers what is complete; with `all` also what is not.
void flush_activities(bool all);
void disable_activities();
// Flushes from time to time in a thread of its own, so that a killed process has lost little.
void start_flushing();
void stop_flushing();
// In a forked child there is no such thread, and no record is its own.
void forget_activities();

}  // namespace tracer::cuda
