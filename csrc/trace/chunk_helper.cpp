#include "chunk_helper.h"

#include <sched.h>
#include <semaphore.h>
#include <signal.h>

#include "../fork_locks.h"
#include "recording.h"

namespace tracer::trace {
namespace {

sem_t helper_work;
std::atomic<bool> helper_stop{false};
pthread_t helper_thread;
std::atomic<bool> helper_running{false};
std::mutex& helper_lock = fork_lock<LockOrder::kHelper>();

void prepare_next(Lane* lane) {
  TraceFile* file = recording_file();
  Chunk chunk = file ? file->claim(kHopChunkBytes, kHops) : Chunk{};
  void* where = lane->window_start(lane->window ^ 1);
  if (chunk.offset) file->fill(chunk);
  if (chunk.offset && file->map(chunk, where)) {
    populate(where, kHopChunkBytes);
    lane->next_chunk = chunk;
    lane->next_state.store(Lane::kReady, std::memory_order_release);
    file->refresh_clock();
  } else {
    lane->next_state.store(Lane::kFailed, std::memory_order_release);
  }
}

void* helper_main(void*) {
  pthread_setname_np(pthread_self(), "tracer");
  // Of its own only, which is while it touches the file (bus_error.h): one that is sent to the process is for the script.
  sigset_t bus_error;
  sigemptyset(&bus_error);
  sigaddset(&bus_error, SIGBUS);
  for (;;) {
    while (sem_wait(&helper_work) != 0) {
    }
    if (helper_stop.load()) return nullptr;
    pthread_sigmask(SIG_UNBLOCK, &bus_error, nullptr);
    for (Lane* lane = first_lane(); lane; lane = lane->sibling.load()) {
      uint32_t wanted = Lane::kWanted;
      if (lane->next_state.compare_exchange_strong(wanted, Lane::kWorking)) prepare_next(lane);
    }
    pthread_sigmask(SIG_BLOCK, &bus_error, nullptr);
  }
}

void start_helper() {
  std::lock_guard guard(helper_lock);
  if (helper_running) return;
  sem_init(&helper_work, 0, 0);
  helper_stop = false;
  // The helper takes no signal: handlers belong to the script's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  helper_running = pthread_create(&helper_thread, nullptr, helper_main, nullptr) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// With helper_lock held.
void join_helper() {
  if (!helper_running) return;
  helper_stop = true;
  sem_post(&helper_work);
  pthread_join(helper_thread, nullptr);
  helper_running = false;
}

}  // namespace

void ask_for_chunk(Lane* lane) {
  lane->next_state.store(Lane::kWanted, std::memory_order_release);
  if (!helper_running) start_helper();
  sem_post(&helper_work);
}

void wait_for_chunk(Lane* lane) {
  uint32_t wanted = Lane::kWanted;
  if (lane->next_state.compare_exchange_strong(wanted, Lane::kWorking)) prepare_next(lane);  // the helper was late
  while (lane->next_state.load(std::memory_order_acquire) == Lane::kWorking) sched_yield();
}

void wait_for_helper(Lane* lane) {
  uint32_t wanted = Lane::kWanted;
  while (!lane->next_state.compare_exchange_weak(wanted, Lane::kNone) && (wanted == Lane::kWorking || wanted == Lane::kWanted)) {
    wanted = Lane::kWanted;
    sched_yield();
  }
}

void forget_next_chunk(Lane* lane, TraceFile& file) {
  uint32_t ready = Lane::kReady;
  if (lane->next_state.compare_exchange_strong(ready, Lane::kNone)) file.release(lane->next_chunk);
  lane->next_state.store(Lane::kNone);
}

void stop_helper() {
  std::lock_guard guard(helper_lock);
  join_helper();
}

void stop_helper_for_forks() { before_fork_with(LockOrder::kHelper, join_helper); }

void forget_helper() { helper_running = false; }

}  // namespace tracer::trace
