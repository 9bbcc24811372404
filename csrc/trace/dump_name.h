// The names of numbered dumps, `run.dump0001.trace` of `run.trace`. System calls only: also in a signal handler.
#pragma once

#include <limits.h>

namespace tracer::trace {

constexpr unsigned kMostDumps = 99'999'999;

// Writes the name of this dump of the trace `source`. False: it is too long.
bool name_dump(char (&path)[PATH_MAX], const char* source, unsigned number);

// The highest number of a dump beside `source`, of any process; 0: none, or its folder cannot be read.
unsigned last_dump(const char* source);

}  // namespace tracer::trace
