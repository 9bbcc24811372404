// Which functions the code in front of a return address has called: what tells where a compiler has inlined the rest.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tracer::native {

#if defined(__x86_64__)
constexpr bool kReadsCode = true;
#else
constexpr bool kReadsCode = false;
#endif

// Whether one of the functions is called, directly or through the procedure linkage table, in the last `bytes` in front of
// the call that returns to `address`, in the same function, and no call through a pointer comes between: that one would be what was
// prepared there. If the call is a direct one, in a block that the compiler has put behind such a call, what comes before is what is
// before the jump into that block. False also if the code is in no library, or not read on this processor.
bool calls_before(uint64_t address, uint64_t bytes, const void* const* functions, size_t count) noexcept;

}  // namespace tracer::native
