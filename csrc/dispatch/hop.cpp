#include "hop.h"

#include <ATen/EmptyTensor.h>
#include <ATen/SequenceNumber.h>

#include <algorithm>
#include <array>

#include "../python/module_calls.h"
#include "../python/running_frame.h"
#include "../python/source_line.h"
#include "../torch_abi/dispatch_table.h"
#include "../trace/recording.h"
#include "autograd_node.h"
#include "call_sites.h"
#include "class_hops.h"
#include "custom_ops.h"
#include "open_ranges.h"
#include "operator_record.h"
#include "own_cost.h"
#include "registrations.h"
#include "thread_keys.h"

namespace tracer::dispatch {
namespace {

using trace::Lane;

constexpr size_t kEnterWords = 5, kExitWords = 2;

// A hop at one of these has the sequence number that the next autograd node of its thread will get.
const uint64_t autograd_bits =
    c10::DispatchKeySet({c10::DispatchKey::AutogradFunctionality, c10::DispatchKey::AutogradOther, c10::DispatchKey::AutogradNestedTensor})
        .raw_repr() &
    ~((1ull << c10::num_backends) - 1);

bool at_autograd_key(uint64_t keys) { return keys && (autograd_bits & (1ull << (63 - __builtin_clzll(keys)))); }

// The definition of a hop, once for each recording of each process.
void describe(Lane* lane, Hop* hop, c10::DispatchKeySet keys) {
  uint32_t index = hop->table_index;
  if (index >= torch_abi::kTableEntries) index = uint32_t(keys.getDispatchTableIndexForDispatchKeySet());
  torch_abi::Registration registration = registration_of(*hop->op, index);
  if (hop->flags & trace::kPythonHop && !is_python_fallback(*hop)) name_after_user(hop);
  const std::string* python_name = python_name_of(hop);
  lane->define(trace::DefinitionBuilder(trace::kHop)
                   .put(hop->id)
                   .put(hop->flags)
                   .put(index)
                   .put(uint64_t(hop->kernel()))
                   .put(uint64_t(hop->boxed()))
                   .put_string(hop->op->name)
                   .put_string(key_name(index))
                   .put_string(registration.where)
                   .put_string(registration.rule)
                   .put_string(python_name ? *python_name : std::string()));
  hop->described_epoch.store(lane->epoch, std::memory_order_release);
}

// The hop to write for one that is not described yet. That of the fallback for key Python never is: each class whose
// __torch_dispatch__ it calls has a hop of its own. Nor is a custom operator's, which has one for each of its functions.
template <class Arguments>
__attribute__((noinline, cold)) Hop* described(Lane* lane, Hop* hop, c10::DispatchKeySet keys, const Arguments& arguments) {
  if (is_python_fallback(*hop))
    hop = hop_of_class(hop, dispatching_class(arguments));
  else if (hop->flags & trace::kPythonHop)
    hop = hop_of_function(hop);
  if (hop->described_epoch.load(std::memory_order_acquire) != lane->epoch) describe(lane, hop, keys);
  return hop;
}

struct Begin {
  uint64_t when, source;
};

// What the lane has to say before an outermost hop, at the hop's own time: the clock is read once for all.
__attribute__((noinline)) Begin write_what_runs(Lane* lane) {
  if (__builtin_expect(open_ranges.outermost != nullptr, 0)) say_open_ranges(lane);
  NodeWords node;
  bool other_node = autograd_node_changed(lane, node);
  uint32_t module = python::module_id(lane->epoch, lane->node);
  uint64_t source = lane->source ? python::outermost_source_id(lane) : 0;
  // These may have written definitions only; the room for events is still there.
  uint64_t when = lane->now();
  if (other_node) trace::write_event(lane, trace::kNode, when, node.sequence, node.name_and_thread);
  if (module != lane->module) {
    lane->module = module;
    trace::write_event(lane, trace::kModule, when, uint64_t(module));
  }
  return {when, source};
}

// Of a hop that Python code calls which runs inside another hop.
__attribute__((noinline)) Begin note_own_line(Lane* lane) {
  lane->frame = python::running_frame(lane);
  uint64_t source = python::source_id(lane);
  return {lane->now(), source};
}

inline Begin begin(Lane* lane) {
  if (lane->depth == 0) return write_what_runs(lane);
  return __builtin_expect(python::has_own_line(lane), 0) ? note_own_line(lane) : Begin{lane->now(), 0};
}

// Gives back the autograd sequence number that it wrote.
__attribute__((always_inline)) inline uint32_t write_enter(Lane* lane, Hop* hop, c10::DispatchKeySet keys, uint64_t return_address,
                                                           trace::CallSite site, uint32_t inputs) {
  uint64_t raw = keys.raw_repr();
  uint64_t sequence = at_autograd_key(raw) ? at::sequence_number::peek() & trace::kLow32 : trace::kNoSequence;
  uint64_t depth = lane->depth < trace::kMaxDepth ? lane->depth : trace::kMaxDepth;
  auto [when, source] = begin(lane);
  if (__builtin_expect(lane->why, 0)) write_thread_keys(lane, when);
  trace::write_event(
      lane, trace::kEnter, when, raw & ~trace::kEventBit, trace::two_numbers(hop->id, source),
      trace::two_numbers(uint32_t(sequence), inputs),
      depth | uint64_t(site) << trace::kCallSiteShift | (return_address & trace::kReturnAddressMask) << trace::kReturnAddressShift);
  lane->depth += 1;
  lane->path = trace::mix(lane->path, hop->id);
  lane->calls_of_hop = 0;
  return uint32_t(sequence);
}

// How many autograd nodes the thread has made since the number was `sequence`: they have the numbers from there on.
uint64_t nodes_made(uint32_t sequence) {
  if (sequence == trace::kNoSequence) return 0;
  return std::min(uint32_t(at::sequence_number::peek()) - sequence, trace::kMostNodes);
}

// `write` writes a kEnter, and is timed.
template <class Write>
__attribute__((noinline, cold)) void time_enter(Lane* lane, const Write& write) {
  Timed kind = lane->depth ? kInnerEnter : kOutermostEnter;
  uint64_t began = lane->now();
  write();
  add_timed(kind, began, *(lane->next - kEnterWords) & trace::kTicksMask, lane->now());
}

template <class Write>
__attribute__((noinline, cold)) void time_exit(Lane* lane, const Write& write) {
  uint64_t began = lane->now();
  write();
  add_timed(kTimedExit, began, *(lane->next - kExitWords) & trace::kTicksMask, lane->now());
}

const void* vtable_of_a_hop() {
  static c10::KernelFunction none;
  auto* hop = new Hop(none, nullptr, 0, 0);
  c10::raw::intrusive_ptr::incref(hop);
  return torch_abi::vtable_of(hop);
}

}  // namespace

const void* const hop_vtable = vtable_of_a_hop();

template <class Arguments>
__attribute__((always_inline)) inline void HopScope::enter(Lane* lane, Hop* hop, c10::DispatchKeySet keys, void* const* frame,
                                                           uint32_t inputs, const Arguments& arguments) {
  trace::CallSite site = call_site(hop->first_caller, frame);
  if (__builtin_expect(hop->described_epoch.load(std::memory_order_acquire) != lane->epoch, 0)) hop = described(lane, hop, keys, arguments);
  lane_ = lane;
  epoch_ = lane->epoch;
  hop_ = hop->id;
  path_ = lane->path;
  frame_ = lane->frame;
  sequence_ = write_enter(lane, hop, keys, native::return_address(frame), site, inputs);
}

// No memory for what the hop says first; the event itself needs none.
void HopScope::lose() noexcept {
  lane_ = nullptr;
  trace::lose_hop();
}

void HopScope::enter(Hop* hop, c10::DispatchKeySet keys, void* const* frame, TensorArguments arguments) noexcept try {
  if (!is_first_caller(hop->first_caller, frame)) ask_for_call_site(frame);
  Lane* lane = trace::current_lane();
  if (!lane) return;
  auto write = [&] { enter(lane, hop, keys, frame, arguments.size && lane->shapes ? signature_of(lane, arguments) : 0, arguments); };
  if (__builtin_expect(is_timed(lane), 0)) return time_enter(lane, write);
  write();
} catch (...) {
  lose();
}

void HopScope::enter(Hop* hop, c10::DispatchKeySet keys, void* const* frame, c10::impl::OperatorEntry& entry,
                     const torch::jit::Stack& stack) noexcept try {
  Lane* lane = trace::current_lane();
  if (!lane) return;
  BoxedArguments arguments = entry.hasSchema() ? last_arguments(stack, entry.schema().arguments().size()) : BoxedArguments{};
  auto write = [&] { enter(lane, hop, keys, frame, lane->shapes ? signature_of(lane, arguments) : 0, arguments); };
  if (__builtin_expect(is_timed(lane), 0)) return time_enter(lane, write);
  write();
} catch (...) {
  lose();
}

// Whether a kExit is to be written; there is room for it.
__attribute__((always_inline)) inline bool HopScope::end(Lane* lane) noexcept {
  if (lane->epoch != epoch_) return false;
  lane->path = path_;
  lane->frame = frame_;
  if (trace::recording_epoch.load(std::memory_order_relaxed) != epoch_) {
    lane->depth -= 1;  // left during a pause: later hops of this recording are not inside
    return false;
  }
  if (__builtin_expect(lane->limit - lane->next < 2, 0) && !trace::lane_advance(lane)) return false;
  lane->depth -= 1;
  return true;
}

// The second word of its kExit.
__attribute__((always_inline)) inline uint64_t HopScope::exit_word(uint64_t depth) const noexcept {
  return uint64_t(hop_) | depth << trace::kExitDepthShift | uint64_t(raised_) << trace::kExitRaisedShift |
         nodes_made(sequence_) << trace::kExitNodesShift;
}

void HopScope::leave() noexcept {
  Lane* lane = lane_;
  if (!end(lane)) return;
  uint64_t depth = lane->depth < trace::kMaxDepth ? lane->depth : trace::kMaxDepth;
  auto write = [&] { trace::write_event(lane, trace::kExit, lane->now(), exit_word(depth)); };
  if (__builtin_expect(is_timed(lane), 0)) return time_exit(lane, write);
  write();
}

bool HopScope::is_recorded() const noexcept {
  return lane_->epoch == epoch_ && trace::recording_epoch.load(std::memory_order_relaxed) == epoch_;
}

void HopScope::write(const Values& values) noexcept {
  if (lane_->hashes && is_recorded()) values.write(lane_);
}

void HopScope::returned(const torch::jit::Stack& stack, size_t count) {
  raised_ = false;
  if (!lane_ || !lane_->results || count > stack.size()) return;
  note_results(last_arguments(stack, count));
}

__attribute__((noinline, cold)) void HopScope::note_results(BoxedArguments results) noexcept {
  if (lane_->hashes) {
    Values values;
    for (const c10::IValue& value : results) {
      if (value.isTensor()) values.add(value.toTensor());
      if (value.isTensorList())
        for (const c10::IValue& element : value.toListRef()) values.add(element.toTensor());
    }
    write(values);
  }
  if (!lane_->scalars || !lane_->shapes) return;
  Lane* lane = std::exchange(lane_, nullptr);
  if (!end(lane)) return;
  bool timed = is_timed(lane);
  uint64_t began = timed ? lane->now() : 0, noted = lane->now();
  trace::write_event(lane, trace::kExit, noted, exit_word(std::min(lane->depth, trace::kMaxDepth)));
  write_results(lane, results);  // behind the exit: the hop's time is without it
  if (timed) add_timed(kTimedExit, began, noted, lane->now());
}

namespace {

__attribute__((always_inline)) inline void run_boxed(Hop* hop, c10::impl::OperatorEntry& entry, const c10::OperatorHandle& op,
                                                     c10::DispatchKeySet keys, void* const* frame, torch::jit::Stack* stack) {
  HopScope scope;
  scope.enter(hop, keys, frame, entry, *stack);
  hop->original.callBoxed(op, keys, stack);
  scope.returned(*stack, entry.hasSchema() ? entry.schema().returns().size() : 0);
}

}  // namespace

void boxed_hop(c10::OperatorKernel* functor, const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  c10::impl::OperatorEntry& entry = torch_abi::entry_of(op);
  native::taken_over(functor);
  Hop* hop = is_hop(functor) ? static_cast<Hop*>(functor) : hop_of_boxed(functor, entry, keys);
  if (!recording()) return hop->original.callBoxed(op, keys, stack);
  run_boxed(hop, entry, op, keys, TRACER_FRAME(), stack);
}

namespace {

// What a wrapper does around the kernel function (typed_hop.h), and the same function without a hop.
__attribute__((noinline)) size_t measured_kernel(const at::Tensor& tensor) {
  asm volatile("" ::"r"(&tensor));
  return 0;
}
__attribute__((noinline)) size_t measured_hop(Hop* hop, const at::Tensor& tensor) {
  TensorArgument list[1];
  size_t filled = 0;
  add_tensor_argument<const at::Tensor&>(list, filled, 0, tensor);
  HopScope scope;
  scope.enter(hop, c10::DispatchKeySet(c10::DispatchKey::CPU), TRACER_FRAME(), TensorArguments{list, 1});
  size_t result = measured_kernel(tensor);
  scope.returned(result);
  return result;
}

const at::Tensor& measured_tensor() {
  static const at::Tensor& made = *new at::Tensor(at::detail::empty_cpu({4, 4}, at::kFloat));  // no op is called
  return made;
}

// Two kernels with the arguments of most op calls: tensors and a number; sizes, strides and options of a new tensor.
__attribute__((noinline)) at::Tensor& kernel_of_tensors(at::Tensor& self, const at::Tensor& other, const at::Scalar& number) {
  asm volatile("" ::"r"(&other), "r"(&number));
  return self;
}
__attribute__((noinline)) at::Tensor kernel_of_sizes(c10::SymIntArrayRef, c10::SymIntArrayRef, std::optional<at::ScalarType>,
                                                     std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return measured_tensor();
}

void measured_boxed_hop(c10::OperatorKernel* functor, const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  run_boxed(static_cast<Hop*>(functor), torch_abi::entry_of(op), op, keys, TRACER_FRAME(), stack);
}

// Names for the lane what a hop of these arguments would.
void name_arguments(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  BoxedArguments arguments = last_arguments(*stack, op.schema().arguments().size());
  signature_of(trace::thread_lane, arguments);
  stack->resize(stack->size() - arguments.size);
  stack->emplace_back(measured_tensor());
  write_results(trace::thread_lane, last_arguments(*stack, 1));
}

// The same ops as bare kernels, and wrapped as arming.cpp wraps them for `--values scalars`: the caller boxes the arguments,
// and behind the hop they are unboxed. All of that is tracer's cost.
struct UsualOps {
  c10::OperatorHandle of_tensors, of_sizes;
  at::Tensor self = measured_tensor(), other = at::detail::empty_cpu({4, 4}, at::kFloat);
  at::Scalar number{0.5};
  std::array<c10::SymInt, 2> sizes{c10::SymInt(4), c10::SymInt(4)}, strides{c10::SymInt(4), c10::SymInt(1)};
  bool turn = false;

  struct Kernels {
    c10::KernelFunction of_tensors, of_sizes;
  };
  Kernels bare{c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(kernel_of_tensors)),
               c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(kernel_of_sizes))};
  Kernels named{c10::KernelFunction::makeFromBoxedFunction<&name_arguments>(),
                c10::KernelFunction::makeFromBoxedFunction<&name_arguments>()};
  Kernels wrapped{wrap(bare.of_tensors), wrap(bare.of_sizes)};

  static c10::KernelFunction wrap(const c10::KernelFunction& kernel) {
    auto* hop = new Hop(kernel, nullptr, 0, 0);
    c10::raw::intrusive_ptr::incref(hop);
    c10::KernelFunction made = kernel;
    torch_abi::TableEntry entry(made);
    entry.set_functor(hop);
    entry.set_boxed(reinterpret_cast<void*>(&measured_boxed_hop));
    entry.set_unboxed(nullptr);
    entry.set_sym_unboxed(nullptr);
    return made;
  }

  // One of the two, in turns.
  void call(const Kernels& kernels) {
    constexpr c10::DispatchKeySet keys(c10::DispatchKey::CPU);
    if ((turn = !turn))
      kernels.of_tensors.call<at::Tensor&, at::Tensor&, const at::Tensor&, const at::Scalar&>(of_tensors, keys, self, other, number);
    else
      kernels.of_sizes.call<at::Tensor, c10::SymIntArrayRef, c10::SymIntArrayRef, std::optional<at::ScalarType>, std::optional<at::Layout>,
                            std::optional<at::Device>, std::optional<bool>>(of_sizes, keys, sizes, strides, at::kFloat, std::nullopt,
                                                                            at::kCPU, std::nullopt);
  }
};

// nullptr: this torch has not the schemas. Lives for ever, as hops do.
UsualOps* usual_ops() {
  static UsualOps* const made = []() -> UsualOps* {
    auto of_tensors = c10::Dispatcher::singleton().findSchema({"aten::add_", "Tensor"});
    auto of_sizes = c10::Dispatcher::singleton().findSchema({"aten::empty_strided", ""});
    return of_tensors && of_sizes ? new UsualOps{*of_tensors, *of_sizes} : nullptr;
  }();
  return made;
}

template <class Body>
double mean_ns(Lane* lane, const Body& body) {
  constexpr int kHops = 1000, kRounds = 50;  // a round is shorter than a time slice
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    lane->next = lane->window_start(0);
    uint64_t begin = trace::nanoseconds(CLOCK_MONOTONIC);
    for (int i = 0; i < kHops; ++i) body();
    best = std::min(best, double(trace::nanoseconds(CLOCK_MONOTONIC) - begin) / kHops);
  }
  return best;
}

}  // namespace

HopLoop loop_of_hops() {
  static Lane* lane = nullptr;
  if (!lane) lane = trace::make_scratch_lane();
  static c10::KernelFunction none;
  static Hop* hop = [] {
    auto* made = new Hop(none, nullptr, 0, 0);
    c10::raw::intrusive_ptr::incref(made);
    return made;
  }();
  HopLoop found;
  if (!lane || recording()) return found;
  uint32_t flags = trace::recording_file() ? trace::recording_file()->flags() : 0;
  lane->source = flags & trace::kSource;
  lane->shapes = flags & trace::kShapes;
  lane->scalars = lane->results = flags & trace::kScalars;
  lane->start_ticks = trace::ticks();
  Lane* own = std::exchange(trace::thread_lane, lane);
  const at::Tensor& tensor = measured_tensor();
  // The scratch lane belongs to no recording, and its chunk is memory. What it names must not get into the file, so it is
  // named here once: definitions of a lane of no epoch go nowhere.
  lane->epoch = ~0u;
  lane->next = lane->window_start(0);
  lane->depth = 0;
  TensorArgument argument[1];
  size_t filled = 0;
  add_tensor_argument<const at::Tensor&>(argument, filled, 0, tensor);
  if (lane->shapes) signature_of(lane, TensorArguments{argument, filled});
  UsualOps* boxed = lane->scalars ? usual_ops() : nullptr;
  for (int op = 0; boxed && op < 2; ++op) boxed->call(boxed->named);
  found.boxed = boxed;
  write_what_runs(lane);
  // Where nothing is recorded, it looks like a lane of the recording to this thread, and to no other.
  lane->epoch = 0;
  hop->described_epoch = 0;
  auto alone = [&] { boxed ? boxed->call(boxed->bare) : void(measured_kernel(tensor)); };
  auto with_hop = [&] { boxed ? boxed->call(boxed->wrapped) : void(measured_hop(hop, tensor)); };
  double bare = mean_ns(lane, alone);
  auto measure = [&](HopLoop::Kind& kind, uint32_t depth) {
    lane->depth = depth;
    forget_timed();
    kind.ns = std::max(mean_ns(lane, with_hop) - bare, 0.0);
    kind.timed = timed_hops();
  };
  measure(found.outermost, 0);
  measure(found.inner, 1);
  forget_timed();
  trace::thread_lane = own;
  return found;
}

}  // namespace tracer::dispatch
