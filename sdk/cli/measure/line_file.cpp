// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/measure/line_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "sdk/cli/console/exit_code.h"

namespace baton::cli {

LineFile::LineFile(std::string name, const std::string& path)
    : name_(std::move(name)), file_(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666)) {
  if (file_ < 0) throw Failure(kUsage, fmt::format("{}: it cannot be written: {}", name_, std::strerror(errno)));
}

void LineFile::add(std::string_view line) {
  const off_t end = ::lseek(file_, 0, SEEK_END);  // -1: a pipe, from which nothing can be removed
  if (write_all(file_, std::string(line) + "\n")) return;
  const int error = errno;
  if (end >= 0) [[maybe_unused]]
    const int removed = ::ftruncate(file_, end);
  throw Failure(kRunFailed, fmt::format("{}: it could not be written: {}", name_, std::strerror(error)));
}

}  // namespace baton::cli
