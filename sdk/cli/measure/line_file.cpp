// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/measure/line_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "sdk/cli/console/exit_code.h"

namespace baton::cli {

LineFile::LineFile(std::string name, const std::string& path)
    : name_(std::move(name)), file_(open_file(path, Open::append | Open::create)) {
  if (!file_) throw Failure(kUsage, fmt::format("{}: it cannot be written: {}", name_, std::strerror(errno)));
}

void LineFile::add(std::string_view line) {
  const std::optional<FileStatus> before = status_of(file_);
  if (write_all(file_, std::string(line) + "\n")) return;
  const int error = errno;
  if (before && before->kind == FileKind::regular) set_size(file_, before->bytes);
  throw Failure(kRunFailed, fmt::format("{}: it could not be written: {}", name_, std::strerror(error)));
}

}  // namespace baton::cli
