// A copy of the trace as it is now, while the recording goes on: for whoever asks, and for SIGUSR2.
#pragma once

#include <string>

namespace tracer::trace {

class TraceFile;

// From now on this file is what is dumped. Its path must lead to it.
void prepare_dumps(const TraceFile& file);
// Nothing is dumped any more, and SIGUSR2 does again what it did before dump_on_signal(); nothing, if the process ends: who sends
// it cannot know that the recording has ended.
void end_dumps(bool process_ends);

// In a forked child: the thread that copied is not there.
void forget_dump();

// Copies the trace to `path`, where nothing is yet; "": to the next TRACE.dumpNNNN.trace, which `path` is then.
// Returns 0 or an errno; ENOENT where nothing is recorded.
int dump(std::string& path);

// SIGUSR2 dumps, in whichever thread it reaches; as long after a dump as that took, later. False: somebody else has claimed
// that signal.
bool dump_on_signal();

}  // namespace tracer::trace
