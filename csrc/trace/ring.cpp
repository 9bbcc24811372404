#include "ring.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "event_words.h"
#include "trace_file.h"

namespace tracer::trace {
namespace {

constexpr uint64_t kPage = 4096;

}  // namespace

uint32_t Ring::slots_of(uint64_t max_bytes) { return uint32_t(max_bytes / 4 * 3 / kHopChunkBytes); }

uint64_t Ring::header_bytes(uint32_t slots) { return kHeaderBytes + (slots * sizeof(uint32_t) + kPage - 1) / kPage * kPage; }

Ring::Ring(Descriptor& descriptor, HeaderPage& page)
    : descriptor_(descriptor), page_(page), slots_(page.header.ring_slots), first_(page.header.header_bytes) {
  void* owners = mmap(nullptr, first_ - kHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), off_t(kHeaderBytes));
  if (owners == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "cannot map the ring");
  owners_ = static_cast<uint32_t*>(owners);
  guard_ = guard(owners, first_ - kHeaderBytes);
}

Ring::~Ring() {
  unguard(guard_);
  munmap(owners_, first_ - kHeaderBytes);
}

// A process that ended without finishing its chunks.
bool Ring::is_abandoned(uint32_t owner) const {
  uint32_t process = owner & kSlotProcessMask;
  if (process >= kMaxProcesses) return false;
  uint32_t pid = std::atomic_ref(page_.pids[process]).load();
  return pid == 0 || (kill(pid_t(pid), 0) != 0 && errno == ESRCH);
}

uint64_t Ring::take(uint32_t process) {
  for (uint32_t tries = 0; tries < slots_; ++tries) {
    uint32_t index = std::atomic_ref(page_.header.next_slot).fetch_add(1) % slots_;
    std::atomic_ref<uint32_t> owner(owners_[index]);
    uint32_t before = owner.load();
    if ((before & kSlotInUse) && !is_abandoned(before)) continue;
    if (!owner.compare_exchange_strong(before, kSlotInUse | process)) continue;
    uint64_t offset = first_ + uint64_t(index) * kHopChunkBytes;
    if (before) count_overwritten(offset);
    return offset;
  }
  return 0;
}

void Ring::count_overwritten(uint64_t offset) {
  if (!descriptor_.reaches(offset + kHopChunkBytes)) return;
  void* mapping = mmap(nullptr, kHopChunkBytes, PROT_READ, MAP_SHARED, descriptor_.get(), off_t(offset));
  if (mapping == MAP_FAILED) return;
  GuardedRange* guarded = guard(mapping, kHopChunkBytes);
  auto* header = static_cast<const ChunkHeader*>(mapping);
  auto* words = reinterpret_cast<const uint64_t*>(header + 1);
  size_t size = header->magic == kChunkMagic && header->capacity <= kHopChunkBytes ? words_in(*header) : 0;
  uint64_t hops = 0, calls = 0, activities = 0;
  if (size && header->stream == kHops) {
    for (size_t at = 0, count; (count = words_of_event(words + at, size - at)); at += count) {
      hops += kind_of_event(words[at]) == kEnter;
      calls += kind_of_event(words[at]) == kApiEnter || kind_of_event(words[at]) == kApiQuery;
    }
  } else if (size) {
    while (activities * kActivityWords < size && words[activities * kActivityWords]) ++activities;
  }
  unguard(guarded);
  munmap(mapping, kHopChunkBytes);
  std::atomic_ref(page_.header.overwritten_hops).fetch_add(hops);
  std::atomic_ref(page_.header.overwritten_calls).fetch_add(calls);
  std::atomic_ref(page_.header.overwritten_activities).fetch_add(activities);
}

}  // namespace tracer::trace
