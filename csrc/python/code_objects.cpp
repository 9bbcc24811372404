#include "code_objects.h"

namespace tracer::python {

std::atomic<uint32_t> code_generations[kCodeGenerations];

namespace {

destructor free_code = nullptr;

void count_and_free(PyObject* code) {
  code_generations[code_place(code)].fetch_add(1, std::memory_order_relaxed);
  free_code(code);
}

}  // namespace

void watch_code_objects() {
  if (free_code) return;
  free_code = PyCode_Type.tp_dealloc;
  PyCode_Type.tp_dealloc = &count_and_free;
}

}  // namespace tracer::python
