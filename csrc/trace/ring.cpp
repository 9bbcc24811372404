#include "ring.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "bus_error.h"
#include "chunk_reader.h"
#include "trace_file.h"

namespace tracer::trace {
namespace {

constexpr uint64_t kPage = 4096;

}  // namespace

uint32_t Ring::slots_of(uint64_t max_bytes) { return uint32_t(max_bytes / 4 * 3 / kHopChunkBytes); }

uint64_t Ring::header_bytes(uint32_t slots) {
  uint64_t words = 2 * count_of(slots);  // owners, and when they were taken
  return kHeaderBytes + (words * sizeof(uint32_t) + kPage - 1) / kPage * kPage;
}

uint64_t Ring::offset_of(uint32_t slots, uint64_t slot) {
  uint64_t large = std::min<uint64_t>(slot, slots);
  return header_bytes(slots) + large * kHopChunkBytes + (slot - large) * kSmallSlotBytes;
}

uint64_t Ring::slot_at(uint32_t slots, uint64_t offset) {
  uint64_t first = header_bytes(slots), small = offset_of(slots, slots);
  return offset < small ? (offset - first) / kHopChunkBytes : slots + (offset - small) / kSmallSlotBytes;
}

Ring::Ring(Descriptor& descriptor, HeaderPage& page, uint32_t slots)
    : descriptor_(descriptor), page_(page), slots_(slots), first_(header_bytes(slots)) {
  void* owners = mmap(nullptr, first_ - kHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), off_t(kHeaderBytes));
  if (owners == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "cannot map the ring");
  owners_ = static_cast<uint32_t*>(owners);
  taken_ = owners_ + count_of(slots);
  guard_ = guard(owners, first_ - kHeaderBytes);
}

Ring::~Ring() {
  unguard(guard_);
  munmap(owners_, first_ - kHeaderBytes);
}

bool Ring::has_ended(uint32_t process) const {
  if (process >= kMaxProcesses) return false;
  uint32_t pid = std::atomic_ref(page_.pids[process]).load();
  return pid == 0 || (kill(pid_t(pid), 0) != 0 && errno == ESRCH);
}

uint64_t Ring::take(uint32_t process, uint32_t bytes) {
  uint64_t small = bytes <= kSmallSlotBytes ? take_of(slots_, uint32_t(count_of(slots_)), process) : 0;
  return small ? small : take_of(0, slots_, process);
}

// The slot that was never written, else the one of an ended process that was taken first, else of the others the one that was taken
// first; `end`: all are being written.
uint32_t Ring::best_of(uint32_t begin, uint32_t end) const {
  uint32_t best = end, now = std::atomic_ref(page_.header.next_slot).load(), asked = ~0u;
  std::pair<bool, uint32_t> oldest;  // whether its process has ended, and its age
  bool ended = false;
  for (uint32_t slot = begin; slot < end; ++slot) {
    uint32_t owner = std::atomic_ref(owners_[slot]).load(), process = owner & kSlotProcessMask;
    if (!owner) return slot;
    if (process != asked) ended = has_ended(asked = process);
    if ((owner & kSlotInUse) && !ended) continue;
    uint32_t age = now - std::atomic_ref(taken_[slot]).load();
    if (best < end && std::pair(ended, age) <= oldest) continue;
    best = slot;
    oldest = {ended, age};
  }
  return best;
}

uint64_t Ring::take_of(uint32_t begin, uint32_t end, uint32_t process) {
  for (uint32_t tries = begin; tries < end; ++tries) {
    uint32_t slot = best_of(begin, end);
    if (slot == end) return 0;
    std::atomic_ref<uint32_t> owner(owners_[slot]);
    uint32_t before = owner.load();
    if ((before & kSlotInUse) && !has_ended(before & kSlotProcessMask)) continue;  // another thread was faster
    if (!owner.compare_exchange_strong(before, kSlotInUse | process)) continue;
    std::atomic_ref(taken_[slot]).store(std::atomic_ref(page_.header.next_slot).fetch_add(1));
    uint64_t offset = offset_of(slots_, slot);
    if (before) count_overwritten(offset);
    return offset;
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
