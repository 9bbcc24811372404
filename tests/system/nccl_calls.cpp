// Records the calls that nccl_torch.cpp makes into nccl_library.cpp, with the hooks of csrc/cuda: before, within and after
// a recording. No slot has been used before. Arguments: the stand-in of libtorch_cuda, and the trace.
#include <dlfcn.h>

#include <cstdio>

#include "../../csrc/cuda/api_function.h"
#include "../../csrc/cuda/library_calls.h"
#include "../../csrc/trace/lane.h"
#include "../../csrc/trace/recording.h"

// What the rest of the extension would do, which needs Python or the headers of CUDA.
namespace tracer::python {
uint32_t own_source_id(trace::Lane*) { return 0; }
}  // namespace tracer::python
namespace tracer::cuda {
const std::vector<Enumeration>& enumerations() {
  static std::vector<Enumeration> none;
  return none;
}
}  // namespace tracer::cuda

int main(int, char** arguments) {
  using namespace tracer;
  void* torch = dlopen(arguments[1], RTLD_LAZY | RTLD_GLOBAL);
  auto exchange = torch ? reinterpret_cast<int (*)()>(dlsym(torch, "exchange")) : nullptr;
  if (!exchange) return std::puts(dlerror()), 1;
  trace::open_recording(trace::TraceFile::create(arguments[2], 7, 0, {}, false));
  cuda::hook_libraries();
  int wrong = exchange();  // hooked, and nothing is recorded yet
  trace::start_recording();
  wrong += exchange();
  trace::close_recording(false);
  cuda::unhook_libraries();
  wrong += exchange();
  auto hooks = cuda::library_hooks();
  std::printf("%d %d %d\n", wrong, int(hooks.at("ncclAllReduce")), int(hooks.at("ncclScatter")));
}
