#include "api_calls.h"

#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "../native/caller.h"
#include "../native/stack.h"
#include "../native/symbols.h"
#include "../python/source_line.h"
#include "../trace/lane.h"
#include "../trace/recording.h"
#include "api_function.h"
#include "cupti.h"
#include "query_calls.h"
#include "skipped_calls.h"

namespace tracer::cuda {

std::atomic<uint64_t> stacks_not_taken{0};
SkippedCalls& skipped_calls = *new SkippedCalls;

namespace {

using trace::Lane;

CUpti_SubscriberHandle subscriber = nullptr;
DriverCalls driver_calls = DriverCalls::kNone;
// Frames between a call and its caller, and where the interpreter begins; set before subscribing.
std::vector<native::CodeRange>& hidden_code = *new std::vector<native::CodeRange>;
std::vector<native::CodeRange>& python_code = *new std::vector<native::CodeRange>;

// Made before the first call comes.
ApiFunctions* runtime_functions = nullptr;
ApiFunctions* driver_functions = nullptr;

void make_functions() {
  if (driver_functions) return;
  auto* runtime = new ApiFunctions;
  add_runtime_functions(*runtime);
  auto* driver = new ApiFunctions;
  add_driver_functions(*driver);
  runtime_functions = runtime;
  driver_functions = driver;
}

__attribute__((noinline, cold)) void describe_function(Lane* lane, bool driver, uint32_t id, ApiFunction& function) {
  std::string name = function.name ? function.name : "";
  if (name.empty()) {
    const char* found = nullptr;
    cupti().cuptiGetCallbackName(driver ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API, id, &found);
    name = found ? found : "function " + std::to_string(id);
  }
  describe(driver ? trace::kDriver : trace::kRuntime, id, name.c_str(), function.layout());
  function.described_epoch.store(lane->epoch, std::memory_order_release);
}

// ---- native stacks --------------------------------------------------------------------------------
// Return addresses of callers that unwinding has found, so that a word on the stack can be taken for one.
constexpr size_t kCallerSlots = 1 << 14;
constexpr size_t kProbes = 4;
std::atomic<uint64_t> known_callers[kCallerSlots + kProbes];

std::atomic<uint64_t>* caller_slots(uint64_t address) { return &known_callers[(address * 0x9E3779B97F4A7C15ull) >> 50]; }

bool is_known_caller(uint64_t address) {
  if (!address) return false;
  auto* slots = caller_slots(address);
  for (size_t i = 0; i < kProbes; ++i)
    if (slots[i].load(std::memory_order_relaxed) == address) return true;
  return false;
}

// A thread's stack ends with what libc keeps there, which is larger than this.
constexpr uint64_t kFarthest = 2048;

uint64_t find_caller(const Distances& distances, const void* frame) {
  for (const auto& known : distances) {
    uint32_t distance = known.load(std::memory_order_relaxed);
    if (!distance) break;
    void* word;
    memcpy(&word, static_cast<const char*>(frame) + distance, sizeof word);
    uint64_t address = native::plain_address(word);
    if (is_known_caller(address)) return address;
  }
  return 0;
}

// Whether find_caller() will find this caller the next time.
bool learn_caller(Distances& distances, const native::Stack& stack) {
  if (!stack.caller || stack.distance > kFarthest) return false;
  bool found = is_known_caller(stack.caller);
  auto* slots = caller_slots(stack.caller);
  for (size_t i = 0; i < kProbes && !found; ++i) {
    uint64_t none = 0;
    found = slots[i].compare_exchange_strong(none, stack.caller) || none == stack.caller;
  }
  if (!found) return false;
  for (auto& known : distances) {
    uint32_t none = 0;
    if (known.compare_exchange_strong(none, uint32_t(stack.distance)) || none == stack.distance) return true;
  }
  return false;
}

// Which calls share a stack: those of one function and device kernel, in one dispatch path, from one caller, at
// one place in the order of calls since the innermost hop began. Each is unwound once.
constexpr uint32_t kMostPlaces = 63;
constexpr uint32_t kMostStacks = 1 << 15;

__attribute__((noinline, cold)) uint32_t take_stack(Lane* lane, Distances& distances, uint64_t key, const void* frame) {
  if (lane->stacks.size() >= kMostStacks || lane->leave_out_definition()) {
    stacks_not_taken.fetch_add(1, std::memory_order_relaxed);
    return 0;
  }
  native::Stack stack = native::walk_stack(frame, hidden_code, python_code);
  if (!learn_caller(distances, stack)) stack.caller = stack.distance = 0;
  if (uint32_t id = lane->stacks.find(key, stack.caller)) return id;
  uint32_t id = lane->stacks.add(key, stack.caller, uint32_t(stack.distance));
  if (!id) return 0;
  trace::DefinitionBuilder definition(trace::kStack);
  definition.put(id).put(stack.frames);
  for (uint32_t i = 0; i < stack.frames; ++i) definition.put(stack.counters[i]);
  lane->define(definition);
  native::note_addresses(stack.counters, stack.frames);
  return id;
}

__attribute__((noinline)) uint32_t look_up_stack(Lane* lane, Distances& distances, uint64_t key, const void* frame) {
  if (uint32_t id = lane->stacks.find(key, find_caller(distances, frame))) return id;
  return take_stack(lane, distances, key, frame);
}

__attribute__((always_inline)) inline uint32_t stack_id(Lane* lane, Distances& distances, uint64_t function_key, uint32_t kernel,
                                                        const void* frame) {
  uint64_t place = lane->calls_of_hop < kMostPlaces ? lane->calls_of_hop : kMostPlaces;
  uint64_t key = trace::mix(trace::mix(lane->path, function_key | uint64_t(kernel) << 20), place);
  uint32_t id = lane->stacks.predict(key, frame);
  return __builtin_expect(id != 0, 1) ? id : look_up_stack(lane, distances, key, frame);
}

// How often a module was unloaded, as far as CUPTI tells: names of kernels that were known before may be gone.
std::atomic<uint32_t> modules_unloaded{0};
bool unloading_is_told = false;

__attribute__((noinline, cold)) uint32_t new_name_id(Lane* lane, const char* name, uint64_t age) {
  size_t length = strlen(name);
  uint32_t id = lane->intern_string(trace::hash_bytes(name, length), [&] { return std::string(name, length); });
  if (!lane->names) lane->names = new (std::nothrow) trace::KnownNames;
  if (lane->names && id != trace::kOther) lane->names->remember(name, age, id);
  return id;
}

// The id of a device kernel's name among the strings of the lane. The driver keeps it in one place while its module is
// loaded.
uint32_t name_id(Lane* lane, const char* name) {
  uint64_t age = uint64_t(lane->epoch) << 32 | modules_unloaded.load(std::memory_order_relaxed);
  uint32_t id = lane->names && unloading_is_told ? lane->names->find(name, age) : 0;
  return id ? id : new_name_id(lane, name, age);
}

// ---- calls ------------------------------------------------------------------------------------------
// CUPTI keeps a word for each call from its begin to its end: the recording that holds its begin, or 0.
uint64_t mark_of(const Lane* lane) { return uint64_t(lane->epoch) << 1 | 1; }

uint64_t call_word(uint32_t id, bool driver, const Lane* lane) {
  uint64_t depth = lane->depth < trace::kMaxDepth ? lane->depth : trace::kMaxDepth;
  uint64_t nested = lane->calls < trace::kMaxCallDepth ? lane->calls : trace::kMaxCallDepth;
  return (id & trace::kCallFunctionMask) | uint64_t(driver) << trace::kCallDriverShift | depth << trace::kCallDepthShift |
         nested << trace::kCallCallsShift;
}

// A kApiEnter or a kApiQuery; `third` is its third word.
__attribute__((always_inline)) inline void write_enter(Lane* lane, trace::HopEvent kind, const CUpti_CallbackData* data,
                                                       const ApiFunction& function, uint64_t call, uint32_t stack, uint64_t third,
                                                       uint64_t when) {
  lane->next[2] = trace::two_numbers(data->correlationId, stack);
  trace::CallEvent event(lane, kind, 3, third);
  event.arguments = function.read_call(data->functionParams, event.arguments);
  event.write(when, call);
}

void write_exit(Lane* lane, const CUpti_CallbackData* data, const ApiFunction& function, uint64_t call, uint32_t result, bool captured,
                uint64_t when) {
  trace::CallEvent event(lane, trace::kApiExit, 2, result | uint64_t(captured) << trace::kCallCapturedShift);
  if (result == 0) function.read_return(data->functionParams, event.arguments);
  event.write(when, call);
}

uint32_t result_of(const CUpti_CallbackData* data) {
  return data->functionReturnValue ? *static_cast<const uint32_t*>(data->functionReturnValue) : 0;
}

// A query is written when it has returned, as one event; the lane remembers when it began. Bit of CUPTI's word of it.
constexpr uint64_t kQueryMark = 1ull << 63;

// A query that fails, or that takes longer than a kApiQuery can say.
__attribute__((noinline, cold)) void write_as_call(Lane* lane, const CUpti_CallbackData* data, const ApiFunction& function, uint64_t call,
                                                   uint32_t stack, uint64_t began, uint64_t when) {
  write_enter(lane, trace::kApiEnter, data, function, call, stack, 0, began);
  if (trace::current_lane_for_call() != lane) return;
  write_exit(lane, data, function, call, result_of(data), false, when);
  lane->api_calls += 1;
}

__attribute__((noinline)) void end_query(const CUpti_CallbackData* data, uint32_t id, const void* frame) {
  Lane* lane = trace::thread_lane;
  if (*data->correlationData != (mark_of(lane) | kQueryMark)) return;
  *data->correlationData = 0;
  uint64_t when = lane->now(), began = lane->query_began, lasted = when > began ? when - began : 0;
  lane->calls -= 1;
  lane->runtime_calls -= 1;
  if (trace::current_lane_for_call() != lane) return;  // the recording has been stopped meanwhile
  ApiFunction& function = *runtime_functions->find(id);
  if (__builtin_expect(function.described_epoch.load(std::memory_order_acquire) != lane->epoch, 0))
    describe_function(lane, false, id, function);
  uint32_t stack = stack_id(lane, function.at_return, id, 0, frame);
  uint64_t call = call_word(id, false, lane);
  lane->calls_of_hop += 1;
  if (__builtin_expect(result_of(data) != 0 || lasted > trace::kQueryTicksMask, 0))
    return write_as_call(lane, data, function, call, stack, began, when);
  uint64_t read = 0;
  if (function.reads_at_return && data->functionParams)
    read = function.reads[0].word(data->functionParams) << trace::kQueryReadShift | trace::kQueryReadsBit;
  write_enter(lane, trace::kApiQuery, data, function, call, stack, lasted | read, began);
  lane->api_calls += 1;
}

template <bool driver>
__attribute__((noinline)) void begin_recorded_call(Lane* lane, ApiFunction& function, const CUpti_CallbackData* data, uint32_t id,
                                                   const void* frame) {
  if (__builtin_expect(function.described_epoch.load(std::memory_order_acquire) != lane->epoch, 0))
    describe_function(lane, driver, id, function);
  uint32_t kernel = 0;
  if (const char* name = data->symbolName) kernel = name_id(lane, name);
  uint32_t stack = stack_id(lane, function.at_call, uint64_t(id) | uint64_t(driver) << trace::kCallDriverShift, kernel, frame);
  uint64_t source = lane->source ? python::own_source_id(lane) : 0;
  write_enter(lane, trace::kApiEnter, data, function, call_word(id, driver, lane), stack, trace::two_numbers(kernel, source), lane->now());
  lane->calls += 1;
  lane->calls_of_hop += 1;
  lane->runtime_calls += !driver;
  lane->correlation = data->correlationId;
  lane->captured = false;
  *data->correlationData = mark_of(lane);
}

template <bool driver>
__attribute__((noinline)) void begin_call(const CUpti_CallbackData* data, uint32_t id, const void* frame) {
  *data->correlationData = 0;
  Lane* lane = trace::current_lane_for_call();
  if (__builtin_expect(!lane, 0)) {
    if (data->correlationId != trace::kNoCorrelation) skipped_calls.add(data->correlationId, trace::pauses());
    return;
  }
  if (driver && lane->runtime_calls && driver_calls != DriverCalls::kAll) return;
  ApiFunction* function = (driver ? driver_functions : runtime_functions)->find(id);
  if (!function) return;
  // Outside hops a call has a source line, and with all driver calls it may enclose some: no query can say so.
  if (driver || !function->query || !lane->depth || driver_calls == DriverCalls::kAll)
    return begin_recorded_call<driver>(lane, *function, data, id, frame);
  lane->calls += 1;
  lane->runtime_calls += 1;
  *data->correlationData = mark_of(lane) | kQueryMark;
  lane->query_began = lane->now();
}

template <bool driver>
__attribute__((noinline)) void end_call(const CUpti_CallbackData* data, uint32_t id) {
  Lane* lane = trace::thread_lane;
  if (*data->correlationData != mark_of(lane)) return;
  *data->correlationData = 0;
  lane->calls -= 1;
  lane->runtime_calls -= !driver;
  uint64_t when = lane->now();
  if (trace::current_lane_for_call() != lane) return;  // the recording has been stopped meanwhile
  ApiFunction* function = (driver ? driver_functions : runtime_functions)->find(id);
  uint32_t result = result_of(data);
  bool captured = lane->captured && !function->builds;
  write_exit(lane, data, *function, call_word(id, driver, lane), result, captured, when);
  lane->api_calls += 1;
  if (result != 0 || captured || (driver && lane->runtime_calls)) return;  // enclosed: its caller counts
  lane->launches += function->launches;
  lane->graph_launches += function->replays;
}

// A node of a CUDA graph was made: captured from a call, or copied when the graph was instantiated.
void graph_node_made(CUpti_CallbackId id, const CUpti_ResourceData* data) {
  auto* graph = static_cast<const CUpti_GraphData*>(data->resourceDescriptor);
  Lane* lane = trace::current_lane();
  if (!graph || !lane) return;
  uint64_t node = 0, original = 0;
  if (cupti().cuptiGetGraphNodeId(graph->node, &node) != CUPTI_SUCCESS) return;
  if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED) cupti().cuptiGetGraphNodeId(graph->originalNode, &original);
  uint32_t correlation = lane->calls ? lane->correlation : 0;
  lane->captured = true;
  trace::define_for_process(trace::DefinitionBuilder(trace::kGraphNode).put(node).put(original).put(correlation));
}

__attribute__((noinline, cold)) void see_resource(CUpti_CallbackId id, const CUpti_ResourceData* data) {
  if (id == CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING || id == CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING)
    modules_unloaded.fetch_add(1, std::memory_order_relaxed);
  else
    graph_node_made(id, data);
}

__attribute__((always_inline)) inline void see_call_of_runtime(const CUpti_CallbackData* call, uint32_t id, const void* frame) {
  call->callbackSite == CUPTI_API_ENTER ? begin_call<false>(call, id, frame)
  : *call->correlationData & kQueryMark ? end_query(call, id, frame)
                                        : end_call<false>(call, id);
}

void CUPTIAPI on_callback(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  if (__builtin_expect(domain == CUPTI_CB_DOMAIN_RESOURCE, 0)) return see_resource(id, static_cast<const CUpti_ResourceData*>(data));
  auto* call = static_cast<const CUpti_CallbackData*>(data);
  if (__builtin_expect(domain == CUPTI_CB_DOMAIN_RUNTIME_API, 1)) return see_call_of_runtime(call, id, __builtin_dwarf_cfa());
  call->callbackSite == CUPTI_API_ENTER ? begin_call<true>(call, id, __builtin_dwarf_cfa()) : end_call<true>(call, id);
}

// Driver calls that do something on the GPU or bring code to it; queries and bookkeeping are left out.
bool is_work(std::string_view name) {
  for (const char* start : {"cuLaunch", "cuGraphLaunch", "cuMemcpy", "cuMemset", "cuModuleLoad", "cuLibraryLoad", "cuStreamSynchronize",
                            "cuCtxSynchronize", "cuEventSynchronize", "cuMemAlloc", "cuMemFree", "cuMemCreate", "cuMemMap", "cuMemUnmap",
                            "cuMemRelease", "cuMemPrefetch", "cuFuncSet", "cuKernelSet"})
    if (name.starts_with(start)) return true;
  return false;
}

// Callbacks of the runtime's functions, but of `hooked` ones.
CUptiResult enable_runtime(const std::vector<uint32_t>& hooked) {
  const Cupti& api = cupti();
  if (hooked.empty()) return api.cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API);
  // Never the whole domain first: a call stays open if CUPTI tells its begin alone.
  CUptiResult result = CUPTI_SUCCESS;
  for (uint32_t id = 1; id < ApiFunctions::kMostFunctions; ++id) {
    if (std::find(hooked.begin(), hooked.end(), id) != hooked.end()) continue;
    CUptiResult one = api.cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API, id);
    if (one == CUPTI_ERROR_INVALID_PARAMETER) continue;  // no function of this version has the number
    if (one != CUPTI_SUCCESS) result = one;
  }
  return result;
}

CUptiResult enable(const std::vector<uint32_t>& hooked) {
  const Cupti& api = cupti();
  CUptiResult result = enable_runtime(hooked);
  if (result != CUPTI_SUCCESS) return result;
  if (driver_calls == DriverCalls::kAll) result = api.cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API);
  if (driver_calls == DriverCalls::kLaunches) {
    for (uint32_t id = 0; id < ApiFunctions::kMostFunctions; ++id)
      if (const char* name = driver_functions->find(id)->name; name && is_work(name))
        api.cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, id);
  }
  auto enable_resource = [&](uint32_t id) { return api.cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, id) == CUPTI_SUCCESS; };
  enable_resource(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED);
  enable_resource(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED);
  unloading_is_told =
      enable_resource(CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING) && enable_resource(CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING);
  return result;
}

}  // namespace

void see_hooked_call(const CUpti_CallbackData* call, uint32_t id, const void* frame) noexcept { see_call_of_runtime(call, id, frame); }

std::string subscribe(DriverCalls driver, bool queries_of_torch, std::string& holder) {
  const Cupti& api = cupti();
  make_functions();
  driver_calls = driver;
  hidden_code = native::code_of({"libcupti.so", "libcuda.so", "libcudart.so"});
  hidden_code.push_back(native::code_of_this_extension());
  python_code = native::code_of_python();
  CUptiResult result;
  auto callback = reinterpret_cast<CUpti_CallbackFunc>(on_callback);
#ifdef CUpti_SubscriberParams_STRUCT_SIZE
  if (api.cuptiSubscribe_v2) {
    char name[256] = "";
    CUpti_SubscriberParams parameters{};
    parameters.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
    parameters.subscriberName = "tracer";
    parameters.oldSubscriberName = name;
    parameters.oldSubscriberSize = sizeof name;
    result = api.cuptiSubscribe_v2(&subscriber, callback, nullptr, &parameters);
    holder = name;
  } else
#endif
    result = api.cuptiSubscribe(&subscriber, callback, nullptr);
  if (result != CUPTI_SUCCESS) {
    subscriber = nullptr;
    return api.text(result);
  }
  // A hook needs what was made above, and is there before CUPTI tells of any call.
  result = enable(queries_of_torch ? hook_queries() : std::vector<uint32_t>{});
  if (result != CUPTI_SUCCESS) {
    unsubscribe();
    return api.text(result);
  }
  return {};
}

void unsubscribe() {
  if (subscriber) cupti().cuptiUnsubscribe(subscriber);
  forget_subscription();
}

void forget_subscription() {
  subscriber = nullptr;
  unhook_queries();
}

}  // namespace tracer::cuda
