// The library that the CUDA driver loads when it is initialised (CUDA_INJECTION64_PATH) calls this, if it is set.
#pragma once

namespace tracer::cuda {
using Initialised = void (*)();
}
extern "C" __attribute__((visibility("default"))) tracer::cuda::Initialised tracer_cuda_initialised;
