// A lane: the writer of one thread. The hot path stores words into a mapped chunk of the trace
// file; the next chunk is reserved, mapped and faulted in by a helper thread before it is needed.
//
// A recording is one value of `recording_epoch` (0: none). A lane of another epoch, a full chunk, a
// thread without a lane and a forked child all fail the same comparison and take the slow path.
#pragma once

#include <pthread.h>

#include <atomic>
#include <mutex>

#include "clock.h"
#include "definition.h"
#include "interner.h"
#include "trace_file.h"

namespace tracer::trace {

extern std::atomic<uint32_t> recording_epoch;

// The cold stream of a lane.
class DefinitionStream {
 public:
  bool write(TraceFile& file, uint32_t lane, uint32_t epoch, const DefinitionBuilder& definition);
  // Closes the chunk; later writes of late threads go nowhere.
  void finish(TraceFile& file);
  void abandon() { mapping_ = nullptr, chunk_ = {}; sequence_ = 0; }

 private:
  char* mapping_ = nullptr;
  Chunk chunk_;
  uint32_t used_ = 0;
  uint32_t sequence_ = 0;
};

constexpr uint32_t kWindows = 2;
// Room that current_lane() guarantees: a thread event, a node event and a kEnter.
constexpr ptrdiff_t kRoomWords = 12;

struct alignas(64) Lane {
  // ---- hot: one cache line ----
  uint64_t* next = nullptr;
  uint64_t* limit = nullptr;
  uint32_t epoch = ~0u;
  uint32_t depth = 0;
  uint64_t start_ticks = 0;
  bool shapes = false, source = false;
  const void* node = nullptr;   // autograd node named last
  uint64_t node_sequence = 0;
  // ---- cold; `lock` is held by the slow path and by whoever ends the recording ----
  std::mutex lock;
  uint32_t number = 0;
  char* windows = nullptr;      // kWindows x kHopChunkBytes of address space
  uint32_t window = 0;
  uint32_t sequence = 0;
  Chunk chunk;                  // mapped at the current window
  enum Next : uint32_t { kNone, kWanted, kWorking, kReady, kFailed };
  std::atomic<uint32_t> next_state{kNone};
  Chunk next_chunk;             // mapped at the other window where next_state is kReady
  DefinitionStream definitions;
  Interner signatures, sources, strings;
  void* source_cache = nullptr; // of python/source_line, kept with the lane
  std::atomic<Lane*> sibling{nullptr};  // registry
  std::atomic<bool> in_use{true};       // false: its thread has ended, another may take the lane

  uint64_t* window_start(uint32_t which) const { return reinterpret_cast<uint64_t*>(windows + size_t(which) * kHopChunkBytes); }
  void define(const DefinitionBuilder& definition);
  // The id of a text in this lane's string table; `make` gives the text where the hash is new.
  template <class Make>
  uint32_t intern_string(uint64_t hash, Make make) {
    if (uint32_t id = strings.find(hash)) return id;
    uint32_t id = strings.add(hash);
    if (id) define(DefinitionBuilder(kString).put(id).put_string(make()));
    return id;
  }
  uint64_t now() const { return ticks() - start_ticks; }
};

extern thread_local Lane* thread_lane __attribute__((tls_model("initial-exec")));

Lane* lane_slow(uint32_t epoch) noexcept;  // nullptr: not recording
// After the end of the current chunk: false when there is no next one.
bool lane_advance(Lane* lane) noexcept;

// The calling thread's lane with room for kRoomWords words, or nullptr when nothing is recorded.
inline Lane* current_lane() {
  uint32_t epoch = recording_epoch.load(std::memory_order_relaxed);
  Lane* lane = thread_lane;
  if (__builtin_expect(lane->epoch == epoch && lane->limit - lane->next >= kRoomWords, 1)) return lane;
  return lane_slow(epoch);
}

// Stores an event: body words first, then its first word, so that a torn event does not exist.
template <class... Words>
inline void write_event(Lane* lane, HopEvent kind, uint64_t when, Words... words) {
  uint64_t* at = lane->next;
  size_t i = 0;
  ((at[++i] = words), ...);
  std::atomic_ref<uint64_t>(at[0]).store(kEventBit | uint64_t(kind) << 60 | (when & kTicksMask), std::memory_order_release);
  lane->next = at + 1 + sizeof...(words);
}

// ---- the recording --------------------------------------------------------------------------
// Who writes where: one file at a time.
void open_recording(TraceFile* file);           // definitions can be written; hops not yet
void start_recording();                         // hops are written
void pause_recording();                         // hops are not written; what is written is kept
void finish_lanes();                            // pauses, and no thread writes into the file any more
// Ends the recording of this process; the file is closed and deleted.
void close_recording();
TraceFile* recording_file();
// Writes a definition of the process (not of a thread).
void define_for_process(const DefinitionBuilder& definition);
// The value of recording_epoch while this process's last recording ran.
uint32_t epoch_of_recording();
// A lane that writes into memory of its own, for measuring; never part of a trace.
Lane* make_scratch_lane();

}  // namespace tracer::trace
