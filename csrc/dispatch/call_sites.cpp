#include "call_sites.h"

#include <unwind.h>

#include <algorithm>
#include <vector>

#include "../native/code_before.h"
#include "../native/elf.h"
#include "../native/stack.h"
#include "../torch_abi/function_names.h"

namespace tracer::dispatch {

alignas(64) std::atomic<uint64_t> call_site_cache[kCallSiteSlots];

namespace {

struct CodeRange {
  uint64_t begin, end;
  trace::CallSite site;
};
// All complete before the first hop.
std::vector<CodeRange>& ranges = *new std::vector<CodeRange>;  // sorted
// torch's libraries, whose functions are known by name, and this extension, whose hops are between the others.
auto& known_libraries = *new std::vector<native::CodeRange>;
// Those that asks_the_profiler() knows.
std::vector<const void*>& profiler_functions = *new std::vector<const void*>;

bool in_known_library(uint64_t address) {
  for (const auto& library : known_libraries)
    if (address >= library.begin && address < library.end) return true;
  return false;
}

trace::CallSite site_of(torch_abi::FunctionKind kind) {
  switch (kind) {
    case torch_abi::FunctionKind::kCalls:
      return trace::kCall;
    case torch_abi::FunctionKind::kRedispatches:
      return trace::kRedispatch;
    case torch_abi::FunctionKind::kHelper:
      return kBehindHelper;
    case torch_abi::FunctionKind::kOther:
      break;
  }
  return trace::kByParent;
}

// How far above a wrapper's TRACER_FRAME() the return address of its caller is, in words: the same at each
// call from one address, because the caller's frame has a fixed size. Unwound once an address.
struct Unwinding {
  void* const* frame;
  void* const* callers_frame = nullptr;
  int64_t words = 0;
};

_Unwind_Reason_Code find_caller(_Unwind_Context* context, void* argument) {
  auto* unwinding = static_cast<Unwinding*>(argument);
  // libgcc's CFA of a frame is its stack pointer: where the frame that it called ends.
  auto* end = reinterpret_cast<void* const*>(_Unwind_GetCFA(context));
  if (unwinding->callers_frame) {
    void* const* slot = native::return_slot(unwinding->callers_frame, end, _Unwind_GetIP(context));
    if (slot) unwinding->words = slot - unwinding->frame;
    return _URC_END_OF_STACK;
  }
  if (native::is_frame_of(unwinding->frame, end)) unwinding->callers_frame = end;
  return _URC_NO_REASON;
}

// callUnboxedKernelFunction, KernelFunction::call and Dispatcher::call, where an extension was compiled without inlining.
constexpr int kMostHelpers = 4;
constexpr size_t kHelperSlots = 1 << 10;
std::atomic<uint64_t> helper_frames[kHelperSlots];  // return address << 16 | words

int64_t words_of_caller(void* const* frame) {
  uint64_t address = native::return_address(frame);
  std::atomic<uint64_t>& slot = helper_frames[(address * 0x9E3779B97F4A7C15ull) >> 54];
  uint64_t cached = slot.load(std::memory_order_relaxed);
  if (__builtin_expect(cached >> 16 == address, 1)) return int64_t(cached & 0xffff);
  Unwinding unwinding{frame};
  _Unwind_Backtrace(find_caller, &unwinding);
  int64_t words = unwinding.words > 0 && unwinding.words <= 0xffff ? unwinding.words : 0;
  slot.store(address << 16 | uint64_t(words), std::memory_order_relaxed);
  return words;
}

// Of code where the question is missing.
constexpr trace::CallSite kNoneAsked = native::kReadsCode ? trace::kUnasked : trace::kByParent;

// Bytes from the question to the call: 30 to 300 in optimised code, 500 in callBoxed without optimisation, and 90 more for
// each argument of a typed call.
constexpr uint64_t kMostBytes = 512, kMostBytesOfExtension = 2048;

// Of code that no name tells about: it has the dispatcher inlined, or is a helper that an extension has of its own.
trace::CallSite site_by_code(uint64_t address) {
  bool known = in_known_library(address);
  uint64_t bytes = known ? kMostBytes : kMostBytesOfExtension;
  if (native::calls_before(address, bytes, profiler_functions.data(), profiler_functions.size())) return trace::kCall;
  return known ? kNoneAsked : kBehindHelper;
}

}  // namespace

trace::CallSite call_site_behind(void* const* frame) noexcept {
  bool known = in_known_library(native::return_address(frame));
  for (int helper = 0; frame && helper < kMostHelpers; ++helper) {
    int64_t words = words_of_caller(frame);
    if (!words) return trace::kByParent;
    uint64_t address = native::plain_address(frame[words]);
    // What an extension's own helpers were called by is not asked beyond the extension: none of them has asked the profiler.
    if (in_known_library(address) != known) return known ? trace::kByParent : kNoneAsked;
    trace::CallSite site = call_site_at(address);
    if (site != kBehindHelper) return site;
    if (known) return trace::kByParent;
    frame = native::frame_of_caller(frame, words);
  }
  return frame ? kNoneAsked : trace::kByParent;
}

bool prepare_call_sites() {
  if (!ranges.empty()) return true;
  bool read = false;
  for (const char* name : torch_abi::kLibraries) {
    native::Library library = native::find_library(name);
    if (library.path.empty()) continue;
    known_libraries.push_back({library.begin, library.end});
    read |= native::for_each_function(library.path, [&](const char* symbol, uint64_t address, uint64_t size) {
      // Two comparisons settle most of half a million names.
      if (symbol[0] != '_' || symbol[1] != 'Z' || (symbol[2] != 'N' && symbol[2] != 'L')) return;
      if (torch_abi::asks_the_profiler(symbol)) profiler_functions.push_back(reinterpret_cast<const void*>(library.load_bias + address));
      trace::CallSite site = site_of(torch_abi::kind_of_function(symbol));
      if (site != trace::kByParent) ranges.push_back({library.load_bias + address, library.load_bias + address + size, site});
    });
  }
  known_libraries.push_back(native::code_of_this_extension());
  std::sort(ranges.begin(), ranges.end(), [](const CodeRange& a, const CodeRange& b) { return a.begin < b.begin; });
  return read && !ranges.empty();
}

trace::CallSite look_up_call_site(uint64_t address) noexcept {
  auto after =
      std::upper_bound(ranges.begin(), ranges.end(), address, [](uint64_t wanted, const CodeRange& range) { return wanted < range.begin; });
  trace::CallSite site = trace::kByParent;
  // A return address may be right behind a call that ends the function.
  if (after != ranges.begin() && address <= std::prev(after)->end) site = std::prev(after)->site;
  if (site == trace::kByParent) site = site_by_code(address);
  size_t slot = call_site_slot(address), free = slot;
  for (size_t i = 0; i < kCallSiteLine; ++i) {
    if (call_site_cache[slot ^ i].load(std::memory_order_relaxed)) continue;
    free = slot ^ i;
    break;
  }
  call_site_cache[free].store(address << kCallSiteBits | site, std::memory_order_relaxed);
  return site;
}

}  // namespace tracer::dispatch
