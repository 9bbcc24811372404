// CUPTI's callbacks of csrc/cuda/api_calls.cpp, called as CUPTI calls them, without a GPU. Whoever includes it defines
// tracer::cuda::add_runtime_functions().
#pragma once

#include "../../csrc/cuda/api_calls.cpp"
#include "../../csrc/cuda/query_calls.cpp"

// What the rest of the extension would do, which needs a GPU, Python or torch.
namespace tracer {
namespace native {
Stack walk_stack(const void*, const std::vector<CodeRange>&, const std::vector<CodeRange>&) noexcept {
  Stack stack;
  stack.frames = 1;
  stack.counters[0] = 0x1234;
  return stack;
}
std::vector<CodeRange> code_of(const std::vector<const char*>&) { return {}; }
CodeRange code_of_this_extension() { return {}; }
std::vector<CodeRange> code_of_python() { return {}; }
void note_addresses(const uint64_t*, size_t) {}
// libtorch_cuda has a slot that was used, libc10_cuda one that leads to another tool.
void* slots[2];
void** find_plt_slot(std::string_view library, const char* symbol) {
  if (strcmp(symbol, "cudaGetDevice") != 0) return nullptr;
  return library == "libtorch_cuda.so" ? &slots[0] : library == "libc10_cuda.so" ? &slots[1] : nullptr;
}
bool write_plt_slot(void** slot, void* value) {
  *slot = value;
  return true;
}
}  // namespace native
namespace python {
uint32_t own_source_id(trace::Lane*) { return 0; }
}  // namespace python
namespace cuda {
void add_driver_functions(ApiFunctions&) {}
const std::vector<Enumeration>& enumerations() {
  static std::vector<Enumeration> none;
  return none;
}
const std::vector<Enumeration>& library_enumerations() { return enumerations(); }
const Cupti& cupti() {
  static Cupti none;
  return none;
}
std::string Cupti::text(CUptiResult) const { return {}; }
}  // namespace cuda
}  // namespace tracer

using namespace tracer;
using namespace tracer::cuda;
using trace::Lane;

struct CuptiCall {
  uint32_t id;
  uint32_t result = 0;
  uint64_t word = 0xdeadbeef;  // as CUPTI leaves it
  CUpti_CallbackData data{};

  explicit CuptiCall(uint32_t id, const void* parameters, uint32_t result = 0) : id(id), result(result) {
    static uint32_t correlation = 0;
    data.correlationData = &word;
    data.correlationId = ++correlation;
    data.functionParams = parameters;
    data.functionReturnValue = &this->result;
  }
  void begin() { at(CUPTI_API_ENTER); }
  void end() { at(CUPTI_API_EXIT); }
  void run() { begin(), end(); }

 private:
  void at(CUpti_ApiCallbackSite site) {
    data.callbackSite = site;
    on_callback(nullptr, CUPTI_CB_DOMAIN_RUNTIME_API, id, &data);
  }
};

// What the slots lead to.
uint32_t asked_result = 0;
extern "C" cudaError_t cudaGetDevice(int* device) {
  *device = 3;
  return cudaError_t(asked_result);
}
cudaError_t ask_by_slot(int* device) { return reinterpret_cast<cudaError_t (*)(int*)>(native::slots[0])(device); }

void enter_hop() {
  Lane* lane = trace::current_lane();
  trace::write_event(lane, trace::kEnter, lane->now(), uint64_t(1), uint64_t(1), uint64_t(trace::kNoSequence),
                     lane->depth | 1ull << 13 | 0x7f00ull << 15);
  lane->depth += 1;
}

void leave_hop() {
  Lane* lane = trace::current_lane();
  lane->depth -= 1;
  trace::write_event(lane, trace::kExit, lane->now(), 1 | uint64_t(lane->depth) << 32);
}

void record_into(const char* path, trace::Limit limit = {}) {
  trace::open_recording(trace::TraceFile::create(path, 7, 0, limit, false));
  trace::start_recording();
}
