#include "recording.h"

#include <unistd.h>

#include <fstream>

#include "../fork_locks.h"
#include "chunk_helper.h"
#include "dump.h"
#include "record_stream.h"
#include "stop_notice.h"
#include "thread_time.h"

namespace tracer::trace {

std::atomic<uint32_t> recording_epoch{0};

namespace {

// Globals are leaked or trivial: threads may run ops until the very end of the process.
std::atomic<TraceFile*> current_file{nullptr};
std::atomic<uint64_t> current_start{0};
std::atomic<uint32_t> times_paused{0};
std::atomic<uint32_t> last_epoch{0};  // of this process and its parents; changes under control_lock
bool ending = false;                  // the recording does not begin again; changes under control_lock
std::mutex& control_lock = fork_lock<LockOrder::kControl>();
std::mutex& process_definitions_lock = fork_lock<LockOrder::kDefinitions>();
DefinitionStream& process_definitions = *new DefinitionStream;
std::mutex& activities_lock = fork_lock<LockOrder::kRecords>();
ActivityStream& activities = *new ActivityStream;
std::atomic<bool> process_registered{false};  // false in a forked child until it records something
enum How : uint32_t { kRoot = 0, kForked = 1, kJoined = 2 };

void define_process(TraceFile& file, How how) {
  std::ifstream in("/proc/self/cmdline");
  std::string command{std::istreambuf_iterator<char>(in), {}};
  while (!command.empty() && command.back() == '\0') command.pop_back();
  for (char& c : command)
    if (c == '\0') c = ' ';
  DefinitionBuilder process(kProcess);
  process.put(file.process()).put(uint32_t(getpid())).put(uint32_t(getppid())).put(uint32_t(how)).put_string(command);
  define_for_process(process);
}

// Runs in the handler of SIGBUS.
void stop_damaged() {
  recording_epoch.store(0);
  times_paused.fetch_add(1);
  say_damaged();
}

// In a forked child: its parent's lanes, helper and chunks are not its own.
void after_fork_in_child() {
  forget_lanes();
  forget_helper();
  forget_dump();
  process_definitions.abandon();
  activities.abandon();
  process_registered = false;
  last_epoch += 1;
  if (recording_epoch.load()) recording_epoch.store(last_epoch);
}

void prepare_for_forks() {
  static bool prepared = false;
  if (prepared) return;
  prepared = true;
  stop_helper_for_forks();
  in_forked_child(after_fork_in_child);
}

}  // namespace

void lose_hop() {
  std::lock_guard guard(activities_lock);  // under which the file is deleted
  if (TraceFile* file = current_file.load()) std::atomic_ref<uint64_t>(file->header().lost_hops).fetch_add(1);
}

void give_up(TraceFile& file) {
  pause_recording();
  if (file.out_of_space() || file.is_full() || file.is_damaged()) say_stopped(file);
}

void watch_for_damage() { watch_bus_errors(stop_damaged); }

void register_process_once(TraceFile& file) {
  std::lock_guard control(control_lock);
  if (process_registered) return;
  process_registered = true;
  file.register_process();
  define_process(file, kForked);
}

void open_recording(TraceFile* file) {
  prepare_for_forks();
  std::lock_guard control(control_lock);
  process_definitions.abandon();
  activities.abandon();
  prepare_stop_notice(*file, file->is_full() || !file->is_open());  // else each child of one that has stopped would say so
  watch_bus_errors(stop_damaged);
  ending = false;
  current_start.store(file->start_ticks());
  current_file.store(file);
  process_registered = true;
  ++last_epoch;
  define_process(*file, file->is_root() ? kRoot : kJoined);
}

void start_recording() {
  std::lock_guard control(control_lock);
  TraceFile* running = current_file.load();
  if (ending || (running && running->is_damaged())) return;  // another thread stops it, or the file is lost
  // Arming has taken long enough to tell the rate of the clock, for a process that is killed soon.
  if (TraceFile* file = current_file.load()) file->refresh_clock();
  recording_epoch.store(last_epoch);
}

void pause_recording() {
  recording_epoch.store(0);
  ++times_paused;
}

uint32_t pauses() { return times_paused; }

void finish_lanes() {
  {
    std::lock_guard control(control_lock);
    ending = true;
    recording_epoch.store(0);
  }
  TraceFile* file = current_file.load();
  if (!file) return;
  for (Lane* lane = first_lane(); lane; lane = lane->sibling.load()) {
    std::lock_guard guard(lane->lock);
    if (lane->epoch == last_epoch) finish_lane(lane, *file);
  }
}

bool close_recording(bool process_ends) {
  TraceFile* file = current_file.load();
  if (!file) return false;
  end_dumps(process_ends);
  finish_lanes();
  stop_helper();
  {
    // Whoever holds one of these, or the lock of a lane that writes, may use the file; nobody else does.
    std::scoped_lock guard(process_definitions_lock, activities_lock);
    process_definitions.finish(*file);
    process_definitions.abandon();
    activities.finish(*file);
    activities.abandon();
    current_file.store(nullptr);
  }
  if (process_registered) file->close();
  unwatch_bus_errors();
  bool damaged = file->is_damaged();
  if (damaged) say_damaged();
  delete file;
  return damaged;
}

TraceFile* recording_file() { return current_file.load(); }

void define_for_process(const DefinitionBuilder& definition) {
  std::lock_guard guard(process_definitions_lock);
  TraceFile* file = current_file.load();
  // A forked child that has recorded nothing has nothing to say, and its number is still its parent's.
  if (file && process_registered) process_definitions.write(*file, kProcessLane, last_epoch, definition);
}

bool write_activities(const uint64_t* words, size_t count) {
  std::lock_guard guard(activities_lock);
  TraceFile* file = current_file.load();
  for (size_t i = 0; i < count; ++i)
    if (!file || !activities.write(*file, last_epoch, words + i * kActivityWords)) return false;
  return true;
}

CallCounts count_calls() {
  CallCounts counts;
  for (const Lane* lane = first_lane(); lane; lane = lane->sibling.load()) {
    if (lane->counted_epoch != last_epoch) continue;
    counts.calls += lane->api_calls;
    counts.launches += lane->launches;
    counts.graph_launches += lane->graph_launches;
  }
  return counts;
}

void write_step(uint32_t steps) {
  // Before the lane: what it says takes microseconds.
  ThreadTime time = time_of_thread();
  Lane* lane = current_lane();
  if (!lane) return;
  write_event(lane, kThreadTime, lane->now(), time.cpu_ns, time.ready_ns);
  write_event(lane, kStep, lane->now(), uint64_t(steps));
}

uint32_t epoch_of_recording() { return last_epoch; }

bool leave_out_process_definition() {
  std::lock_guard guard(process_definitions_lock);
  TraceFile* file = current_file.load();
  return file && file->leave_out_definition();
}

uint64_t start_of_recording() { return current_start.load(); }

}  // namespace tracer::trace
