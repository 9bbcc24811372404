// The recording of this process: who writes where, one file at a time.
#pragma once

#include "lane.h"

namespace tracer::trace {

void open_recording(TraceFile* file);           // definitions can be written; hops not yet
void start_recording();                         // hops are written
void pause_recording();                         // hops are not written; what is written is kept
uint32_t pauses();                              // how often the recording of this process was paused
void finish_lanes();                            // pauses, and no thread writes into the file any more
// Ends the recording of this process; the file is closed and deleted. True: another process had cut the file, or written
// over it.
bool close_recording(bool process_ends);
TraceFile* recording_file();
// The clock at its start; 0: there was none yet.
uint64_t start_of_recording();
// The value of recording_epoch while this process's last recording ran.
uint32_t epoch_of_recording();

// Writes a definition of the process (not of a thread).
void define_for_process(const DefinitionBuilder& definition);
// Lane::leave_out_definition() for one of those.
bool leave_out_process_definition();
// Writes records of the stream of activities, `count` times kActivityWords words. False: nothing is recorded.
bool write_activities(const uint64_t* words, size_t count);
// Says that a step of the program has ended, the `steps`-th.
void write_step(uint32_t steps);
// The calls that all lanes of the process have counted in the running recording, or in the last one.
struct CallCounts {
  uint64_t calls = 0, launches = 0, graph_launches = 0;
};
CallCounts count_calls();

// ---- for lanes ----------------------------------------------------------------------------------
// A forked child becomes a process of the file when it first records something. With the lane's lock.
void register_process_once(TraceFile& file);
// Without memory the hop is not recorded; the op goes on.
void lose_hop();
// No chunk: the recording is over for this process.
void give_up(TraceFile& file);
// What bus_error.h calls when the file was cut; anew before a handler that the script, or a worker of a DataLoader, has
// installed since.
void watch_for_damage();

}  // namespace tracer::trace
