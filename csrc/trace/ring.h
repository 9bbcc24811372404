// The slots of a ring: fixed places of the file for chunks of hops and activities, taken in turn by all processes.
#pragma once

#include <atomic>
#include <cstdint>

#include "records.h"

namespace tracer::trace {

class Descriptor;
struct GuardedRange;
struct HeaderPage;

class Ring {
 public:
  // The slots of a ring of at most this size: the rest of it is for definitions.
  static uint32_t slots_of(uint64_t max_bytes);
  // Bytes of the file before the first slot; of a file without slots, before the first chunk.
  static uint64_t header_bytes(uint32_t slots);

  // Bytes of the file before what is behind the slots.
  static uint64_t end(uint32_t slots);

  // Maps the owners of this many slots. Throws std::system_error.
  Ring(Descriptor& descriptor, HeaderPage& page, uint32_t slots);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // The file offset of a slot that this process may write, or 0: all are in use. What is still there is counted
  // as overwritten.
  uint64_t take(uint32_t process, bool first_of_thread);
  // Counts what is in a slot as overwritten.
  void count_overwritten(uint64_t offset);
  bool has(uint64_t offset) const { return offset >= first_ && offset < first_ + uint64_t(slots_) * kHopChunkBytes; }
  // The slot is written: it may be taken again.
  void finish(uint64_t offset, uint32_t process) { owner(offset).store(kSlotWritten | (owner(offset).load() & kSlotFirst) | process); }
  // Nothing was written into the slot.
  void give_back(uint64_t offset) { owner(offset).store(0); }

 private:
  std::atomic_ref<uint32_t> owner(uint64_t offset) { return std::atomic_ref(owners_[(offset - first_) / kHopChunkBytes]); }
  bool is_abandoned(uint32_t owner) const;
  bool take_slot(uint32_t index, uint32_t before, uint32_t now);
  uint64_t offset_of(uint32_t index) const { return first_ + uint64_t(index) * kHopChunkBytes; }

  Descriptor& descriptor_;
  HeaderPage& page_;
  uint32_t slots_;
  uint64_t first_;
  char* mapping_;
  uint32_t* owners_;
  GuardedRange* guard_;
};

}  // namespace tracer::trace
