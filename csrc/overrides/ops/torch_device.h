// Of torch, what the overrides need and what its releases or its CUDA library have: the current stream of a device, the
// error of a failed launch, named dimensions.
#pragma once

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include "../registration.h"

namespace tracer::overrides {

inline cudaStream_t current_stream(c10::Device device) {
  c10::impl::VirtualGuardImpl guard(kDevice);
  return static_cast<cudaStream_t>(guard.getStreamNativeHandle(guard.getStream(device)));
}

inline void check_launch(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // or the next call of somebody else would return it
  TORCH_CHECK(false, "the override of ", what, " could not launch its kernel: ", cudaGetErrorString(error));
}

// Named dimensions, which newer releases of torch do not have.
template <class AnyTensor>
bool has_names(const AnyTensor& tensor) {
  if constexpr (requires { tensor.has_names(); })
    return tensor.has_names();
  else
    return false;
}

}  // namespace tracer::overrides
