// Long names that are met again and again at the same places in memory: what a lane calls them.
//
// A place holds another name once what brought the first one is gone. Whoever looks one up says by `age` how often that may
// have happened: the name itself is not read. Names of kernels have hundreds of characters, and as other code has the
// caches, reading one takes nearly as long as a hop.
#pragma once

#include <cstdint>

namespace tracer::trace {

class KnownNames {
 public:
  // The id of the name at `place`; 0: not known.
  uint32_t find(const char* place, uint64_t age) const {
    const Known& known = known_[slot(place)];
    return known.place == place && known.age == age ? known.id : 0;
  }

  void remember(const char* place, uint64_t age, uint32_t id) { known_[slot(place)] = {place, age, id}; }

 private:
  struct alignas(32) Known {
    const char* place = nullptr;
    uint64_t age = 0;
    uint32_t id = 0;
  };
  static constexpr int kBits = 9;
  static size_t slot(const char* place) { return (reinterpret_cast<uint64_t>(place) * 0x9E3779B97F4A7C15ull) >> (64 - kBits); }

  Known known_[1 << kBits];
};

}  // namespace tracer::trace
