#include "code_before.h"

#include <link.h>
#include <unwind.h>

#include <algorithm>
#include <cstring>

namespace tracer::native {

#if defined(__x86_64__)

namespace {

// The executable segment that has an address, and all that its library has in memory: between segments nothing may be.
struct Segment {
  static constexpr int kMostParts = 16;
  struct Part {
    uint64_t begin, end;
  };

  uint64_t address, begin = 0, end = 0;
  Part parts[kMostParts];
  int count = 0;

  bool has_code(uint64_t at, uint64_t bytes) const { return at >= begin && at + bytes <= end; }
  bool has_data(uint64_t at, uint64_t bytes) const {
    return std::any_of(parts, parts + count, [&](const Part& part) { return at >= part.begin && at + bytes <= part.end; });
  }
};

Segment segment_of(uint64_t address) {
  Segment found{address};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& segment = *static_cast<Segment*>(data);
        segment.count = 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& part = info->dlpi_phdr[i];
          if (part.p_type != PT_LOAD || !(part.p_flags & PF_R) || segment.count == Segment::kMostParts) continue;
          uint64_t begin = info->dlpi_addr + part.p_vaddr, end = begin + part.p_memsz;
          segment.parts[segment.count++] = {begin, end};
          if ((part.p_flags & PF_X) && segment.address > begin && segment.address <= end) segment.begin = begin, segment.end = end;
        }
        return segment.end ? 1 : 0;
      },
      &found);
  return found;
}

template <class T>
T read(uint64_t at) {
  T value;
  memcpy(&value, reinterpret_cast<const void*>(at), sizeof value);
  return value;
}

// Where a call to `target` ends up: at the function, or through an entry of the linkage table at what its slot holds.
uint64_t called_function(const Segment& segment, uint64_t target) {
  uint64_t at = target;
  if (segment.has_code(at, 4) && read<uint32_t>(at) == 0xfa1e0ff3) at += 4;  // endbr64
  if (segment.has_code(at, 1) && read<uint8_t>(at) == 0xf2) at += 1;         // bnd
  if (!segment.has_code(at, 6) || read<uint16_t>(at) != 0x25ff) return target;  // jmp *slot(%rip)
  uint64_t slot = at + 6 + uint64_t(int64_t(read<int32_t>(at + 2)));
  return slot % 8 == 0 && segment.has_data(slot, 8) ? read<uint64_t>(slot) : target;
}

// A call through a register, or memory that one points to: FF /2. Behind another FF these bytes are most likely the end of
// a negative number; FF 15 calls a function of another library.
bool is_call_by_pointer(uint64_t at) {
  uint8_t mode = read<uint8_t>(at + 1);
  return read<uint8_t>(at) == 0xff && (mode >> 3 & 7) == 2 && mode != 0x15 && read<uint8_t>(at - 1) != 0xff;
}

// Where the function begins, or the part of one that a compiler has set apart.
uint64_t function_of(uint64_t address) {
  return reinterpret_cast<uint64_t>(_Unwind_FindEnclosingFunction(reinterpret_cast<void*>(address - 1)));
}

// Where a conditional jump at `at` leads; 0: there is none.
uint64_t jump_target(uint64_t at) {
  if (read<uint8_t>(at) >> 4 == 7) return at + 2 + uint64_t(int64_t(read<int8_t>(at + 1)));
  bool is_near = read<uint8_t>(at) == 0x0f && read<uint8_t>(at + 1) >> 4 == 8;
  return is_near ? at + 6 + uint64_t(int64_t(read<int32_t>(at + 2))) : 0;
}

// The last block between `begin` and `end` that a jump leads to from between `first` and `begin`: the jump, or 0. Compilers
// put what is rare, such as the call of a boxed kernel, behind what is usual.
uint64_t jump_into(uint64_t begin, uint64_t end, uint64_t first) {
  uint64_t found = 0, block = begin;
  for (uint64_t at = begin - 2; at >= first; --at)
    if (uint64_t target = jump_target(at); target > block && target < end) found = at, block = target;
  return found;
}

}  // namespace

bool calls_before(uint64_t address, uint64_t bytes, const void* const* functions, size_t count) noexcept {
  constexpr uint64_t kCall = 5, kShortestCall = 2, kLongestCall = 7;
  Segment segment = segment_of(address);
  uint64_t first = std::max({segment.begin + 1, function_of(address), address - bytes});
  bool may_jump = segment.end && read<uint8_t>(address - kCall) == 0xe8;
  for (uint64_t at = address - kShortestCall - kCall; segment.end && at >= first; --at) {
    if (at + kCall + kLongestCall < address && is_call_by_pointer(at + kCall)) {
      uint64_t jump = may_jump ? jump_into(at + kCall, address - kCall + 1, first) : 0;
      if (!jump) return false;
      may_jump = false;
      at = jump - kCall + 1;
      continue;
    }
    uint64_t target = at + kCall + uint64_t(int64_t(read<int32_t>(at + 1)));
    bool direct = read<uint8_t>(at) == 0xe8 && segment.has_code(target, 1);
    bool by_slot = read<uint16_t>(at - 1) == 0x15ff && segment.has_data(target, 8);  // call *slot(%rip), as -fno-plt has it
    if (!direct && !by_slot) continue;
    uint64_t function = direct ? called_function(segment, target) : read<uint64_t>(target);
    for (size_t i = 0; i < count; ++i)
      if (function == reinterpret_cast<uint64_t>(functions[i])) return true;
  }
  return false;
}

#else

bool calls_before(uint64_t, uint64_t, const void* const*, size_t) noexcept { return false; }

#endif

}  // namespace tracer::native
