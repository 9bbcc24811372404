// The Python module tracer._C. No logic: each function calls one of the rooms.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <c10/core/DeviceType.h>
#include <c10/core/Layout.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Layout.h>

#include <system_error>

#include "allocations.h"
#include "cuda/recorder.h"
#include "dispatch/arming.h"
#include "dispatch/hop.h"
#include "dispatch/identities.h"
#include "dispatch/own_cost.h"
#include "dispatch/ranges.h"
#include "native/elf.h"
#include "program_starts.h"
#include "python/compiled_calls.h"
#include "python/context.h"
#include "python/greenlets.h"
#include "python/module_calls.h"
#include "python/own_range.h"
#include "python/running_file.h"
#include "python/seen_lines.h"
#include "python/source_line.h"
#include "symbol_definitions.h"
#include "trace/dump.h"
#include "trace/kept_dumps.h"
#include "trace/recording.h"
#include "trace/totals.h"

namespace py = pybind11;
using namespace tracer;

namespace {

// An OSError with errno, text and file name.
[[noreturn]] void raise_os_error(const std::system_error& error, const std::string& path) {
  PyErr_SetObject(PyExc_OSError, py::make_tuple(error.code().value(), error.code().message(), path).ptr());
  throw py::error_already_set();
}

trace::TraceFile& running() {
  trace::TraceFile* file = trace::recording_file();
  if (!file) throw std::runtime_error("no recording is running");
  return *file;
}

uint32_t flags_of(bool shapes, bool source, bool why, bool values, bool scalars) {
  return (shapes ? trace::kShapes : 0u) | (source ? trace::kSource : 0u) | (why ? trace::kWhy : 0u) | (values ? trace::kValues : 0u) |
         (scalars ? trace::kScalars : 0u);
}

void create(const std::string& path, uint64_t session, bool shapes, bool source, uint64_t max_bytes, bool ring, bool replace, bool why,
            bool values, bool scalars) {
  if (auto* file = trace::recording_file())
    throw std::runtime_error("a recording to " + file->path() + " is already running; stop it first");
  try {
    trace::open_recording(
        trace::TraceFile::create(path, session, flags_of(shapes, source, why, values, scalars), {max_bytes, ring}, replace));
  } catch (const std::system_error& error) {
    raise_os_error(error, path);
  }
}

void take_place() {
  try {
    running().take_place();
  } catch (const std::system_error& error) {
    raise_os_error(error, running().path());
  }
}

bool join(const std::string& path, uint64_t session, bool closes) {
  if (trace::recording_file()) return false;
  auto* file = trace::TraceFile::join(path, session, closes);
  if (file) trace::open_recording(file);
  return file != nullptr;
}

py::dict arm(const std::vector<std::string>& operators) {
  dispatch::ArmingResult result;
  {
    py::gil_scoped_release release;
    result = dispatch::arm(operators);
    dispatch::forget_timed();
  }
  py::dict out;
  out["entries"] = result.entries;
  out["hooked"] = result.hooked;
  out["operators"] = result.operators;
  out["seconds"] = result.seconds;
  return out;
}

void start(bool runs_ops) {
  running();
  trace::start_recording();
  trace::prepare_dumps(running());
  if (runs_ops) trace::current_lane();  // its first chunk now, not at this thread's first op
  python::learn_contexts();
  dispatch::observe_ranges();
}

void resume() {
  trace::start_recording();
  python::name_open_modules();
}

// The hops end first: another thread's would be named after a module around the one that it calls, once calls are no
// longer followed.
void stop() {
  {
    py::gil_scoped_release release;
    trace::finish_lanes();
    dispatch::forget_storages();
  }
  dispatch::stop_observing_ranges();
  python::leave_modules();
  python::leave_compiled();
}

py::list named(const std::vector<dispatch::NamedEntry>& entries) {
  py::list out;
  for (const auto& entry : entries) {
    py::dict item;
    item["op"] = entry.op;
    item["key"] = entry.key;
    item["why"] = entry.why;
    out.append(item);
  }
  return out;
}

py::dict certificate() {
  dispatch::ArmingState state;
  {
    py::gil_scoped_release release;
    state = dispatch::compare();
  }
  trace::TraceFile& file = running();
  py::dict out, guards;
  out["entries"] = state.entries;
  out["hooked"] = state.hooked;
  out["not_hooked"] = named(state.not_hooked);
  out["rearmed"] = state.rearmed;
  out["lost_entries"] = named(state.lost);
  out["other_signatures"] = state.other_signatures;
  out["lost_hops"] = file.header().lost_hops;
  out["call_sites"] = state.call_sites;
  out["source_lines"] = python::can_read_source_lines();
  out["modules"] = python::modules_were_followed();
  out["greenlets_lost"] = python::greenlets_were_lost();
  out["compiled_calls"] = python::compiled_calls();
  AllocationState memory = allocation_state();
  py::dict allocators;
  allocators["wanted"] = memory.wanted;
  allocators["cpu"] = memory.cpu;
  allocators["reported"] = memory.reported;
  out["memory"] = allocators;
  guards["updateDispatchTableEntry_"] = state.guards_update;
  guards["checkInvariants"] = state.guards_check;
  out["guards"] = guards;
  int error = int(file.header().error_number);
  out["out_of_space"] = error ? py::object(py::str(std::generic_category().message(error))) : py::none();
  out["full"] = file.is_full();
  return out;
}

py::dict of_timed(const dispatch::TimedHops& timed) {
  const char* names[dispatch::kTimedKinds] = {"outermost", "inner", "exit"};
  py::dict out;
  for (uint32_t i = 0; i < dispatch::kTimedKinds; ++i) {
    const dispatch::TimedEvents& of = timed.kinds[i];
    py::dict one;
    one["events"] = of.events;
    one["slow"] = of.slow;
    one["before_ns"] = of.before;
    one["after_ns"] = of.after;
    out[names[i]] = one;
  }
  return out;
}

py::dict own_cost() {
  dispatch::TimedHops program;
  dispatch::HopLoop loop;
  {
    py::gil_scoped_release release;
    program = dispatch::timed_hops();
    loop = dispatch::loop_of_hops();
  }
  auto whole = [](const dispatch::HopLoop::Kind& kind) {
    py::dict one = of_timed(kind.timed);
    one["ns"] = kind.ns;
    return one;
  };
  py::dict out, of_loop;
  of_loop["outermost"] = whole(loop.outermost);
  of_loop["inner"] = whole(loop.inner);
  out["program"] = of_timed(program);
  out["loop"] = of_loop;
  out["boxed"] = loop.boxed;
  return out;
}

// Python's name of a dtype; types that Python has no dtype for keep C++'s.
std::string dtype_name(c10::ScalarType type) {
  try {
    return "torch." + std::string(c10::getDtypeNames(type).first);
  } catch (const c10::Error&) {
    return c10::toString(type);
  }
}

py::dict enums() {
  py::dict dtypes, devices, layouts, out;
  for (int type = 0; type < int(c10::ScalarType::NumOptions); ++type)
    dtypes[py::str(std::to_string(type))] = dtype_name(c10::ScalarType(type));
  for (int type = 0; type < int(c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES); ++type)
    devices[py::str(std::to_string(type))] = c10::DeviceTypeName(c10::DeviceType(type), true);
  for (int layout = 0; layout < int(c10::Layout::NumOptions); ++layout) {
    layouts[py::str(std::to_string(layout))] = torch::getTHPLayout(c10::Layout(layout))->name;
  }
  py::list keys;
  for (int bit = 0; bit <= int(c10::num_functionality_keys); ++bit) {
    auto functionality = static_cast<c10::DispatchKey>(bit);
    if (bit == 0 || !c10::isPerBackendFunctionalityKey(functionality)) {
      keys.append(c10::toString(functionality));
      continue;
    }
    py::list names;
    for (int backend = 0; backend <= int(c10::num_backends); ++backend)
      names.append(c10::toString(c10::toRuntimePerBackendFunctionalityKey(functionality, static_cast<c10::BackendComponent>(backend))));
    keys.append(names);
  }
  out["num_backends"] = int(c10::num_backends);
  out["included_by_default"] = c10::default_included_set.raw_repr();
  out["excluded_by_default"] = c10::default_excluded_set.raw_repr();
  out["keys"] = keys;
  out["dtypes"] = dtypes;
  out["device_types"] = devices;
  out["layouts"] = layouts;
  return out;
}

py::list libraries() {
  py::list out;
  for (const auto& library : native::loaded_libraries()) {
    py::dict item;
    item["path"] = library.path;
    item["base"] = library.load_bias;
    item["end"] = library.end;
    item["build_id"] = library.build_id;
    out.append(item);
  }
  return out;
}

void write_json(const std::string& kind, const py::bytes& compressed) {
  running();
  trace::define_for_process(trace::DefinitionBuilder(trace::kJson).put_string(kind).put_string(std::string(compressed)));
}

py::dict end(bool process_ends) {
  trace::TraceFile& file = running();
  std::string path = file.path();
  int error = int(file.header().error_number);  // of any process
  bool full = file.is_full();
  uint64_t session = file.header().session;
  trace::Totals totals;
  bool damaged;
  {
    py::gil_scoped_release release;
    define_symbols();
    damaged = trace::close_recording(process_ends);
    if (!damaged) totals = trace::count_totals(path, session);
  }
  py::dict out;
  out["path"] = path;
  out["damaged"] = damaged;
  out["gone"] = totals.gone;
  out["bytes"] = totals.bytes;
  out["hops"] = totals.hops;
  out["op_calls"] = totals.op_calls;
  out["threads"] = totals.threads;
  out["processes"] = totals.processes;
  out["open_hops"] = totals.open_hops;
  out["api_calls"] = totals.api_calls;
  out["activities"] = totals.activities;
  out["full"] = full;
  out["max_size"] = totals.max_bytes;
  out["lost_hops"] = totals.lost_hops;
  out["overwritten_hops"] = totals.overwritten_hops;
  out["overwritten_calls"] = totals.overwritten_calls;
  out["overwritten_activities"] = totals.overwritten_activities;
  out["other_definitions"] = totals.other_definitions;
  out["damaged_chunks"] = totals.damaged_chunks;
  out["compiled_code"] = totals.compiled_code;
  out["not_joined"] = totals.not_joined;
  out["replaced"] = totals.replaced;
  out["still_running"] = totals.still_running;
  out["not_stopped"] = totals.not_stopped;
  out["error"] = error ? py::object(py::str(std::generic_category().message(error))) : py::none();
  return out;
}

void follow_compiled(const std::string& note, py::handle describe, py::handle imported, const std::vector<std::string>& modules) {
  python::follow_compiled({note, describe.ptr(), imported.ptr(), modules});
}

bool follow_kernel(py::handle kernel, const std::string& name) { return python::follow_kernel(kernel.ptr(), name); }

void begin_cuda(bool wanted, const std::string& driver, const std::string& queries, const std::string& injection,
                const std::string& unusable, bool quiet) {
  running();
  cuda::begin({wanted, driver, queries, injection, unusable, quiet});
}

py::dict cuda_statement() {
  cuda::Statement statement = cuda::statement();
  py::dict out;
  out["state"] = statement.state;
  out["why"] = statement.why;
  if (!statement.profiler.empty()) out["torch_profiler"] = statement.profiler;
  out["cupti"] = statement.cupti;
  out["driver_version"] = statement.driver_version;
  out["driver_calls"] = statement.driver_calls;
  out["queries"] = statement.queries;
  out["api_calls"] = statement.api_calls;
  out["launches"] = statement.launches;
  out["graph_launches"] = statement.graph_launches;
  out["kernels"] = statement.kernels;
  out["memcpys"] = statement.memcpys;
  out["memsets"] = statement.memsets;
  out["graph_kernels"] = statement.graph_kernels;
  out["dropped_activities"] = statement.dropped_activities;
  out["stacks_not_taken"] = statement.stacks_not_taken;
  out["buffers"] = statement.buffers;
  out["buffer_bytes"] = statement.buffer_bytes;
  out["library_hooks"] = statement.library_hooks;
  return out;
}

std::string dump(std::string path) {
  running();
  int error;
  {
    py::gil_scoped_release release;
    error = trace::dump(path);
  }
  if (error) raise_os_error(std::system_error(error, std::generic_category()), path);
  return path;
}

py::object recording() {
  auto* file = trace::recording_file();
  return file ? py::object(py::str(file->path())) : py::none();
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.doc() = "Capture of dispatcher hops into a trace file.";
  m.def("create", &create, py::arg("path"), py::arg("session"), py::arg("shapes"), py::arg("source"), py::arg("max_bytes") = 0,
        py::arg("ring") = false, py::arg("replace") = false, py::arg("why") = false, py::arg("values") = false, py::arg("scalars") = false);
  m.def("take_place", &take_place);
  m.def("join", &join, py::arg("path"), py::arg("session"), py::arg("closes") = false);
  m.def("arm", &arm, py::arg("operators") = std::vector<std::string>());
  m.def("start", &start, py::arg("runs_ops") = true);
  m.def("pause", &trace::pause_recording);
  m.def("resume", &resume);
  m.def("stop", &stop);
  m.def("restore", &dispatch::restore, py::call_guard<py::gil_scoped_release>());
  m.def("certificate", &certificate);
  m.def("enums", &enums);
  m.def("libraries", &libraries);
  m.def("write_json", &write_json, py::arg("kind"), py::arg("compressed"));
  m.def("set_stack_lines", &python::set_stack_lines, py::arg("lines"), py::arg("of_torch"));
  m.def("follow_modules", [](py::handle module_class) { python::follow_modules(module_class.ptr()); }, py::arg("module_class"));
  m.def("follow_compiled", &follow_compiled, py::arg("note"), py::arg("describe"), py::arg("imported"), py::arg("modules"));
  m.def("forget_compiled", &python::forget_compiled, py::arg("address"));
  m.def("follow_kernel", &follow_kernel, py::arg("kernel"), py::arg("name"));
  m.def("enter_range", [](const std::string& name) { return python::enter_own_range(python::OwnName(name)); }, py::arg("name"));
  m.def("enter_paused_call", &python::enter_paused_call);
  m.def("leave_range", &python::leave_own_range, py::arg("entered"));
  m.def("follow_allocations", &follow_allocations, py::arg("wanted"));
  m.def("follow_starts", &follow_starts, py::arg("libraries"));
  m.def("starts_not_joined", &starts_not_joined);
  m.def("hide_sources", &python::hide_sources, py::arg("folders"), py::arg("library"));
  m.def("runs_code_of", [](const py::str& file) { return python::runs_code_of(file.ptr()); }, py::arg("file"));
  m.def("forget_lines", &python::forget_lines);
  m.def("seen_lines", &python::seen_lines);
  m.def("own_cost", &own_cost);
  m.def("close", &end, py::arg("process_ends") = false);
  m.def("recording", &recording);
  m.def("dump", &dump, py::arg("path"));
  m.def("keep_dumps", &trace::keep_dumps, py::arg("most"));
  m.def("dump_on_signal", &trace::dump_on_signal);
  m.def("cuda_is_built", &cuda::is_built);
  m.def("begin_cuda", &begin_cuda, py::arg("wanted"), py::arg("driver"), py::arg("queries"), py::arg("injection"), py::arg("unusable"),
        py::arg("quiet"));
  m.def("end_cuda", &cuda::end, py::call_guard<py::gil_scoped_release>());
  m.def("cuda_statement", &cuda_statement);
  m.def("step", &trace::write_step, py::arg("steps"));
}
