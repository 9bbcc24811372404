#include "ranges.h"

#include <ATen/record_function.h>

#include <mutex>

#include "../fork_locks.h"
#include "../native/elf.h"
#include "../torch_abi/callback_list.h"
#include "open_ranges.h"

namespace tracer::dispatch {
namespace {

struct Observed final : at::ObserverContext {
  OpenRange* range = nullptr;
};

std::unique_ptr<at::ObserverContext> enter_range(const at::RecordFunction& range) {
  auto observed = std::make_unique<Observed>();
  observed->range = begin_range(range.name());
  return observed;
}

void leave_range(const at::RecordFunction&, at::ObserverContext* context) {
  if (context) end_range(static_cast<Observed*>(context)->range);
}

at::CallbackHandle observer = at::INVALID_CALLBACK_HANDLE;

// A thread copies torch's list of callbacks at its first op, with the list's lock. Copying an empty list takes no time; ours
// asks for memory, for which a new thread waits as long as a fork copies the address space: then the child has a lock whose
// owner does not exist.
void hold_the_list_over_forks(size_t version_before, torch_abi::CallbackList* list) {
  static bool held = false;
  if (held || !list || list->version.load() == version_before) return;
  held = true;
  hold_over_forks(list->lock, LockOrder::kCallbacks);
}

}  // namespace

// torch locks the list of callbacks: a fork waits until that is over.
void observe_ranges() {
  std::lock_guard guard(fork_lock<LockOrder::kTables>());
  if (observer != at::INVALID_CALLBACK_HANDLE) return;
  in_forked_child(forget_open_ranges);
  using torch_abi::CallbackList;
  static auto* list = static_cast<CallbackList*>(native::find_variable("libtorch_cpu.so", torch_abi::kCallbackList, sizeof(CallbackList)));
  size_t version_before = list ? list->version.load() : 0;
  observer = at::addGlobalCallback(
      at::RecordFunctionCallback(enter_range, leave_range).needsInputs(false).needsOutputs(false).scopes({at::RecordScope::USER_SCOPE}));
  hold_the_list_over_forks(version_before, list);
}

void stop_observing_ranges() {
  std::lock_guard guard(fork_lock<LockOrder::kTables>());
  if (observer == at::INVALID_CALLBACK_HANDLE) return;
  at::removeCallback(observer);
  observer = at::INVALID_CALLBACK_HANDLE;
}

}  // namespace tracer::dispatch
