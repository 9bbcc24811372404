#include "ranges.h"

#include <ATen/record_function.h>

#include <cstring>

#include "../trace/lane.h"

namespace tracer::dispatch {
namespace {

struct OpenRange final : at::ObserverContext {
  OpenRange(trace::Lane* lane) : lane(lane), epoch(lane->epoch) {}
  trace::Lane* lane;
  uint32_t epoch;
};

std::unique_ptr<at::ObserverContext> enter_range(const at::RecordFunction& range) {
  trace::Lane* lane = trace::current_lane();
  if (!lane) return nullptr;
  const char* name = range.name();
  size_t size = strlen(name);
  uint64_t string = lane->intern_string(trace::hash_bytes(name, size), [&] { return std::string_view(name, size); });
  trace::write_event(lane, trace::kRangeEnter, lane->now(), string);
  return std::make_unique<OpenRange>(lane);
}

void leave_range(const at::RecordFunction&, at::ObserverContext* context) {
  auto* range = static_cast<OpenRange*>(context);
  // A range may end on another thread than it began on; the innermost range of that thread is another.
  if (!range || range->lane != trace::thread_lane || range->epoch != range->lane->epoch) return;
  if (trace::Lane* lane = trace::current_lane()) trace::write_event(lane, trace::kRangeExit, lane->now());
}

at::CallbackHandle observer = at::INVALID_CALLBACK_HANDLE;

}  // namespace

void observe_ranges() {
  if (observer != at::INVALID_CALLBACK_HANDLE) return;
  observer = at::addGlobalCallback(
      at::RecordFunctionCallback(enter_range, leave_range).needsInputs(false).needsOutputs(false).scopes({at::RecordScope::USER_SCOPE}));
}

void stop_observing_ranges() {
  if (observer == at::INVALID_CALLBACK_HANDLE) return;
  at::removeCallback(observer);
  observer = at::INVALID_CALLBACK_HANDLE;
}

}  // namespace tracer::dispatch
