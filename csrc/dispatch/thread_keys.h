// The dispatch keys that a thread adds to those of the arguments (included) and those that it hides (excluded), with
// the TorchDispatchModes that are active. For `tracer record --why`.
#pragma once

#include "../trace/lane.h"

namespace tracer::dispatch {

// Writes a kThreadKeys event where they have changed since the last one of this lane. Needs room for it.
void write_thread_keys(trace::Lane* lane, uint64_t when);

}  // namespace tracer::dispatch
