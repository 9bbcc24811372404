// Mappings of the trace file outlive what another process does to the file: where it was cut, a write into the mapping
// raises SIGBUS. The handler here puts anonymous memory in the mapping's place, the recording stops, and the
// script goes on. A SIGBUS of anything else goes to the handler that was there.
#pragma once

#include <cstddef>

namespace tracer::trace {

struct GuardedRange;

// From now on SIGBUS in this range is handled. nullptr: no memory for it.
GuardedRange* guard(void* mapping, size_t bytes);
void unguard(GuardedRange* range);

// Installs the handler, or puts it before one that the script installed since. `stopped` runs in the handler when a
// range was lost: it may only do what a signal handler may.
void watch_bus_errors(void (*stopped)());
// Removes the handler, unless the script has put its own before it.
void unwatch_bus_errors();
// Whether a range was lost since forget_lost_mapping().
bool mapping_was_lost();
void forget_lost_mapping();

}  // namespace tracer::trace
