// The calls of nn.Modules: which one a thread is in, and by what path its model knows it.
#pragma once

#include <Python.h>

#include <cstdint>

namespace tracer::python {

// Follows every call that goes through `module_class._call_impl` (torch.nn.Module) from now on. The function object gets
// another entry for C callers; nothing that Python sees changes. Nothing is followed for None, or where the class has no
// such function. With the GIL, as leave_modules.
void follow_modules(PyObject* module_class);
void leave_modules();
// After a pause of the recording: names the calls that the calling thread is in. Those of other threads get their names at
// their next call of a module, or return from one. With the GIL.
void name_open_modules();
// Whether the last follow_modules found what it follows.
bool modules_were_followed();

// Where a thread is; written while it holds the GIL and read by its own hops.
struct ModuleNow {
  uint32_t epoch;    // the recording that `id` is defined in
  uint32_t id;       // trace::kModulePath; 0: in no module
  const void* node;  // the autograd node that was evaluated when the module was called
};
extern constinit thread_local ModuleNow module_now __attribute__((tls_model("initial-exec")));

// The module that runs a hop, 0 where there is none. A backward pass is not part of the module that started it.
inline uint32_t module_id(uint32_t epoch, const void* node) {
  const ModuleNow& now = module_now;
  return now.epoch == epoch && now.node == node ? now.id : 0;
}

}  // namespace tracer::python
