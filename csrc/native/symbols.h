// The symbols of addresses in loaded libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tracer::native {

struct Symbol {
  uint64_t address = 0;
  uint64_t offset = 0;   // from the symbol's start; of an address that no symbol covers, from the library's
  std::string name;      // mangled; empty: no symbol covers it
  std::string library;
};

// Those of the addresses that lie in a loaded library, each once, in order.
std::vector<Symbol> resolve(std::vector<uint64_t> addresses);

// Addresses that are to be resolved when the recording ends.
void note_addresses(const uint64_t* addresses, size_t count);
std::vector<uint64_t> take_noted_addresses();

}  // namespace tracer::native
