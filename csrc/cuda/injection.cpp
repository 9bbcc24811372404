// A library of its own: processes that inherit the variable and are not recorded load this and nothing else.
#include "injection.h"

#include <atomic>

tracer::cuda::Initialised tracer_cuda_initialised = nullptr;

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  // A recording may end in another thread meanwhile.
  if (auto* hook = std::atomic_ref<tracer::cuda::Initialised>(tracer_cuda_initialised).load()) hook();
  return 1;
}
