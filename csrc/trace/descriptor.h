// The recorder's descriptor of a file, beside a script that may close any descriptor and open its own files.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace tracer::trace {

// Moves a descriptor to a high number, away from those that a script closes, replaces or counts on; the old one is closed.
int move_up(int fd);

class Descriptor {
 public:
  // Takes over an open descriptor of the file at `path`.
  Descriptor(std::string path, int fd);
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  // A descriptor of the file, to be used at once: the number is compared with the file, and the file opened again if
  // the script has closed or replaced it. -1: it cannot be had any more.
  int get();
  // Whether the file still has this many bytes.
  bool reaches(uint64_t size);
  // Makes this the only recorder of the file. False: another process is.
  bool lock();
  void unlock();
  // The file is at this path from now on.
  void move(const std::string& path) { path_ = path; }
  // Whether the path leads to the file.
  bool is_at(const std::string& path) const;

 private:
  bool is_file(int fd) const;

  std::string path_;
  std::atomic<int> fd_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  bool locked_ = false;
};

}  // namespace tracer::trace
