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

#include "../trace/records.h"

namespace tracer::cuda {

// Something that is recorded of a call. Parameters are copied as they stand in CUPTI's structure; what is read
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

struct Read {
  uint16_t pointer, member, size;
};

struct alignas(64) ApiFunction {
  // ---- what every call reads: one cache line ----
  std::atomic<uint32_t> described_epoch{0};  // the recording that holds its definition
  uint16_t bytes = 0;                        // of the structure of parameters, as far as it is recorded
  bool launches = false;                     // runs a device kernel
  bool replays = false;                      // runs a CUDA graph
  bool builds = false;                       // makes nodes of a CUDA graph without being captured itself
  // How far above the callback's frame the return address of the function's caller lies, in bytes: one for
  // each copy of the CUDA runtime in the process. Found by unwinding.
  static constexpr int kDistances = 4;
  std::atomic<uint32_t> distances[kDistances] = {};
  bool reads_at_call = false, reads_at_return = false;
  // ---- the rest ----
  const char* name = nullptr;                // without suffixes of versions; nullptr: unknown to the headers of the build
  std::vector<Read> at_call, at_return;
  std::vector<Field> fields;

  // Copies the parameters into `words` (kMaxCallWords of them); returns how many were filled.
  uint32_t read_call(const void* parameters, uint64_t* words) const;
  uint32_t read_return(const void* parameters, uint64_t* words) const;
  std::string layout() const;
};

// By callback id.
class ApiFunctions {
 public:
  ApiFunctions() : functions_(kMostFunctions) {}
  static constexpr size_t kMostFunctions = 1 << 11;
  ApiFunction* find(uint32_t id) { return id < functions_.size() ? &functions_[id] : nullptr; }
  const std::vector<ApiFunction>& all() const { return functions_; }

  template <class Parameters>
  void add(uint32_t id, const char* name, std::vector<Field> fields) {
    add(id, name, std::is_empty_v<Parameters> ? 0 : sizeof(Parameters), std::move(fields));
  }

 private:
  void add(uint32_t id, const char* name, size_t bytes, std::vector<Field> fields);
  std::vector<ApiFunction> functions_;
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
