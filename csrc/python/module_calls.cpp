#include "module_calls.h"

#include <pthread.h>
#include <torch/csrc/autograd/function.h>

#include <cstdlib>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../torch_abi/python_names.h"
#include "../trace/lane.h"
#include "../trace/recording.h"
#include "frame.h"
#include "function_entry.h"
#include "greenlets.h"
#include "module_paths.h"
#include "own_range.h"

namespace tracer::python {
namespace {

using trace::Interner;
using trace::mix;

// Everything below is touched with the GIL held, and leaked.
constexpr size_t kMostCalls = 64;         // nested calls that are remembered: deeper ones are named from the last of these
constexpr size_t kMostModules = 1 << 18;  // modules of one tree that are looked at
constexpr uint32_t kMostPlaces = 1 << 16; // remembered places; then all are forgotten
constexpr int kMostFrames = 128;

PyObject* module_class = nullptr;
PyFunctionObject* followed = nullptr;
bool were_followed = false;
vectorcallfunc original = nullptr;
PyObject* modules_name = nullptr;  // "_modules"

struct Call {
  PyObject* module;  // a reference of its own: threads whose C stacks are switched may leave in any order
  ModuleNow now;     // inside it; epoch 0: it began in a pause of the recording, and is named when that goes on
};
constexpr uint32_t kNeverNamed = ~0u;  // in place of that epoch
struct Calls {
  size_t depth;
  bool wait_for_names;  // some of them
  Call calls[kMostCalls];
  Calls* spare;  // another one of this thread, which no greenlet uses
};
thread_local Calls* thread_calls __attribute__((tls_model("initial-exec"))) = nullptr;
pthread_key_t calls_key;

void free_calls(void* calls) {
  thread_calls = nullptr;
  for (auto* each = static_cast<Calls*>(calls); each;) free(std::exchange(each, each->spare));
}

// Those of the calling thread; nullptr without memory. Thread-local memory is too scarce for them.
Calls* calls_of_thread() {
  if (__builtin_expect(!thread_calls, 0)) {
    thread_calls = static_cast<Calls*>(calloc(1, sizeof(Calls)));
    if (thread_calls) pthread_setspecific(calls_key, thread_calls);
  }
  return thread_calls;
}

// ---- greenlets: each has calls of its own ----------------------------------------------------------
struct Suspended {
  Calls* calls;
  ModuleNow now;
  const void* thread;  // a thread may end and leave some, whose addresses others then have
};
std::unordered_map<PyObject*, Suspended>& suspended = *new std::unordered_map<PyObject*, Suspended>;

// What tells this thread from all others, ended ones too.
const void* this_thread() {
  static char* threads = nullptr;
  thread_local const void* mine = ++threads;
  return mine;
}

void take_calls(Calls* calls, ModuleNow now) {
  module_now = now;
  thread_calls = calls;
  pthread_setspecific(calls_key, calls);
}

// Calls of a suspended greenlet stay where they are, since its C stack refers to them.
void switch_calls(PyObject* from, PyObject* to) noexcept try {
  if (thread_calls && thread_calls->depth) {
    if (from) suspended[from] = {thread_calls, module_now, this_thread()};
    take_calls(std::exchange(thread_calls->spare, nullptr), from ? ModuleNow{} : module_now);
  }
  auto found = suspended.find(to);
  if (found == suspended.end()) return;
  if (found->second.thread == this_thread()) {
    found->second.calls->spare = thread_calls;
    take_calls(found->second.calls, found->second.now);
  }
  suspended.erase(found);
} catch (...) {
  module_now = {};  // no memory
}

// ---- trees of modules -----------------------------------------------------------------------------
// The children of a module, a new reference; nullptr where it has no dict of them. Runs no Python code.
PyObject* children_of(PyObject* module) {
  PyObject* attributes = PyObject_GenericGetDict(module, nullptr);
  PyObject* children = attributes ? PyDict_GetItemWithError(attributes, modules_name) : nullptr;
  if (children && PyDict_Check(children))
    Py_INCREF(children);
  else
    children = nullptr;
  Py_XDECREF(attributes);
  if (!children) PyErr_Clear();
  return children;
}

bool is_module(PyObject* object) { return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(module_class)); }

using Names = std::vector<PyObject*>;

// Where a module is in the tree of another one: that nearest to the top, of these the first. False: not there.
bool find_below(PyObject* above, PyObject* module, Names& names) {
  struct Seen {
    PyObject* module;
    PyObject* name;
    size_t parent;
  };
  std::vector<Seen> seen{{above, nullptr, 0}};
  for (size_t i = 0; i < seen.size() && seen.size() < kMostModules; ++i) {
    PyObject* children = children_of(seen[i].module);
    if (!children) continue;
    PyObject *name, *child;
    Py_ssize_t at = 0;
    bool found = false;
    while (!found && PyDict_Next(children, &at, &name, &child)) {
      if (!is_module(child) || !PyUnicode_CheckExact(name)) continue;
      seen.push_back({child, name, i});
      found = child == module;
    }
    Py_DECREF(children);
    if (!found) continue;
    for (size_t n = seen.size() - 1; n > 0; n = seen[n].parent) names.insert(names.begin(), seen[n].name);
    for (PyObject* part : names) Py_INCREF(part);
    return true;
  }
  return false;
}

std::string joined(const Names& names) {
  std::string text;
  for (PyObject* name : names) {
    Py_ssize_t size = 0;
    const char* part = PyUnicode_AsUTF8AndSize(name, &size);
    if (!part) PyErr_Clear();
    if (!text.empty()) text += '.';
    text += part ? std::string(part, size_t(size)) : "?";
  }
  return text;
}

// A place in a tree, found once and looked at again whenever it is used: addresses are used again, and trees change.
// What each use reads is in one cache line: of a large model's places each is met with its lines out of the caches.
struct alignas(64) Place {
  PyObject* above;
  PyObject* module;                // both to be compared only
  uint32_t path_above = 0, path = 0;  // of the last use
  uint32_t defined = 0;            // the recording that `path` was known to be defined in, then
  PyObject* name = nullptr;        // the first of the names from above to there
  Names further;
  std::string text;
};
std::vector<Place>& places = *new std::vector<Place>;
Interner& place_ids = *new Interner;

// The child of that name, borrowed; nullptr where there is none. Not necessarily a module.
PyObject* child_of(PyObject* module, PyObject* name) {
  PyObject* children = children_of(module);
  if (!children) return nullptr;
  PyObject* child = PyDict_GetItemWithError(children, name);
  Py_DECREF(children);
  if (!child) PyErr_Clear();
  return child;
}

bool still_stands(const Place& place) {
  PyObject* module = place.name ? child_of(place.above, place.name) : nullptr;
  for (PyObject* name : place.further)
    if (module) module = child_of(module, name);
  return module == place.module;
}

void forget_names(Place& place) {
  Py_CLEAR(place.name);
  for (PyObject* name : place.further) Py_DECREF(name);
  place.further.clear();
}

void forget_places() {
  for (Place& place : places) forget_names(place);
  places.clear();
  place_ids.clear();
}

// The place of a module in a tree; nullptr where it is not there, or where it is not known and `search` is not set.
Place* place_of(PyObject* above, PyObject* module, bool search) {
  uint64_t hash = mix(mix(3, uint64_t(above)), uint64_t(module));
  uint32_t id = place_ids.find(hash);
  if (id && places[id - 1].above == above && places[id - 1].module == module) {
    if (still_stands(places[id - 1])) return &places[id - 1];
  } else if (id) {
    return nullptr;
  }
  if (!search && !id) return nullptr;
  Names names;
  if (!find_below(above, module, names)) return nullptr;
  if (!id) {
    if (place_ids.size() >= kMostPlaces) forget_places();
    id = place_ids.add(hash);
    if (!id) return nullptr;
    places.push_back({.above = above, .module = module});
  }
  Place& place = places[id - 1];
  std::string text = joined(names);
  Names further(names.begin() + 1, names.end());
  forget_names(place);
  place.text = std::move(text);
  place.name = names.front();
  place.further = std::move(further);
  place.path_above = place.path = 0;
  return &place;
}

uint32_t path_at(Place* place, uint32_t path_above) {
  if (place->path_above != path_above) {
    place->path = path_below(path_above, place->text);
    place->path_above = path_above;
    place->defined = 0;
  }
  return place->path;
}

uint32_t defined_path_at(Place* place, uint32_t path_above, uint32_t epoch) {
  uint32_t path = path_at(place, path_above);
  if (path && place->defined != epoch) {
    define_path(path, epoch);
    place->defined = epoch;
  }
  return path;
}

// ---- naming a call --------------------------------------------------------------------------------
// How often a module of one class was not found around a call in one path. Modules that are made on the spot
// (nn.Softmax(-1)(x)) are in no tree; looking through the whole model again for each would cost more than they do.
struct Misses {
  uint64_t hash;
  uint32_t count;
};
constexpr size_t kMissSlots = 1024;
Misses misses[kMissSlots];

bool is_worth_searching(Misses& missed, uint64_t hash) {
  if (missed.hash != hash) missed = {hash, 0};
  return (missed.count & (missed.count - 1)) == 0;  // 0, 1, 2, 4, 8... times in vain
}

// Defined; 0 where none of the calls around has the module in its tree.
uint32_t path_in_calls(const Calls& calls, PyObject* module, uint32_t epoch) {
  size_t depth = calls.depth < kMostCalls ? calls.depth : kMostCalls;
  const Call* nearest = nullptr;
  Misses* missed = nullptr;
  bool search = true;
  for (size_t i = depth; i-- > 0;) {
    const Call& call = calls.calls[i];
    if (!call.module) continue;
    if (call.module == module) {
      if (call.now.id) define_path(call.now.id, epoch);
      return call.now.id;
    }
    if (Place* place = place_of(call.module, module, search)) return defined_path_at(place, call.now.id, epoch);
    if (nearest) continue;
    nearest = &call;
    uint64_t hash = mix(mix(5, call.now.id), uint64_t(Py_TYPE(module)));
    missed = &misses[hash >> 54];
    search = is_worth_searching(*missed, hash);
  }
  if (missed) missed->count += 1;
  return 0;
}

// Modules that were called outside of all others: what runs again inside a backward pass (checkpoints) is found in their
// trees, when nothing else says any more where it is.
struct Root {
  PyObject* reference;  // weak
  uint32_t path;
};
constexpr size_t kMostRoots = 16;
Root roots[kMostRoots];
size_t next_root = 0;

// What a weak reference refers to, a new reference; nullptr where that is gone.
PyObject* referent(PyObject* reference) {
  PyObject* object = nullptr;
#if PY_VERSION_HEX >= 0x030D0000
  if (reference && PyWeakref_GetRef(reference, &object) < 0) PyErr_Clear();
#else
  object = reference ? PyWeakref_GET_OBJECT(reference) : nullptr;
  if (object == Py_None) object = nullptr;
  Py_XINCREF(object);
#endif
  return object;
}

void remember_root(PyObject* module, uint32_t path) {
  for (Root& root : roots) {
    PyObject* known = referent(root.reference);
    Py_XDECREF(known);
    if (known != module) continue;
    root.path = path;
    return;
  }
  PyObject* reference = PyWeakref_NewRef(module, nullptr);
  if (!reference) return PyErr_Clear();
  Root& root = roots[next_root++ % kMostRoots];
  Py_XDECREF(std::exchange(root.reference, reference));
  root.path = path;
}

uint32_t path_in_roots(PyObject* module) {
  for (Root& root : roots) {
    PyObject* above = referent(root.reference);
    if (!above) continue;
    Place* place = above == module ? nullptr : place_of(above, module, true);
    uint32_t path = above == module ? root.path : place ? path_at(place, root.path) : 0;
    Py_DECREF(above);
    if (path) return path;
  }
  return 0;
}

// Of a call outside of all others: the trees of modules that the running functions have as their first argument, as
// methods do, from the innermost function outwards.
uint32_t path_in_frames(PyObject* module, bool in_backward) {
  std::string names;
  PyObject* current = module;
  Frame frame = Frame::current(PyThreadState_Get());
  for (int i = 0; frame && i < kMostFrames; ++i, frame = frame.caller()) {
    PyCodeObject* code = frame.code();
    if (code->co_argcount < 1) continue;
    PyObject* argument = frame.first_local();
    if (!argument || argument == current || !is_module(argument)) continue;
    if (Place* place = place_of(argument, current, true)) {
      names = names.empty() ? place->text : place->text + "." + names;
      current = argument;
    }
  }
  uint32_t above = in_backward ? path_in_roots(current) : 0;
  return path_below(above ? above : path_of_class(current), names);
}

uint32_t name(const Calls& calls, PyObject* module, bool in_backward, uint32_t epoch) noexcept try {
  if (uint32_t path = path_in_calls(calls, module, epoch)) return path;
  uint32_t path = calls.depth ? path_of_class(module) : path_in_frames(module, in_backward);
  if (!calls.depth && !in_backward) remember_root(module, path);
  if (path) define_path(path, epoch);
  return path;
} catch (...) {
  return 0;  // no memory
}

// Those that began in a pause, the outermost first: once something is recorded.
void name_begun_in_pause(Calls& calls) {
  const uint32_t epoch = trace::recording_epoch.load(std::memory_order_relaxed);
  if (!epoch || !calls.wait_for_names) return;
  trace::current_lane();  // a forked child defines nothing before it has recorded something
  calls.wait_for_names = false;
  const size_t depth = calls.depth;
  for (size_t i = 0; i < depth && i < kMostCalls; ++i) {
    Call& call = calls.calls[i];
    if (call.now.epoch || !call.module) continue;
    calls.depth = i;
    call.now = {epoch, name(calls, call.module, call.now.node, epoch), call.now.node};
  }
  calls.depth = depth;
}

ModuleNow now_inside(Calls& calls, PyObject* module, bool is_known) {
  name_begun_in_pause(calls);
  const uint32_t epoch = trace::recording_epoch.load(std::memory_order_relaxed);
  const void* node = torch::autograd::get_current_node().get();
  if (!is_known) return {kNeverNamed, 0, node};
  calls.wait_for_names |= !epoch;
  if (epoch) trace::current_lane();
  return {epoch, epoch ? name(calls, module, node, epoch) : 0, node};
}

PyObject* call_module(PyObject* function, PyObject* const* arguments, size_t flags, PyObject* names) {
  const bool is_recording = trace::recording_epoch.load(std::memory_order_relaxed) || trace::recording_file();  // or in a pause
  const bool is_known = !is_recording || follow_greenlets(switch_calls);  // before the thread's calls are asked for
  Calls* known = is_recording && PyVectorcall_NARGS(flags) > 0 && is_module(arguments[0]) ? calls_of_thread() : nullptr;
  if (!known) return original(function, arguments, flags, names);
  Calls& calls = *known;
  const size_t depth = calls.depth;
  const ModuleNow before = module_now;
  PyObject* module = arguments[0];
  const ModuleNow now = now_inside(calls, module, is_known);
  if (depth < kMostCalls) {
    Py_INCREF(module);
    Py_XDECREF(std::exchange(calls.calls[depth].module, module));
    calls.calls[depth].now = now;
  }
  calls.depth = depth + 1;
  module_now = now;
  OwnRange outermost;  // no module around it, and no autograd node that runs it again
  if (!depth && !now.node && now.id) outermost.enter(name_of_calls(now.id));
  PyObject* result = original(function, arguments, flags, names);
  calls.depth = depth;
  if (result) name_begun_in_pause(calls);  // an exception would be lost
  module_now = depth && depth <= kMostCalls ? calls.calls[depth - 1].now : before;
  if (depth < kMostCalls) Py_XDECREF(std::exchange(calls.calls[depth].module, nullptr));
  return result;
}

}  // namespace

constinit thread_local ModuleNow module_now __attribute__((tls_model("initial-exec"))) = {};

void follow_modules(PyObject* wanted) {
  were_followed = false;
  PyObject* function = PyType_Check(wanted) ? PyObject_GetAttrString(wanted, torch_abi::kModuleCall) : nullptr;
  if (!function) PyErr_Clear();
  if (!function || !PyFunction_Check(function)) return Py_XDECREF(function);
  were_followed = true;
  if (followed) return Py_DECREF(function);
  if (!modules_name) {
    modules_name = PyUnicode_InternFromString("_modules");
    pthread_key_create(&calls_key, free_calls);
  }
  if (!module_class) {
    Py_INCREF(wanted);
    module_class = wanted;
  }
  followed = reinterpret_cast<PyFunctionObject*>(function);
  original = followed->vectorcall;
  set_entry(followed, call_module);
}

void name_open_modules() {
  if (!followed || !thread_calls || !thread_calls->wait_for_names) return;
  name_begun_in_pause(*thread_calls);
  const size_t depth = thread_calls->depth;
  if (depth && depth <= kMostCalls) module_now = thread_calls->calls[depth - 1].now;
}

void leave_modules() {
  if (!followed) return;
  leave_greenlets();
  // Where another tool has put its own entry over ours, ours stays: it does nothing without a recording.
  if (followed->vectorcall == call_module) {
    set_entry(followed, original);
    Py_CLEAR(followed);
  }
}

bool modules_were_followed() { return were_followed; }

}  // namespace tracer::python
