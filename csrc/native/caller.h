// Where return addresses lie on the stack: the part of reading call sites that processors do differently.
//
// TRACER_FRAME() is a place in the frame of the function that says it; return_address() reads from there where that
// function returns to. When frames are unwound, each is known by where it begins and ends: is_frame_of() says, of
// frames from the innermost outwards, which one has the place, and return_slot() which word of a frame holds the
// address that it returns to. frame_of_caller() is what TRACER_FRAME() would be in the function that has the return slot
// `words` above `frame`; nullptr where that is not known.
#pragma once

#include <cstdint>

namespace tracer::native {

#if defined(__x86_64__)

// A call pushes the return address: it is right below the end of the callee's frame, its CFA.
#define TRACER_FRAME() static_cast<void* const*>(__builtin_dwarf_cfa())

inline uint64_t plain_address(void* word) { return reinterpret_cast<uint64_t>(word); }

inline uint64_t return_address(void* const* frame) { return plain_address(frame[-1]); }

inline bool is_frame_of(void* const* frame, void* const* end) { return end == frame; }

inline void* const* return_slot(void* const*, void* const* end, uint64_t) { return end - 1; }

inline void* const* frame_of_caller(void* const* frame, int64_t words) { return frame + words + 1; }

#elif defined(__aarch64__)

// A call leaves the return address in a register, and the callee stores it anywhere in its frame. A function that
// keeps a frame pointer, as one that asks for it does, stores both as a pair at that pointer (AAPCS64).
#define TRACER_FRAME() static_cast<void* const*>(__builtin_frame_address(0))

// Without the signature that pointer authentication puts into the upper bits.
inline uint64_t plain_address(void* word) { return reinterpret_cast<uint64_t>(word) & ((1ull << 48) - 1); }

inline uint64_t return_address(void* const* frame) { return plain_address(frame[1]); }

inline bool is_frame_of(void* const* frame, void* const* end) { return end > frame; }

// nullptr where the address is missing or there twice.
inline void* const* return_slot(void* const* begin, void* const* end, uint64_t address) {
  void* const* found = nullptr;
  for (void* const* slot = begin; slot < end; ++slot) {
    if (plain_address(*slot) != address) continue;
    if (found) return nullptr;
    found = slot;
  }
  return found;
}

// Where its pair lies is not known.
inline void* const* frame_of_caller(void* const*, int64_t) { return nullptr; }

#else
#error "tracer records on x86-64 and aarch64: where return addresses lie on the stack of this processor is not known"
#endif

}  // namespace tracer::native
