// At key Python torch's fallback calls the __torch_dispatch__ of a mode or of a class of tensors. Each op has a hop for each
// of these, as for other kernel functions.
#pragma once

#include <Python.h>

#include "hop.h"

namespace tracer::dispatch {

// The class of a TorchDispatchMode of the calling thread, by its place in the stack of modes. It lives as long as the mode.
PyTypeObject* class_of_mode(int64_t place);
// That of the innermost mode; nullptr without modes.
PyTypeObject* class_of_innermost_mode();

// Whether the kernel function is that fallback.
bool is_python_fallback(const Hop& hop);

// The class whose method the fallback calls first.
template <class Arguments>
PyTypeObject* dispatching_class(const Arguments& arguments) {
  PyTypeObject* of_mode = class_of_innermost_mode();
  return of_mode ? of_mode : class_of(arguments);
}

// A hop of the same entry with an id and a name of its own. With the GIL.
Hop* another_hop(const Hop* hop, std::string* name);

// The hop for a class, which takes the GIL once for each; `hop` itself where no class is known.
Hop* hop_of_class(Hop* hop, PyTypeObject* type);

}  // namespace tracer::dispatch
