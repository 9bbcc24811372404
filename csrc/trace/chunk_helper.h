// The next chunk of a lane, made ready before it is needed: by a helper thread, or by the lane's own if the helper is late.
#pragma once

#include "lane.h"

namespace tracer::trace {

// Asks for it. With the lane's lock.
void ask_for_chunk(Lane* lane);
// Waits until it is there, or none can be had: then next_state is kReady or kFailed. With the lane's lock.
void wait_for_chunk(Lane* lane);
// The lane wants none any more; one that is ready is given back. With the lane's lock.
void forget_next_chunk(Lane* lane, TraceFile& file);
// What was asked of the helper is done when it returns.
void wait_for_helper(Lane* lane);

void stop_helper();
// A fork waits until the helper has ended: as a thread of the parent it would count when Python warns about forking with
// threads.
void stop_helper_for_forks();
// In the forked child.
void forget_helper();

}  // namespace tracer::trace
