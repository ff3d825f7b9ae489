// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/console/whole_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/file_descriptor.h"
#include "sdk/cli/console/interrupt.h"

namespace baton::cli {
namespace fs = std::filesystem;
namespace {

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(descriptor, bytes.data(), bytes.size());
    if (put < 0 && errno != EINTR) return false;
    if (put > 0) bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

}  // namespace

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

void write_whole_file(const fs::path& path, std::string_view bytes) {
  const auto write = [&](const fs::path& aside) {
    FileDescriptor file(::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    const bool done = file >= 0 && write_all(file, bytes) && file.close() && ::rename(aside.c_str(), path.c_str()) == 0;
    if (!done) throw Failure(kRunFailed, fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)));
  };
  write_aside(path, write, [](const fs::path& aside) { ::unlink(aside.c_str()); });
}

}  // namespace baton::cli
