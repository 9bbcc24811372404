// The numbered dumps that this process made and that are still there: the first one and the newest ones are kept.
// System calls only, and one thread at a time: also in a signal handler.
#pragma once

namespace tracer::trace {

constexpr unsigned kMostKept = 1000;

// How many dumps a process keeps; 0: all.
void keep_dumps(unsigned most);

// From now on dumps are of another recording, or of another process (fork): those that were made stay.
void forget_kept_dumps();

// The number of the last dump that this process made; 0: none.
unsigned last_kept_dump();

// The dump with this number of the trace `source` is complete, and closed: on NFS its time changes until then. Removes the oldest
// but the first if there are more than are kept, and says so. A file that was moved, changed or replaced is not this process's any more,
// and stays.
void dump_was_made(const char* source, unsigned number);

}  // namespace tracer::trace
