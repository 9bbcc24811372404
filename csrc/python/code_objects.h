// Tells code objects apart that had the same address one after the other.
#pragma once

#include <Python.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tracer::python {

constexpr size_t kCodeGenerations = 1 << 12;
// How many code objects have been freed whose address falls into a place of this table.
extern std::atomic<uint32_t> code_generations[kCodeGenerations];

inline size_t code_place(const void* code) { return (uint64_t(code) >> 4) * 0x9E3779B97F4A7C15ull >> 52; }

// With its address this identifies a code object, from watch_code_objects() on. A frame that runs it keeps it alive, so
// this does not change while the thread is there, unless a code object of the same place goes.
inline uint32_t generation_of(const PyCodeObject* code) { return code_generations[code_place(code)].load(std::memory_order_relaxed); }

// Counts from now on, for the life of the process. With the GIL.
void watch_code_objects();

}  // namespace tracer::python
