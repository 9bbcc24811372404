#include "gpu_activity.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "../fork_locks.h"
#include "../mapping.h"
#include "../trace/lane.h"
#include "../trace/recording.h"
#include "api_calls.h"
#include "cupti.h"
#include "skipped_calls.h"

namespace tracer::cuda {

ActivityCounts activity_counts;

namespace {

constexpr size_t kPooledBuffers = 16;
constexpr size_t kMostBuffers = 128;  // CUPTI holds a few for each context and stream; beyond this records are dropped
constexpr size_t kSparePage = 4096;   // never nullptr: some CUPTI crash on it
constexpr int kFlushMilliseconds = 200;

std::mutex& lock = fork_lock<LockOrder::kBuffers>();
auto& free_buffers = *new std::vector<uint8_t*>;
// Without memory for a spare page. It may be out several times at once, so what is in it is lost.
alignas(kSparePage) uint8_t last_page[kSparePage];
auto& spare_pages = *new std::unordered_set<uint8_t*>;
size_t buffers_made = 0, buffers_out = 0;
auto& names = *new std::unordered_map<uint64_t, uint32_t>;  // of the recording names_epoch
uint32_t names_epoch = 0;

uint8_t* make_buffer() {
  void* memory = map_memory(kActivityBufferBytes);
  if (memory) ++buffers_made;
  return static_cast<uint8_t*>(memory);
}

uint8_t* make_spare_page() {
  auto* page = static_cast<uint8_t*>(aligned_alloc(kSparePage, kSparePage));
  if (!page) return last_page;
  memset(page, 0, kSparePage);
  spare_pages.insert(page);
  return page;
}

void fill_pool() {
  std::lock_guard guard(lock);
  while (buffers_made < kPooledBuffers) {
    uint8_t* buffer = make_buffer();
    if (!buffer) return;
    trace::populate(buffer, kActivityBufferBytes);  // CUPTI asks in the middle of a launch
    free_buffers.push_back(buffer);
  }
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* most_records) {
  std::lock_guard guard(lock);
  *most_records = 0;
  *size = kActivityBufferBytes;
  *buffer = nullptr;
  if (!free_buffers.empty()) {
    *buffer = free_buffers.back();
    free_buffers.pop_back();
  } else if (buffers_made < kMostBuffers) {
    *buffer = make_buffer();
  }
  if (!*buffer) {
    *size = kSparePage;
    *buffer = make_spare_page();
    return;
  }
  if (++buffers_out > activity_counts.buffers.load()) activity_counts.buffers.store(buffers_out);
}

// The id of a name among the strings of the process.
uint32_t name_id(const char* name) {
  if (!name) return 0;
  std::string_view text = name;
  if (names_epoch != trace::epoch_of_recording()) {
    names.clear();
    names_epoch = trace::epoch_of_recording();
  }
  uint64_t hash = trace::hash_bytes(text.data(), text.size());
  if (auto found = names.find(hash); found != names.end()) return found->second;
  if (trace::leave_out_process_definition()) return trace::kOther;
  auto id = uint32_t(names.size() + 1);
  names.emplace(hash, id);
  trace::define_for_process(trace::DefinitionBuilder(trace::kString).put(id).put_string(text));
  return id;
}

uint64_t since_start(uint64_t when) {
  uint64_t start = trace::start_of_recording();
  return start && when > start ? when - start : 0;
}

struct Record {
  uint64_t words[trace::kActivityWords] = {};

  Record(trace::ActivityKind kind, uint32_t device, uint32_t correlation, uint64_t start, uint64_t end, uint32_t stream, uint32_t context) {
    words[0] =
        uint64_t(kind) << trace::kActivityKindShift | (device & trace::kActivityDeviceMask) << trace::kActivityDeviceShift | correlation;
    words[1] = since_start(start);
    words[2] = since_start(end);
    words[3] = trace::two_numbers(stream, context);
  }
};

// Structures of CUPTI grow at their end from version to version: CUDA 12 and 13 have all fields used here.
#if CUPTI_API_VERSION >= 130000
using KernelRecord = CUpti_ActivityKernel10;
using MemcpyRecord = CUpti_ActivityMemcpy6;
#else
using KernelRecord = CUpti_ActivityKernel9;
using MemcpyRecord = CUpti_ActivityMemcpy5;
#endif
using PeerRecord = CUpti_ActivityMemcpyPtoP4;
using MemsetRecord = CUpti_ActivityMemset4;

Record record_of(const KernelRecord& kernel) {
  Record record(trace::kGpuKernel, kernel.deviceId, kernel.correlationId, kernel.start, kernel.end, kernel.streamId, kernel.contextId);
  record.words[4] = trace::two_numbers(name_id(kernel.name), kernel.graphId);
  record.words[5] = kernel.graphNodeId;
  record.words[7] = trace::two_numbers(uint32_t(kernel.gridX), uint32_t(kernel.gridY));
  record.words[8] = trace::two_numbers(uint32_t(kernel.gridZ), uint32_t(kernel.blockX));
  record.words[9] = trace::two_numbers(uint32_t(kernel.blockY), uint32_t(kernel.blockZ));
  record.words[10] = trace::two_numbers(kernel.registersPerThread, uint32_t(kernel.staticSharedMemory));
  record.words[11] = trace::two_numbers(uint32_t(kernel.dynamicSharedMemory), kernel.localMemoryPerThread);
  record.words[12] = trace::two_numbers(kernel.clusterX, kernel.clusterY);
  record.words[13] = trace::two_numbers(kernel.clusterZ, kernel.sharedMemoryExecuted);
  return record;
}

template <class Copy>
Record record_of_copy(const Copy& copy, uint32_t source, uint32_t destination) {
  Record record(trace::kGpuMemcpy, copy.deviceId, copy.correlationId, copy.start, copy.end, copy.streamId, copy.contextId);
  record.words[4] = trace::two_numbers(0, copy.graphId);
  record.words[5] = copy.graphNodeId;
  record.words[6] = copy.bytes;
  bool asynchronous = copy.flags & CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC;
  record.words[7] = uint64_t(copy.copyKind) | uint64_t(copy.srcKind) << trace::kCopySourceShift |
                    uint64_t(copy.dstKind) << trace::kCopyDestinationShift | uint64_t(asynchronous) << trace::kCopyAsynchronousShift;
  record.words[8] = trace::two_numbers(source, destination);
  return record;
}

Record record_of(const MemsetRecord& fill) {
  Record record(trace::kGpuMemset, fill.deviceId, fill.correlationId, fill.start, fill.end, fill.streamId, fill.contextId);
  record.words[4] = trace::two_numbers(0, fill.graphId);
  record.words[5] = fill.graphNodeId;
  record.words[6] = fill.bytes;
  record.words[7] = trace::two_numbers(fill.value, fill.memoryKind);
  return record;
}

void describe_gpu(const CUpti_ActivityDevice5& gpu) {
  std::string facts;
  auto add = [&](const char* name, uint64_t value) { facts += std::string(name) + "=" + std::to_string(value) + "\n"; };
#define TRACER_FACT(name) add(#name, gpu.name)
  TRACER_FACT(computeCapabilityMajor);
  TRACER_FACT(computeCapabilityMinor);
  TRACER_FACT(globalMemoryBandwidth);
  TRACER_FACT(globalMemorySize);
  TRACER_FACT(constantMemorySize);
  TRACER_FACT(l2CacheSize);
  TRACER_FACT(numThreadsPerWarp);
  TRACER_FACT(coreClockRate);
  TRACER_FACT(numMemcpyEngines);
  TRACER_FACT(numMultiprocessors);
  TRACER_FACT(maxIPC);
  TRACER_FACT(maxWarpsPerMultiprocessor);
  TRACER_FACT(maxBlocksPerMultiprocessor);
  TRACER_FACT(maxSharedMemoryPerMultiprocessor);
  TRACER_FACT(maxRegistersPerMultiprocessor);
  TRACER_FACT(maxRegistersPerBlock);
  TRACER_FACT(maxSharedMemoryPerBlock);
  TRACER_FACT(maxThreadsPerBlock);
#undef TRACER_FACT
  trace::define_for_process(
      trace::DefinitionBuilder(trace::kGpu).put(uint32_t(gpu.id)).put_string(gpu.name ? gpu.name : "").put_string(facts));
}

void write(const Record& record, std::atomic<uint64_t>& count) {
  if (skipped_calls.has(uint32_t(record.words[0]))) return;
  if (!trace::write_activities(record.words, 1)) {
    activity_counts.dropped.fetch_add(1);
    return;
  }
  count.fetch_add(1, std::memory_order_relaxed);
  if (record.words[5] && &count == &activity_counts.kernels) activity_counts.graph_kernels.fetch_add(1, std::memory_order_relaxed);
}

void see(const CUpti_Activity* activity) {
  switch (activity->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return write(record_of(*reinterpret_cast<const KernelRecord*>(activity)), activity_counts.kernels);
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      auto& copy = *reinterpret_cast<const MemcpyRecord*>(activity);
      return write(record_of_copy(copy, copy.deviceId, copy.deviceId), activity_counts.memcpys);
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY2: {
      auto& copy = *reinterpret_cast<const PeerRecord*>(activity);
      return write(record_of_copy(copy, copy.srcDeviceId, copy.dstDeviceId), activity_counts.memcpys);
    }
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return write(record_of(*reinterpret_cast<const MemsetRecord*>(activity)), activity_counts.memsets);
    case CUPTI_ACTIVITY_KIND_DEVICE:
      return describe_gpu(*reinterpret_cast<const CUpti_ActivityDevice5*>(activity));
    default:
      return;
  }
}

void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t* buffer, size_t, size_t valid) {
  if (buffer == last_page) return void(activity_counts.dropped.fetch_add(1));
  static std::mutex& one_at_a_time = fork_lock<LockOrder::kActivities>();
  {
    std::lock_guard guard(one_at_a_time);
    CUpti_Activity* activity = nullptr;
    while (valid && cupti().cuptiActivityGetNextRecord(buffer, valid, &activity) == CUPTI_SUCCESS) see(activity);
    size_t dropped = 0;
    if (cupti().cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS) activity_counts.dropped.fetch_add(dropped);
  }
  memset(buffer, 0, valid);  // so that CUPTI need not do it in the middle of a launch
  std::lock_guard guard(lock);
  if (spare_pages.erase(buffer)) return free(buffer);
  --buffers_out;
  free_buffers.push_back(buffer);
}

// The clock of the hops, so that both have one time axis.
uint64_t CUPTIAPI timestamp() { return trace::ticks(); }

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2,
                                         CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_DEVICE};

// ---- the flushing thread ----------------------------------------------------------------------------
sem_t flush_end;
pthread_t flush_thread;
bool flushing = false;

void* flush_main(void*) {
  pthread_setname_np(pthread_self(), "tracer-gpu");
  uint64_t calls_seen = 0;
  for (;;) {
    timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += kFlushMilliseconds * 1'000'000;
    until.tv_sec += until.tv_nsec / 1'000'000'000;
    until.tv_nsec %= 1'000'000'000;
    if (sem_timedwait(&flush_end, &until) == 0) return nullptr;
    uint64_t calls = trace::count_calls().calls;
    if (calls != calls_seen) flush_activities(false);
    calls_seen = calls;
  }
}

}  // namespace

std::string enable_activities() {
  const Cupti& api = cupti();
  fill_pool();
  uint8_t zeroed = 1;
  size_t size = sizeof zeroed;
  api.cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &zeroed);
  CUptiResult result = api.cuptiActivityRegisterTimestampCallback(timestamp);
  if (result == CUPTI_SUCCESS) result = api.cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
  for (CUpti_ActivityKind kind : kKinds)
    if (result == CUPTI_SUCCESS) result = api.cuptiActivityEnable(kind);
  return result == CUPTI_SUCCESS ? "" : api.text(result);
}

void flush_activities(bool all) { cupti().cuptiActivityFlushAll(all ? CUPTI_ACTIVITY_FLAG_FLUSH_FORCED : 0); }

void disable_activities() {
  for (CUpti_ActivityKind kind : kKinds) cupti().cuptiActivityDisable(kind);
}

void start_flushing() {
  sem_init(&flush_end, 0, 0);
  sigset_t all, before;  // signals belong to the script's threads, but SIGBUS (trace/bus_error.h)
  sigfillset(&all);
  sigdelset(&all, SIGBUS);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  flushing = pthread_create(&flush_thread, nullptr, flush_main, nullptr) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void stop_flushing() {
  if (!flushing) return;
  sem_post(&flush_end);
  pthread_join(flush_thread, nullptr);
  flushing = false;
}

void forget_activities() {
  flushing = false;
  skipped_calls.forget();
  for (auto* count : {&activity_counts.kernels, &activity_counts.memcpys, &activity_counts.memsets, &activity_counts.graph_kernels,
                      &activity_counts.dropped, &activity_counts.buffers})
    count->store(0);
}

}  // namespace tracer::cuda
