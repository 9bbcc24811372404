// The line of Python that runs an op, read without the GIL.
#pragma once

#include <string>
#include <vector>

#include "../trace/lane.h"

namespace tracer::python {

// False on a CPython whose frame layout is not known: then no source line is recorded.
bool can_read_source_lines();

// Code in these folders is never named as the source: the line that called it is.
void hide_sources(std::vector<std::string> folders);

// The source id of the first visible Python frame of the calling thread; 0 where there is none.
// Reads the thread's own frames as they are in memory: they cannot change while it is in here.
uint32_t source_id(trace::Lane* lane);

}  // namespace tracer::python
