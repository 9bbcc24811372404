// What the launchers need to know of a device; asked once.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

namespace tracer::overrides {

struct Device {
  int capability = 0;     // 90 for 9.0
  int processors = 0;     // streaming multiprocessors
  size_t shared_bytes = 0;  // shared memory that a block may have
  std::string name;         // as in "NVIDIA H200"
};

// Of a device by its index; capability 0 where CUDA does not answer.
const Device& device_of(int index);

// 0 where CUDA does not answer.
int device_count();

// Which of the architectures that this build has code for runs there: 80 on 8.x, 90 on 9.0, else 0.
int architecture_for(int capability);

}  // namespace tracer::overrides
