// One running Python frame of the calling thread: its code and instruction, for each frame layout
// of CPython that is known. This is the only file that knows them.
#pragma once

#include <Python.h>
#include <frameobject.h>

#if PY_VERSION_HEX >= 0x030B0000
#define Py_BUILD_CORE
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#endif

namespace tracer::python {

// Variables that functions inside use too are kept in a cell.
inline PyObject* content_of(PyObject* local) { return local && PyCell_Check(local) ? PyCell_GET(local) : local; }

#if PY_VERSION_HEX >= 0x030E0000
inline constexpr bool kFramesKnown = false;
class Frame {
 public:
  static Frame current(PyThreadState*) { return {}; }
  explicit operator bool() const { return false; }
  Frame caller() const { return {}; }
  PyCodeObject* code() const { return nullptr; }
  int instruction() const { return 0; }
  PyObject* first_local() const { return nullptr; }
};
#elif PY_VERSION_HEX >= 0x030B0000
inline constexpr bool kFramesKnown = true;
class Frame {
 public:
  static Frame current(PyThreadState* thread) {
#if PY_VERSION_HEX >= 0x030D0000
    return Frame(thread->current_frame);
#else
    return Frame(thread->cframe ? thread->cframe->current_frame : nullptr);
#endif
  }
  explicit operator bool() const { return frame_ != nullptr; }
  Frame caller() const { return Frame(frame_->previous); }
  // nullptr for the frames that stand for C code.
  PyCodeObject* code() const {
#if PY_VERSION_HEX >= 0x030D0000
    return frame_->f_executable && PyCode_Check(frame_->f_executable) ? reinterpret_cast<PyCodeObject*>(frame_->f_executable) : nullptr;
#elif PY_VERSION_HEX >= 0x030C0000
    return frame_->owner == FRAME_OWNED_BY_CSTACK ? nullptr : frame_->f_code;
#else
    return frame_->f_code;
#endif
  }
  // In bytes from the start of the code, as PyCode_Addr2Line takes it.
  int instruction() const { return _PyInterpreterFrame_LASTI(frame_) * int(sizeof(_Py_CODEUNIT)); }
  // The first argument of a function that has one; nullptr once it was deleted.
  PyObject* first_local() const { return content_of(frame_->localsplus[0]); }

 private:
  explicit Frame(_PyInterpreterFrame* frame) : frame_(frame) {}
  _PyInterpreterFrame* frame_;
};
#else
inline constexpr bool kFramesKnown = true;
class Frame {
 public:
  static Frame current(PyThreadState* thread) { return Frame(thread->frame); }
  explicit operator bool() const { return frame_ != nullptr; }
  Frame caller() const { return Frame(frame_->f_back); }
  PyCodeObject* code() const { return frame_->f_code; }
  int instruction() const { return frame_->f_lasti * 2; }
  // nullptr also where functions inside use it: then it is kept elsewhere.
  PyObject* first_local() const { return frame_->f_localsplus[0]; }

 private:
  explicit Frame(PyFrameObject* frame) : frame_(frame) {}
  PyFrameObject* frame_;
};
#endif

}  // namespace tracer::python
