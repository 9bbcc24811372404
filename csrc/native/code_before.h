// Which functions the code in front of a return address has called: what tells where a compiler has inlined the rest.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tracer::native {

// Whether one of the functions is called, directly or through the procedure linkage table, in the last `bytes` in front of
// the call that returns to `address`, in the same function, and no call through a pointer comes between: that one would be what was
// prepared there. False also if the code is in no library, or on a processor whose code is not read (only x86-64's is).
bool calls_before(uint64_t address, uint64_t bytes, const void* const* functions, size_t count) noexcept;

}  // namespace tracer::native
