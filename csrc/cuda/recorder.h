// The CUDA part of a recording: begins when the process first uses CUDA, or at once where it has.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tracer::cuda {

struct Options {
  bool wanted = true;
  std::string driver = "launches";  // none | launches | all
  std::string queries = "all";      // all | torch: only those that PyTorch's own libraries make
  std::string injection;            // path of the library that the driver loads when CUDA is initialised
  std::string unusable;             // why CUPTI must not be called on this machine; empty: it may be
  bool quiet = false;               // stderr is a program's that tracer attached to: the statement alone says what went wrong
};

struct Statement {
  std::string state;  // recorded, off, not built, not used, no driver, held, failed
  std::string why;    // one sentence, or empty
  uint32_t cupti = 0;
  int driver_version = 0;
  std::string driver_calls;
  std::string queries;
  uint64_t api_calls = 0, launches = 0, graph_launches = 0, kernels = 0, memcpys = 0, memsets = 0, graph_kernels = 0;
  uint64_t dropped_activities = 0, buffers = 0, buffer_bytes = 0, stacks_not_taken = 0;
  std::map<std::string, bool> library_hooks;
  std::string profiler;  // what became of a profiler that the script started itself
};

// Whether the extension was built with it.
bool is_built();
void begin(const Options& options);
// Waits a little for what the GPU still runs, takes the last records and lets CUPTI go.
void end();
Statement statement();

}  // namespace tracer::cuda
