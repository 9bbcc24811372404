// A function of the CUDA runtime or driver as CUPTI numbers it: its name, and what is recorded of its arguments.
// The tables are generated from CUPTI's headers (generate_api_functions.py).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "../trace/lane.h"

namespace tracer::cuda {

// Something that is recorded of a call. Parameters are copied as they are in CUPTI's structure; what is read
// through a pointer among them takes a word of its own.
struct Field {
  enum When : uint8_t { kParameter, kAtCall, kAtReturn };
  const char* name;
  const char* type;
  When when;
  size_t offset;  // of the parameter in the structure of parameters
  size_t member;  // of what is read, in what the parameter points to
  size_t size;    // bytes; 0: not recorded
};

// A word that is read through a pointer among the parameters.
struct Read {
  uint16_t pointer = 0, member = 0, size = 0;

  uint64_t word(const void* parameters) const {
    const char* from;
    memcpy(&from, static_cast<const char*>(parameters) + pointer, sizeof from);
    if (__builtin_expect(!from, 0)) return 0;
    if (__builtin_expect(size == 4, 1)) return read<uint32_t>(from + member);
    if (size == 8) return read<uint64_t>(from + member);
    return size == 2 ? read<uint16_t>(from + member) : read<uint8_t>(from + member);
  }

 private:
  template <class Word>
  static uint64_t read(const char* from) {
    Word value;
    memcpy(&value, from, sizeof value);
    return value;
  }
};

// How far above a callback's frame the return address of the function's caller lies, in bytes: one for each copy of the
// CUDA runtime in the process, 0 behind the last. Found by unwinding.
using Distances = std::atomic<uint32_t>[4];

struct alignas(64) ApiFunction {
  // ---- what every call reads: one cache line, but for functions that much is read of ----
  std::atomic<uint32_t> described_epoch{0};  // the recording that holds its definition
  uint16_t bytes = 0;                        // of the structure of parameters, as far as it is recorded
  bool launches = false;                     // runs a device kernel
  bool replays = false;                      // runs a CUDA graph
  bool builds = false;                       // makes nodes of a CUDA graph without being captured itself
  bool query = false;                        // tells something and does nothing: written when it has returned
  uint8_t reads_at_return = 0, reads_at_call = 0;
  Distances at_call = {}, at_return = {};    // of the callback that comes then
  static constexpr size_t kMostReads = 16;
  Read reads[kMostReads];                    // those at the return, then those at the call
  // ---- the rest ----
  const char* name = nullptr;                // without suffixes of versions; nullptr: unknown to the headers of the build
  std::vector<Field> fields;

  // What is recorded of the parameters. By value, and in two parts, so that the words of most calls stay in registers.
  trace::ArgumentWords read_call(const void* parameters, trace::ArgumentWords words) const {
    if (!parameters || !(bytes | reads_at_call)) return words;
    if (bytes != 8 || reads_at_call) return read_more(parameters, words);
    words.put(*static_cast<const uint64_t*>(parameters));
    return words;
  }
  void read_return(const void* parameters, trace::ArgumentWords& words) const {
    if (!parameters) return;
    for (uint32_t i = 0; i < reads_at_return; ++i) words.put(reads[i].word(parameters));
  }
  std::string layout() const;

 private:
  trace::ArgumentWords read_more(const void* parameters, trace::ArgumentWords words) const;
};

// By callback id.
class ApiFunctions {
 public:
  static constexpr uint32_t kMostFunctions = 1 << 11;
  ApiFunction* find(uint32_t id) { return id < kMostFunctions ? &functions_[id] : nullptr; }

  template <class Parameters>
  void add(uint32_t id, const char* name, std::vector<Field> fields) {
    add(id, name, std::is_empty_v<Parameters> ? 0 : sizeof(Parameters), std::move(fields));
  }

 private:
  void add(uint32_t id, const char* name, size_t bytes, std::vector<Field> fields);
  ApiFunction functions_[kMostFunctions];
};

struct NoParameters {};

inline Field in(const char* name, const char* type, size_t offset, size_t size) { return {name, type, Field::kParameter, offset, 0, size}; }
inline Field at_call(const char* name, const char* type, size_t offset, size_t member, size_t size) {
  return {name, type, Field::kAtCall, offset, member, size};
}
inline Field at_return(const char* name, const char* type, size_t offset, size_t member, size_t size) {
  return {name, type, Field::kAtReturn, offset, member, size};
}
// What a pointer is for is not said in C: numbers, enumerations and handles that are not const are results.
template <class Pointer>
Field out(const char* name, const char* type, size_t offset) {
  using Pointee = std::remove_pointer_t<Pointer>;
  if constexpr (std::is_pointer_v<Pointer> && !std::is_const_v<Pointee> && !std::is_same_v<Pointee, char> &&
                (std::is_arithmetic_v<Pointee> || std::is_enum_v<Pointee> || std::is_pointer_v<Pointee>))
    return {name, type, Field::kAtReturn, offset, 0, sizeof(Pointee)};
  else
    return {name, type, Field::kAtReturn, offset, 0, 0};
}

struct Enumeration {
  const char* name;
  std::vector<std::pair<const char*, long long>> values;
};

void add_runtime_functions(ApiFunctions& table);
void add_driver_functions(ApiFunctions& table);
const std::vector<Enumeration>& enumerations();
const std::vector<Enumeration>& library_enumerations();

// A function's definition in the trace, with the enumerations that it uses; once a recording and process.
void describe(trace::FunctionDomain domain, uint32_t id, const char* name, const std::string& layout);

}  // namespace tracer::cuda
