#include "device.h"

#include <array>
#include <atomic>
#include <mutex>

namespace tracer::overrides {

namespace {

constexpr int kDevices = 64;

Device ask(int index) {
  Device device;
  int major = 0, minor = 0, shared = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index) != cudaSuccess) return {};
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index);
  cudaDeviceGetAttribute(&device.processors, cudaDevAttrMultiProcessorCount, index);
  cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, index);
  device.capability = 10 * major + minor;
  device.shared_bytes = size_t(shared);
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, index) == cudaSuccess) device.name = properties.name;
  return device;
}

}  // namespace

const Device& device_of(int index) {
  static auto& known = *new std::array<std::atomic<const Device*>, kDevices>{};
  static const Device& none = *new Device;
  if (index < 0 || index >= kDevices) return none;
  const Device* device = known[size_t(index)].load(std::memory_order_acquire);
  if (!device) {
    static auto& mutex = *new std::mutex;
    std::lock_guard lock(mutex);
    device = known[size_t(index)].load(std::memory_order_relaxed);
    if (!device) known[size_t(index)].store(device = new Device(ask(index)), std::memory_order_release);
  }
  return *device;
}

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // or the next call of somebody else would return it
  return 0;
}

int architecture_for(int capability) {
  if (capability == 90) return 90;
  return capability >= 80 && capability < 90 ? 80 : 0;
}

}  // namespace tracer::overrides
