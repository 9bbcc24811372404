#include "seen_lines.h"

#include <atomic>
#include <functional>

namespace tracer::python {
namespace {

struct Seen {
  std::string file;
  uint32_t number;
};

// A place is taken by its hash, and then has its line: no thread waits for another one, and no fork finds a lock.
struct Place {
  std::atomic<uint64_t> hash{0};
  std::atomic<const Seen*> line{nullptr};
};
constexpr size_t kPlaces = 1 << 14;
constexpr size_t kTries = 64;
Place places[kPlaces];

}  // namespace

void note_line(const std::string& file, uint32_t number) {
  uint64_t hash = (std::hash<std::string>{}(file) ^ number * 0x9E3779B97F4A7C15ull) | 1;
  for (size_t i = 0; i < kTries; ++i) {
    Place& place = places[((hash * 0x9E3779B97F4A7C15ull >> 50) + i) % kPlaces];
    uint64_t found = 0;
    if (place.hash.compare_exchange_strong(found, hash)) {
      place.line.store(new Seen{file, number});
      return;
    }
    if (found == hash) return;
  }
}

std::vector<std::pair<std::string, uint32_t>> seen_lines() {
  std::vector<std::pair<std::string, uint32_t>> lines;
  for (const Place& place : places)
    if (const Seen* line = place.line.load()) lines.emplace_back(line->file, line->number);
  return lines;
}

// A thread that still notes a line of the earlier recording may lose it, or leave it here. So the lines are not freed.
void forget_lines() {
  for (Place& place : places) {
    place.line.store(nullptr);
    place.hash.store(0);
  }
}

}  // namespace tracer::python
