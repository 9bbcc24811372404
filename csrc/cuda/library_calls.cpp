#include "library_calls.h"

#include <dlfcn.h>

#include <vector>

#include "../native/elf.h"
#include "../python/source_line.h"
#include "api_function.h"
#include "library_hook.h"

namespace tracer::cuda {
namespace {

using trace::Lane;

std::vector<LibraryFunction*>& functions() {
  static auto& all = *new std::vector<LibraryFunction*>;
  return all;
}

}  // namespace

OpenCall begin_library_call(LibraryFunction& function, const uint64_t* arguments, size_t count) noexcept {
  Lane* lane = trace::current_lane_for_call();
  if (!lane) return {};
  if (function.described_epoch.load(std::memory_order_acquire) != lane->epoch) {
    describe(trace::kLibrary, function.number, function.name, function.layout);
    function.described_epoch.store(lane->epoch, std::memory_order_release);
  }
  uint64_t source = lane->source ? python::own_source_id(lane) : 0;
  uint64_t depth = lane->depth < trace::kMaxDepth ? lane->depth : trace::kMaxDepth;
  uint64_t nested = lane->calls < trace::kMaxCallDepth ? lane->calls : trace::kMaxCallDepth;
  lane->next[2] = 0;
  trace::CallEvent event(lane, trace::kLibraryEnter, 3, trace::two_numbers(0, source));
  for (size_t i = 0; i < count; ++i) event.arguments.put(arguments[i]);
  event.write(lane->now(), function.number | depth << trace::kCallDepthShift | nested << trace::kCallCallsShift);
  lane->calls += 1;
  return {lane, lane->epoch, function.number};
}

void end_library_call(const OpenCall& open, int result) noexcept {
  Lane* lane = open.lane;
  if (!lane || lane->epoch != open.mark) return;
  lane->calls -= 1;
  uint64_t when = lane->now();
  if (trace::current_lane_for_call() != lane) return;
  uint64_t depth = lane->depth < trace::kMaxDepth ? lane->depth : trace::kMaxDepth;
  uint64_t nested = lane->calls < trace::kMaxCallDepth ? lane->calls : trace::kMaxCallDepth;
  trace::CallEvent(lane, trace::kLibraryExit, 2, uint32_t(result))
      .write(when, open.number | depth << trace::kCallDepthShift | nested << trace::kCallCallsShift);
}

void add_library_function(LibraryFunction& function, void* hook) {
  function.number = uint32_t(functions().size() + 1);
  functions().push_back(&function);
  void** slot = native::find_plt_slot("libtorch_cuda.so", function.name);
  if (!slot) return;
  void* original = *slot;
  Dl_info found;
  native::Library torch = native::find_library("libtorch_cuda.so");
  auto address = reinterpret_cast<uint64_t>(original);
  // A slot that was never used leads to the resolver, which would overwrite it: find the function ourselves.
  if (address >= torch.begin && address < torch.end) original = dlsym(RTLD_DEFAULT, function.name);
  if (!original || !dladdr(original, &found)) return;
  function.original = original;
  function.hook = hook;
  if (native::write_plt_slot(slot, hook)) function.slot = slot;
}

void* companion_of(const LibraryFunction& function, const char* name) {
  Dl_info found;
  if (!function.original || !dladdr(function.original, &found)) return nullptr;
  void* library = dlopen(found.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  return library ? dlsym(library, name) : nullptr;
}

void hook_libraries() {
  if (functions().empty()) {
    add_cublas();
    add_cudnn();
    add_nccl();
    return;
  }
  for (LibraryFunction* function : functions()) {
    if (function->slot) native::write_plt_slot(function->slot, function->hook);
  }
}

void unhook_libraries() {
  for (LibraryFunction* function : functions())
    if (function->slot && *function->slot == function->hook) native::write_plt_slot(function->slot, function->original);
}

std::map<std::string, bool> library_hooks() {
  std::map<std::string, bool> found;
  for (const LibraryFunction* function : functions()) found[function->name] = function->slot != nullptr;
  return found;
}

}  // namespace tracer::cuda
