// The line of Python that runs an op, read without the GIL.
#pragma once

#include <string>
#include <vector>

#include "../trace/lane.h"

namespace tracer::python {

// False on a CPython whose frame layout is not known: then no source line is recorded.
bool can_read_source_lines();

// Code in these folders is never named as the source: the line that called it is. So is a line in the folder of Python's
// standard library, if there is one outside of it.
void hide_sources(std::vector<std::string> folders, std::string of_library);

// How many lines source_id reads: 1, or up to 64, which it then names together. With `of_torch` also hidden ones, if more than 1.
void set_stack_lines(int lines, bool of_torch);

// The source id of the first visible Python frame of the calling thread, or of the first ones together
// (trace::kPythonStack); 0 where there is none.
// Reads the thread's own frames as they are in memory: they cannot change while it is in here.
uint32_t source_id(trace::Lane* lane);
// The same of an outermost hop, whose frame it notes for those inside (running_frame.h).
uint32_t outermost_source_id(trace::Lane* lane);
// The same of a call that is no op; 0 also where the hop around it has that line.
uint32_t own_source_id(trace::Lane* lane);
// The same of what calls compiled code: a function that Dynamo compiled runs its own first line then, so its caller's.
// `pass_libraries`: the first one outside of installed libraries, if there is one.
uint32_t calling_source_id(trace::Lane* lane, bool pass_libraries);

}  // namespace tracer::python
