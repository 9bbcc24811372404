// The functions of libcupti that are used, found in the library when it is first wanted: the extension links
// against none of CUDA's libraries. None of them may be called before the driver is initialised: without a driver
// CUPTI 13.2 calls itself without end, even in cuptiGetVersion.
#pragma once

#include <cupti.h>

#include <string>

namespace tracer::cuda {

#define TRACER_CUPTI_FUNCTIONS(_)                                                                            \
  _(cuptiGetVersion) _(cuptiGetResultString) _(cuptiSubscribe) _(cuptiUnsubscribe) _(cuptiEnableCallback)    \
  _(cuptiEnableDomain) _(cuptiGetCallbackName) _(cuptiActivityRegisterCallbacks) _(cuptiActivityEnable)      \
  _(cuptiActivityDisable) _(cuptiActivityFlushAll) _(cuptiActivityGetNextRecord)                             \
  _(cuptiActivityGetNumDroppedRecords) _(cuptiActivitySetAttribute) _(cuptiActivityRegisterTimestampCallback) _(cuptiGetGraphNodeId)

struct Cupti {
#define TRACER_MEMBER(name) decltype(&::name) name = nullptr;
  TRACER_CUPTI_FUNCTIONS(TRACER_MEMBER)
#undef TRACER_MEMBER
#ifdef CUpti_SubscriberParams_STRUCT_SIZE
  decltype(&::cuptiSubscribe_v2) cuptiSubscribe_v2 = nullptr;  // says who holds CUPTI; not in every CUPTI 12
#endif
  std::string missing;  // why it is missing; empty: all of it is there
  std::string text(CUptiResult result) const;
};

const Cupti& cupti();

}  // namespace tracer::cuda
