#include "call_sites.h"

#include <unwind.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "../native/elf.h"

namespace tracer::dispatch {

alignas(64) std::atomic<uint64_t> call_site_cache[kCallSiteSlots];

namespace {

struct CodeRange {
  uint64_t begin, end;
  trace::CallSite site;
};
std::vector<CodeRange>& ranges = *new std::vector<CodeRange>;  // sorted; complete before the first hop

// By the mangled name; kByParent for all other functions.
trace::CallSite class_of(std::string_view name) {
  // at::_ops::<operator>::call(...) and ::redispatch(c10::DispatchKeySet, ...)
  if (name.starts_with("_ZN2at4_ops")) {
    name.remove_prefix(strlen("_ZN2at4_ops"));
    size_t length = 0;
    while (!name.empty() && name[0] >= '0' && name[0] <= '9') length = length * 10 + size_t(name[0] - '0'), name.remove_prefix(1);
    if (length >= name.size()) return trace::kByParent;
    name.remove_prefix(length);
    if (name.starts_with("4callE")) return trace::kCall;
    if (name.starts_with("10redispatchE")) return trace::kRedispatch;
    return trace::kByParent;
  }
  if (name.starts_with("_ZN3c1010Dispatcher27callWithDispatchKeySlowPath") || name.starts_with("_ZNK3c1010Dispatcher9callBoxedE") ||
      name.starts_with("_ZNK3c1014OperatorHandle9callBoxedE"))
    return trace::kCall;
  if (name.starts_with("_ZNK3c1010Dispatcher15redispatchBoxedE") || name.starts_with("_ZNK3c1014OperatorHandle15redispatchBoxedE"))
    return trace::kRedispatch;
  // Compilers inline Dispatcher::callBoxed into this fallback, which calls its own operator again.
  if (name.find("21functionalizeFallbackE") != std::string_view::npos) return trace::kCall;
  if (name.starts_with("_ZN3c1025callUnboxedKernelFunctionI")) return kBehindHelper;
  return trace::kByParent;
}

// How far above a wrapper's TRACER_FRAME() the return address of its caller stands, in words: the same at each
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

}  // namespace

trace::CallSite call_site_behind(void* const* frame) noexcept {
  int64_t words = words_of_caller(frame);
  if (!words) return trace::kByParent;
  trace::CallSite site = call_site_at(native::plain_address(frame[words]));
  return site == kBehindHelper ? trace::kByParent : site;
}

bool prepare_call_sites() {
  if (!ranges.empty()) return true;
  bool read = false;
  for (const char* name : {"libtorch_cpu.so", "libtorch_python.so", "libtorch_cuda.so"}) {
    native::Library library = native::find_library(name);
    if (library.path.empty()) continue;
    read |= native::for_each_function(library.path, [&](const char* symbol, uint64_t address, uint64_t size) {
      // Two comparisons settle most of half a million names.
      if (symbol[0] != '_' || symbol[1] != 'Z' || symbol[2] != 'N') return;
      trace::CallSite site = class_of(symbol);
      if (site != trace::kByParent) ranges.push_back({library.load_bias + address, library.load_bias + address + size, site});
    });
  }
  std::sort(ranges.begin(), ranges.end(), [](const CodeRange& a, const CodeRange& b) { return a.begin < b.begin; });
  return read && !ranges.empty();
}

trace::CallSite look_up_call_site(uint64_t address) noexcept {
  auto after =
      std::upper_bound(ranges.begin(), ranges.end(), address, [](uint64_t wanted, const CodeRange& range) { return wanted < range.begin; });
  trace::CallSite site = trace::kByParent;
  // A return address may stand right behind a call that ends the function.
  if (after != ranges.begin() && address <= std::prev(after)->end) site = std::prev(after)->site;
  size_t slot = call_site_slot(address), free = slot;
  for (size_t i = 0; i < kCallSiteLine; ++i) {
    if (call_site_cache[slot ^ i].load(std::memory_order_relaxed)) continue;
    free = slot ^ i;
    break;
  }
  call_site_cache[free].store(address << 2 | site, std::memory_order_relaxed);
  return site;
}

}  // namespace tracer::dispatch
