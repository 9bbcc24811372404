#include "open_ranges.h"

#include <pthread.h>

#include <utility>

#include "../trace/recording.h"

namespace tracer::dispatch {

constinit thread_local OpenRanges open_ranges __attribute__((tls_model("initial-exec"))) = {};

namespace {

using trace::Lane;

constexpr uint32_t kMostSaidAgain = 256;  // the innermost of them
constexpr uint32_t kFewRanges = 64;
constexpr ptrdiff_t kSaidWords = 6;  // a kContext, and a kRangeBegin or kRangeEnd

void keep(OpenRange* range) {
  range->around = open_ranges.spare;
  open_ranges.spare = range;
}

void take_out(OpenRange* range) {
  (range->around ? range->around->inside : open_ranges.outermost) = range->inside;
  (range->inside ? range->inside->around : open_ranges.innermost) = range->around;
  --open_ranges.count;
  keep(range);
}

// Others have ended them, and may not touch this thread's list.
void sweep() {
  for (OpenRange* range = open_ranges.outermost; range;) {
    OpenRange* next = range->inside;
    if (range->left.load(std::memory_order_acquire)) take_out(range);
    range = next;
  }
  open_ranges.swept = open_ranges.count;
}

// The second of two that leave a range deletes it: the thread that began it, and who ends it later.
void leave(OpenRange* range) {
  if (range->left.exchange(true, std::memory_order_acq_rel)) delete range;
}

void leave_all(void* = nullptr) {
  for (OpenRange* range = open_ranges.outermost; range;) {
    OpenRange* next = range->inside;
    range->thread = nullptr;  // a later thread may have this one's address
    leave(range);
    range = next;
  }
  for (OpenRange* range = open_ranges.spare; range;) delete std::exchange(range, range->around);
  open_ranges = {};
}

OpenRange* new_range() {
  static const pthread_key_t key = [] {
    pthread_key_t made;
    pthread_key_create(&made, leave_all);
    return made;
  }();
  if (OpenRange* range = open_ranges.spare) {
    open_ranges.spare = range->around;
    return range;
  }
  pthread_setspecific(key, &open_ranges);
  return new OpenRange;
}

void add(OpenRange* range) {
  range->around = open_ranges.innermost;
  range->inside = nullptr;
  (range->around ? range->around->inside : open_ranges.outermost) = range;
  open_ranges.innermost = range;
  if (++open_ranges.count > 2 * open_ranges.swept + kFewRanges) sweep();
}

// Room for the events of one range, and for what current_lane() guarantees after that. An advance may only have asked for the
// next chunk.
bool make_room(Lane* lane) {
  auto enough = [lane] { return lane->limit - lane->next >= trace::kRoomWords + kSaidWords; };
  return enough() || (trace::lane_advance(lane) && (enough() || (trace::lane_advance(lane) && enough())));
}

void say(Lane* lane, python::ContextNow now) {
  if (now.context == lane->context && now.around == lane->context_around) return;
  lane->context = now.context;
  lane->context_around = now.around;
  trace::write_event(lane, trace::kContext, lane->now(), now.context, now.around);
}

void say(Lane* lane, OpenRange* range) {
  auto text = [range] { return std::string_view(range->name); };
  uint64_t name = lane->intern_string(trace::hash_bytes(range->name.data(), range->name.size()), text);
  uint64_t begin = range->begin > lane->start_ticks ? range->begin - lane->start_ticks : 0;
  say(lane, range->context);
  trace::write_event(lane, trace::kRangeBegin, begin, name, range->number);
  range->said = uint32_t(lane->epoch);
}

uint64_t chunk_of(const Lane* lane) { return trace::two_numbers(lane->sequence, lane->epoch); }

void say_again(Lane* lane) {
  sweep();
  OpenRange* range = open_ranges.innermost;
  for (uint32_t i = 1; range && range->around && i < kMostSaidAgain; ++i) range = range->around;
  for (; range && make_room(lane); range = range->inside) say(lane, range);
  if (!range) open_ranges.said = chunk_of(lane);
}

void say_begin(Lane* lane, OpenRange* range) noexcept try {
  if (open_ranges.count > 1 && open_ranges.said != chunk_of(lane)) return say_again(lane);
  open_ranges.said = chunk_of(lane);
  say(lane, range);
} catch (...) {  // no memory for its name
}

}  // namespace

OpenRange* begin_range(const char* name) {
  Lane* lane = trace::current_lane();
  OpenRange* range = new_range();
  range->name = name;
  range->number = trace::new_range_number();
  range->begin = trace::ticks();
  range->context = python::context_now();
  range->said = 0;
  range->left.store(false, std::memory_order_relaxed);
  range->thread = &open_ranges;
  add(range);
  if (lane)
    say_begin(lane, range);
  else
    open_ranges.said = 0;
  return range;
}

void end_range(OpenRange* range) noexcept {
  Lane* lane = range->said == trace::epoch_of_recording() ? trace::lane_to_end_range() : nullptr;
  if (lane) {
    say(lane, python::context_now());
    trace::write_event(lane, trace::kRangeEnd, lane->now(), range->number);
  }
  if (range->thread == &open_ranges)
    take_out(range);
  else
    leave(range);
}

void forget_open_ranges() { leave_all(); }

void say_open_ranges(Lane* lane) noexcept try {
  if (open_ranges.said != chunk_of(lane)) say_again(lane);
  if (make_room(lane)) say(lane, python::context_now());
} catch (...) {  // no memory
}

}  // namespace tracer::dispatch
