#include "bus_error.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <new>

#include "../mapping.h"

namespace tracer::trace {

struct GuardedRange {
  std::atomic<uintptr_t> begin{0};  // 0: free, another mapping may take the node
  std::atomic<size_t> bytes{0};
  GuardedRange* next = nullptr;
};

namespace {

// Nodes live for ever: the handler may walk them at any moment.
std::atomic<GuardedRange*> ranges{nullptr};
std::atomic<bool> lost{false};
std::atomic<void (*)()> when_stopped{nullptr};
std::atomic_flag installing = ATOMIC_FLAG_INIT;
// The handler that was there: two places, so that a signal meets a whole one while it is replaced.
struct sigaction previous[2];
std::atomic<unsigned> current{0};
// A handler that hands the signal back to us (faulthandler raises it again) must not get it a second time. One that jumps
// out of the signal leaves this set.
thread_local bool passing __attribute__((tls_model("initial-exec"))) = false;

bool replace(uintptr_t address) {
  for (GuardedRange* range = ranges.load(); range; range = range->next) {
    uintptr_t begin = range->begin.load();
    size_t bytes = range->bytes.load();
    if (!begin || address < begin || address >= begin + bytes) continue;
    void* at = reinterpret_cast<void*>(begin);
    return map_memory(bytes, MAP_FIXED | MAP_NORESERVE, at);
  }
  return false;
}

void take_default(int signal, const siginfo_t* info) {
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, nullptr);
  if (info->si_code <= 0) raise(signal);  // it was sent; a fault comes again by itself
}

void pass_on(int signal, siginfo_t* info, void* context) {
  struct sigaction& before = previous[current.load()];
  struct sigaction action = before;
  bool is_fault = info->si_code > 0;
  if (action.sa_flags & SA_RESETHAND) {
    before.sa_flags = 0;
    before.sa_handler = SIG_DFL;
  }
  if (action.sa_flags & SA_SIGINFO) return action.sa_sigaction(signal, info, context);
  if (action.sa_handler == SIG_DFL || (action.sa_handler == SIG_IGN && is_fault)) return take_default(signal, info);
  if (action.sa_handler != SIG_IGN) action.sa_handler(signal);
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  int error = errno;
  if (info->si_code > 0 && replace(reinterpret_cast<uintptr_t>(info->si_addr))) {
    bool first = !lost.exchange(true);
    if (auto* stopped = when_stopped.load(); stopped && first) stopped();
  } else if (passing && info->si_code == SI_TKILL && info->si_pid == getpid()) {
    take_default(signal, info);
  } else {
    bool before = passing;
    passing = true;
    pass_on(signal, info, context);
    passing = before;
  }
  errno = error;
}

bool is_ours(const struct sigaction& action) { return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == on_bus_error; }

}  // namespace

GuardedRange* guard(void* mapping, size_t bytes) {
  auto begin = reinterpret_cast<uintptr_t>(mapping);
  for (GuardedRange* range = ranges.load(); range; range = range->next) {
    size_t none = 0;
    if (!range->bytes.compare_exchange_strong(none, bytes)) continue;
    range->begin.store(begin);
    return range;
  }
  auto* range = new (std::nothrow) GuardedRange;
  if (!range) return nullptr;
  range->bytes.store(bytes);
  range->begin.store(begin);
  range->next = ranges.load();
  while (!ranges.compare_exchange_weak(range->next, range)) {
  }
  return range;
}

void unguard(GuardedRange* range) {
  if (!range) return;
  range->begin.store(0);
  range->bytes.store(0);
}

void watch_bus_errors(void (*stopped)()) {
  when_stopped.store(stopped);
  struct sigaction now;
  if (sigaction(SIGBUS, nullptr, &now) != 0 || is_ours(now) || installing.test_and_set()) return;
  if (sigaction(SIGBUS, nullptr, &now) == 0 && !is_ours(now)) {
    unsigned other = current.load() ^ 1;
    previous[other] = now;
    current.store(other);
    struct sigaction ours = now;
    ours.sa_sigaction = on_bus_error;
    ours.sa_flags = int((unsigned(now.sa_flags) & ~unsigned(SA_RESETHAND)) | SA_SIGINFO | SA_ONSTACK);
    sigaction(SIGBUS, &ours, nullptr);
  }
  installing.clear();
}

void unwatch_bus_errors() {
  struct sigaction now;
  if (installing.test_and_set()) return;
  if (sigaction(SIGBUS, nullptr, &now) == 0 && is_ours(now)) sigaction(SIGBUS, &previous[current.load()], nullptr);
  installing.clear();
}

bool mapping_was_lost() { return lost.load(); }

void forget_lost_mapping() { lost.store(false); }

}  // namespace tracer::trace
