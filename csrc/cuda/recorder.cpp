#include "recorder.h"

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "../fork_locks.h"
#include "../native/elf.h"
#include "../stderr.h"
#include "../trace/lane.h"
#include "../trace/recording.h"
#include "api_calls.h"
#include "cupti.h"
#include "devices.h"
#include "gpu_activity.h"
#include "injection.h"
#include "library_calls.h"
#include "query_calls.h"

namespace tracer::cuda {
namespace {

constexpr const char* kInjection = "CUDA_INJECTION64_PATH";
constexpr uint64_t kPatienceNs = 1'000'000'000;  // without progress of the GPU
constexpr uint64_t kQuietNs = 20'000'000;        // without a record, where their number is not known

// CUDA may be initialised, and a profiler started, by any thread: what follows changes and is read with `lock`, but for
// what only begin() and end() touch (`options` is read by those without it, `injecting` and the slots are theirs).
std::mutex& lock = fork_lock<LockOrder::kCuda>();
Options options;
bool begun = false;  // and not ended: CUPTI may be attached
std::string& state = *new std::string;
std::string& why = *new std::string;
std::string& profiler = *new std::string;
uint32_t version = 0;  // of CUPTI, once it was called
bool attached = false;
bool queries_hooked = false;  // in this recording, also after its end
bool injecting = false;

// With `lock`.
void say(const std::string& text) {
  if (!options.quiet) tracer::say("tracer: " + text + "\n");
}

// With `lock`.
void give_up(const char* as, const std::string& reason) {
  state = as;
  why = reason;
  say("CUDA will not be recorded: " + reason + ". Dispatcher hops are still recorded.");
}

// ---- torch.profiler beside a recording ------------------------------------------------------------
using Subscribe = CUptiResult (*)(CUpti_SubscriberHandle*, CUpti_CallbackFunc, void*);
Subscribe subscribe_of_torch = nullptr;
void** subscribe_slot = nullptr;

// What libtorch_cpu calls to begin a CUDA profile of its own.
CUptiResult CUPTIAPI torch_subscribes(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback, void* argument) {
  CUptiResult result = subscribe_of_torch(subscriber, callback, argument);
  std::lock_guard guard(lock);
  if (attached && result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED && profiler.empty()) {
    profiler = "torch.profiler got no CUDA events, because the recording was using CUPTI";
    say("torch.profiler gets no CUDA events while tracer records CUDA; to record without CUDA: tracer record --cuda off");
  }
  return result;
}

void watch_torch_profiler() {
  if (subscribe_slot) return;
  void** slot = native::find_plt_slot("libtorch_cpu.so", "cuptiSubscribe");
  if (!slot || !cupti().cuptiSubscribe) return;
  subscribe_of_torch = cupti().cuptiSubscribe;
  if (native::write_plt_slot(slot, reinterpret_cast<void*>(&torch_subscribes))) subscribe_slot = slot;
}

void leave_torch_profiler() {
  if (!subscribe_slot) return;
  native::write_plt_slot(subscribe_slot, reinterpret_cast<void*>(subscribe_of_torch));
  subscribe_slot = nullptr;
}

// ---- attaching to CUPTI -----------------------------------------------------------------------------
void attach() {
  std::lock_guard guard(lock);
  if (!begun || attached || state != "not used") return;
  cupti().cuptiGetVersion(&version);
  std::string holder;
  DriverCalls driver = options.driver == "all" ? DriverCalls::kAll : options.driver == "none" ? DriverCalls::kNone : DriverCalls::kLaunches;
  std::string error = subscribe(driver, options.queries == "torch", holder);
  if (!error.empty()) {
    if (error.find("MULTIPLE_SUBSCRIBERS") == std::string::npos) return give_up("failed", "CUPTI reports " + error);
    bool named = !holder.empty() && holder.find("not provided") == std::string::npos;
    return give_up("held",
                   "CUPTI is already in use by " + (named ? holder : std::string("another profiler in this process, e.g. torch.profiler")));
  }
  error = enable_activities();
  if (!error.empty()) {
    unsubscribe();
    disable_activities();
    if (error.find("INSUFFICIENT_PRIVILEGES") != std::string::npos)
      error += " (the administrator can allow it: NVreg_RestrictProfilingToAdminUsers=0)";
    return give_up("failed", "CUPTI reports " + error);
  }
  queries_hooked = queries_are_hooked();
  attached = true;
  state = "recorded";
  start_flushing();
}

bool is_attached() {
  std::lock_guard guard(lock);
  return attached;
}

void* driver_library() { return dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD); }

bool is_cuda_initialised() {
  void* driver = driver_library();
  if (!driver) return false;
  auto count = reinterpret_cast<CUresult (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  int devices = 0;
  // Another answer than success: not initialised yet, no GPU, or the stub of a toolkit in the driver's place.
  return count && count(&devices) == CUDA_SUCCESS;
}

// The driver loads a library that this variable names when it is initialised: before that nothing has to be
// watched, and a process that never uses CUDA is left as it is.
void wait_for_cuda() {
  const char* other = getenv(kInjection);
  if (other && options.injection != other) {
    std::lock_guard guard(lock);
    return give_up("held", std::string(kInjection) + " names another tool (" + other + "), and only one can use CUPTI");
  }
  void* library = dlopen(options.injection.c_str(), RTLD_NOW);
  auto* hook = library ? reinterpret_cast<Initialised*>(dlsym(library, "tracer_cuda_initialised")) : nullptr;
  if (!hook) {
    std::lock_guard guard(lock);
    return give_up("failed", "cannot load " + options.injection + "; reinstall tracer");
  }
  std::atomic_ref<Initialised>(*hook).store(attach);
  setenv(kInjection, options.injection.c_str(), 1);
  injecting = true;
}

void stop_waiting() {
  if (!injecting) return;
  if (void* library = dlopen(options.injection.c_str(), RTLD_NOW | RTLD_NOLOAD))
    if (auto* hook = reinterpret_cast<Initialised*>(dlsym(library, "tracer_cuda_initialised")))
      std::atomic_ref<Initialised>(*hook).store(nullptr);
  unsetenv(kInjection);
  injecting = false;
}

uint64_t records() { return activity_counts.kernels + activity_counts.memcpys + activity_counts.memsets; }

// Takes the records of what the GPU still runs, without waiting for it as a synchronisation would: a kernel that
// never ends does not keep the process from ending.
void drain() {
  uint64_t last = records(), changed = trace::nanoseconds(CLOCK_MONOTONIC);
  for (;;) {
    flush_activities(false);
    uint64_t now = trace::nanoseconds(CLOCK_MONOTONIC);
    if (records() != last) last = records(), changed = now;
    bool all_kernels = activity_counts.kernels - activity_counts.graph_kernels >= trace::count_calls().launches;
    if (now - changed > (all_kernels ? kQuietNs : kPatienceNs)) break;
    usleep(1000);
  }
  flush_activities(true);
}

// A child has none of its parent's CUDA: it may begin its own if the parent had not.
void after_fork_in_child() {
  if (attached) {
    attached = false;
    state = "not used";
    why.clear();
    forget_subscription();
  }
  forget_activities();
  stacks_not_taken.store(0);
}

// Takes over what is wanted; whether CUDA can be recorded as far as is known now.
bool take_over(const Options& wanted) {
  std::lock_guard guard(lock);
  options = wanted;
  state = options.wanted ? "not used" : "off";
  why = options.wanted ? "" : "--cuda off";
  profiler.clear();
  queries_hooked = false;
  begun = true;
  if (!options.wanted) return false;
  if (!options.unusable.empty()) {
    give_up("failed", options.unusable);
    return false;
  }
  if (cupti().missing.empty()) return true;
  state = "failed";
  why = cupti().missing;
  return false;
}

}  // namespace

bool is_built() { return true; }

void begin(const Options& wanted) {
  in_forked_child(after_fork_in_child);
  forget_activities();
  stacks_not_taken.store(0);
  if (!take_over(wanted)) return;
  hook_libraries();
  watch_torch_profiler();
  if (is_cuda_initialised()) {
    attach();
    if (is_attached()) define_devices();
  } else {
    wait_for_cuda();
  }
}

void end() {
  stop_waiting();
  leave_torch_profiler();
  unhook_libraries();
  {
    std::lock_guard guard(lock);
    begun = false;  // a thread that initialises CUDA from now on attaches nothing
    if (!attached) return;
  }
  stop_flushing();
  drain();
  std::lock_guard guard(lock);
  disable_activities();
  unsubscribe();
  attached = false;
}

Statement statement() {
  std::lock_guard guard(lock);
  Statement out;
  out.state = state.empty() ? "not used" : state;
  out.why = why;
  if (out.state == "not used" && !driver_library() && !dlopen("libcuda.so.1", RTLD_LAZY)) {
    out.state = "no driver";
    out.why = "this machine has no NVIDIA driver (libcuda.so.1)";
  }
  out.cupti = version;
  out.driver_calls = options.driver;
  out.queries = queries_hooked ? "torch" : "all";
  if (void* driver = driver_library())
    if (auto version = reinterpret_cast<CUresult (*)(int*)>(dlsym(driver, "cuDriverGetVersion"))) version(&out.driver_version);
  trace::CallCounts calls = trace::count_calls();
  out.api_calls = calls.calls;
  out.launches = calls.launches;
  out.graph_launches = calls.graph_launches;
  out.stacks_not_taken = stacks_not_taken;
  out.kernels = activity_counts.kernels;
  out.memcpys = activity_counts.memcpys;
  out.memsets = activity_counts.memsets;
  out.graph_kernels = activity_counts.graph_kernels;
  out.dropped_activities = activity_counts.dropped;
  out.buffers = activity_counts.buffers;
  out.buffer_bytes = activity_counts.buffers * kActivityBufferBytes;
  out.library_hooks = library_hooks();
  out.profiler = profiler;
  return out;
}

}  // namespace tracer::cuda
