// What the extension does differently on each processor, run on it without torch: return addresses, calls and
// redispatches, the caller of a native stack, slots of the procedure linkage table, the clock.
// Prints a line for what is wrong, and then exits with 1.
#include <cstdio>
#include <cstring>
#include <vector>

#include "dispatch/call_sites.h"
#include "native/elf.h"
#include "native/stack.h"
#include "operators.h"
#include "trace/clock.h"
#include "trace/stack_table.h"

using namespace tracer;

namespace {

bool failed = false;

// Code that did not ask the profiler: of aarch64 no code is read.
#ifdef __x86_64__
constexpr trace::CallSite kOfOtherCode = trace::kUnasked;
#else
constexpr trace::CallSite kOfOtherCode = trace::kByParent;
#endif

void expect(bool holds, const char* what) {
  if (holds) return;
  printf("wrong: %s\n", what);
  failed = true;
}

trace::CallSite site;
bool same_address;

// In the place of a typed hop: something of a size lies in its frame.
template <size_t words>
__attribute__((noinline)) long hop(long a, long b, long c) {
  volatile long list[words] = {a, b, c};
  void* const* frame = TRACER_FRAME();
  static dispatch::FirstCaller first;
  site = dispatch::call_site(first, frame);
  auto* expected = __builtin_extract_return_addr(__builtin_return_address(0));
  same_address = native::return_address(frame) == reinterpret_cast<uint64_t>(expected);
  return list[0] + list[1] + list[2];
}

template <class Run>
void expect_site(trace::CallSite wanted, const char* what, Run run) {
  for (Kernel kernel : {&hop<3>, &hop<64>}) {
    for (int time = 0; time < 2; ++time) {  // unwound, then remembered
      site = trace::CallSite(3);
      same_address = false;
      run(kernel);
      expect(site == wanted, what);
      expect(same_address, "the return address");
    }
  }
}

void* word_at_distance;
native::Stack stack;
bool known_again;

// In the place of what CUPTI calls, and of CUPTI.
__attribute__((noinline)) long callback(long a) {
  const void* from = __builtin_dwarf_cfa();
  stack = native::walk_stack(from, {native::code_of_this_extension()}, {});
  word_at_distance = nullptr;
  if (stack.distance) memcpy(&word_at_distance, static_cast<const char*>(from) + stack.distance, sizeof word_at_distance);
  trace::StackTable table;
  uint32_t id = table.add(1, stack.caller, uint32_t(stack.distance));
  known_again = table.find(1, stack.caller) == id && table.predict(1, from) == id;
  return a + long(stack.frames);
}
__attribute__((noinline)) long library(long a, long b, long) { return callback(a) + b; }

void check_call_sites() {
  expect(dispatch::prepare_call_sites(), "the symbols of libtorch_cpu.so are read");
  using namespace at::_ops;
  expect_site(trace::kCall, "mm::call", [](Kernel kernel) { return mm::call(kernel, 1); });
  expect_site(trace::kRedispatch, "mm::redispatch", [](Kernel kernel) { return mm::redispatch(kernel, 1); });
  expect_site(kOfOtherCode, "run", [](Kernel kernel) { return run(kernel, 1); });
}

// Each kernel has a caller of its own, as torch's have: how far it is to the caller's frame is kept by address.
void check_helpers() {
  using namespace at::_ops;
  for (int time = 0; time < 2; ++time) {
    view::call(&hop<3>, 1);
    expect(site == trace::kCall, "view::call");
    view::redispatch(&hop<3>, 1);
    expect(site == trace::kRedispatch, "view::redispatch");
    expand::call(&hop<64>, 1);
    expect(site == trace::kCall, "expand::call");
    expand::redispatch(&hop<64>, 1);
    expect(site == trace::kRedispatch, "expand::redispatch");
  }
}

void check_stacks() {
  run(&library, 1);
  native::Library torch = native::find_library("libtorch_cpu.so");
  expect(stack.frames > 0 && stack.counters[0] >= torch.begin && stack.counters[0] < torch.end, "the innermost frame");
  expect(stack.caller >= torch.begin && stack.caller < torch.end, "the caller");
  expect(known_again, "the caller is known again from the stack");
  expect(stack.distance && native::plain_address(word_at_distance) == stack.caller, "the distance to the caller's address");
}

long (*registered)(long);
long registered_here(long a) { return registered(a) + 100; }

void check_slots() {
  expect(register_one(1) == 12, "register_one");
  void** slot = native::find_plt_slot("libtorch_cpu.so", "registered");
  expect(slot != nullptr, "the slot of registered()");
  if (!slot) return;
  registered = reinterpret_cast<long (*)(long)>(*slot);
  expect(native::write_plt_slot(slot, reinterpret_cast<void*>(&registered_here)), "the slot is written");
  expect(register_one(1) == 112, "the slot leads here");
  expect(native::write_plt_slot(slot, reinterpret_cast<void*>(registered)), "the slot is written back");
  expect(register_one(1) == 12, "the slot leads back");
}

void check_clock() {
  trace::ClockPair first = trace::read_clocks();
  timespec pause{0, 50'000'000};
  nanosleep(&pause, nullptr);
  trace::ClockPair second = trace::read_clocks();
  double rate = double(second.ticks - first.ticks) / double(second.ns - first.ns);  // ticks a nanosecond
  expect(second.ticks > first.ticks && rate > 1e-3 && rate < 10, "the clock");
}

}  // namespace

int main() {
  check_call_sites();
  check_helpers();
  check_stacks();
  check_slots();
  check_clock();
  if (!failed) puts("return addresses, call sites, stacks, PLT slots, clock: right");
  return failed;
}
