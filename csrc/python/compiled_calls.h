// Calls of what torch.compile (Inductor) and AOTInductor compiled: the work of its own kernels is in no hop, so the
// certificate says how often it was called.
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>

namespace tracer::python {

// Counts the calls from Python, while hops are recorded, until leave_compiled. Of torch's modules that have what is called
// none is imported: those that are there are looked at, and those that the program imports. Function objects get
// another entry for C callers; nothing that Python sees changes.
// `note`: what the first call of a recording writes into it, as the document "compiled", for a process that is killed.
// With the GIL, as all of these.
void follow_compiled(const std::string& note);
void leave_compiled();
// Calls in this recording, of this process.
uint64_t compiled_calls();

}  // namespace tracer::python
