// Says in the hop stream which autograd node the thread evaluates.
#pragma once

#include "../trace/lane.h"

namespace tracer::dispatch {

// Writes a kNode event where the current node is another than the lane said last.
void follow_autograd_node(trace::Lane* lane);

}  // namespace tracer::dispatch
