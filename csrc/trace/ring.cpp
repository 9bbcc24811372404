#include "ring.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <system_error>

#include "../mapping.h"
#include "bus_error.h"
#include "chunk_reader.h"
#include "trace_file.h"

namespace tracer::trace {
uint32_t Ring::slots_of(uint64_t max_bytes) { return uint32_t(max_bytes / 4 * 3 / kHopChunkBytes); }

uint64_t Ring::header_bytes(uint32_t slots) {
  return (kHeaderBytes + slots * sizeof(uint32_t) + kLargestPage - 1) / kLargestPage * kLargestPage;
}

uint64_t Ring::end(uint32_t slots) { return header_bytes(slots) + uint64_t(slots) * kHopChunkBytes; }

Ring::Ring(Descriptor& descriptor, HeaderPage& page, uint32_t slots)
    : descriptor_(descriptor), page_(page), slots_(slots), first_(header_bytes(slots)) {
  mapping_ = static_cast<char*>(map_file(descriptor.get(), 0, first_, kReadWrite, MAP_SHARED));  // their begin may be within a page
  if (!mapping_) throw std::system_error(errno, std::generic_category(), "cannot map the ring");
  owners_ = reinterpret_cast<uint32_t*>(mapping_ + kHeaderBytes);
  guard_ = guard(mapping_, first_);
}

Ring::~Ring() {
  unguard(guard_);
  munmap(mapping_, first_);
}

// A process that ended without finishing its chunks.
bool Ring::is_abandoned(uint32_t owner) const {
  uint32_t process = owner & kSlotProcessMask;
  if (process >= kMaxProcesses) return false;
  uint32_t pid = std::atomic_ref(page_.pids[process]).load();
  return pid == 0 || (kill(pid_t(pid), 0) != 0 && errno == ESRCH);
}

bool Ring::take_slot(uint32_t index, uint32_t before, uint32_t now) {
  if ((before & kSlotInUse) && !is_abandoned(before)) return false;
  if (!std::atomic_ref(owners_[index]).compare_exchange_strong(before, now)) return false;
  if (before) count_overwritten(offset_of(index));
  return true;
}

uint64_t Ring::take(uint32_t process, bool first_of_thread) {
  std::atomic_ref next(page_.header.next_slot);
  uint32_t now = kSlotInUse | process | (first_of_thread ? uint32_t(kSlotFirst) : 0);
  // Once all are written, a thread begins where another one did: else many short processes leave nothing of a long one. What it
  // overwrites is the oldest of that thread, so that no thread loses a later slot before an earlier one.
  for (uint32_t i = 0; first_of_thread && next.load() >= slots_ && i < slots_; ++i) {
    uint32_t index = (process + i) % slots_, before = std::atomic_ref(owners_[index]).load();
    if ((before & kSlotFirst) && take_slot(index, before, now)) return offset_of(index);
  }
  for (uint32_t tries = 0; tries < slots_; ++tries) {
    uint32_t index = next.fetch_add(1) % slots_;
    if (take_slot(index, std::atomic_ref(owners_[index]).load(), now)) return offset_of(index);
  }
  return 0;
}

void Ring::count_overwritten(uint64_t offset) try {
  FileReader reader(descriptor_.get());
  FoundChunk chunk;
  if (!chunk_at(reader, offset, chunk)) return;
  uint64_t hops = 0, calls = 0, activities = 0;
  if (chunk.header.stream == kHops) {
    Events events(reader, chunk);
    while (const uint64_t* event = events.next()) {
      HopEvent kind = kind_of_event(event[0]);
      hops += kind == kEnter;
      calls += kind == kApiEnter || kind == kApiQuery;
    }
  } else {
    activities = count_activities(reader, chunk);
  }
  std::atomic_ref(page_.header.overwritten_hops).fetch_add(hops);
  std::atomic_ref(page_.header.overwritten_calls).fetch_add(calls);
  std::atomic_ref(page_.header.overwritten_activities).fetch_add(activities);
} catch (const std::bad_alloc&) {
  // Then they are not counted.
}

}  // namespace tracer::trace
