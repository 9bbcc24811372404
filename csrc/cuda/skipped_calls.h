// CUDA calls that came while nothing was recorded: what the GPU did for them is not recorded either.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

#include "../fork_locks.h"

namespace tracer::cuda {

class SkippedCalls {
 public:
  // `pause`: which pause of the recording it is. CUPTI counts correlations up.
  void add(uint32_t correlation, uint32_t pause) {
    std::lock_guard guard(lock());
    if (stretches_.empty() || stretches_.back().pause != pause) stretches_.push_back({pause, correlation, correlation});
    Stretch& stretch = stretches_.back();
    stretch.first = std::min(stretch.first, correlation);
    stretch.last = std::max(stretch.last, correlation);
  }

  bool has(uint32_t correlation) const {
    std::lock_guard guard(lock());
    for (const Stretch& stretch : stretches_)
      if (stretch.first <= correlation && correlation <= stretch.last) return true;
    return false;
  }

  void forget() {
    std::lock_guard guard(lock());
    stretches_.clear();
  }

 private:
  static std::mutex& lock() { return fork_lock<LockOrder::kSkipped>(); }
  struct Stretch {
    uint32_t pause, first, last;
  };
  std::vector<Stretch> stretches_;
};

extern SkippedCalls& skipped_calls;

}  // namespace tracer::cuda
