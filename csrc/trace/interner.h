// A hash table from 64-bit hashes to small ids, for one lane: no locks, no sharing, growth on the cold path.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace tracer::trace {

class Interner {
 public:
  // The id of a hash, or 0 where it is new.
  uint32_t find(uint64_t hash) const {
    if (!slots_) return 0;
    for (uint64_t i = hash >> shift_;; i = (i + 1) & mask_) {
      if (slots_[i].hash == hash && slots_[i].id) return slots_[i].id;
      if (!slots_[i].id) return 0;
    }
  }

  // Adds a new hash and returns its id; ids count from 1. 0 without memory.
  uint32_t add(uint64_t hash) {
    if (!slots_ || count_ * 2 > mask_) {
      if (!grow()) return 0;
    }
    insert(hash, ++count_);
    return count_;
  }

  uint32_t size() const { return count_; }

  void clear() {
    free(slots_);
    slots_ = nullptr;
    count_ = 0;
    mask_ = 0;
  }

 private:
  struct Slot {
    uint64_t hash;
    uint32_t id;
  };

  void insert(uint64_t hash, uint32_t id) {
    uint64_t i = hash >> shift_;
    while (slots_[i].id) i = (i + 1) & mask_;
    slots_[i] = {hash, id};
  }

  bool grow() {
    uint64_t size = slots_ ? (mask_ + 1) * 2 : 1024;
    auto* old = slots_;
    uint64_t old_size = old ? mask_ + 1 : 0;
    auto* fresh = static_cast<Slot*>(calloc(size, sizeof(Slot)));
    if (!fresh) return false;
    slots_ = fresh;
    mask_ = size - 1;
    shift_ = 64 - __builtin_ctzll(size);
    for (uint64_t i = 0; i < old_size; ++i)
      if (old[i].id) insert(old[i].hash, old[i].id);
    free(old);
    return true;
  }

  Slot* slots_ = nullptr;
  uint64_t mask_ = 0;
  uint32_t count_ = 0;
  int shift_ = 54;
};

// Mixes a value into a hash; multiplication keeps the high bits good, which find() uses.
inline uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 29);
}

inline uint64_t hash_bytes(const char* data, size_t size) {
  uint64_t hash = 0x243F6A8885A308D3ull, word;
  size_t at = 0;
  for (; at + sizeof word <= size; at += sizeof word) {
    memcpy(&word, data + at, sizeof word);
    hash = mix(hash, word);
  }
  word = 0;
  memcpy(&word, data + at, size - at);
  return mix(mix(hash, word), size);
}

}  // namespace tracer::trace
