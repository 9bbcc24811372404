// Process groups of torch.distributed as arguments of its operators. Their headers are not in every build of torch.
#pragma once

namespace tracer::torch_abi {

// The class of these arguments, and `const std::string& c10d::ProcessGroup::getGroupName() const` in libtorch_cpu.so.
constexpr const char* kProcessGroup = "__torch__.torch.classes.c10d.ProcessGroup";
constexpr const char* kProcessGroupName = "_ZNK4c10d12ProcessGroup12getGroupNameB5cxx11Ev";

}  // namespace tracer::torch_abi
