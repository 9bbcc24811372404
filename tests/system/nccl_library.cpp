// In the place of libnccl, which needs a GPU: each function checks that it gets what libtorch_cuda gave (nccl_torch.cpp).
#include <cstddef>
#include <cstdint>

namespace {
int expect(bool matches) { return matches ? 0 : 4; }  // ncclInvalidArgument
bool are(const void* send, const void* receive, void* comm, void* stream) {
  return uintptr_t(send) == 0x10 && uintptr_t(receive) == 0x20 && uintptr_t(comm) == 0xc0 && uintptr_t(stream) == 0x50;
}
}  // namespace

extern "C" {
int ncclAllReduce(const void* s, void* r, size_t n, int type, int op, void* c, void* t) {
  return expect(are(s, r, c, t) && n == 1ull << 33 && type == 7 && op == 0);
}
int ncclReduceScatter(const void* s, void* r, size_t n, int type, int op, void* c, void* t) {
  return expect(are(s, r, c, t) && n == 2 && type == 9 && op == 4);
}
int ncclAllGather(const void* s, void* r, size_t n, int type, void* c, void* t) { return expect(are(s, r, c, t) && n == 3 && type == 6); }
int ncclAlltoAll(const void* s, void* r, size_t n, int type, void* c, void* t) { return expect(are(s, r, c, t) && n == 4 && type == 1); }
int ncclBroadcast(const void* s, void* r, size_t n, int type, int root, void* c, void* t) {
  return expect(are(s, r, c, t) && n == 5 && type == 4 && root == 3);
}
int ncclBcast(void* r, size_t n, int type, int root, void* c, void* t) {
  return expect(are(reinterpret_cast<void*>(0x10), r, c, t) && n == 6 && type == 4 && root == 2);
}
int ncclReduce(const void* s, void* r, size_t n, int type, int op, int root, void* c, void* t) {
  return expect(are(s, r, c, t) && n == 7 && type == 8 && op == 2 && root == 5);
}
int ncclGather(const void* s, void* r, size_t n, int type, int root, void* c, void* t) {
  return expect(are(s, r, c, t) && n == 8 && type == 0 && root == 1);
}
int ncclSend(const void* s, size_t n, int type, int peer, void* c, void* t) {
  return expect(are(s, reinterpret_cast<void*>(0x20), c, t) && n == 9 && type == 7 && peer == 6);
}
int ncclRecv(void* r, size_t n, int type, int peer, void* c, void* t) {
  return expect(are(reinterpret_cast<void*>(0x10), r, c, t) && n == 10 && type == 7 && peer == 7);
}
int ncclGroupStart() { return 0; }
int ncclGroupEnd() { return 7; }  // ncclInProgress
}
