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
#include "known_names.h"
#include "stack_table.h"
#include "trace_file.h"

namespace tracer::trace {

extern std::atomic<uint32_t> recording_epoch;

// A word that its owner writes and others read now and then: as fast as a plain one, and no data race.
template <class T>
class Relaxed {
 public:
  constexpr Relaxed(T value) : value_(value) {}
  operator T() const { return value_.load(std::memory_order_relaxed); }
  T operator->() const { return *this; }
  Relaxed& operator=(T value) {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  // By the owner: another's write in between is lost.
  void operator+=(T value) { *this = *this + value; }

 private:
  std::atomic<T> value_;
};

// The cold stream of a lane.
class DefinitionStream {
 public:
  bool write(TraceFile& file, uint32_t lane, uint32_t epoch, const DefinitionBuilder& definition);
  // Closes the chunk; later writes of late threads go nowhere.
  void finish(TraceFile& file);
  void abandon() {
    mapping_ = nullptr, range_ = nullptr, chunk_ = {};
    sequence_ = 0;
  }

 private:
  char* mapping_ = nullptr;
  GuardedRange* range_ = nullptr;
  Chunk chunk_;
  uint32_t used_ = 0;
  uint32_t sequence_ = 0;
};

// The stream of activities of a process. Written by one thread at a time, away from the hot path.
class ActivityStream {
 public:
  bool write(TraceFile& file, uint32_t epoch, const uint64_t* record);
  void finish(TraceFile& file);
  void abandon() {
    mapping_ = nullptr, range_ = nullptr, chunk_ = {};
    sequence_ = 0;
  }

 private:
  char* mapping_ = nullptr;
  GuardedRange* range_ = nullptr;
  Chunk chunk_;
  uint32_t used_ = 0;
  uint32_t sequence_ = 0;
};

constexpr uint32_t kWindows = 2;
// Room that current_lane() guarantees: a thread event, a node event, a module event and a kEnter.
constexpr ptrdiff_t kRoomWords = 12;
// Room for a kApiEnter with all the arguments that one can have.
constexpr ptrdiff_t kCallRoomWords = 4 + kMaxCallWords;

// Who may touch what, and when:
//   - the thread that owns the lane: everything but `lock`'s part; that with `lock`;
//   - whoever ends the recording: with `lock`, and only `epoch`, `next` (read), and what belongs to `lock`. The owner may be in
//     the middle of a hop meanwhile: its words go into memory of no file then, and its next check of `epoch` fails;
//   - the helper thread: `window` (read) and `next_chunk`, while next_state is kWorking;
//   - anyone: the counters, to read them.
struct alignas(64) Lane {
  // ---- hot: one cache line ----
  Relaxed<uint64_t*> next = nullptr;
  uint64_t* limit = nullptr;
  Relaxed<uint32_t> epoch = ~0u;
  uint32_t depth = 0;
  uint64_t start_ticks = 0;
  uint64_t path = 0;            // hash of the open hops, outermost first
  uint16_t calls = 0;           // open API and library calls
  uint16_t runtime_calls = 0;   // of these, of the CUDA runtime
  uint32_t calls_of_hop = 0;    // API calls since the last hop was entered
  bool shapes = false, source = false;
  uint32_t module = 0;          // nn.Module named last
  const void* node = nullptr;   // autograd node named last
  // ---- the next line ----
  uint64_t node_sequence = 0;
  uint32_t correlation = 0;     // of the API call that began last
  bool captured = false;        // it made a node of a CUDA graph
  // API calls that ended; of these the launches, and the launches of CUDA graphs, that ran now and succeeded
  Relaxed<uint64_t> api_calls = 0, launches = 0, graph_launches = 0;
  Relaxed<uint32_t> counted_epoch = 0;  // the recording that they are of
  uint64_t query_began = 0;     // of the open call that is written when it returns, if there is one
  KnownNames* names = nullptr;  // of device kernels, kept with the lane
  // ---- two more: what is looked up ----
  Interner signatures, sources;
  StackTable stacks;
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
  Interner strings;
  void* source_cache = nullptr; // of python/source_line, kept with the lane
  std::atomic<Lane*> sibling{nullptr};  // registry
  std::atomic<bool> in_use{true};       // false: its thread has ended, another may take the lane

  uint64_t* window_start(uint32_t which) const { return reinterpret_cast<uint64_t*>(windows + size_t(which) * kHopChunkBytes); }
  void define(const DefinitionBuilder& definition);
  // Whether a ring has no space for another string, source line, signature or stack; counts what is left out.
  bool leave_out_definition();
  // The id of a text in this lane's string table; `make` gives the text where the hash is new.
  template <class Make>
  uint32_t intern_string(uint64_t hash, Make make) {
    if (uint32_t id = strings.find(hash)) return id;
    if (leave_out_definition()) return kOther;
    uint32_t id = strings.add(hash);
    if (id) define(DefinitionBuilder(kString).put(id).put_string(make()));
    return id;
  }
  uint64_t now() const { return ticks() - start_ticks; }
};

// constinit: else each use asks first whether the variable has been initialised.
extern constinit thread_local Lane* thread_lane __attribute__((tls_model("initial-exec")));

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

Lane* lane_for_call_slow() noexcept;

// The same with room for a call and its arguments.
inline Lane* current_lane_for_call() {
  Lane* lane = thread_lane;
  if (__builtin_expect(lane->epoch == recording_epoch.load(std::memory_order_relaxed) && lane->limit - lane->next >= kCallRoomWords, 1))
    return lane;
  return lane_for_call_slow();
}

// The argument words of a call, written into the lane one after the other: what the event says of their number and
// bits 63 is known when the last one stands.
class ArgumentWords {
 public:
  explicit ArgumentWords(uint64_t* first) : first_(first) {}
  bool full() const { return count_ == kMaxCallWords; }
  void put(uint64_t word) {
    first_[count_] = word & ~kEventBit;
    high_ |= uint64_t((word & kEventBit) != 0) << count_++;
  }
  uint64_t* end() const { return first_ + count_; }
  uint64_t bits() const { return uint64_t(count_) << kCallWordsShift | high_ << kCallHighBitsShift; }

 private:
  uint64_t* first_;
  uint32_t count_ = 0;
  uint64_t high_ = 0;
};

// The lines that the next events will fill are asked for ahead of time: the one that follows from the next cache, and one
// further on from memory. Without that an atomic instruction of the program soon waits until the event has its line.
inline void ask_for_lines(const uint64_t* next) {
  constexpr size_t kLineWords = 8, kFarLines = 16;
  for (const uint64_t* line : {next + kLineWords, next + kFarLines * kLineWords}) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" ::"m"(*line));  // __builtin_prefetch() asks for reading here, without -mprfchw
#else
    __builtin_prefetch(line, 1);
#endif
  }
}

// The event of a call that begins or returns. Its words between the call and the arguments stand in the lane already, but
// for the last of them, `word`: most often that is 0 and left out.
class CallEvent {
 public:
  CallEvent(Lane* lane, HopEvent kind, size_t word, uint64_t value)
      : arguments(lane->next + word + (value != 0)),
        lane_(lane),
        first_(kEventBit | uint64_t(kind) << kEventKindShift | (value ? 0 : kBriefBit)) {
    lane->next[word] = value;
  }

  ArgumentWords arguments;

  void write(uint64_t when, uint64_t call) {
    uint64_t* at = lane_->next;
    at[1] = call | arguments.bits();
    std::atomic_ref<uint64_t>(at[0]).store(first_ | (when & kTicksMask), std::memory_order_release);
    lane_->next = arguments.end();
    ask_for_lines(lane_->next);
  }

 private:
  Lane* lane_;
  uint64_t first_;
};

// Stores an event: body words first, then its first word, so that a torn event does not exist.
template <class... Words>
inline void write_event(Lane* lane, HopEvent kind, uint64_t when, Words... words) {
  uint64_t* at = lane->next;
  size_t i = 0;
  ((at[++i] = words), ...);
  std::atomic_ref<uint64_t>(at[0]).store(kEventBit | uint64_t(kind) << kEventKindShift | (when & kTicksMask), std::memory_order_release);
  lane->next = at + 1 + sizeof...(words);
  ask_for_lines(lane->next);
}

// ---- the recording --------------------------------------------------------------------------
// Who writes where: one file at a time.
void open_recording(TraceFile* file);           // definitions can be written; hops not yet
void start_recording();                         // hops are written
void pause_recording();                         // hops are not written; what is written is kept
uint32_t pauses();                              // how often the recording of this process was paused
void finish_lanes();                            // pauses, and no thread writes into the file any more
// Ends the recording of this process; the file is closed and deleted. True: another process had cut the file, or written
// over it.
bool close_recording();
TraceFile* recording_file();
// The clock at its start; 0: there was none yet.
uint64_t start_of_recording();
// Writes a definition of the process (not of a thread).
void define_for_process(const DefinitionBuilder& definition);
// leave_out_definition() for one of those.
bool leave_out_process_definition();
// The calls that all lanes of the process have counted in the running recording, or in the last one.
struct CallCounts {
  uint64_t calls = 0, launches = 0, graph_launches = 0;
};
CallCounts count_calls();
// Writes records of the stream of activities, `count` times kActivityWords words. False: nothing is recorded.
bool write_activities(const uint64_t* words, size_t count);
// Says that a step of the program has ended, the `steps`-th.
void write_step(uint32_t steps);
// The value of recording_epoch while this process's last recording ran.
uint32_t epoch_of_recording();
// A lane that writes into memory of its own, for measuring; never part of a trace.
Lane* make_scratch_lane();

}  // namespace tracer::trace
