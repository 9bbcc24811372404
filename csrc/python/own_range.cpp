#include "own_range.h"

#include <utility>

#include "../trace/lane.h"
#include "../trace/recording.h"
#include "source_line.h"

namespace tracer::python {
namespace {

uint64_t begin(const OwnName& name, bool pass_libraries) {
  trace::Lane* lane = trace::current_lane();
  if (!lane) return 0;
  uint64_t string = lane->intern_string(name.hash(), [&] { return std::string_view(name.text()); });
  uint64_t source = lane->source ? calling_source_id(lane, pass_libraries) : 0;
  uint64_t number = trace::new_range_number();
  trace::write_event(lane, trace::kRangeBegin, lane->now(), trace::two_numbers(uint32_t(string), source & trace::kHigh31), number);
  return number;
}

// In another recording than that of the begin it is the end of nothing.
void end(uint64_t number) {
  trace::Lane* lane = number ? trace::lane_to_end_range() : nullptr;
  if (lane) trace::write_event(lane, trace::kRangeEnd, lane->now(), number);
}

}  // namespace

OwnName::OwnName(const std::string& name) : text_(trace::kOwnRange + name), hash_(trace::hash_bytes(text_.data(), text_.size())) {}

void OwnRange::enter(const OwnName& name) noexcept try { number_ = begin(name, true); } catch (...) {  // no memory for the name
}

void OwnRange::leave() noexcept { end(std::exchange(number_, 0)); }

uint64_t enter_own_range(const OwnName& name) noexcept try { return begin(name, false); } catch (...) {
  return 0;
}

void leave_own_range(uint64_t entered) noexcept { end(entered); }

}  // namespace tracer::python
