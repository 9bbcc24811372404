// In the place of libtorch_cuda: calls NCCL through slots of its own.
#include <cstddef>

extern "C" {
int ncclAllReduce(const void*, void*, size_t, int, int, void*, void*);
int ncclReduceScatter(const void*, void*, size_t, int, int, void*, void*);
int ncclAllGather(const void*, void*, size_t, int, void*, void*);
int ncclAlltoAll(const void*, void*, size_t, int, void*, void*);
int ncclBroadcast(const void*, void*, size_t, int, int, void*, void*);
int ncclBcast(void*, size_t, int, int, void*, void*);
int ncclReduce(const void*, void*, size_t, int, int, int, void*, void*);
int ncclGather(const void*, void*, size_t, int, int, void*, void*);
int ncclSend(const void*, size_t, int, int, void*, void*);
int ncclRecv(void*, size_t, int, int, void*, void*);
int ncclGroupStart();
int ncclGroupEnd();

// How many calls did not get what they should, or did not return what they should.
int exchange() {
  auto* send = reinterpret_cast<void*>(0x10);
  auto* receive = reinterpret_cast<void*>(0x20);
  auto* comm = reinterpret_cast<void*>(0xc0);
  auto* stream = reinterpret_cast<void*>(0x50);
  int wrong = 0;
  wrong += ncclGroupStart() != 0;
  wrong += ncclAllReduce(send, receive, 1ull << 33, 7, 0, comm, stream) != 0;
  wrong += ncclReduceScatter(send, receive, 2, 9, 4, comm, stream) != 0;
  wrong += ncclAllGather(send, receive, 3, 6, comm, stream) != 0;
  wrong += ncclAlltoAll(send, receive, 4, 1, comm, stream) != 0;
  wrong += ncclBroadcast(send, receive, 5, 4, 3, comm, stream) != 0;
  wrong += ncclBcast(receive, 6, 4, 2, comm, stream) != 0;
  wrong += ncclReduce(send, receive, 7, 8, 2, 5, comm, stream) != 0;
  wrong += ncclGather(send, receive, 8, 0, 1, comm, stream) != 0;
  wrong += ncclSend(send, 9, 7, 6, comm, stream) != 0;
  wrong += ncclRecv(receive, 10, 7, 7, comm, stream) != 0;
  wrong += ncclGroupEnd() != 7;
  return wrong;
}
}
