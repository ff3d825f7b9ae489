// SPDX-License-Identifier: Apache-2.0
#include "sdk/trace/trace_target.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>
#include <system_error>

#include <baton/errors.h>

#include "engine/base/atomic_file.h"
#include "engine/base/system/file.h"
#include "sdk/trace/chrome.h"
#include "sdk/trace/collector.h"
#include "sdk/trace/otlp.h"

namespace baton {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kChromeEnd = ".perfetto.json";

/// Appends. A line that cannot be written whole is removed again. Returns the reason; empty: it was written.
std::string append_to(const fs::path& path, const std::string& bytes) {
  const auto failed = [&] { return fmt::format("{}: {}", path.string(), std::strerror(errno)); };
  const UniqueFd file = open_file(path, Open::append | Open::create);
  if (!file) return failed();
  const std::optional<FileStatus> status = status_of(file);
  const bool regular = status && status->kind == FileKind::regular;
  if (write_all(file, bytes)) return {};
  const std::string why = failed();
  return regular && !set_size(file, status->bytes) ? why + ", and an unfinished line is left" : why;
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
