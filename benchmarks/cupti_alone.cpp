// What any recording of CUDA pays to CUPTI before it does anything itself: callbacks of the runtime API and of the
// driver calls that launch, into a function that does nothing, and kernels, copies and fills, thrown away as they
// come. tracer asks for a little more: driver calls that do other work, nodes of graphs, a flush now and then.
//
// start("cg"): c for callbacks, g for activities of the GPU. Returns 0, or the error code of CUPTI.
#include <cupti.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

namespace {

constexpr size_t kBufferBytes = 1 << 20;  // as tracer's
std::mutex& lock = *new std::mutex;  // leaked: CUPTI delivers until the very end of the process
auto& spare = *new std::vector<uint8_t*>;

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* most_records) {
  std::lock_guard guard(lock);
  *size = kBufferBytes;
  *most_records = 0;
  if (spare.empty()) {
    *buffer = static_cast<uint8_t*>(aligned_alloc(4096, kBufferBytes));
    memset(*buffer, 0, kBufferBytes);
  } else {
    *buffer = spare.back();
    spare.pop_back();
  }
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  memset(buffer, 0, valid);
  std::lock_guard guard(lock);
  spare.push_back(buffer);
}

void CUPTIAPI do_nothing(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

}  // namespace

extern "C" int start(const char* parts) {
  CUptiResult result = CUPTI_SUCCESS;
  auto then = [&result](auto&& call) {
    if (result == CUPTI_SUCCESS) result = call();
  };
  if (strchr(parts, 'c')) {
    static CUpti_SubscriberHandle subscriber;
    then([] { return cuptiSubscribe(&subscriber, do_nothing, nullptr); });
    then([] { return cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API); });
    for (CUpti_CallbackId id : {CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
                                CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz})
      then([id] { return cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id); });
  }
  if (strchr(parts, 'g')) {
    uint8_t zeroed = 1;
    size_t size = sizeof zeroed;
    then([&] { return cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &zeroed); });
    then([] { return cuptiActivityRegisterCallbacks(give_buffer, take_buffer); });
    for (CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET})
      then([kind] { return cuptiActivityEnable(kind); });
  }
  return result;
}
