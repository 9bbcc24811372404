#include "own_range.h"

#include "../trace/lane.h"
#include "../trace/recording.h"
#include "source_line.h"

namespace tracer::python {
namespace {

trace::Lane* begin(const OwnName& name) {
  trace::Lane* lane = trace::current_lane();
  if (!lane) return nullptr;
  uint64_t string = lane->intern_string(name.hash(), [&] { return std::string_view(name.text()); });
  uint64_t source = lane->source ? calling_source_id(lane) : 0;
  trace::write_event(lane, trace::kRangeEnter, lane->now(), trace::two_numbers(uint32_t(string), source & trace::kHigh31));
  return lane;
}

// A range ends in the thread and in the recording in which it began, or with the thread's events.
void end(trace::Lane* lane, uint32_t epoch) {
  if (lane != trace::thread_lane || epoch != lane->epoch) return;
  if ((lane = trace::current_lane())) trace::write_event(lane, trace::kRangeExit, lane->now());
}

}  // namespace

OwnName::OwnName(const std::string& name) : text_(trace::kOwnRange + name), hash_(trace::hash_bytes(text_.data(), text_.size())) {}

void OwnRange::enter(const OwnName& name) noexcept try {
  if ((lane_ = begin(name))) epoch_ = lane_->epoch;
} catch (...) {  // no memory for the name
}

void OwnRange::leave() noexcept {
  if (lane_) end(lane_, epoch_);
  lane_ = nullptr;
}

uint64_t enter_own_range(const OwnName& name) noexcept try {
  trace::Lane* lane = begin(name);
  return lane ? trace::two_numbers(lane->number + 1, lane->epoch) : 0;
} catch (...) {
  return 0;
}

void leave_own_range(uint64_t entered) noexcept {
  trace::Lane* lane = trace::thread_lane;
  if (entered && uint32_t(entered) == lane->number + 1) end(lane, uint32_t(entered >> trace::kHighShift));
}

}  // namespace tracer::python
