// Call or redispatch: told by the code at a hop's return address. torch's functions are known by name; other code has the
// dispatcher inlined, and calls where it has asked torch's profiler just before.
#pragma once

#include <atomic>

#include "../native/caller.h"
#include "../trace/records.h"

namespace tracer::dispatch {

// Reads the symbols that tell. False: no symbols, the enclosing hop decides at all call sites.
bool prepare_call_sites();

trace::CallSite look_up_call_site(uint64_t address) noexcept;

// c10::callUnboxedKernelFunction calls for both _ops::X::call and _ops::X::redispatch (operators with SymInt
// arguments), and an extension that was compiled without inlining has more such functions of its own: the code that
// called them tells. Never written to the file.
constexpr auto kBehindHelper = trace::CallSite(4);
trace::CallSite call_site_behind(void* const* frame) noexcept;

// Two addresses that meet in one place share its cache line, so that they do not take turns.
constexpr size_t kCallSiteSlots = 1 << 14;
constexpr size_t kCallSiteLine = 8;
constexpr int kCallSiteBits = 3;
extern std::atomic<uint64_t> call_site_cache[kCallSiteSlots];  // address << kCallSiteBits | class
constexpr uint64_t address_of(uint64_t cached) { return cached >> kCallSiteBits; }
constexpr trace::CallSite class_of(uint64_t cached) { return trace::CallSite(cached & ((1 << kCallSiteBits) - 1)); }

inline size_t call_site_slot(uint64_t address) { return (address * 0x9E3779B97F4A7C15ull) >> 50; }

// What call_site() will read; other code has the caches until then.
inline void ask_for_call_site(void* const* frame) { __builtin_prefetch(&call_site_cache[call_site_slot(native::return_address(frame))]); }

inline trace::CallSite call_site_at(uint64_t address) {
  size_t slot = call_site_slot(address);
  for (size_t i = 0; i < kCallSiteLine; ++i) {
    uint64_t cached = call_site_cache[slot ^ i].load(std::memory_order_relaxed);
    if (__builtin_expect(address_of(cached) == address, 1)) return class_of(cached);
    if (!cached) break;
  }
  return look_up_call_site(address);
}

// What a wrapper remembers of the caller that it met first, most often its only one, as in the cache, or 0.
using FirstCaller = std::atomic<uint64_t>;

// Whether the wrapper was called from where it was first; `frame` is its TRACER_FRAME().
inline bool is_first_caller(const FirstCaller& first, void* const* frame) {
  return address_of(first.load(std::memory_order_relaxed)) == native::return_address(frame);
}

inline trace::CallSite call_site(FirstCaller& first, void* const* frame) {
  // Read once: of threads that meet different callers first, one may overwrite what another has stored.
  uint64_t address = native::return_address(frame), known = first.load(std::memory_order_relaxed);
  if (__builtin_expect(address_of(known) == address, 1)) return class_of(known);
  trace::CallSite site = call_site_at(address);
  if (__builtin_expect(site == kBehindHelper, 0)) return call_site_behind(frame);
  if (!known) first.store(address << kCallSiteBits | uint64_t(site), std::memory_order_relaxed);
  return site;
}

}  // namespace tracer::dispatch
