// Launching kernels of the GRU family, with or without clusters.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

#include "device.h"

namespace tracer::overrides::gru {

inline int current_index() {
  int index = 0;
  cudaGetDevice(&index);
  return index;
}
inline const Device& current_device() { return device_of(current_index()); }

struct Launch {
  dim3 grid, block;
  unsigned cluster = 1;  // blocks along x
  bool cooperative = false;  // all blocks run at once
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};

// One for each kernel: the devices on which it may use all shared memory and clusters of 16.
using Prepared = std::atomic<uint64_t>;

template <typename Kernel>
cudaError_t prepare(Kernel* kernel, Prepared& prepared) {
  const int index = current_index();
  const uint64_t bit = uint64_t(1) << (index & 63);
  if (prepared.load(std::memory_order_acquire) & bit) return cudaSuccess;
  const Device& device = device_of(index);
  const void* function = reinterpret_cast<const void*>(kernel);
  cudaError_t error = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, int(device.shared_bytes));
  if (error == cudaSuccess && device.capability >= 90) {
    error = cudaFuncSetAttribute(function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  }
  if (error == cudaSuccess) prepared.fetch_or(bit, std::memory_order_release);
  return error;
}

struct Attributes {
  cudaLaunchAttribute all[3];
};

inline cudaLaunchConfig_t configuration(const Launch& launch, Attributes& attributes) {
  cudaLaunchConfig_t config = {};
  config.gridDim = launch.grid;
  config.blockDim = launch.block;
  config.dynamicSmemBytes = launch.shared_bytes;
  config.stream = launch.stream;
  const auto add = [&](cudaLaunchAttributeID id) -> cudaLaunchAttributeValue& {
    config.attrs = attributes.all;
    cudaLaunchAttribute& attribute = attributes.all[config.numAttrs++];
    attribute.id = id;
    return attribute.val;
  };
  if (launch.cluster > 1) {
    auto& size = add(cudaLaunchAttributeClusterDimension).clusterDim;
    size.x = launch.cluster;
    size.y = size.z = 1;
    // Where two blocks fit on a multiprocessor, those of a cluster still go to different ones.
    add(cudaLaunchAttributeClusterSchedulingPolicyPreference).clusterSchedulingPolicyPreference = cudaClusterSchedulingPolicySpread;
  }
  if (launch.cooperative) add(cudaLaunchAttributeCooperative).cooperative = 1;
  return config;
}

template <typename Arguments>
cudaError_t launch(void (*kernel)(Arguments), const Launch& launch, Prepared& prepared, const Arguments& arguments) {
  cudaError_t error = prepare(kernel, prepared);
  if (error != cudaSuccess) return error;
  Attributes attributes;
  cudaLaunchConfig_t config = configuration(launch, attributes);
  void* pointers[] = {const_cast<Arguments*>(&arguments)};
  return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), pointers);
}

// How many clusters of this shape the current device runs at once; 0 where it runs none.
template <typename Arguments>
int active_clusters(void (*kernel)(Arguments), const Launch& launch, Prepared& prepared) {
  if (prepare(kernel, prepared) != cudaSuccess) return 0;
  Attributes attributes;
  cudaLaunchConfig_t config = configuration(launch, attributes);
  int clusters = 0;
  if (cudaOccupancyMaxActiveClusters(&clusters, reinterpret_cast<const void*>(kernel), &config) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return clusters;
}

}  // namespace tracer::overrides::gru
