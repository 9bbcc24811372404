#include "lane.h"

#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <new>

#include <ATen/record_function.h>

#include "../fork_locks.h"
#include "../stderr.h"

namespace tracer::trace {

std::atomic<uint32_t> recording_epoch{0};

namespace {

// Globals are leaked or trivial: threads may run ops until the very end of the process.
// The lane of a thread that has none: its epoch is no recording's, every check against it fails.
union NoLane {
  Lane lane;
  NoLane() : lane() {}
  ~NoLane() {}
};
NoLane nobody;
std::atomic<Lane*> all_lanes{nullptr};
std::atomic<uint32_t> lanes_made{0};
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

uint32_t thread_id() { return uint32_t(syscall(SYS_gettid)); }

// ---- helper thread: prepares the next chunk of a lane --------------------------------------
sem_t helper_work;
std::atomic<bool> helper_stop{false};
pthread_t helper_thread;
std::atomic<bool> helper_running{false};
std::mutex& helper_lock = fork_lock<LockOrder::kHelper>();

void prepare_next(Lane* lane) {
  TraceFile* file = current_file.load();
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
    for (Lane* lane = all_lanes.load(); lane; lane = lane->sibling.load()) {
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

void stop_helper() {
  std::lock_guard guard(helper_lock);
  join_helper();
}

// ---- lanes ------------------------------------------------------------------------------------
// Runs when a thread ends: its lane can be taken by a later thread.
pthread_key_t lane_key;
void release_lane(void* lane) {
  thread_lane = &nobody.lane;
  static_cast<Lane*>(lane)->in_use.store(false, std::memory_order_release);
}

Lane* make_lane() {
  auto* lane = new (std::nothrow) Lane;
  if (!lane) return nullptr;
  void* windows =
      mmap(nullptr, size_t(kWindows) * kHopChunkBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (windows == MAP_FAILED) {
    delete lane;
    return nullptr;
  }
  lane->windows = static_cast<char*>(windows);
  guard(windows, size_t(kWindows) * kHopChunkBytes);
  lane->number = lanes_made.fetch_add(1);
  Lane* head = all_lanes.load();
  do lane->sibling.store(head);
  while (!all_lanes.compare_exchange_weak(head, lane));
  return lane;
}

Lane* acquire_lane() {
  for (Lane* lane = all_lanes.load(); lane; lane = lane->sibling.load()) {
    bool free = false;
    if (lane->in_use.compare_exchange_strong(free, true)) return lane;
  }
  return make_lane();
}

std::string why_stopped(const TraceFile& file) {
  if (file.out_of_space() == EBADF) return "the script closed the trace's descriptor, and tracer cannot open the file again";
  if (file.out_of_space()) return strerror(file.out_of_space());
  return "the file has reached --max-size";
}

std::atomic<bool> said_stopped{false};
// What the handler of SIGBUS says: made ahead of time, as nothing can be made there.
char damaged_text[512];
std::atomic<int> damaged_size{0};

void say_damaged() {
  if (!said_stopped.exchange(true)) say({damaged_text, size_t(damaged_size.load())});
}

void say_stopped(TraceFile& file) {
  if (file.is_damaged()) return say_damaged();
  if (said_stopped.exchange(true)) return;
  char text[512];
  int size = snprintf(text, sizeof text, "tracer: recording stopped: %s (%s); the script continues unrecorded\n", why_stopped(file).c_str(),
                      file.path().c_str());
  say({text, std::min(size_t(size), sizeof text - 1)});
}

// Runs in the handler of SIGBUS.
void stop_damaged() {
  recording_epoch.store(0);
  times_paused.fetch_add(1);
  say_damaged();
}

void watch_file(const TraceFile& file) {
  int size =
      snprintf(damaged_text, sizeof damaged_text,
               "tracer: recording stopped: another process cut or replaced %s during the recording; the script continues unrecorded\n",
               file.path().c_str());
  damaged_size.store(std::min(size, int(sizeof damaged_text) - 1));
  watch_bus_errors(stop_damaged);
}

// Without memory the hop is not recorded; the op goes on.
void lose_hop() {
  std::lock_guard guard(activities_lock);  // under which the file is deleted
  if (TraceFile* file = current_file.load()) std::atomic_ref<uint64_t>(file->header().lost_hops).fetch_add(1);
}

// No chunk: the recording is over for this process.
void give_up(TraceFile& file) {
  pause_recording();
  if (file.out_of_space() || file.is_full() || file.is_damaged()) say_stopped(file);
}

// Begins to write into `chunk`, mapped at the lane's current window.
void enter_chunk(Lane* lane, TraceFile& file, Chunk chunk) {
  uint64_t* start = lane->window_start(lane->window);
  file.begin(start, chunk, kHops, lane->number, lane->sequence++, lane->epoch, lane->depth);
  lane->chunk = chunk;
  lane->next = start + sizeof(ChunkHeader) / 8;
  lane->limit = start + kHopChunkBytes / 8 / 2;  // at the half the next chunk is asked for
  lane->module = ~0u;                            // so that each chunk says it again
}

bool first_chunk(Lane* lane, TraceFile& file) {
  watch_bus_errors(stop_damaged);  // before a handler that the script, or a worker of a DataLoader, has installed since
  Chunk chunk = file.claim(kHopChunkBytes, kHops);
  if (!chunk.offset && file.is_ring()) chunk = file.claim_beyond_ring(kHopChunkBytes);
  void* where = lane->window_start(lane->window);
  if (!chunk.offset) return false;
  file.fill(chunk);
  if (!file.map(chunk, where)) return false;
  populate(where, kHopChunkBytes);
  enter_chunk(lane, file, chunk);
  return true;
}

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

void write_thread(Lane* lane, uint64_t torch_thread) {
  write_event(lane, kThread, lane->now(), two_numbers(thread_id(), torch_thread & kHigh31));
}

void describe_thread(Lane* lane) {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof name);
  uint64_t torch_thread = at::RecordFunction::currentThreadId();
  write_thread(lane, torch_thread);
  lane->define(DefinitionBuilder(kThreadName).put(thread_id()).put(torch_thread).put_string(name));
}

// In a forked child: its parent's lanes, helper and chunks are not its own.
void after_fork_in_child() {
  thread_lane = &nobody.lane;
  all_lanes.store(nullptr);
  lanes_made.store(0);
  process_definitions.abandon();
  activities.abandon();
  process_registered = false;
  helper_running = false;
  last_epoch += 1;
  if (recording_epoch.load()) recording_epoch.store(last_epoch);
}

void install_once() {
  static bool installed = false;
  if (installed) return;
  installed = true;
  pthread_key_create(&lane_key, release_lane);
  // A helper thread would count as a thread of the parent when Python warns about forking with threads.
  before_fork_with(LockOrder::kHelper, join_helper);
  in_forked_child(after_fork_in_child);
}

}  // namespace

constinit thread_local Lane* thread_lane __attribute__((tls_model("initial-exec"))) = &nobody.lane;

bool DefinitionStream::write(TraceFile& file, uint32_t lane, uint32_t epoch, const DefinitionBuilder& definition) {
  uint32_t bytes = definition.bytes();
  if (!mapping_ || used_ + bytes > chunk_.capacity) {
    finish(file);
    uint32_t need = uint32_t(sizeof(ChunkHeader)) + bytes;
    Chunk chunk = file.claim(need > kDefinitionChunkBytes ? (need + 4095) / 4096 * 4096 : kDefinitionChunkBytes, kDefinitions);
    void* mapping = chunk.offset ? file.map(chunk, nullptr) : nullptr;
    if (!mapping) return false;
    mapping_ = static_cast<char*>(mapping);
    range_ = guard(mapping, chunk.capacity);
    chunk_ = chunk;
    file.begin(mapping_, chunk, kDefinitions, lane, sequence_++, epoch, 0);
    used_ = sizeof(ChunkHeader);
  }
  char* at = mapping_ + used_;
  uint64_t when = ticks() - file.start_ticks();
  memcpy(at + 8, &when, sizeof when);
  memcpy(at + sizeof(DefinitionHead), definition.payload().data(), definition.payload().size());
  DefinitionHead first{bytes, uint16_t(definition.kind()), kDefinitionMagic, 0};
  uint64_t head;
  memcpy(&head, &first, sizeof head);
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(at)).store(head, std::memory_order_release);
  used_ += bytes;
  return true;
}

void DefinitionStream::finish(TraceFile& file) {
  if (!mapping_) return;
  unguard(range_);
  munmap(mapping_, chunk_.capacity);
  file.finish(chunk_, used_);
  mapping_ = nullptr;
  range_ = nullptr;
  chunk_ = {};
}

bool ActivityStream::write(TraceFile& file, uint32_t epoch, const uint64_t* record) {
  constexpr uint32_t bytes = kActivityWords * 8;
  if (!mapping_ || used_ + bytes > chunk_.capacity) {
    finish(file);
    Chunk chunk = file.claim(kActivityChunkBytes, kActivities);
    if (chunk.offset && file.is_ring()) file.fill(chunk);
    void* mapping = chunk.offset ? file.map(chunk, nullptr) : nullptr;
    if (!mapping) return false;
    mapping_ = static_cast<char*>(mapping);
    range_ = guard(mapping, chunk.capacity);
    chunk_ = chunk;
    file.begin(mapping_, chunk, kActivities, kProcessLane, sequence_++, epoch, 0);
    used_ = sizeof(ChunkHeader);
  }
  auto* at = reinterpret_cast<uint64_t*>(mapping_ + used_);
  memcpy(at + 1, record + 1, bytes - 8);
  std::atomic_ref<uint64_t>(at[0]).store(record[0] | kEventBit, std::memory_order_release);
  used_ += bytes;
  return true;
}

void ActivityStream::finish(TraceFile& file) {
  if (!mapping_) return;
  unguard(range_);
  munmap(mapping_, chunk_.capacity);
  file.finish(chunk_, used_);
  mapping_ = nullptr;
  range_ = nullptr;
  chunk_ = {};
}

void Lane::define(const DefinitionBuilder& definition) {
  std::lock_guard guard(lock);
  TraceFile* file = current_file.load();
  if (!file || epoch != recording_epoch.load()) return;
  if (!definitions.write(*file, number, epoch, definition)) give_up(*file);
}

bool Lane::leave_out_definition() {
  std::lock_guard guard(lock);
  TraceFile* file = current_file.load();
  return file && epoch == recording_epoch.load() && file->leave_out_definition();
}

Lane* lane_slow(uint32_t epoch) noexcept try {
  if (epoch == 0) return nullptr;
  Lane* lane = thread_lane;
  if (lane->epoch == epoch) return lane_advance(lane) ? lane : nullptr;
  if (lane == &nobody.lane) {
    lane = acquire_lane();
    if (!lane) {
      lose_hop();
      return nullptr;
    }
    thread_lane = lane;
    pthread_setspecific(lane_key, lane);
  }
  {
    std::lock_guard guard(lane->lock);
    TraceFile* file = current_file.load();
    if (!file || recording_epoch.load() != epoch) return nullptr;
    {
      std::lock_guard control(control_lock);
      if (!process_registered) {
        process_registered = true;
        file->register_process();
        define_process(*file, kForked);
      }
    }
    if (lane->epoch != epoch) {  // else: taken over from a thread that has ended
      lane->signatures.clear();
      lane->sources.clear();
      lane->strings.clear();
      lane->stacks.clear();
      lane->sequence = 0;
      for (auto* counter : {&lane->api_calls, &lane->launches, &lane->graph_launches}) *counter = 0;
      lane->counted_epoch = epoch;
      lane->epoch = epoch;
      lane->depth = 0;
      lane->next_state.store(Lane::kNone);
      if (!first_chunk(lane, *file)) {
        lane->epoch = ~0u;
        give_up(*file);
        return nullptr;
      }
    }
    lane->start_ticks = file->start_ticks();
    lane->shapes = file->flags() & kShapes;
    lane->source = file->flags() & kSource;
    lane->depth = 0;
    lane->path = 0;
    lane->calls = lane->runtime_calls = 0;
    lane->calls_of_hop = 0;
    lane->node = nullptr;
    lane->module = 0;
  }
  if (lane->limit - lane->next < kRoomWords && !lane_advance(lane)) return nullptr;
  describe_thread(lane);
  return lane->limit - lane->next >= kRoomWords || lane_advance(lane) ? lane : nullptr;
} catch (...) {
  lose_hop();
  return nullptr;
}

Lane* lane_for_call_slow() noexcept {
  Lane* lane = current_lane();
  bool has_room = lane && (lane->limit - lane->next >= kCallRoomWords || lane_advance(lane));
  return has_room ? lane : nullptr;
}

bool lane_advance(Lane* lane) noexcept try {
  std::lock_guard guard(lane->lock);
  TraceFile* file = current_file.load();
  if (!file || lane->epoch != recording_epoch.load()) return false;
  watch_bus_errors(stop_damaged);  // as in first_chunk()
  uint64_t* end = lane->window_start(lane->window) + kHopChunkBytes / 8;
  if (lane->limit != end) {
    lane->limit = end;
    lane->next_state.store(Lane::kWanted, std::memory_order_release);
    if (!helper_running) start_helper();
    sem_post(&helper_work);
    if (end - lane->next >= kRoomWords) return true;
  }
  uint32_t wanted = Lane::kWanted;
  if (lane->next_state.compare_exchange_strong(wanted, Lane::kWorking)) prepare_next(lane);  // the helper was late
  while (lane->next_state.load(std::memory_order_acquire) == Lane::kWorking) sched_yield();
  if (lane->next_state.load() == Lane::kReady) {
    file->finish(lane->chunk, uint32_t((lane->next - lane->window_start(lane->window)) * 8));
    lane->window ^= 1;
    lane->next_state.store(Lane::kNone);
    enter_chunk(lane, *file, lane->next_chunk);
  } else if (file->is_ring() && !file->out_of_space()) {
    // Other threads write all other slots: this one goes round in its own.
    lane->next_state.store(Lane::kNone);
    file->count_overwritten(lane->chunk);
    memset(lane->window_start(lane->window), 0, kHopChunkBytes);
    enter_chunk(lane, *file, lane->chunk);
  } else {
    give_up(*file);
    return false;
  }
  if (file->is_ring()) {
    // What was said of the thread is overwritten sooner or later.
    write_thread(lane, at::RecordFunction::currentThreadId());
    lane->node = nullptr;
  }
  return true;
} catch (...) {
  lose_hop();
  return false;
}

void open_recording(TraceFile* file) {
  install_once();
  std::lock_guard control(control_lock);
  process_definitions.abandon();
  activities.abandon();
  said_stopped.store(file->is_full() || !file->is_open());  // else each child of a recording that has stopped would say so
  watch_file(*file);
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
  for (Lane* lane = all_lanes.load(); lane; lane = lane->sibling.load()) {
    std::lock_guard guard(lane->lock);
    if (lane->epoch != last_epoch) continue;
    uint32_t wanted = Lane::kWanted;
    while (!lane->next_state.compare_exchange_weak(wanted, Lane::kNone) && (wanted == Lane::kWorking || wanted == Lane::kWanted)) {
      wanted = Lane::kWanted;
      sched_yield();
    }
    uint64_t used = uint64_t(lane->next - lane->window_start(lane->window)) * 8;
    // A thread in the middle of a hop writes on into memory of no file: no crash after the file was cut.
    mmap(lane->windows, size_t(kWindows) * kHopChunkBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
         -1, 0);
    file->finish(lane->chunk, uint32_t(used));
    uint32_t ready = Lane::kReady;
    if (lane->next_state.compare_exchange_strong(ready, Lane::kNone)) file->release(lane->next_chunk);
    lane->next_state.store(Lane::kNone);
    lane->definitions.finish(*file);
    lane->definitions.abandon();
    lane->chunk = {};
    lane->epoch = ~0u;
  }
}

bool close_recording() {
  TraceFile* file = current_file.load();
  if (!file) return false;
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
  for (const Lane* lane = all_lanes.load(); lane; lane = lane->sibling.load()) {
    if (lane->counted_epoch != last_epoch) continue;
    counts.calls += lane->api_calls;
    counts.launches += lane->launches;
    counts.graph_launches += lane->graph_launches;
  }
  return counts;
}

void write_step(uint32_t steps) {
  if (Lane* lane = current_lane()) write_event(lane, kStep, lane->now(), uint64_t(steps));
}

uint32_t epoch_of_recording() { return last_epoch; }

bool leave_out_process_definition() {
  std::lock_guard guard(process_definitions_lock);
  TraceFile* file = current_file.load();
  return file && file->leave_out_definition();
}

uint64_t start_of_recording() { return current_start.load(); }

Lane* make_scratch_lane() {
  auto* lane = new Lane;
  lane->windows = static_cast<char*>(
      mmap(nullptr, size_t(kWindows) * kHopChunkBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
  lane->next = lane->window_start(0);
  lane->limit = lane->window_start(kWindows);
  return lane;
}

}  // namespace tracer::trace
