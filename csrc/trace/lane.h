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
#include "interner.h"
#include "known_names.h"
#include "record_stream.h"
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

constexpr uint32_t kWindows = 2;
// Room that current_lane() guarantees: the events of a thread, a node, a module, the thread's keys, and a kEnter.
constexpr ptrdiff_t kRoomWords = 14;
// Room for a kApiEnter with all the arguments that one can have.
constexpr ptrdiff_t kCallRoomWords = 4 + kMaxCallWords;

// Who may touch which field, and when:
//
//   the thread that owns the lane    all fields; those below `lock` with `lock` held. It takes and releases the lane by
//                                    `in_use`, and no other thread writes `next`, `limit`, `depth` and the fields around them
//   who ends the recording           with `lock`: reads `next`, writes `epoch`, and what is below `lock` (finish_lane). The
//                                    owner may be inside a hop meanwhile: its words go into memory of no file then, and its
//                                    next check of `epoch` fails
//   the helper thread                `window` (read) and `next_chunk`, while `next_state` is kWorking (chunk_helper.h); who
//                                    has `lock` touches these only while it is not
//   any thread                       `sibling`, `in_use`, `next_state`; reads `counted_epoch` and the counters
//   a forked child                   none of its parent's lanes: it forgets them (forget_lanes) and makes its own
//
// Order of locks: the GIL, or the dispatcher's lock; those of fork_locks.h up to kFunctions; `lock` of one lane; those of
// fork_locks.h from kControl on. A thread that has `lock` never waits for the GIL, for the dispatcher's lock or for another
// lane's lock. The hot path takes no lock.
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
  bool shapes = false, source = false, why = false, scalars = false;
  bool results = false, hashes = false;  // what hops return is looked at, and hashed
  uint32_t module = 0;          // nn.Module named last
  const void* node = nullptr;   // autograd node named last
  // ---- the next line ----
  void* python_thread = nullptr;  // its PyThreadState, at the outermost hop
  const void* frame = nullptr;  // of Python, when the innermost open hop was entered (python/running_frame.h)
  uint64_t node_sequence = 0;
  uint64_t context = 0, context_around = 0;  // named last: kContext
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
  uint64_t keys_of_thread = 0;  // hash of those named last
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
    return intern(hash, [&](uint32_t id) { return DefinitionBuilder(kString).put(id).put_string(make()); });
  }
  // The same of another definition with an id among the strings; `make` gives it for the new id.
  template <class Make>
  uint32_t intern(uint64_t hash, Make make) {
    if (uint32_t id = strings.find(hash)) return id;
    if (leave_out_definition()) return kOther;
    uint32_t id = strings.add(hash);
    if (id) define(make(id));
    return id;
  }
  uint64_t now() const { return ticks() - start_ticks; }
  uint64_t* end_of_window() const { return window_start(window) + kHopChunkBytes / 8; }
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

// What the calling thread's range is named by at its end: unique in the process, and not that of a range of its parent.
inline uint64_t new_range_number() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// The calling thread's lane with room for a kRangeEnd, also in a pause of the recording; nullptr when it has none.
Lane* lane_to_end_range() noexcept;

Lane* lane_for_call_slow() noexcept;

// The same with room for a call and its arguments.
inline Lane* current_lane_for_call() {
  Lane* lane = thread_lane;
  if (__builtin_expect(lane->epoch == recording_epoch.load(std::memory_order_relaxed) && lane->limit - lane->next >= kCallRoomWords, 1))
    return lane;
  return lane_for_call_slow();
}

// The argument words of a call, written into the lane one after the other: what the event says of their number and
// bits 63 is known when the last one is written.
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

// The event of a call that begins or returns. Its words between the call and the arguments are in the lane already, but
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
  uint64_t first = (kind & kEventKindMask) << kEventKindShift | (kind & kBriefKind ? kBriefBit : 0);
  std::atomic_ref<uint64_t>(at[0]).store(kEventBit | first | (when & kTicksMask), std::memory_order_release);
  lane->next = at + 1 + sizeof...(words);
  ask_for_lines(lane->next);
}

// The lanes of this process: the first one, the others by `sibling`.
Lane* first_lane();
// Its words go into memory of no file from now on, and its chunks are closed. With the lane's lock.
void finish_lane(Lane* lane, TraceFile& file);
// In a forked child: its parent's lanes are not its own.
void forget_lanes();
// A lane that writes into memory of its own, for measuring; never part of a trace. nullptr without memory for it.
Lane* make_scratch_lane();

}  // namespace tracer::trace
