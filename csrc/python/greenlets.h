// Switches of greenlets: C stacks, and the Python frames on them, that take turns in one thread (gevent, eventlet, SQLAlchemy).
#pragma once

#include <Python.h>

namespace tracer::python {

// Called with the GIL, in `to`; with nullptr when a thread begins to be followed.
using Switched = void (*)(PyObject* from, PyObject* to) noexcept;

// From now on the calling thread's switches call `switched`. False: the program has put a trace function of its own in the place of
// ours, so they are not seen. Without the module greenlet this costs a comparison. Never with an error set.
bool follow_greenlets(Switched switched);
// The calling thread's no longer.
void leave_greenlets();
// Whether follow_greenlets() has returned false since this was asked last.
bool greenlets_were_lost();

}  // namespace tracer::python
