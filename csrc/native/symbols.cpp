#include "symbols.h"

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "../fork_locks.h"
#include "elf.h"

namespace tracer::native {
namespace {

std::mutex& noted_lock = fork_lock<LockOrder::kAddresses>();
auto& noted = *new std::unordered_set<uint64_t>;

}  // namespace

std::vector<Symbol> resolve(std::vector<uint64_t> addresses) {
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  std::vector<Symbol> symbols;
  for (const Library& library : loaded_libraries()) {
    auto first = std::lower_bound(addresses.begin(), addresses.end(), library.begin);
    auto last = std::lower_bound(addresses.begin(), addresses.end(), library.end);
    if (first == last) continue;
    size_t start = symbols.size();
    for (auto at = first; at != last; ++at) symbols.push_back({*at, *at - library.load_bias, {}, library.path});
    for_each_function(library.path, [&](const char* name, uint64_t address, uint64_t size) {
      uint64_t begin = library.load_bias + address, end = begin + std::max<uint64_t>(size, 1);
      for (auto at = std::lower_bound(first, last, begin); at != last && *at < end; ++at) {
        Symbol& symbol = symbols[start + size_t(at - first)];
        symbol.name = name;
        symbol.offset = *at - begin;
      }
    });
  }
  return symbols;
}

void note_addresses(const uint64_t* addresses, size_t count) {
  std::lock_guard guard(noted_lock);
  noted.insert(addresses, addresses + count);
}

std::vector<uint64_t> take_noted_addresses() {
  std::lock_guard guard(noted_lock);
  std::vector<uint64_t> taken(noted.begin(), noted.end());
  noted.clear();
  return taken;
}

}  // namespace tracer::native
