// The native stacks that a lane has taken, by what they are known from.
//
// Calls of a program come in the same order again and again, so each entry remembers which one was looked up after
// it: the table is then read from one entry to the next, not at random.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "interner.h"

namespace tracer::trace {

class StackTable {
 public:
  // The id of the stack that was looked up after the last one, if it has this key and its caller is the one whose
  // return address stands on the stack above `frame`; else 0.
  uint32_t predict(uint64_t key, const void* frame) {
    if (next_ >= known_.size()) return 0;
    const Known& known = known_[next_];
    if (known.key != key) return 0;
    if (known.distance) {
      uint64_t address;
      memcpy(&address, static_cast<const char*>(frame) + known.distance, sizeof address);
      if (address != known.caller) return 0;
    }
    return step_to(next_);
  }

  // The id of the stack with this key and caller (0: a caller that cannot be read from the stack); 0 where it is new.
  uint32_t find(uint64_t key, uint64_t caller) {
    uint32_t id = ids_.find(mix(key, caller));
    if (!id) return 0;
    if (last_ < known_.size()) known_[last_].next = id - 1;
    return step_to(id - 1);
  }

  // `distance`: bytes from the frame up to where the caller's address stands; 0: not there. 0 without memory.
  uint32_t add(uint64_t key, uint64_t caller, uint32_t distance) {
    uint32_t id = ids_.add(mix(key, caller));
    if (!id) return 0;
    if (last_ < known_.size()) known_[last_].next = id - 1;
    known_.push_back({key, caller, distance, id});
    return step_to(id - 1);
  }

  uint32_t size() const { return ids_.size(); }
  void clear() {
    ids_.clear();
    known_.clear();
    last_ = next_ = 0;
  }

 private:
  struct Known {
    uint64_t key, caller;
    uint32_t distance;
    uint32_t next;  // index of the entry that was looked up after this one
  };

  uint32_t step_to(uint32_t index) {
    last_ = index;
    next_ = known_[index].next;
    return index + 1;
  }

  Interner ids_;
  std::vector<Known> known_;
  uint32_t last_ = 0, next_ = 0;
};

}  // namespace tracer::trace
