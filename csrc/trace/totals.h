// What a trace file holds, counted in one pass over its chunks.
#pragma once

#include <cstdint>
#include <string>

namespace tracer::trace {

struct Totals {
  uint64_t bytes = 0, hops = 0, op_calls = 0, open_hops = 0;
  uint64_t api_calls = 0, activities = 0;  // of CUDA
  uint32_t threads = 0, processes = 0;
};

// Throws std::system_error where the file cannot be read.
Totals count_totals(const std::string& path);

}  // namespace tracer::trace
