#include "devices.h"

#include <cuda.h>
#include <dlfcn.h>

#include <string>

#include "../trace/definition.h"
#include "../trace/lane.h"
#include "../trace/recording.h"

namespace tracer::cuda {
namespace {

struct Fact {
  const char* name;
  CUdevice_attribute attribute;
};
constexpr Fact kFacts[] = {
    {"computeCapabilityMajor", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
    {"computeCapabilityMinor", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
    {"constantMemorySize", CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY},
    {"l2CacheSize", CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
    {"numThreadsPerWarp", CU_DEVICE_ATTRIBUTE_WARP_SIZE},
    {"coreClockRate", CU_DEVICE_ATTRIBUTE_CLOCK_RATE},
    {"numMemcpyEngines", CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT},
    {"numMultiprocessors", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
    {"maxBlocksPerMultiprocessor", CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR},
    {"maxSharedMemoryPerMultiprocessor", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR},
    {"maxRegistersPerMultiprocessor", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR},
    {"maxRegistersPerBlock", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK},
    {"maxSharedMemoryPerBlock", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK},
    {"maxThreadsPerBlock", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
};

template <class Function>
Function* in_driver(void* driver, const char* name) {
  return reinterpret_cast<Function*>(dlsym(driver, name));
}

}  // namespace

void define_devices() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (!driver) return;
  auto* count_devices = in_driver<CUresult(int*)>(driver, "cuDeviceGetCount");
  auto* get_device = in_driver<CUresult(CUdevice*, int)>(driver, "cuDeviceGet");
  auto* get_name = in_driver<CUresult(char*, int, CUdevice)>(driver, "cuDeviceGetName");
  auto* get_attribute = in_driver<CUresult(int*, CUdevice_attribute, CUdevice)>(driver, "cuDeviceGetAttribute");
  auto* get_memory = in_driver<CUresult(size_t*, CUdevice)>(driver, "cuDeviceTotalMem_v2");
  int count = 0;
  if (!count_devices || !get_device || !get_name || !get_attribute || !get_memory || count_devices(&count) != CUDA_SUCCESS) return;
  for (int index = 0; index < count; ++index) {
    CUdevice device = 0;
    char name[256] = {};
    if (get_device(&device, index) != CUDA_SUCCESS || get_name(name, sizeof name, device) != CUDA_SUCCESS) continue;
    std::string facts;
    auto add = [&](const char* fact, uint64_t value) { facts += std::string(fact) + "=" + std::to_string(value) + "\n"; };
    auto attribute = [&](CUdevice_attribute which) {
      int value = 0;
      return get_attribute(&value, which, device) == CUDA_SUCCESS ? value : -1;
    };
    for (const Fact& fact : kFacts)
      if (int value = attribute(fact.attribute); value >= 0) add(fact.name, uint64_t(value));
    const int warp = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE), threads = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    if (warp > 0 && threads > 0) add("maxWarpsPerMultiprocessor", uint64_t(threads / warp));
    size_t memory = 0;
    if (get_memory(&memory, device) == CUDA_SUCCESS) add("globalMemorySize", memory);
    // kB/s, as CUPTI has it: two transfers a clock (kHz) over the width of the bus (bits).
    const int clock = attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE), width = attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
    if (clock > 0 && width > 0) add("globalMemoryBandwidth", 2 * uint64_t(clock) * uint64_t(width) / 8);
    trace::define_for_process(trace::DefinitionBuilder(trace::kGpu).put(uint32_t(index)).put_string(name).put_string(facts));
  }
}

}  // namespace tracer::cuda
