// Functions of torch that call or redispatch operators, by their mangled names.
#pragma once

#include <string_view>

namespace tracer::torch_abi {

// The libraries whose functions have these names.
constexpr const char* kLibraries[] = {"libtorch_cpu.so", "libtorch_python.so", "libtorch_cuda.so"};

enum class FunctionKind {
  kOther,
  kCalls,         // an operator
  kRedispatches,  // to the next kernel of an operator
  kHelper,        // either, for the function that called it
};
FunctionKind kind_of_function(std::string_view mangled);

// What the dispatcher calls before a kernel function whenever it calls an operator, and never when it redispatches one.
bool asks_the_profiler(std::string_view mangled);

}  // namespace tracer::torch_abi
