#include "stack.h"

#include <Python.h>
#include <unwind.h>

#include <string_view>
#include <utility>

#include "caller.h"
#include "elf.h"

namespace tracer::native {
namespace {

struct Walk {
  Stack* stack;
  const void* from;
  const std::vector<CodeRange>& hidden;
  const std::vector<CodeRange>& last;
  void* const* callees_frame = nullptr;  // where the frame begins that the next one called
};

bool within(const std::vector<CodeRange>& ranges, uint64_t address) {
  for (const CodeRange& range : ranges)
    if (address >= range.begin && address < range.end) return true;
  return false;
}

_Unwind_Reason_Code see_frame(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  int before_instruction = 0;
  uint64_t address = _Unwind_GetIPInfo(context, &before_instruction);
  if (!address || within(walk.last, address)) return _URC_END_OF_STACK;
  // libgcc's CFA of a frame is its stack pointer: where the frame of its callee ends.
  auto* end = reinterpret_cast<void* const*>(_Unwind_GetCFA(context));
  void* const* begin = std::exchange(walk.callees_frame, end);
  if (within(walk.hidden, address)) return _URC_NO_REASON;
  Stack& stack = *walk.stack;
  if (!stack.frames) {
    void* const* slot = begin ? return_slot(begin, end, address) : nullptr;
    if (slot > walk.from && plain_address(*slot) == address) {
      stack.caller = address;
      stack.distance = uint64_t(slot) - uint64_t(walk.from);
    }
  }
  stack.counters[stack.frames++] = before_instruction ? address : address - 1;
  return stack.frames < Stack::kMostFrames ? _URC_NO_REASON : _URC_END_OF_STACK;
}

CodeRange library_at(uint64_t address) {
  for (const Library& library : loaded_libraries())
    if (address >= library.begin && address < library.end) return {library.begin, library.end};
  return {};
}

}  // namespace

Stack walk_stack(const void* from, const std::vector<CodeRange>& hidden, const std::vector<CodeRange>& last) noexcept {
  Stack stack;
  Walk walk{&stack, from, hidden, last};
  _Unwind_Backtrace(see_frame, &walk);
  return stack;
}

std::vector<CodeRange> code_of(const std::vector<const char*>& file_names) {
  std::vector<CodeRange> ranges;
  for (const Library& library : loaded_libraries()) {
    std::string_view name = library.path;
    name.remove_prefix(name.rfind('/') + 1);
    for (const char* wanted : file_names)
      if (name.starts_with(wanted)) ranges.push_back({library.begin, library.end});
  }
  return ranges;
}

CodeRange code_of_this_extension() { return library_at(reinterpret_cast<uint64_t>(&walk_stack)); }

std::vector<CodeRange> code_of_python() { return {library_at(reinterpret_cast<uint64_t>(&PyEval_EvalCode))}; }

}  // namespace tracer::native
