// Questions to the CUDA runtime that PyTorch's own libraries ask: the slots through which they call it lead here, which costs
// less than two callbacks of CUPTI. What is recorded of a call is the same, but for its correlation id.
#pragma once

#include <cstdint>
#include <vector>

namespace tracer::cuda {

// Takes the slots; the callback ids of the functions that are taken, none where libtorch_cuda has no slots of them.
std::vector<uint32_t> hook_queries();
void unhook_queries();
bool queries_are_hooked();

}  // namespace tracer::cuda
