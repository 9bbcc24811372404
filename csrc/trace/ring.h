// The slots of a ring: fixed places of the file for chunks of hops and activities, taken by all processes.
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
  // The slots of a ring of at most this size, the small ones not counted: the rest of it is for definitions.
  static uint32_t slots_of(uint64_t max_bytes);
  // Bytes of the file before the first slot.
  static uint64_t header_bytes(uint32_t slots);
  // Where the n-th slot of the file begins; the small ones follow the others.
  static uint64_t offset_of(uint32_t slots, uint64_t slot);
  static uint64_t slot_at(uint32_t slots, uint64_t offset);  // the other way round
  static uint32_t bytes_of(uint32_t slots, uint64_t slot) { return slot < slots ? kHopChunkBytes : kSmallSlotBytes; }
  static uint64_t count_of(uint32_t slots) { return uint64_t(slots) * (1 + kSmallSlots); }
  // Bytes of the file before what is behind the slots.
  static uint64_t end(uint32_t slots) { return offset_of(slots, count_of(slots)); }

  // Maps the owners of so many slots. Throws std::system_error.
  Ring(Descriptor& descriptor, HeaderPage& page, uint32_t slots);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // The file offset of a slot that this process may write, a small one if that is enough and there is one, or 0: all are in use.
  // What is still there is counted as overwritten.
  uint64_t take(uint32_t process, uint32_t bytes);
  // Counts what is in a slot as overwritten.
  void count_overwritten(uint64_t offset);
  bool has(uint64_t offset) const { return offset >= first_ && offset < end(slots_); }
  uint32_t bytes_at(uint64_t offset) const { return bytes_of(slots_, slot_at(slots_, offset)); }
  // The slot is written: it may be taken again.
  void finish(uint64_t offset, uint32_t process) { owner(offset).store(kSlotWritten | process); }
  // Nothing was written into the slot.
  void give_back(uint64_t offset) { owner(offset).store(0); }

 private:
  std::atomic_ref<uint32_t> owner(uint64_t offset) { return std::atomic_ref(owners_[slot_at(slots_, offset)]); }
  uint64_t take_of(uint32_t begin, uint32_t end, uint32_t process);
  uint32_t best_of(uint32_t begin, uint32_t end) const;
  bool has_ended(uint32_t process) const;

  Descriptor& descriptor_;
  HeaderPage& page_;
  uint32_t slots_;
  uint64_t first_;
  uint32_t* owners_;
  uint32_t* taken_;
  GuardedRange* guard_;
};

}  // namespace tracer::trace
