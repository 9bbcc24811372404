#include "fork_locks.h"

#include <pthread.h>

#include <atomic>
#include <cstddef>

namespace tracer {
namespace {

constexpr size_t kLocks = size_t(LockOrder::kCount), kMostActs = 8;
std::atomic<std::mutex*> locks[kLocks];
std::atomic<void (*)()> before[kLocks];
std::atomic<void (*)()> in_child[kMostActs];
std::mutex* held[kLocks];  // written by the thread that forks: one at a time has the first lock
std::mutex& one_fork = *new std::mutex;

void prepare() {
  one_fork.lock();
  for (size_t i = 0; i < kLocks; ++i) {
    held[i] = locks[i].load();
    if (held[i]) held[i]->lock();
    if (auto* act = before[i].load()) act();
  }
}

void release() {
  for (size_t i = kLocks; i-- > 0;)
    if (held[i]) held[i]->unlock();
  one_fork.unlock();
}

void release_in_child() {
  release();
  for (auto& act : in_child)
    if (auto* function = act.load()) function();
}

void install() {
  static int installed = pthread_atfork(prepare, release, release_in_child);
  (void)installed;
}

}  // namespace

void hold_over_forks(std::mutex& lock, LockOrder order) {
  install();
  locks[size_t(order)].store(&lock);
}

void before_fork_with(LockOrder order, void (*act)()) {
  install();
  before[size_t(order)].store(act);
}

void in_forked_child(void (*act)()) {
  install();
  for (auto& slot : in_child) {
    void (*none)() = nullptr;
    if (slot.load() == act || slot.compare_exchange_strong(none, act)) return;
  }
}

}  // namespace tracer
