// Ranges that tracer itself marks in a thread's events: calls of compiled code, its kernels, phases of the compiler.
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>

namespace tracer::python {

// The name of such a range, with kOwnRange in front.
class OwnName {
 public:
  explicit OwnName(const std::string& name);
  const std::string& text() const { return text_; }
  uint64_t hash() const { return hash_; }

 private:
  std::string text_;
  uint64_t hash_;
};

// A range from enter() to leave(), or to the end of the object. Nothing without a recording.
class OwnRange {
 public:
  OwnRange() = default;
  OwnRange(const OwnRange&) = delete;
  OwnRange& operator=(const OwnRange&) = delete;
  ~OwnRange() { leave(); }
  // With the GIL: names the line that runs.
  void enter(const OwnName& name) noexcept;
  void leave() noexcept;

 private:
  uint64_t number_ = 0;
};

// The same for Python: begins a range, and returns what leave_own_range needs to end it (0: nothing is recorded).
uint64_t enter_own_range(const OwnName& name) noexcept;
void leave_own_range(uint64_t entered) noexcept;

}  // namespace tracer::python
