// A file without a name, which takes the place of another file once it is whole: a kill before leaves nothing behind.
#pragma once

#include <sys/types.h>

#include <string>

namespace tracer::trace {

class UnnamedFile {
 public:
  // On the file system of `path`. Where there are no files without a name it has a name of its own beside `path`.
  UnnamedFile(const std::string& path, mode_t mode);
  ~UnnamedFile();  // a name of its own goes, in the process that made it; the descriptor is the caller's
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;

  // -1: errno says why. The caller closes it.
  int fd() const { return fd_; }
  // Becomes the file at `path`, in place of the one there. `fd` is a descriptor of this file. False: errno says why.
  bool replace(int fd);

 private:
  std::string path_, name_;
  int fd_;
  pid_t maker_;
};

}  // namespace tracer::trace
