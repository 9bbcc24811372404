// The entry of a Python function for C callers.
#pragma once

#include <Python.h>

namespace tracer::python {

inline void set_entry(PyFunctionObject* function, vectorcallfunc entry) {
#if PY_VERSION_HEX >= 0x030C0000
  PyFunction_SetVectorcall(function, entry);
#else
  function->vectorcall = entry;
#endif
}

}  // namespace tracer::python
