// Which autograd node the thread evaluates.
#pragma once

#include "../trace/lane.h"

namespace tracer::dispatch {

// The words of a kNode event.
struct NodeWords {
  uint64_t sequence, name_and_thread;
};

// Whether the current node is another than the lane said last; `words` are what to say of it then.
bool autograd_node_changed(trace::Lane* lane, NodeWords& words);

}  // namespace tracer::dispatch
