// What CUPTI's callbacks write of calls, called as CUPTI calls them: a thread in a hop and outside, calls that fail, that
// take long, and that a pause, the end of the recording or a full file meets half way.
//
//   api_calls FILE   records them there; into FILE.full and FILE.failing until these are full, with calls that fail in the
//                    latter; FILE.next stays empty
//
// Prints the calls that were counted as ended in FILE, FILE.full and FILE.failing, or what is wrong.
#include "cupti_caller.h"

#include <cstdio>
#include <cstdlib>

#include "../../csrc/trace/event_words.h"

namespace tracer::cuda {
struct Asks {
  int* device;
};
struct Names {
  int error;
};
struct Many {
  uint64_t words[trace::kMaxCallWords];
};
void add_runtime_functions(ApiFunctions& table) {
  table.add<Asks>(17, "cudaGetDevice", {in("device", "int *", 0, 8), out<int*>("*device", "int", 0)});
  table.add<NoParameters>(10, "cudaGetLastError", {});
  table.add<Names>(12, "cudaGetErrorString", {in("error", "int", 0, 4)});
  table.add<NoParameters>(211, "cudaLaunchKernel", {});
  table.add<Many>(300, "cudaMany", {in("words", "many", 0, 8)});
}
}  // namespace tracer::cuda

#define CHECK(what) \
  if (!(what)) return printf("line %d: %s\n", __LINE__, #what), exit(1)

struct Call : CuptiCall {
  int device = 3;
  Asks parameters{&device};

  explicit Call(uint32_t id, uint32_t result = 0) : CuptiCall(id, &parameters, result) {}
};

// The kinds of events that `run` writes.
template <class Run>
std::vector<trace::HopEvent> written(Run run) {
  Lane* lane = trace::current_lane();
  const uint64_t* at = lane->next;
  run();
  std::vector<trace::HopEvent> kinds;
  for (; at < lane->next; at += trace::words_of_event(at, size_t(lane->next - at))) kinds.push_back(trace::kind_of_event(*at));
  return kinds;
}

using Events = std::vector<trace::HopEvent>;
const Events as_query{trace::kApiQuery}, as_call{trace::kApiEnter, trace::kApiExit};

void what_is_written(const char* path) {
  record_into(path);
  trace::current_lane()->start_ticks -= 4 * trace::kQueryTicksMask;  // so old that a call may have taken long
  CHECK(written([] { Call(17).run(); }) == as_call);  // no hop is open
  enter_hop();
  CHECK(written([] { Call(17).run(); }) == as_query);
  CHECK(written([] { Call(10).run(); }) == as_query);
  CHECK(written([] {
          Names of{719};
          Call call(12);
          call.data.functionParams = &of;
          call.run();
        }) == as_query);
  CHECK(written([] { Call(211).run(); }) == as_call);
  CHECK(written([] { Call(10, 600).run(); }) == as_call);
  CHECK(written([] {
          Call call(17);
          call.begin();
          trace::thread_lane->query_began -= trace::kQueryTicksMask + 1;
          call.end();
        }) == as_call);
  CHECK(written([] {
          Call call(17);
          call.begin();
          trace::thread_lane->query_began += 1ull << 40;  // a clock that goes back
          call.end();
        }) == as_query);
  Lane* lane = trace::thread_lane;
  uint64_t* query = lane->next;
  Call(17).run();
  CHECK((query[3] & trace::kQueryReadsBit) && (query[3] >> trace::kQueryReadShift & 0xffffffff) == 3);
  CHECK(lane->calls == 0 && lane->runtime_calls == 0 && lane->api_calls == 9 && lane->calls_of_hop == 9);

  driver_calls = DriverCalls::kAll;
  CHECK(written([] { Call(17).run(); }) == as_call);
  driver_calls = DriverCalls::kLaunches;

  // Met by a pause at one end, at the other, and between.
  Call ends(17), begins(10), between(17);
  ends.begin();
  trace::pause_recording();
  ends.end();
  begins.begin();
  trace::start_recording();
  CHECK(written([&] { begins.end(); }).empty());
  CHECK(skipped_calls.has(begins.data.correlationId));
  CHECK(written([&] {
          between.begin();
          trace::pause_recording();
          trace::start_recording();
          between.end();
        }) == as_query);
  CHECK(lane->calls == 0 && lane->runtime_calls == 0 && lane->api_calls == 11);
  leave_hop();
}

// A hooked call is written as CUPTI's is, whatever the thread does meanwhile, and never among the skipped ones.
void queries_by_slots(const char* path) {
  record_into(path);
  void* other = dlsym(RTLD_DEFAULT, "abs");  // of another library, as another tool's would be
  auto* asked = reinterpret_cast<void*>(cudaGetDevice);
  native::slots[0] = asked, native::slots[1] = other;
  CHECK(hook_queries() == std::vector<uint32_t>{17});
  CHECK(native::slots[0] != asked && native::slots[1] == other && queries_are_hooked());
  CHECK(hook_queries() == std::vector<uint32_t>{17});
  int device = 0;
  auto ask = [&] { CHECK(uint32_t(ask_by_slot(&device)) == asked_result && device == 3); };
  CHECK(written(ask) == as_call);  // no hop is open
  enter_hop();
  Lane* lane = trace::thread_lane;
  uint64_t *hooked = lane->next, *told = hooked + 5;
  CHECK(written(ask) == as_query);
  CHECK(lane->next == told);
  Call of_cupti(17);
  Asks same{&device};
  of_cupti.data.functionParams = &same;
  of_cupti.run();
  CHECK(hooked[1] == told[1] && uint32_t(hooked[2]) == trace::kNoCorrelation);
  CHECK(hooked[3] >> trace::kQueryReadShift == told[3] >> trace::kQueryReadShift);
  CHECK(hooked[4] == uint64_t(&device));
  asked_result = 100;
  CHECK(written(ask) == as_call);
  asked_result = 0;
  trace::pause_recording();
  ask();
  trace::start_recording();
  CHECK(!skipped_calls.has(trace::kNoCorrelation));
  CHECK(lane->calls == 0 && lane->runtime_calls == 0 && lane->api_calls == 4);
  leave_hop();
  unsubscribe();
  CHECK(native::slots[0] == asked && native::slots[1] == other && !queries_are_hooked());
  native::slots[0] = &native::slots[1];  // leads into the library that it lies in: not used yet
  CHECK(hook_queries() == std::vector<uint32_t>{17});
  ask();
  unhook_queries();
  CHECK(native::slots[0] == asked);
  trace::close_recording(false);
}

// What a launch says of the name of its kernel.
uint32_t kernel_of_launch(const char* name) {
  const uint64_t* at = trace::current_lane()->next;
  Call call(211);
  call.data.symbolName = name;
  call.run();
  return uint32_t(at[3]);
}

void unload_a_module() {
  CUpti_ResourceData data{};
  on_callback(nullptr, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING, &data);
}

void names_of_kernels() {
  char name[] = "void a_kernel_with_a_name_of_which_only_the_end_differs<float, 1>(float*)";
  uint32_t first = kernel_of_launch(name);
  CHECK(first && kernel_of_launch(name) == first);
  unload_a_module();
  CHECK(kernel_of_launch(name) == first);
  unload_a_module();
  *strchr(name, '1') = '2';  // another module was loaded where that one was
  uint32_t second = kernel_of_launch(name);
  CHECK(second && second != first && kernel_of_launch(name) == second);
  unloading_is_told = false;  // by a CUPTI that does not say so: each name is looked at
  *strchr(name, '2') = '1';
  CHECK(kernel_of_launch(name) == first);
  unloading_is_told = true;
}

// A call that another recording's begin meets, as another thread may start one, is in neither.
void a_call_of_the_recording_before(const char* path) {
  enter_hop();
  Call call(17);
  call.begin();
  printf("%lu ", (unsigned long)trace::count_calls().calls);
  trace::close_recording(false);
  record_into(path);
  call.end();
  Lane* lane = trace::current_lane();
  CHECK(lane->calls == 0 && lane->runtime_calls == 0 && lane->api_calls == 0);
  trace::close_recording(false);
}

void until_it_is_full(const char* path, uint32_t result) {
  record_into(path, {4 << 20});
  enter_hop();
  while (trace::recording_epoch.load()) Call(17, result).run();
  printf("%lu ", (unsigned long)trace::count_calls().calls);
  trace::close_recording(false);
}

// A call of as many words as one can have is never written over what the lane has room for.
void room_for_the_largest(const char* path) {
  record_into(path, {4 << 20});
  enter_hop();
  Many many{};
  while (trace::recording_epoch.load()) {
    Call call(300);
    call.data.functionParams = &many;
    call.run();
    Lane* lane = trace::thread_lane;
    CHECK(lane->next <= lane->limit);
    Call(17).run();  // so that each remainder of room is met
  }
  trace::close_recording(false);
}

int main(int, char** arguments) {
  std::string path = arguments[1];
  make_functions();
  driver_calls = DriverCalls::kLaunches;
  unloading_is_told = true;
  what_is_written(path.c_str());
  names_of_kernels();
  a_call_of_the_recording_before((path + ".next").c_str());
  queries_by_slots((path + ".slots").c_str());
  room_for_the_largest((path + ".many").c_str());
  until_it_is_full((path + ".full").c_str(), 0);
  until_it_is_full((path + ".failing").c_str(), 600);
}
