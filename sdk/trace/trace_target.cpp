// SPDX-License-Identifier: Apache-2.0
#include "sdk/trace/trace_target.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>
#include <system_error>

#include <baton/errors.h>

#include "engine/base/atomic_file.h"
#include "engine/base/unique_fd.h"
#include "sdk/trace/chrome.h"
#include "sdk/trace/collector.h"
#include "sdk/trace/otlp.h"

namespace baton {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kChromeEnd = ".perfetto.json";

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(file, bytes.data(), bytes.size());
    if (put < 0 && errno != EINTR) return false;
    if (put > 0) bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

/// Appends. A line that cannot be written whole is removed again. Returns the reason; empty: it was written.
std::string append_to(const fs::path& path, const std::string& bytes) {
  const auto failed = [&] { return fmt::format("{}: {}", path.string(), std::strerror(errno)); };
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file) return failed();
  struct stat status {};
  const bool regular = ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode);
  if (write_all(file.get(), bytes)) return {};
  const std::string why = failed();
  return regular && ::ftruncate(file.get(), status.st_size) != 0 ? why + ", and an unfinished line is left" : why;
}

std::string replace(const fs::path& path, const std::string& bytes) {
  try {
    AtomicFile file(path);
    file.write(std::as_bytes(std::span(bytes)));
    file.commit();
    return {};
  } catch (const fs::filesystem_error& error) {
    return fmt::format("{}: {}", path.string(), error.code().message());
  }
}

}  // namespace

TraceTarget::TraceTarget(const std::string& text) {
  if (text == "otlp" || text.find("://") != text.npos) {
    kind_ = Kind::collector;
    collector_ = collector_settings(text == "otlp" ? "" : text);
  } else {
    if (text.ends_with(kChromeEnd)) kind_ = Kind::chrome;
    std::error_code error;
    file_ = fs::absolute(text, error);
    if (text.empty() || !fs::is_directory(file_.parent_path(), error))
      throw InputError(
          fmt::format("expected otlp, an address or a file for traces, found '{}', which is in no folder "
                      "that exists",
                      text));
  }
  if (kind_ != Kind::chrome) resource_ = resource_attributes();
}

std::string TraceTarget::write(const RunTrace& trace) const {
  if (kind_ == Kind::chrome) return replace(file_, chrome_json(trace));
  const std::string otlp = otlp_json(trace, resource_);
  return kind_ == Kind::lines ? append_to(file_, otlp + "\n") : send_trace(collector_, otlp);
}

}  // namespace baton
