// A hop: what a wrapped entry of the dispatch table knows, and how its run is written down.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>

#include "../native/sanitized.h"
#include "../torch_abi/functors.h"
#include "../trace/lane.h"
#include "arguments.h"
#include "call_sites.h"
#include "values.h"

namespace tracer::dispatch {

struct OperatorRecord;

// Takes the place of the functor of a wrapped entry, or is found by that functor's address. Hops live
// for ever: a thread may be inside one, or about to enter, whenever entries are restored.
// There are some 300,000 in a process, so a hop has what its runs need; what can be computed or is rare is not in it.
struct Hop final : c10::OperatorKernel {
  Hop(const c10::KernelFunction& kernel, const OperatorRecord* op, uint32_t id, uint32_t index)
      : id(id), original(kernel), op(op), table_index(index) {}

  uint32_t id;
  std::atomic<uint32_t> described_epoch{0};   // the recording that holds this hop's definition
  FirstCaller first_caller{0};
  c10::KernelFunction original;
  const OperatorRecord* op;
  uint32_t table_index;
  uint32_t flags = 0;                         // trace::HopFlags

  // The function that the entry points to: of a functor that holds a function pointer, that function.
  void* kernel() const;
  void* boxed() const;
};

// The name of a hop's Python kernel; nullptr if it has none or is not named yet.
const std::string* python_name_of(const Hop* hop);
// With the GIL. The name is never freed.
void set_python_name(const Hop* hop, std::string* name);

// Ids count from 1.
inline std::atomic<uint32_t> hops_made{0};

extern const void* const hop_vtable;
inline bool is_hop(const c10::OperatorKernel* functor) { return functor && torch_abi::vtable_of(functor) == hop_vtable; }

// For wrapped entries whose functor is not a Hop.
Hop* hop_of_functor(c10::OperatorKernel* functor) noexcept;
Hop* hop_of_boxed(c10::OperatorKernel* functor, c10::impl::OperatorEntry& entry, c10::DispatchKeySet keys) noexcept;

inline Hop* hop_of(c10::OperatorKernel* functor) {
  native::taken_over(functor);
  if (__builtin_expect(is_hop(functor), 1)) return static_cast<Hop*>(functor);
  return hop_of_functor(functor);
}

// Is a recording running? Wrappers that are in place while nothing is recorded ask nothing else.
inline bool recording() { return trace::recording_epoch.load(std::memory_order_relaxed) != 0; }

// A run of a hop: entered while something is recorded, left on every way out. A way out that did not say so before is an
// exception. `frame` is the wrapper's TRACER_FRAME().
class HopScope {
 public:
  HopScope() = default;
  ~HopScope() {
    if (lane_) leave();
  }
  void enter(Hop* hop, c10::DispatchKeySet keys, void* const* frame, TensorArguments arguments) noexcept;
  void enter(Hop* hop, c10::DispatchKeySet keys, void* const* frame, c10::impl::OperatorEntry& entry,
             const torch::jit::Stack& stack) noexcept;
  void returned() { raised_ = false; }
  template <class Result>
  void returned(const Result& result) {
    raised_ = false;
    if (__builtin_expect(lane_ && lane_->results, 0)) note(result);
  }
  // The last `count` values of a stack.
  void returned(const torch::jit::Stack& stack, size_t count);
  HopScope(const HopScope&) = delete;
  HopScope& operator=(const HopScope&) = delete;

 private:
  // Out of line: hashing is rare, and a hop has many instantiations.
  template <class Result>
  __attribute__((noinline, cold)) void note(const Result& result) {
    Values values;
    values.add(result);
    write(values);
  }
  // Not in a pause, and not for another recording than that of the enter.
  bool is_recorded() const noexcept;
  void write(const Values& values) noexcept;
  void note_results(BoxedArguments results) noexcept;
  template <class Arguments>
  void enter(trace::Lane* lane, Hop* hop, c10::DispatchKeySet keys, void* const* frame, uint32_t inputs, const Arguments& arguments);
  void leave() noexcept;
  bool end(trace::Lane* lane) noexcept;
  uint64_t exit_word(uint64_t depth) const noexcept;
  void lose() noexcept;

  trace::Lane* lane_ = nullptr;  // nullptr: not recorded
  uint64_t path_;                // the lane's before the hop
  const void* frame_;            // likewise
  uint32_t epoch_;
  uint32_t hop_;
  uint32_t sequence_;  // as in its kEnter
  bool raised_ = true;
};

// The entry's boxed function while it is wrapped.
void boxed_hop(c10::OperatorKernel* functor, const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace tracer::dispatch
