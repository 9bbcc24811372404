// What is read of calls into NCCL: what is exchanged, with whom, on which stream. Their types are those of nccl.h.
#include "library_hook.h"

namespace tracer::cuda {
namespace {

using Communicator = void*;
using Stream = void*;

struct Exchange {
  uint64_t count;
  uint64_t comm, stream;
  int32_t datatype, other;  // the operation, the root or the peer
};

LayoutText exchange_layout() {
  return LayoutText()
      .TRACER_FIELD(Exchange, count, "size_t").TRACER_FIELD(Exchange, datatype, "ncclDataType_t")
      .TRACER_FIELD(Exchange, comm, "ncclComm_t").TRACER_FIELD(Exchange, stream, "cudaStream_t");
}

Exchange exchange(size_t count, int datatype, int other, Communicator comm, Stream stream) {
  return {count, reinterpret_cast<uint64_t>(comm), reinterpret_cast<uint64_t>(stream), datatype, other};
}

// ncclResult_t NAME(send, receive, count, datatype, comm, stream)
#define TRACER_NCCL_ALL(NAME)                                                                                    \
  struct NAME {                                                                                                  \
    static constexpr const char* name = #NAME;                                                                   \
    using Signature = int(const void*, void*, size_t, int, Communicator, Stream);                                \
    static std::string layout() { return exchange_layout(); }                                                    \
    static Exchange read(const void*, void*, size_t count, int datatype, Communicator comm, Stream stream) {     \
      return exchange(count, datatype, 0, comm, stream);                                                         \
    }                                                                                                            \
  };
TRACER_NCCL_ALL(ncclAllGather)
TRACER_NCCL_ALL(ncclAlltoAll)

// The same with an operation (ncclRedOp_t), or with the root.
#define TRACER_NCCL_WITH(NAME, FIELD, TYPE)                                                                             \
  struct NAME {                                                                                                         \
    static constexpr const char* name = #NAME;                                                                          \
    using Signature = int(const void*, void*, size_t, int, int, Communicator, Stream);                                  \
    static std::string layout() { return exchange_layout().add(FIELD, TYPE, offsetof(Exchange, other), 4); }            \
    static Exchange read(const void*, void*, size_t count, int datatype, int other, Communicator comm, Stream stream) { \
      return exchange(count, datatype, other, comm, stream);                                                            \
    }                                                                                                                   \
  };
TRACER_NCCL_WITH(ncclAllReduce, "op", "ncclRedOp_t")
TRACER_NCCL_WITH(ncclReduceScatter, "op", "ncclRedOp_t")
TRACER_NCCL_WITH(ncclBroadcast, "root", "int")
TRACER_NCCL_WITH(ncclGather, "root", "int")
TRACER_NCCL_WITH(ncclScatter, "root", "int")

struct ncclReduce {
  struct Reduction {
    Exchange exchange;
    int32_t root, unused;
  };
  static constexpr const char* name = "ncclReduce";
  using Signature = int(const void*, void*, size_t, int, int, int, Communicator, Stream);
  static std::string layout() {
    return exchange_layout().add("op", "ncclRedOp_t", offsetof(Exchange, other), 4).TRACER_FIELD(Reduction, root, "int");
  }
  static Reduction read(const void*, void*, size_t count, int datatype, int operation, int root, Communicator comm, Stream stream) {
    return {exchange(count, datatype, operation, comm, stream), root, 0};
  }
};

// One buffer, and the other rank: ncclResult_t NAME(buffer, count, datatype, rank, comm, stream)
#define TRACER_NCCL_ONE(NAME, FIELD)                                                                                   \
  struct NAME {                                                                                                        \
    static constexpr const char* name = #NAME;                                                                         \
    using Signature = int(const void*, size_t, int, int, Communicator, Stream);                                        \
    static std::string layout() { return exchange_layout().add(FIELD, "int", offsetof(Exchange, other), 4); }          \
    static Exchange read(const void*, size_t count, int datatype, int other, Communicator comm, Stream stream) {       \
      return exchange(count, datatype, other, comm, stream);                                                           \
    }                                                                                                                  \
  };
TRACER_NCCL_ONE(ncclSend, "peer")
TRACER_NCCL_ONE(ncclRecv, "peer")
TRACER_NCCL_ONE(ncclBcast, "root")

// Calls between these two are made when the second one ends: it launches their kernels.
#define TRACER_NCCL_GROUP(NAME)                   \
  struct NAME {                                   \
    static constexpr const char* name = #NAME;    \
    using Signature = int();                      \
    static std::string layout() { return {}; }    \
    static Nothing read() { return {}; }          \
  };
TRACER_NCCL_GROUP(ncclGroupStart)
TRACER_NCCL_GROUP(ncclGroupEnd)

}  // namespace

void add_nccl() {
  add<ncclAllReduce>();
  add<ncclReduceScatter>();
  add<ncclAllGather>();
  add<ncclAlltoAll>();
  add<ncclBroadcast>();
  add<ncclBcast>();
  add<ncclReduce>();
  add<ncclGather>();
  add<ncclScatter>();
  add<ncclSend>();
  add<ncclRecv>();
  add<ncclGroupStart>();
  add<ncclGroupEnd>();
}

}  // namespace tracer::cuda
