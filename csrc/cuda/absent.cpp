// Replaces the CUDA part where torch has no CUDA.
#include "recorder.h"

namespace tracer::cuda {

bool is_built() { return false; }

void begin(const Options&) {}

void end() {}

Statement statement() {
  Statement statement;
  statement.state = "not built";
  statement.why = "tracer was built with a torch that has no CUDA";
  return statement;
}

}  // namespace tracer::cuda
