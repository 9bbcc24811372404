// A library of its own: processes that inherit the variable and are not recorded load this and nothing else.
#include "injection.h"

tracer::cuda::Initialised tracer_cuda_initialised = nullptr;

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  if (tracer_cuda_initialised) tracer_cuda_initialised();
  return 1;
}
