#include "query_calls.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "../native/elf.h"
#include "../trace/lane.h"
#include "api_calls.h"
#include "api_function.h"

namespace tracer::cuda {
namespace {

// The hook of one function; `Parameters`: what CUPTI tells its arguments as.
template <uint32_t id, class Parameters, class... Args>
struct Hook {
  static inline void* original = nullptr;

  static cudaError_t call(Args... args) {
    auto function = reinterpret_cast<cudaError_t (*)(Args...)>(original);
    if (!trace::recording_epoch.load(std::memory_order_relaxed)) return function(args...);
    const void* frame = __builtin_frame_address(0);
    Parameters parameters{args...};
    cudaError_t result = cudaSuccess;
    uint64_t mark = 0;
    CUpti_CallbackData told{};
    told.callbackSite = CUPTI_API_ENTER;
    told.functionParams = &parameters;
    told.functionReturnValue = &result;
    told.correlationData = &mark;
    told.correlationId = trace::kNoCorrelation;
    see_hooked_call(&told, id, frame);
    result = function(args...);
    told.callbackSite = CUPTI_API_EXIT;
    if (mark) see_hooked_call(&told, id, frame);
    return result;
  }
};

struct Hooked {
  const char* name;
  uint32_t id;
  void* hook;
  void** original;
  std::vector<void**> slots;
};

template <uint32_t id, class Parameters, class... Args>
Hooked hooked(const char* name) {
  using Of = Hook<id, Parameters, Args...>;
  return {name, id, reinterpret_cast<void*>(&Of::call), &Of::original, {}};
}

// Those that an op asks again and again; PyTorch's libraries make most calls of each. Others are left to CUPTI.
std::vector<Hooked>& functions() {
  static auto& all = *new std::vector<Hooked>{
      hooked<CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020, cudaGetDevice_v3020_params, int*>("cudaGetDevice"),
      hooked<CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020, NoParameters>("cudaGetLastError"),
      hooked<CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020, NoParameters>("cudaPeekAtLastError"),
  };
  return all;
}

constexpr const char* kLibraries[] = {"libtorch_cuda.so", "libc10_cuda.so", "libtorch_cuda_linalg.so", "libtorch_python.so"};

// A slot that was never used leads to the resolver, in the library that it lies in. One that leads to another function than
// the process's own, e.g. another tool's, is left.
bool take(Hooked& function, void** slot) {
  if (*slot == function.hook) return true;
  void* original = *function.original;
  if (!original) original = *function.original = dlsym(RTLD_DEFAULT, function.name);
  if (!original) return false;
  Dl_info leads, lies;
  bool lazy = dladdr(*slot, &leads) && dladdr(slot, &lies) && leads.dli_fbase == lies.dli_fbase;
  if (*slot != original && !lazy) return false;
  if (!native::write_plt_slot(slot, function.hook)) return false;
  function.slots.push_back(slot);
  return true;
}

}  // namespace

std::vector<uint32_t> hook_queries() {
  std::vector<uint32_t> ids;
  for (Hooked& function : functions()) {
    bool taken = false;
    for (const char* library : kLibraries)
      if (void** slot = native::find_plt_slot(library, function.name)) taken |= take(function, slot);
    if (taken) ids.push_back(function.id);
  }
  return ids;
}

void unhook_queries() {
  for (Hooked& function : functions()) {
    for (void** slot : function.slots)
      if (*slot == function.hook) native::write_plt_slot(slot, *function.original);
    function.slots.clear();
  }
}

bool queries_are_hooked() {
  for (const Hooked& function : functions())
    if (!function.slots.empty()) return true;
  return false;
}

}  // namespace tracer::cuda
