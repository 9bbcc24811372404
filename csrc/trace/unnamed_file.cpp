#include "unnamed_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace tracer::trace {
namespace {

constexpr int kTries = 100;

std::string folder_of(const std::string& path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

std::string path_of(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

}  // namespace

UnnamedFile::UnnamedFile(const std::string& path, mode_t mode) : path_(path), fd_(-1), maker_(getpid()) {
  // Such a file gets its name by its path in /proc.
  if (access("/proc/self/fd", F_OK) == 0) fd_ = ::open(folder_of(path).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
  if (fd_ >= 0) return;
  name_ = path + ".XXXXXX";
  fd_ = mkostemp(name_.data(), O_CLOEXEC);
  if (fd_ < 0) {
    name_.clear();
    return;
  }
  mode_t mask = umask(0);
  umask(mask);
  fchmod(fd_, mode & ~mask);
}

UnnamedFile::~UnnamedFile() {
  if (!name_.empty() && getpid() == maker_) unlink(name_.c_str());
}

bool UnnamedFile::replace(int fd) {
  for (int i = 0; name_.empty() && i < kTries; ++i) {
    std::string name = path_ + "." + std::to_string(getpid()) + "-" + std::to_string(i);
    if (linkat(AT_FDCWD, path_of(fd).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0)
      name_ = name;
    else if (errno != EEXIST)
      return false;
  }
  if (name_.empty() || rename(name_.c_str(), path_.c_str()) != 0) return false;
  name_.clear();
  return true;
}

}  // namespace tracer::trace
