// The native stacks that a lane has taken, by what they are known from.
//
// Calls of a program come in the same order again and again, so each entry remembers which ones were looked up after
// it: the table is then read from one entry to the next, not at random. There are several of them, as an op is followed
// by one thing in one layer and by another in the next.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "../native/caller.h"
#include "interner.h"

namespace tracer::trace {

class StackTable {
 public:
  // The id of one of the stacks that were looked up after the last one, if it has this key and its caller is the one
  // whose return address is on the stack above `frame`; else 0.
  uint32_t predict(uint64_t key, const void* frame) {
    if (!last_) return 0;
    const Known& last = known_[last_ - 1];
    // All at once: which of them it is changes from call to call, and each branch on it would be guessed wrong.
    auto is = [&](uint32_t i) { return uint32_t(last.tags[i] == uint32_t(key)) << i; };
    uint32_t same = is(0) | is(1) | is(2) | is(3);
    for (; same; same &= same - 1) {
      uint32_t id = last.next[__builtin_ctz(same)];
      if (!id) continue;
      const Known& known = known_[id - 1];
      if (known.key != key) continue;
      void* word;
      memcpy(&word, static_cast<const char*>(frame) + known.distance, sizeof word);
      if (native::plain_address(word) == known.caller) return move_to(id);
    }
    return 0;
  }

  // The id of the stack with this key and caller (0: a caller that cannot be read from the stack); 0 where it is new.
  uint32_t find(uint64_t key, uint64_t caller) {
    uint32_t id = ids_.find(mix(key, caller));
    return id ? step_to(id) : 0;
  }

  // `distance`: bytes from the frame up to the caller's address; 0: not there. 0 without memory.
  uint32_t add(uint64_t key, uint64_t caller, uint32_t distance) {
    uint32_t id = ids_.add(mix(key, caller));
    if (!id) return 0;
    known_.push_back({key, caller, distance, 0, {}, {}});
    return step_to(id);
  }

  uint32_t size() const { return ids_.size(); }
  void clear() {
    ids_.clear();
    known_.clear();
    last_ = 0;
  }

 private:
  static constexpr uint32_t kNext = 4;  // as many as predict() compares and move_to() asks for, each by its number
  struct alignas(64) Known {
    uint64_t key, caller;
    uint32_t distance;
    uint32_t oldest;       // of those that were looked up after this one:
    uint32_t tags[kNext];  // of their keys
    uint32_t next[kNext];  // their ids; 0: none
  };

  uint32_t step_to(uint32_t id) {
    const Known& known = known_[id - 1];
    if (known.distance && last_) {  // else nothing tells its caller from others
      Known& before = known_[last_ - 1];
      uint32_t place = before.oldest++ % kNext;
      before.tags[place] = uint32_t(known.key);
      before.next[place] = id;
    }
    return move_to(id);
  }

  // What may follow is asked for ahead of time: other code has the caches until then.
  uint32_t move_to(uint32_t id) {
    last_ = id;
    const Known* known = known_.data();
    const Known& now = known[id - 1];
    // Where there is none, its own line, which is there already.
    auto ask_for = [&](uint32_t next) { __builtin_prefetch(next ? known + (next - 1) : &now); };
    ask_for(now.next[0]), ask_for(now.next[1]), ask_for(now.next[2]), ask_for(now.next[3]);
    return id;
  }

  std::vector<Known> known_;
  uint32_t last_ = 0;  // the id looked up last; 0: none
  Interner ids_;
};

}  // namespace tracer::trace
