// Calls of what torch.compile (Inductor) and AOTInductor compiled, and of the C++ kernels inside: their work is in no hop.
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tracer::python {

// Who describes compiled code to the trace, in Python. Their errors are dropped.
struct CompiledCode {
  // What the first call of a recording writes into it, as the document "compiled", for a process that is killed.
  std::string note;
  PyObject* describe;  // called with what is called, once a recording: its number in the trace, 0: none
  PyObject* imported;  // called with the name of one of `modules` once that has been imported
  std::vector<std::string> modules;
};

// Counts the calls from Python and writes a range of tracer's own for each, while hops are recorded, until leave_compiled. Of
// torch's modules that have what is called none is imported: those that are there are looked at, and those that the program
// imports. Function objects get another entry for C callers; nothing that Python sees changes.
// With the GIL, as all of these.
void follow_compiled(const CompiledCode& code);
void leave_compiled();
// Compiled code at this address is gone.
void forget_compiled(uint64_t address);
// Writes a range for each call of a kernel that Inductor made, a function of C. False: it cannot be followed.
bool follow_kernel(PyObject* kernel, const std::string& name);
// Begins a range for the call of compiled code that this thread was in when the recording was resumed; for leave_own_range.
// 0: it is in none that began in a pause.
uint64_t enter_paused_call() noexcept;
// Calls in this recording, of this process.
uint64_t compiled_calls();

}  // namespace tracer::python
