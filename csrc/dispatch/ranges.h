// record_function ranges as spans of the hop stream.
#pragma once

namespace tracer::dispatch {

// Observes the ranges that users name (and nothing else: ops pay nothing for it).
void observe_ranges();
void stop_observing_ranges();

}  // namespace tracer::dispatch
