// Whether Python threads run code of a file. Not by sys._current_frames: that makes frame objects of the script's frames, and
// in Python 3.11 it may collect garbage while it holds the lock of the list of threads. To free a threading.local, a collection
// takes that lock too (gh-106883): the thread waits for itself with the GIL, and all others wait for the GIL.
#pragma once

#include <Python.h>

#include <optional>

namespace tracer::python {

// Whether a thread is in a function of `file`, or in one that it called. With the GIL, which it keeps: no thread moves meanwhile.
// Nothing on a CPython whose frame layout is not known.
std::optional<bool> runs_code_of(PyObject* file);

}  // namespace tracer::python
