#include "lane.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include <ATen/record_function.h>

#include "../mapping.h"
#include "chunk_helper.h"
#include "recording.h"

namespace tracer::trace {

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

constexpr size_t kWindowBytes = size_t(kWindows) * kHopChunkBytes;

// Of a thread in a ring, which may run for ever: its tables then take 2 MiB. What is new later is shown as (other).
constexpr size_t kMostInRing = 1 << 16;

uint32_t thread_id() { return uint32_t(syscall(SYS_gettid)); }

// Runs when a thread ends: its lane can be taken by a later thread.
void release_lane(void* lane) {
  thread_lane = &nobody.lane;
  static_cast<Lane*>(lane)->in_use.store(false, std::memory_order_release);
}

const pthread_key_t lane_key = [] {
  pthread_key_t made;
  pthread_key_create(&made, release_lane);
  return made;
}();

// A lane that nobody knows yet; nullptr without memory for it.
Lane* new_lane(int flags) {
  auto* lane = new (std::nothrow) Lane;
  if (!lane) return nullptr;
  lane->windows = static_cast<char*>(map_memory(kWindowBytes, flags));
  if (lane->windows) return lane;
  delete lane;
  return nullptr;
}

Lane* make_lane() {
  Lane* lane = new_lane(MAP_NORESERVE);
  if (!lane) return nullptr;
  guard(lane->windows, kWindowBytes);
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

// Begins to write into `chunk`, mapped at the lane's current window.
void enter_chunk(Lane* lane, TraceFile& file, Chunk chunk) {
  uint64_t* start = lane->window_start(lane->window);
  file.begin(start, chunk, kHops, lane->number, lane->sequence++, lane->epoch, lane->depth);
  lane->chunk = chunk;
  lane->next = start + sizeof(ChunkHeader) / 8;
  lane->limit = start + kHopChunkBytes / 8 / 2;  // at the half the next chunk is asked for
  lane->module = ~0u;                            // so that each chunk says it again
  lane->context = ~0ull;
}

bool first_chunk(Lane* lane, TraceFile& file) {
  watch_for_damage();
  Chunk chunk = file.claim(kHopChunkBytes, kHops, true);
  if (!chunk.offset && file.is_ring()) chunk = file.claim_beyond_ring(kHopChunkBytes);
  void* where = lane->window_start(lane->window);
  if (!chunk.offset) return false;
  file.fill(chunk);
  if (!file.map(chunk, where)) return false;
  populate(where, kHopChunkBytes);
  enter_chunk(lane, file, chunk);
  return true;
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

}  // namespace

constinit thread_local Lane* thread_lane __attribute__((tls_model("initial-exec"))) = &nobody.lane;

void Lane::define(const DefinitionBuilder& definition) {
  std::lock_guard guard(lock);
  TraceFile* file = recording_file();
  if (!file || epoch != recording_epoch.load()) return;
  if (!definitions.write(*file, number, epoch, definition)) give_up(*file);
}

bool Lane::leave_out_definition() {
  std::lock_guard guard(lock);
  TraceFile* file = recording_file();
  if (!file || epoch != recording_epoch.load()) return false;
  if (file->is_ring() && signatures.size() + sources.size() + strings.size() + stacks.size() >= kMostInRing) {
    std::atomic_ref<uint64_t>(file->header().other_definitions).fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  return file->leave_out_definition();
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
    TraceFile* file = recording_file();
    if (!file || recording_epoch.load() != epoch) return nullptr;
    register_process_once(*file);
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
    lane->why = file->flags() & kWhy;
    lane->scalars = file->flags() & kScalars;
    lane->hashes = file->flags() & kValues;
    lane->results = file->flags() & (kValues | kScalars);
    lane->keys_of_thread = 0;
    lane->depth = 0;
    lane->path = 0;
    lane->calls = lane->runtime_calls = 0;
    lane->calls_of_hop = 0;
    lane->node = lane->frame = nullptr;
    lane->module = 0;
    lane->context = ~0ull;
  }
  if (lane->limit - lane->next < kRoomWords && !lane_advance(lane)) return nullptr;
  describe_thread(lane);
  return lane->limit - lane->next >= kRoomWords || lane_advance(lane) ? lane : nullptr;
} catch (...) {
  lose_hop();
  return nullptr;
}

Lane* lane_to_end_range() noexcept {
  constexpr ptrdiff_t kEndWords = 5;  // and a kContext
  if (Lane* lane = current_lane()) return lane;
  Lane* lane = thread_lane;
  bool paused = lane->epoch == epoch_of_recording() && lane->end_of_window() - lane->next >= kEndWords;
  return paused ? lane : nullptr;
}

Lane* lane_for_call_slow() noexcept {
  Lane* lane = current_lane();
  bool has_room = lane && (lane->limit - lane->next >= kCallRoomWords || lane_advance(lane));
  return has_room ? lane : nullptr;
}

bool lane_advance(Lane* lane) noexcept try {
  std::lock_guard guard(lane->lock);
  TraceFile* file = recording_file();
  if (!file || lane->epoch != recording_epoch.load()) return false;
  watch_for_damage();
  uint64_t* end = lane->end_of_window();
  if (lane->limit != end) {
    lane->limit = end;
    ask_for_chunk(lane);
    if (end - lane->next >= kRoomWords) return true;
  }
  wait_for_chunk(lane);
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

void finish_lane(Lane* lane, TraceFile& file) {
  wait_for_helper(lane);
  uint64_t used = uint64_t(lane->next - lane->window_start(lane->window)) * 8;
  // A thread in the middle of a hop writes on into memory of no file: no crash after the file was cut.
  if (!map_memory(kWindowBytes, MAP_NORESERVE | MAP_FIXED, lane->windows)) {
    // Then it writes into the chunk, behind what counts; a cut is handled (bus_error.h).
  }
  file.finish(lane->chunk, uint32_t(used));
  forget_next_chunk(lane, file);
  lane->definitions.finish(file);
  lane->definitions.abandon();
  lane->chunk = {};
  lane->epoch = ~0u;
}

Lane* first_lane() { return all_lanes.load(); }

void forget_lanes() {
  thread_lane = &nobody.lane;
  all_lanes.store(nullptr);
  lanes_made.store(0);
}

Lane* make_scratch_lane() {
  Lane* lane = new_lane(MAP_POPULATE);
  if (!lane) return nullptr;
  lane->next = lane->window_start(0);
  lane->limit = lane->window_start(kWindows);
  return lane;
}

}  // namespace tracer::trace
