// The line on stderr when a recording stops before its script has ended: once a recording.
#pragma once

#include "trace_file.h"

namespace tracer::trace {

// A recording to the file begins. `said`: it has stopped already, and another process has said so.
void prepare_stop_notice(const TraceFile& file, bool said);
// For want of space, or because the largest size is reached.
void say_stopped(const TraceFile& file);
// Another process has cut the file, or written over it. Allocates nothing: runs in the handler of SIGBUS too.
void say_damaged();

}  // namespace tracer::trace
