// The trace file, byte by byte. tracer/trace/bytes/format.py and tracer/trace/bytes/reader.py mirror this file.
//
// A file is one header page followed by chunks. Everything is little endian. Chunks are claimed
// with one atomic add on `next_chunk`, by any thread of any process of the recording; a chunk
// belongs to one lane (the writer of one thread) of one process and to one stream of it:
//
//   hops         8-byte words, the hot path: which hop or call was entered and left, when
//   definitions  length-prefixed records, the cold path: what the ids in the hop stream mean
//   activities   fixed-size records of what the GPU did, written as CUPTI delivers them
//
// A definition is written before the first hop that names its id, by the same thread (ids of hops and
// modules: by any thread of the process), so that a killed process leaves no id without its meaning.
// All words that follow the last one written are zero (a chunk is never reused, but for a slot of a ring).
//
// A ring has room for a number of chunks of hops and activities: slots of kHopChunkBytes, which come first and are
// taken in turn, the oldest first. Chunks of definitions come behind them and stay.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tracer::trace {

constexpr char kMagic[8] = {'t', 'r', 'a', 'c', 'e', 'r', '\n', '\x1a'};
constexpr uint32_t kFormatVersion = 7;
constexpr uint32_t kHeaderBytes = 4096;
constexpr uint32_t kHopChunkBytes = 1 << 20;
constexpr uint32_t kDefinitionChunkBytes = 1 << 18;
constexpr uint32_t kFirstDefinitionBytes = 1 << 14;  // in a ring, where many short processes may be; the next chunks of a stream grow
constexpr uint32_t kActivityChunkBytes = 1 << 18;

enum FileState : uint32_t {
  kRecording = 0,  // being written, or the process died
  kClosed = 1,     // orderly stop
  kOutOfSpace = 2, // recording stopped early: no more chunks could be reserved (see error_number)
};

enum ClockKind : uint32_t { kTsc = 1, kMonotonic = 2 };

struct FileHeader {
  char magic[8];              //   0
  uint32_t version;           //   8  kFormatVersion; a reader refuses a larger one
  uint32_t header_bytes;      //  12  where the first chunk is
  uint32_t state;             //  16  FileState
  uint32_t error_number;      //  20  errno of the reservation that failed, else 0
  uint64_t session;           //  24  random; a process that joins compares it
  uint64_t next_chunk;        //  32  atomic: file offset of the first unclaimed byte; with kEndIsFinal once it is closed
  uint64_t start_ticks;       //  40  clock at the start; ticks in records count from here
  uint64_t start_ns;          //  48  CLOCK_MONOTONIC at the same moment
  uint64_t last_ticks;        //  56  clock pair taken last (refreshed while recording): the rate of
  uint64_t last_ns;           //  64  ticks is (last_ticks - start_ticks) / (last_ns - start_ns)
  uint64_t wall_ns;           //  72  CLOCK_REALTIME at the start
  uint32_t clock;             //  80  ClockKind
  uint32_t attached;          //  84  atomic: processes that joined and have not closed
  uint32_t next_process;      //  88  atomic: next process number (0 is the root)
  uint32_t root_pid;          //  92
  uint32_t flags;             //  96  HeaderFlags
  uint32_t executed;          // 100  1: the root has begun another program (exec), and the recording ended there
  uint64_t lost_hops;         // 104  atomic: hops that were not written, for want of memory
  uint64_t max_bytes;         // 112  the largest size that was asked for, 0: none
  uint32_t ring_slots;        // 120  slots of a ring, 0: no ring
  uint32_t next_slot;         // 124  atomic: counts the slots that were looked at
  uint64_t definition_bytes;  // 128  atomic: claimed for definitions
  uint64_t other_definitions; // 136  atomic: times that kOther replaces something new, for want of space in a ring
  uint64_t overwritten_hops;  // 144  atomic: hops entered in slots that were taken again
  uint64_t overwritten_calls; // 152  atomic: API calls, likewise
  uint64_t overwritten_activities;  // 160  atomic: of GPUs, likewise
};
static_assert(sizeof(FileHeader) == 168);
// The rest of the header page: u32 OS process ids by process number, 0 once that process has closed.
// In a ring u32 SlotOwner by slot follow, up to the first chunk.
enum HeaderFlags : uint32_t {
  kShapes = 1,  // of tensors are recorded
  kSource = 2,  // lines are recorded
  kWhy = 8,     // the dispatch keys of threads are recorded
  kValues = 16, // hashes of results are recorded
  kScalars = 32,// arguments that are no tensors are recorded, and which tensors were passed and returned
  kFull = 4,    // max_bytes was reached, and the recording stopped there
  kDump = 64,   // this is a copy, made while the recording went on, at last_ns
};
// In next_chunk: no chunk is claimed any more.
constexpr uint64_t kEndIsFinal = 1ull << 62;
// A slot's owner: 0 where it was never written, else one of these and the process number (bits 0..29).
enum SlotOwner : uint32_t { kSlotFirst = 1u << 29, kSlotWritten = 1u << 30, kSlotInUse = 2u << 30 };  // kSlotFirst: of its thread
constexpr uint32_t kSlotProcessMask = (1u << 29) - 1;

constexpr uint32_t kChunkMagic = 0x4b4e4843;  // "CHNK"
enum Stream : uint16_t { kHops = 1, kDefinitions = 2, kActivities = 3 };

struct ChunkHeader {
  uint32_t magic;        //  0
  uint32_t capacity;     //  4  bytes to the next chunk, this header included
  uint32_t used;         //  8  bytes written, this header included; 0: not closed, read up to the first zero word
  uint16_t stream;       // 12  Stream
  uint16_t flags;        // 14
  uint32_t process;      // 16  process number, unique in the file
  uint32_t pid;          // 20  OS process id
  uint32_t lane;         // 24  lane number, unique in its process
  uint32_t sequence;     // 28  this is the n-th chunk of its lane and stream, from 0
  uint32_t thread;       // 32  OS thread id when the chunk was opened
  uint32_t epoch;        // 36  n-th recording of this process
  uint32_t depth;        // 40  open hops of the thread when the chunk was opened
  uint32_t reserved;     // 44
  uint64_t ticks;        // 48  when the chunk was opened
  uint32_t check;        // 56  CRC-32 (zlib) of bytes 0..55, taken with used = 0 and capacity = 0
  uint32_t reserved2;    // 60
};
static_assert(sizeof(ChunkHeader) == 64);

// ---- stream of hops: 8-byte words -------------------------------------------------------------
// The first word of an event, and no other, has bit 63 set:
//
//    63   62..59   58      57..0
//   [ 1 | kind   | brief | ticks since start_ticks ]
//
// (an event of a call is shorter where it is brief; another event with that bit is of the kind 16 + kind)
//
// so a reader finds all events at once with one comparison, and after damage resynchronises at the
// next event. The first word is stored last: an event whose first word is zero was never finished.
enum HopEvent : uint64_t {
  kEnter = 1,       // 5 words
  kExit = 2,        // 2 words
  kNode = 3,        // 3 words
  kRangeEnter = 4,  // 2 words; of version 6, as the next
  kRangeExit = 5,   // 1 word
  kThread = 6,      // 2 words
  kApiEnter = 7,    // 4 words and its arguments
  kApiExit = 8,     // 3 words and its results
  kLibraryEnter = 9,   // as kApiEnter
  kLibraryExit = 10,   // as kApiExit
  kStep = 11,       // 2 words
  kModule = 12,     // 2 words
  kApiQuery = 13,   // 4 words and its arguments
  kMemory = 14,     // 3 words
  kThreadKeys = 15, // 2 words
  kContext = 19,    // 3 words
  kRangeBegin = 20, // 3 words
  kRangeEnd = 21,   // 2 words
  kThreadTime = 22, // 3 words
  kTensor = 27,     // 2 words
  kResults = 28,    // 2 words
  kMemoryLine = 30, // 2 words
  kValue = 31,      // 3 words
};
// kEnter, a hop was entered (bit 63 of words 1..4 is 0):
//   1: the DispatchKeySet handed to the kernel function (raw_repr; its highest key is the hop's key)
//   2: bits 0..31 hop id, bits 32..62 source id (0: none; inside another hop: that of the hop around)
//   3: bits 0..31 autograd sequence number (kNoSequence: not at an Autograd key), bits 32..62 signature id (0: none)
//   4: bits 0..12 depth (open hops of the thread before this one), bits 13..14 call site class, bits 15..62 return address
// kExit, the innermost open hop was left:
//   1: bits 0..31 hop id, bits 32..44 depth (as in its kEnter), bit 45 an exception left it, bits 46..62 how
//      many autograd nodes its thread made meanwhile, kMostNodes or more are kMostNodes (0: not at an Autograd key)
// kNode, from here on the thread evaluates this autograd node (none when the name is 0):
//   1: bits 0..62 the node's sequence number
//   2: bits 0..31 name (string id), bits 32..62 torch's number of the thread that made the node
// kRangeBegin, record_function began, or a range of tracer's own (its name begins with kOwnRange):
//   1: bits 0..31 name (string id), bits 32..62 source id (0: none; of tracer's own ranges)
//   2: its number, which no other range of the process has. The number that is known already: the same range, said again.
//   The time is that of the begin, which may be before a window of the recording, and before the events in front of it.
// kRangeEnd, a range ended that this thread or another one of the process began; the time may be in a pause of the recording:
//   1: its number
// kRangeEnter, kRangeExit: the same without numbers, where the innermost range of the thread ended
// kContext, from here on the thread runs in this context of contextvars, as each task of asyncio has one. Said before outermost
// hops and begins of ranges, while a range of the thread is open:
//   1: the context (an address, 0: none or not known)
//   2: the context in which it was entered (0: none or not known)
// kThread, the lane is used by this thread from here on:
//   1: bits 0..31 OS thread id, bits 32..62 torch's number of the thread (RecordFunction::currentThreadId)
// kApiEnter, a CUDA runtime or driver function was called; kLibraryEnter, a function of cuBLAS, cuDNN... was:
//   1: the call (below)
//   2: bits 0..31 CUPTI's correlation id (0 of a library call), bits 32..62 native stack (stack id, 0: none)
//   3: bits 0..31 device kernel that is launched (string id, 0: none), bits 32..62 source id (0: none; where
//      a hop is open: that of the hop)
//   4...: as many argument words as the call says, without their bit 63
//   Brief: word 3 is 0 and left out; the arguments are the words 3...
// kApiExit, kLibraryExit, it returned:
//   1: the call, as at its kEnter, but with its own argument words: what was read when it returned
//   2: bits 0..31 what it returned (cudaError_t, CUresult, cublasStatus_t...), bit 32 it made a node of a graph
//      that is being captured and ran nothing
//   3...: as many words as the call says
//   Brief: word 2 is 0 and left out; the words that the call says are 2...
// kApiQuery, a CUDA runtime function was called where a hop is open, and has returned 0; nothing else
// happened in its thread meanwhile:
//   1: the call, 2: correlation id and native stack, both as of a kApiEnter
//   3: bits 0..29 ticks from the call to the return, bits 30..61 what was read when it returned, bit 62 there is such a word
//   4...: as many argument words as the call says
//   Brief: word 3 is 0 and left out
// The call: bits 0..15 function (callback id of CUPTI, or number of the library function), bit 16 driver domain,
//   bits 17..21 number of argument words, bits 22..45 bit 63 of each argument word, bits 46..58 depth (open hops of
//   the thread), bits 59..62 calls of the thread that were open before this one (at most kMaxCallDepth)
// kStep, a step of the program (a training step) ended:  1: bits 0..31 steps ended, this one included; 0: none ended, but
//   the recorded steps begin here, and what is before (captures of CUDA graphs) is of no step
// kThreadTime, what the thread that writes the next kStep, which follows at once, had of the processor since it began:
//   1: bits 0..62 its CPU time in nanoseconds
//   2: bits 0..62 how long it was ready to run while others ran, in nanoseconds (kUnknownTime: the kernel does not count it)
// kModule, from here on the thread's outermost hops run in a call of this nn.Module:  1: bits 0..31 module (id of a
//   kModulePath, 0: in none)
// kThreadKeys, from here on the thread adds these dispatch keys and hides those:  1: bits 0..31 id of a kKeysOfThread
// kValue, the innermost open hop returns tensors; its kExit follows:
//   1: bits 0..62 hash of their values (0: left out of a redacted trace)
//   2: bits 0..2 ValueFlags, bits 48..60 depth (open hops of the thread, this one included)
// kTensor, which tensor one of a call is, those of its signature in their order: of the kEnter that follows, or of a kResults:
//   1: bits 0..37 number of its storage, which no other storage of the process has (0: none or not known), bits 38..61
//      its version + 1 (0: it has none, or not known), bit 62 is 1: a kStep that damage made a kTensor has it not
// kResults, the hop that was left last returned tensors; a kTensor of each follows at once:
//   1: bits 0..31 their signature id (0: none), bits 32..62 how many kTensor follow
// kMemory, an allocator of torch gave out a block of memory, or took it back:
//   1: bits 0..47 address, bits 48..60 depth (open hops of the thread), bit 61 it was taken back
//   2: bits 0..47 bytes (0 of a CPU block that was taken back: those of its allocation), bits 48..54 DeviceType, bits 55..62
//      device index + 1
// kMemoryLine, the kMemory that follows was given out to this line of Python, while no hop was open:  1: bits 0..31 source id

// The positions above by name. A SHIFT is the number of a part's lowest bit, a MASK covers the part once it was shifted down to
// bit 0, a BIT is one bit in its place. tracer/trace/bytes/format.py has the same names, and a test compares the two lists.
constexpr uint64_t kEventBit = 1ull << 63;
constexpr int kEventKindShift = 59;
constexpr uint64_t kEventKindMask = 15;
constexpr int kBriefShift = 58;
constexpr uint64_t kBriefBit = 1ull << kBriefShift;
constexpr uint64_t kBriefKind = kEventKindMask + 1;  // of other events than calls: that bit, as part of the kind
constexpr uint64_t kTicksMask = kBriefBit - 1;
// Of the many words that hold two numbers: bits 0..31, and bits 32..62 or 32..63.
constexpr int kHighShift = 32;
constexpr uint64_t kLow32 = 0xffffffff;
constexpr uint64_t kHigh31 = 0x7fffffff;
constexpr uint64_t two_numbers(uint32_t low, uint64_t high) { return low | high << kHighShift; }
// kEnter, word 4
constexpr uint32_t kMaxDepth = (1u << 13) - 1;
constexpr int kCallSiteShift = 13;
constexpr uint64_t kCallSiteMask = 3;
constexpr int kReturnAddressShift = 15;
constexpr uint64_t kReturnAddressMask = (1ull << 48) - 1;
constexpr uint32_t kNoSequence = 0xffffffffu;
// kExit, word 1
constexpr int kExitDepthShift = 32;
constexpr int kExitRaisedShift = 45;
constexpr int kExitNodesShift = 46;
constexpr uint32_t kMostNodes = (1u << 17) - 1;
// kThreadTime, word 2
constexpr uint64_t kUnknownTime = kEventBit - 1;
// kValue, word 2
constexpr int kValueDepthShift = 48;
enum ValueFlags : uint64_t { kValueNan = 1, kValueInfinite = 2, kValueUnread = 4 };
// kTensor
constexpr int kVersionShift = 38;
constexpr uint64_t kStorageMask = (1ull << kVersionShift) - 1;
constexpr uint64_t kTensorBit = 1ull << 62;
constexpr uint64_t kMostVersions = (1ull << 24) - 1;
// The call
constexpr uint64_t kCallFunctionMask = 0xffff;
constexpr int kCallDriverShift = 16;
constexpr int kCallWordsShift = 17;
constexpr uint64_t kCallWordsMask = 31;
constexpr int kCallHighBitsShift = 22;
constexpr int kCallDepthShift = 46;
constexpr int kCallCallsShift = 59;
constexpr uint32_t kMaxCallWords = 24;
constexpr uint32_t kMaxCallDepth = 15;
// kApiExit, word 2
constexpr int kCallCapturedShift = 32;
// The correlation id of a call that CUPTI does not tell of; nothing on the GPU has it.
constexpr uint32_t kNoCorrelation = 0xffffffff;

// kApiQuery, word 3
constexpr uint64_t kQueryTicksMask = (1ull << 30) - 1;
constexpr int kQueryReadShift = 30;
constexpr uint64_t kQueryReadsBit = 1ull << 62;

// kMemory
constexpr uint64_t kMemoryAddressMask = (1ull << 48) - 1;
constexpr int kMemoryDepthShift = 48;
constexpr int kMemoryFreedShift = 61;
constexpr uint64_t kMemorySizeMask = (1ull << 48) - 1;
constexpr int kMemoryDeviceTypeShift = 48;
constexpr uint64_t kMemoryDeviceTypeMask = 127;
constexpr int kMemoryDeviceIndexShift = 55;
constexpr uint64_t kMemoryDeviceIndexMask = 255;

// Begins the names of tracer's own ranges:
//   call:N         a call of compiled code, which the document "compiled:N" describes (0: none does)
//   kernel:NAME    a call of a kernel of compiled code, a function or a launch; bench:NAME to find its best configuration
//   phase:NAME:ID  a phase of compilation ID
//   module:PATH    a call of an nn.Module that no other one called
constexpr char kOwnRange = 0x1f;
constexpr uint32_t kOther = 0x7fffffff;  // an id of a string, source, signature: what it means was not written down

// How the hop was reached, by the code at the return address.
enum CallSite : uint64_t {
  kByParent = 0,    // other code: a redispatch iff the enclosing hop is of the same op, at a higher key
  kCall = 1,        // at::_ops::X::call, Dispatcher::callBoxed, callWithDispatchKeySlowPath, code that has these inlined
  kRedispatch = 2,  // at::_ops::X::redispatch
  kUnasked = 3,     // code that was read and has not asked torch's profiler: a redispatch iff the enclosing hop is of the same op
};

// ---- stream of definitions ---------------------------------------------------------------------
// Records of multiples of 8 bytes. The head's first 8 bytes are stored last.
constexpr uint16_t kDefinitionMagic = 0xd5f1;
struct DefinitionHead {
  uint32_t bytes;   // this head included, a multiple of 8
  uint16_t kind;    // Definition
  uint16_t magic;   // kDefinitionMagic
  uint64_t ticks;   // since start_ticks
};
static_assert(sizeof(DefinitionHead) == 16);
// A "string" below is u32 length and as many bytes of UTF-8, unpadded; integers are unaligned.
// Ids of strings, sources and signatures count per lane from 1; ids of hops and modules per process.
enum Definition : uint16_t {
  kProcess = 1,    // u32 process, u32 pid, u32 parent pid, u32 how (0 root, 1 forked, 2 joined by environment), string command
  kThreadName = 2, // u32 OS thread id, u64 torch's number of the thread, string name
  kString = 3,     // u32 id, string
  kHop = 4,        // u32 hop id, u32 flags, u32 dispatch table index, u64 kernel function, u64 boxed function,
                   //   string op, string key, string registered at, string rule, string Python kernel ("" if none)
  kSourceLine = 5, // u32 id, u32 line, string file, string function
  kSignature = 6,  // u32 id, u32 n, n tensors (below); with kScalars, or of a call with a process group, then u32 m, m x (u16 argument
                   // position, string JSON)
  kJson = 7,       // string kind, string zlib-compressed JSON ("environment", "libraries", "enums", "certificate", ...)
  kSymbol = 8,     // u64 address, u64 offset from the symbol, string symbol (mangled, "" unknown), string library
  kFunction = 9,   // u32 domain (FunctionDomain), u32 function, string name, string layout (below); once a process
  kEnumeration = 10, // string type, string values ("name=number\n" for each); before the first kFunction that uses it
  kStack = 11,     // u32 id, u32 n, n x u64 program counter (inside the calling instruction), innermost first
  kGraphNode = 12, // u64 node, u64 node that it is a copy of (0: captured), u32 correlation id of the capturing call
  kGpu = 13,       // u32 device, string name, string facts ("name=number\n" for each)
  kModulePath = 14, // u32 id, string names from the outermost module inwards, apart by dots ("" the outermost one itself),
                   //   string class of the outermost module; in the process's lane
  kPythonStack = 15, // u32 id (one of the sources), u32 n, n x u32 source id, innermost first: the source is the first.
                     //   Where n has kWithTorchLines, the first is the source, and the n-1 after it are the stack
  kKeysOfThread = 16, // u32 id (one of the strings), u64 DispatchKeySet included, u64 excluded (raw_repr), string classes
                   //   of TorchDispatchModes, a line each, outermost first
};
// kSignature: with this bit of n, after the tensors u32 k, k x (u16 argument position, u32 tensors of the list there, also those
// that are not among the n)
constexpr uint32_t kCutLists = 1u << 31;
// kPythonStack
constexpr uint32_t kWithTorchLines = 1u << 31;
enum FunctionDomain : uint32_t { kRuntime = 0, kDriver = 1, kLibrary = 2 };
// The layout of a function's words, a line a field, fields apart by tabs:
//   when ("enter" or "exit"), name, C type, offset in bytes from the first argument word, size in bytes
enum HopFlags : uint32_t {
  kTypedHop = 1,    // the unboxed entry is wrapped by its signature
  kStatefulHop = 2, // the kernel function has state of its own
  kPythonHop = 4,   // the kernel function is Python
  kViewHop = 8,     // the op may return an argument, or a view of one: by its schema
};
// One tensor of a signature:
//   u16 argument position, u8 dimensions (255: unknown), i8 ScalarType (-1: unknown),
//   u8 DeviceType (255: unknown), i8 device index, u8 Layout (255: unknown), u8 TensorFlags,
//   u64 key set, dimensions x i64 size, and where kHasStrides is set dimensions x i64 stride
enum TensorFlags : uint8_t { kRequiresGrad = 1, kHasStrides = 2, kUndefined = 4 };
constexpr uint8_t kUnknownDimensions = 255;
constexpr uint8_t kUnknownLayout = 255;
constexpr uint8_t kUnknownDevice = 255;

// ---- stream of activities ------------------------------------------------------------------------
// Records of 16 words; the first word is stored last, and is 0 where nothing was written.
constexpr uint32_t kActivityWords = 16;
enum ActivityKind : uint64_t { kGpuKernel = 1, kGpuMemcpy = 2, kGpuMemset = 3 };
//  0: bit 63, bits 56..58 ActivityKind, bits 32..47 device, bits 0..31 correlation id
//  1: start, 2: end, in ticks since start_ticks (0: CUPTI knows no time)
//  3: bits 0..31 stream, bits 32..63 context
//  4: bits 0..31 name (string id of the lane kProcessLane; 0: none), bits 32..63 graph (0: none)
//  5: graph node (0: none)
//  6: bytes (memcpy, memset)
//  kernel   7: grid x, y   8: grid z, block x   9: block y, z   10: registers a thread, static shared bytes
//          11: dynamic shared bytes, local bytes a thread   12: cluster x, y   13: cluster z, shared bytes executed
//  memcpy   7: copy kind, bits 32..39 kind of the source's memory, bits 40..47 of the destination's, bit 48 asynchronous
//           8: device of the source, of the destination (peer copies; else the device)
//  memset   7: value, kind of memory
// "a, b" in one word: a in bits 0..31, b in bits 32..63. Kinds of memory and of copies are CUPTI's numbers.
constexpr int kActivityKindShift = 56;
constexpr int kActivityDeviceShift = 32;
constexpr uint64_t kActivityDeviceMask = 0xffff;
constexpr int kCopySourceShift = 32;
constexpr int kCopyDestinationShift = 40;
constexpr int kCopyAsynchronousShift = 48;
constexpr uint32_t kProcessLane = 0xffffffffu;  // the lane number of what belongs to a process and not to a thread

}  // namespace tracer::trace
