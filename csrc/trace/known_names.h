// Long names that are met again and again at the same places in memory: what a lane calls them.
//
// A place holds another name once what brought the first one is gone. Whoever looks one up says by `age` how often that may
// have happened; that the beginning of the name is still the same is seen as well. The rest of it is not read: names of
// kernels have hundreds of characters, and as other code has the caches, each line of them takes as long as a hop.
#pragma once

#include <cstdint>
#include <cstring>

namespace tracer::trace {

class KnownNames {
 public:
  // The id of the name that stands at `place`; 0: not known.
  uint32_t find(const char* place, uint64_t age) const {
    const Known& known = known_[slot(place)];
    bool same = known.place == place && known.age == age && strncmp(known.beginning, place, sizeof known.beginning) == 0;
    return same ? known.id : 0;
  }

  void remember(const char* place, uint64_t age, uint32_t id) {
    Known& known = known_[slot(place)];
    known.place = place;
    known.age = age;
    known.id = id;
    strncpy(known.beginning, place, sizeof known.beginning);
  }

 private:
  struct alignas(64) Known {
    const char* place = nullptr;
    uint64_t age = 0;
    uint32_t id = 0;
    char beginning[44] = {};
  };
  static constexpr int kBits = 9;
  static size_t slot(const char* place) { return (reinterpret_cast<uint64_t>(place) * 0x9E3779B97F4A7C15ull) >> (64 - kBits); }

  Known known_[1 << kBits];
};

}  // namespace tracer::trace
