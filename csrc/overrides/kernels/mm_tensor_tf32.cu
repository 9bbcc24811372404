#include "mm_tensor.cuh"

namespace tracer::overrides {
cudaError_t launch_tensor_tf32(const Mm& mm, const Plan& plan, int device, cudaStream_t stream) {
  return launch_tensor_tile<Tf32>(mm, plan, device, stream);
}
}  // namespace tracer::overrides
