#include "descriptor.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tracer::trace {
namespace {

// Scripts that close descriptors often stop at 256 or 1024; those that close all of them make the file be opened again.
constexpr rlim_t kFirst = 1100, kSpare = 16;

}  // namespace

int move_up(int fd) {
  rlimit limit;
  if (fd < 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0) return fd;
  rlim_t first = std::min(kFirst, limit.rlim_cur > kSpare ? limit.rlim_cur - kSpare : 0);
  int moved = fcntl(fd, F_DUPFD_CLOEXEC, int(first));
  if (moved < 0) return fd;
  ::close(fd);
  return moved;
}

Descriptor::Descriptor(std::string path, int fd) : path_(std::move(path)), fd_(move_up(fd)) {
  struct stat status;
  if (fstat(fd_, &status) != 0) return;
  device_ = status.st_dev;
  inode_ = status.st_ino;
}

Descriptor::~Descriptor() {
  int fd = fd_.load();
  if (is_file(fd)) ::close(fd);  // else it is the script's
}

bool Descriptor::is_file(int fd) const {
  struct stat status;
  return fd >= 0 && fstat(fd, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

bool Descriptor::is_at(const std::string& path) const {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

int Descriptor::get() {
  int fd = fd_.load();
  if (is_file(fd)) return fd;
  int again = move_up(::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!is_file(again)) {
    if (again >= 0) ::close(again);
    return -1;
  }
  if (locked_) flock(again, LOCK_EX | LOCK_NB);  // it went with the descriptor that the script closed
  if (fd_.compare_exchange_strong(fd, again)) return again;
  ::close(again);  // another thread was faster
  return is_file(fd) ? fd : -1;
}

bool Descriptor::reaches(uint64_t size) {
  struct stat status;
  int fd = get();
  return fd >= 0 && fstat(fd, &status) == 0 && uint64_t(status.st_size) >= size;
}

bool Descriptor::lock() {
  int fd = get();
  // A file system may have no locks.
  locked_ = fd >= 0 && (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK);
  return locked_;
}

void Descriptor::unlock() {
  int fd = locked_ ? get() : -1;
  if (fd >= 0) flock(fd, LOCK_UN);
  locked_ = false;
}

}  // namespace tracer::trace
