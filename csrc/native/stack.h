// Native stacks as program counters.
#pragma once

#include <cstdint>
#include <vector>

namespace tracer::native {

struct CodeRange {
  uint64_t begin = 0, end = 0;
};

struct Stack {
  static constexpr uint32_t kMostFrames = 64;
  uint64_t counters[kMostFrames];  // inside the calling instruction of each frame, innermost first
  uint32_t frames = 0;
  uint64_t caller = 0;    // return address of the innermost frame that is kept
  uint64_t distance = 0;  // bytes from `from` up to where that return address lies
};

// The stack of the calling thread without the frames in `hidden`: those below the first other one, and those
// among the others. It ends where code of `last` begins. `from` is a place in the caller's frame, or its end.
Stack walk_stack(const void* from, const std::vector<CodeRange>& hidden, const std::vector<CodeRange>& last) noexcept;

// The code of the loaded libraries whose file name starts so, and of this extension or of Python itself.
std::vector<CodeRange> code_of(const std::vector<const char*>& file_names);
CodeRange code_of_this_extension();
std::vector<CodeRange> code_of_python();

}  // namespace tracer::native
