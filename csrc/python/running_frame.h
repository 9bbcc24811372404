// Which Python code runs inside a hop: a kernel function or a mode that is written in Python, a hook, a finalizer.
#pragma once

#include "../trace/lane.h"
#include "frame.h"

namespace tracer::python {

// The calling thread's innermost frame, to be compared only; nullptr where there is none. Of a hop inside another one the
// thread is known: it had its state when the outermost hop was entered, and keeps it meanwhile.
inline const void* running_frame(const trace::Lane* lane) {
  auto* thread = static_cast<PyThreadState*>(lane->python_thread);
  if (__builtin_expect(!thread, 0) && !(thread = PyGILState_GetThisThreadState())) return nullptr;
  return Frame::innermost(thread);
}

// At an outermost hop; gives back the thread's state, nullptr where it has none.
inline PyThreadState* note_frame(trace::Lane* lane) {
  PyThreadState* thread = PyGILState_GetThisThreadState();
  lane->python_thread = thread;
  lane->frame = thread ? Frame::innermost(thread) : nullptr;
  return thread;
}

// Whether the line of an op or call is not that of the hop around it: there is none, or it runs Python code now that did
// not run when it was entered.
inline bool has_own_line(const trace::Lane* lane) { return lane->source && (lane->depth == 0 || running_frame(lane) != lane->frame); }

}  // namespace tracer::python
