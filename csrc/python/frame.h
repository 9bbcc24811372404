// One running Python frame of the calling thread: its code and instruction, for each frame layout
// of CPython that is known. This is the only file that knows them.
#pragma once

#include <Python.h>
#include <frameobject.h>

#if PY_VERSION_HEX >= 0x030F0000
// Unknown; its headers may have other names.
#elif PY_VERSION_HEX >= 0x030E0000
#define Py_BUILD_CORE
#include <internal/pycore_interpframe_structs.h>
#undef Py_BUILD_CORE
#elif PY_VERSION_HEX >= 0x030B0000
#define Py_BUILD_CORE
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#endif

namespace tracer::python {

// Variables that functions inside use too are kept in a cell.
inline PyObject* content_of(PyObject* local) { return local && PyCell_Check(local) ? PyCell_GET(local) : local; }

#if PY_VERSION_HEX >= 0x030F0000 || defined(Py_GIL_DISABLED) || defined(Py_STACKREF_DEBUG)
inline constexpr bool kFramesKnown = false;
class Frame {
 public:
  static Frame current(PyThreadState*) { return {}; }
  explicit operator bool() const { return false; }
  Frame caller() const { return {}; }
  PyCodeObject* code() const { return nullptr; }
  int instruction() const { return 0; }
  PyObject* first_local() const { return nullptr; }
  static const void* innermost(PyThreadState*) { return nullptr; }
};
#elif PY_VERSION_HEX >= 0x030B0000
inline constexpr bool kFramesKnown = true;

#if PY_VERSION_HEX >= 0x030E0000
// The two low bits are a tag. The frame keeps the object alive, so no reference is taken. nullptr for an integer.
inline PyObject* object_of(_PyStackRef reference) {
  constexpr uintptr_t kTag = 3, kInteger = 3;
  return (reference.bits & kTag) == kInteger ? nullptr : reinterpret_cast<PyObject*>(reference.bits & ~kTag);
}
#else
inline PyObject* object_of(PyObject* reference) { return reference; }
#endif

class Frame {
 public:
  static Frame current(PyThreadState* thread) { return python_frame(innermost(thread)); }
  // To be compared only.
  static _PyInterpreterFrame* innermost(PyThreadState* thread) {
#if PY_VERSION_HEX >= 0x030D0000
    return thread->current_frame;
#else
    return thread->cframe ? thread->cframe->current_frame : nullptr;
#endif
  }
  explicit operator bool() const { return frame_ != nullptr; }
  Frame caller() const { return python_frame(frame_->previous); }
  PyCodeObject* code() const { return code_of(frame_); }
  // In bytes from the start of the code, as PyCode_Addr2Line takes it.
  int instruction() const {
#if PY_VERSION_HEX >= 0x030D0000
    return int(reinterpret_cast<char*>(frame_->instr_ptr) - code()->co_code_adaptive);
#else
    return _PyInterpreterFrame_LASTI(frame_) * int(sizeof(_Py_CODEUNIT));
#endif
  }
  // The first argument of a function that has one; nullptr once it was deleted.
  PyObject* first_local() const { return content_of(object_of(frame_->localsplus[0])); }

 private:
  explicit Frame(_PyInterpreterFrame* frame) : frame_(frame) {}

  // From CPython 3.12 on, each call of Python from C adds a frame without code: skip these, as sys._getframe does.
  static Frame python_frame(_PyInterpreterFrame* frame) {
    while (frame && !code_of(frame)) frame = frame->previous;
    return Frame(frame);
  }
  static PyCodeObject* code_of(_PyInterpreterFrame* frame) {
#if PY_VERSION_HEX >= 0x030D0000
    PyObject* executable = object_of(frame->f_executable);
    return executable && PyCode_Check(executable) ? reinterpret_cast<PyCodeObject*>(executable) : nullptr;
#elif PY_VERSION_HEX >= 0x030C0000
    return frame->owner == FRAME_OWNED_BY_CSTACK ? nullptr : frame->f_code;
#else
    return frame->f_code;
#endif
  }

  _PyInterpreterFrame* frame_;
};
#else
inline constexpr bool kFramesKnown = true;
class Frame {
 public:
  static Frame current(PyThreadState* thread) { return Frame(thread->frame); }
  static const void* innermost(PyThreadState* thread) { return thread->frame; }
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
