// Calls of CUDA, recorded in a hop: a process of count.py, under valgrind.
//
//   calls FOLDER   writes its trace there
#include <valgrind/callgrind.h>

#include <string>

#include "../../tests/system/cupti_caller.h"

namespace tracer::cuda {
// As CUPTI hands them over.
struct GetDevice {
  int* device;
};
struct LaunchKernel {
  const void* function;
  uint32_t grid[3], block[3];
  void** arguments;
  size_t shared_bytes;
  void* stream;
};
struct MemcpyAsync {
  void* destination;
  const void* source;
  size_t bytes;
  int kind;
  void* stream;
};
void add_runtime_functions(ApiFunctions& table) {
  table.add<GetDevice>(17, "cudaGetDevice", {in("device", "int *", 0, 8), out<int*>("*device", "int", 0)});
  table.add<LaunchKernel>(211, "cudaLaunchKernel",
                          {in("func", "const void *", 0, 8), in("gridDim", "dim3", 8, 12), in("blockDim", "dim3", 20, 12),
                           in("args", "void **", 32, 8), in("sharedMem", "size_t", 40, 8), in("stream", "cudaStream_t", 48, 8)});
  table.add<MemcpyAsync>(41, "cudaMemcpyAsync",
                         {in("dst", "void *", 0, 8), in("src", "const void *", 8, 8), in("count", "size_t", 16, 8),
                          in("kind", "cudaMemcpyKind", 24, 4), in("stream", "cudaStream_t", 32, 8)});
}
}  // namespace tracer::cuda

// A question of PyTorch's libraries, by its slot.
struct Asked {
  int device = 0;
  void run() { ask_by_slot(&device); }
};

constexpr int kWarm = 100, kCalls = 1000;

// A call and its return, as often as both numbers say; counted the second time.
template <class Call>
void count(const char* name, Call& call) {
  for (int i = 0; i < kWarm; ++i) call.run();
  CALLGRIND_ZERO_STATS;
  for (int i = 0; i < kCalls; ++i) call.run();
  CALLGRIND_DUMP_STATS_AT(name);
}

int main(int, char** arguments) {
  make_functions();
  driver_calls = DriverCalls::kLaunches;
  unloading_is_told = true;
  std::string path = std::string(arguments[1]) + "/calls.trace";
  trace::open_recording(trace::TraceFile::create(path.c_str(), 7, 0, {}, false));
  trace::start_recording();
  enter_hop();
  CALLGRIND_START_INSTRUMENTATION;
  int device = 3;
  GetDevice ask{&device};
  CuptiCall query(17, &ask);
  count("query", query);
  native::slots[0] = reinterpret_cast<void*>(cudaGetDevice);
  hook_queries();
  Asked asked;
  count("hooked", asked);
  LaunchKernel launch{};
  CuptiCall launches(211, &launch);
  launches.data.symbolName = "void a_kernel<float, 4>(float*, int)";
  count("launch", launches);
  MemcpyAsync copy{};
  CuptiCall copies(41, &copy);
  count("copy", copies);
  trace::close_recording(false);
}
