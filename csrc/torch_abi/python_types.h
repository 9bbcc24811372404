// The types of Python's objects, as Python.h declares them: what is compiled without it serves every Python.
#pragma once

struct _object;
struct _typeobject;
using PyObject = _object;
using PyTypeObject = _typeobject;
