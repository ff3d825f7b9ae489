// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/console/whole_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <mutex>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/file_descriptor.h"
#include "sdk/cli/console/interrupt.h"

namespace baton::cli {
namespace fs = std::filesystem;
void write_aside(const fs::path& path, const std::function<void(const fs::path& aside)>& write,
                 const std::function<void(const fs::path& aside)>& remove) {
  const fs::path aside = path.parent_path() / fmt::format(".{}.part-{}", path.filename().string(), ::getpid());
  // Writing and removing exclude each other; after the last words nothing is written any more, for the program ends.
  std::mutex writing;
  const LastWords words([&] {
    writing.lock();
    remove(aside);
  });
  const std::lock_guard lock(writing);
  try {
    remove(aside);
    write(aside);
  } catch (...) {
    remove(aside);
    throw;
  }
}

int write_new_file(const fs::path& path, std::string_view bytes) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  return file >= 0 && write_all(file, bytes) && file.close() ? 0 : errno;
}

void write_whole_file(const fs::path& path, std::string_view bytes) {
  const auto write = [&](const fs::path& aside) {
    int error = write_new_file(aside, bytes);
    if (error == 0 && ::rename(aside.c_str(), path.c_str()) != 0) error = errno;
    if (error != 0) throw Failure(kRunFailed, fmt::format("cannot write {}: {}", path.string(), std::strerror(error)));
  };
  write_aside(path, write, [](const fs::path& aside) { ::unlink(aside.c_str()); });
}

}  // namespace baton::cli
