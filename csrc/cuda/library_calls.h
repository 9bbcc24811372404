// Calls from torch into cuBLAS, cuBLASLt and cuDNN with their arguments: the slots through which libtorch_cuda
// calls them lead here while a recording runs.
#pragma once

#include <map>
#include <string>

namespace tracer::cuda {

void hook_libraries();
void unhook_libraries();
// By function: whether its slot was found and taken.
std::map<std::string, bool> library_hooks();

}  // namespace tracer::cuda
