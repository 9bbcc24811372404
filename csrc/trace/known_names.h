// Long names that are met again and again at the same places in memory: what a lane calls them.
//
// A place may hold another name later, so what was found there is kept with a copy of it. Comparing hundreds of characters
// takes less time than hashing them.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace tracer::trace {

class KnownNames {
 public:
  KnownNames() = default;
  KnownNames(const KnownNames&) = delete;
  KnownNames& operator=(const KnownNames&) = delete;
  ~KnownNames() {
    for (Known& known : known_) free(known.text);
  }

  // The id of the name that stands at `place`, in the recording `epoch`; 0: not known.
  uint32_t find(const char* place, uint32_t epoch) const {
    const Known& known = known_[slot(place)];
    bool same = known.place == place && known.epoch == epoch && known.text && strcmp(known.text, place) == 0;
    return same ? known.id : 0;
  }

  void remember(const char* place, uint32_t epoch, uint32_t id) {
    Known& known = known_[slot(place)];
    free(known.text);
    known = {place, strdup(place), epoch, id};
  }

 private:
  struct Known {
    const char* place = nullptr;
    char* text = nullptr;
    uint32_t epoch = 0, id = 0;
  };
  static constexpr int kBits = 9;
  static size_t slot(const char* place) { return (reinterpret_cast<uint64_t>(place) * 0x9E3779B97F4A7C15ull) >> (64 - kBits); }

  Known known_[1 << kBits];
};

}  // namespace tracer::trace
