// How often an operator's override ran, and how often it handed a call over to the stock kernel, by reason.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>

namespace tracer::overrides {

// Counting is one relaxed add; reasons are string literals, compared by address and joined by text when read.
class Counts {
 public:
  void ran() noexcept { ran_.fetch_add(1, std::memory_order_relaxed); }

  void handed_over(const char* reason) noexcept {
    for (Slot& slot : slots_) {
      const char* holds = slot.reason.load(std::memory_order_acquire);
      if (!holds && slot.reason.compare_exchange_strong(holds, reason, std::memory_order_acq_rel)) holds = reason;
      if (holds == reason) {
        slot.calls.fetch_add(1, std::memory_order_relaxed);
        return;
      }
    }
    others_.fetch_add(1, std::memory_order_relaxed);
  }

  uint64_t ran_calls() const noexcept { return ran_.load(std::memory_order_relaxed); }

  std::map<std::string, uint64_t> reasons() const {
    std::map<std::string, uint64_t> out;
    for (const Slot& slot : slots_)
      if (const char* reason = slot.reason.load(std::memory_order_acquire))
        if (uint64_t calls = slot.calls.load(std::memory_order_relaxed)) out[reason] += calls;
    if (uint64_t calls = others_.load(std::memory_order_relaxed)) out["other reasons"] = calls;
    return out;
  }

  void reset() noexcept {
    ran_ = others_ = 0;
    for (Slot& slot : slots_) slot.calls = 0;
  }

 private:
  struct Slot {
    std::atomic<const char*> reason{nullptr};
    std::atomic<uint64_t> calls{0};
  };
  std::atomic<uint64_t> ran_{0}, others_{0};
  std::array<Slot, 32> slots_;
};

}  // namespace tracer::overrides
