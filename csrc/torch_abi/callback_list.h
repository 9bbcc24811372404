// torch's list of the callbacks of RecordFunction.
#pragma once

#include <ATen/record_function.h>

#include <atomic>
#include <mutex>
#include <vector>

namespace tracer::torch_abi {

// at::GlobalCallbackManager of record_function.cpp, and its only object: a static variable of a library with symbols.
constexpr const char* kCallbackList = "_ZZN2at12_GLOBAL__N_121GlobalCallbackManager3getEvE7manager";
struct CallbackList {
  std::atomic<size_t> version;  // counts the changes
  std::vector<at::RecordFunctionCallback> callbacks;
  std::mutex lock;
};

}  // namespace tracer::torch_abi
