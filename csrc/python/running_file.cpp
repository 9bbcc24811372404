#include "running_file.h"

#include "frame.h"

namespace tracer::python {

std::optional<bool> runs_code_of(PyObject* file) {
  if (!kFramesKnown) return std::nullopt;
  // As CPython goes through its threads: one that begins may be missing, and one that ends has the GIL to leave the list.
  for (PyThreadState* thread = PyInterpreterState_ThreadHead(PyInterpreterState_Get()); thread; thread = PyThreadState_Next(thread))
    for (Frame frame = Frame::current(thread); frame; frame = frame.caller())
      if (PyUnicode_Compare(frame.code()->co_filename, file) == 0) return true;
  return false;
}

}  // namespace tracer::python
