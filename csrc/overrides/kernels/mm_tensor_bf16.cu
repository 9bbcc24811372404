#include "mm_tensor.cuh"

namespace tracer::overrides {
cudaError_t launch_tensor_bf16(const Mm& mm, const Plan& plan, int device, cudaStream_t stream) {
  return launch_tensor_tile<Bfloat16>(mm, plan, device, stream);
}
}  // namespace tracer::overrides
