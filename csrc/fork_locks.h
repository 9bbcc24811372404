// Locks that a fork waits for: no child is born with a lock whose owner does not exist in it.
//
// A thread that holds several takes them in this order. A thread that waits for the GIL holds none of them, as the
// thread that forks has the GIL.
#pragma once

#include <mutex>

namespace tracer {

enum class LockOrder : unsigned {
  kTables,       // the dispatcher's tables are armed, restored or compared (then: the dispatcher's own lock)
  kCuda,         // CUPTI is attached or asked
  kActivities,   // a buffer of CUPTI's is read
  kFunctions,    // an API function is described
  // Lane::lock is here; a child forgets all of them: a thread may wait for the following with it.
  kControl,      // a recording is opened, started or closed, a process registered
  kHelper,       // the helper thread is started or stopped
  kDefinitions,  // definitions of the process are written
  kRecords,      // activities are written; the file of the recording is deleted
  kBuffers,      // the pool of CUPTI's buffers
  kSkipped,      // CUDA calls of a pause
  kAddresses,    // addresses that are named at the end
  kStorages,     // storages of tensors are numbered
  kCallbacks,    // torch's own: its list of callbacks
  kCount
};

// Held while the process forks, from now on. A lock lives for ever.
void hold_over_forks(std::mutex& lock, LockOrder order);

// A lock that is held while the process forks.
template <LockOrder order>
std::mutex& fork_lock() {
  static std::mutex& lock = *[] {
    auto* made = new std::mutex;
    hold_over_forks(*made, order);
    return made;
  }();
  return lock;
}

// Runs in a forked child, once the locks are released there; in the order of the calls.
void in_forked_child(void (*act)());
// Runs in the thread that forks, with the locks up to `order` held and before the next is taken.
void before_fork_with(LockOrder order, void (*act)());

}  // namespace tracer
