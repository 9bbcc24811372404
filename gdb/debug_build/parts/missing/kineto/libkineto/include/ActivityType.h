// The kinds of activities that torch's profiler names without libkineto.
#pragma once

namespace libkineto {
enum class ActivityType {
  CPU_OP,
  USER_ANNOTATION,
  GPU_MEMCPY,
  GPU_MEMSET,
  CONCURRENT_KERNEL,
  EXTERNAL_CORRELATION,
  CUDA_RUNTIME,
  GPU_USER_ANNOTATION,
  CPU_INSTANT_EVENT,
  PYTHON_FUNCTION,
  GLOW_RUNTIME,
  CUDA_PROFILER_RANGE,
};
}  // namespace libkineto
