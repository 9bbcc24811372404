// The paths of modules: names from the outermost module inwards. Their ids are those of the trace, the same in all recordings of
// the process. Everything here needs the GIL; 0 is no path.
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>

#include "own_range.h"

namespace tracer::python {

// `root`: the class of the outermost module; `names`: from there, apart by dots.
uint32_t path_of(const std::string& root, const std::string& names);
uint32_t path_below(uint32_t path, const std::string& names);
// Of a module that is the outermost one.
uint32_t path_of_class(PyObject* module);
// In the recording with this epoch, once.
void define_path(uint32_t path, uint32_t epoch);
// Of tracer's own range around a call of the module there, if it is in no other.
const OwnName& name_of_calls(uint32_t path);

}  // namespace tracer::python
