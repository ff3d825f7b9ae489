// SPDX-License-Identifier: Apache-2.0
#include "sdk/trace/trace_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include <baton/errors.h>

#include "engine/base/errors.h"
#include "engine/base/files.h"
#include "engine/base/system/file.h"
#include "sdk/hub/hub_cache.h"
#include "sdk/hub/model_source.h"
#include "sdk/trace/spans.h"

namespace baton {
namespace {

constexpr const char* kDefaultAddress = "http://localhost:4318";
constexpr const char* kPath = "/v1/traces";

/// The first of two variables that is set.
struct Variable {
  Variable(const char* first, const char* second) : name(first), value(environment(first)) {
    if (!value.empty()) return;
    name = second;
    value = environment(second);
  }
  const char* name;
  std::string value;
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// "key1=value1,key2=value2", with %XX in values.
std::vector<std::pair<std::string, std::string>> pairs_of(const char* variable, std::string_view text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view pair = trimmed(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (pair.empty()) continue;
    const std::size_t equals = pair.find('=');
    if (equals == pair.npos || equals == 0)
      throw InputError(fmt::format("{}: expected NAME=VALUE,NAME=VALUE, found an entry without {}", variable,
                                   equals == 0 ? "a name" : "="));
    pairs.emplace_back(trimmed(pair.substr(0, equals)), percent_decoded(trimmed(pair.substr(equals + 1))));
  }
  return pairs;
}

bool is_header(const std::string& name, const std::string& value) {
  const auto in_name = [](unsigned char c) { return c > ' ' && c < 127 && c != ':'; };
  const auto in_value = [](unsigned char c) { return c >= ' ' && c != 127; };
  return std::all_of(name.begin(), name.end(), in_name) && std::all_of(value.begin(), value.end(), in_value);
}

/// An address without a path is that of a collector, which takes traces at kPath.
std::string with_path(std::string url) {
  const std::size_t scheme = url.find("://");
  const std::size_t slash = scheme == url.npos ? url.npos : url.find('/', scheme + 3);
  if (slash == url.npos) return url + kPath;
  return slash + 1 == url.size() ? url.substr(0, slash) + kPath : url;
}

std::string url_of(const std::string& address) {
  if (!address.empty()) return with_path(address);
  if (std::string whole = environment("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"); !whole.empty()) return whole;
  std::string base = environment("OTEL_EXPORTER_OTLP_ENDPOINT");
  if (base.empty()) base = kDefaultAddress;
  while (base.ends_with('/')) base.pop_back();
  return base + kPath;
}

}  // namespace

CollectorSettings collector_settings(const std::string& address) {
  CollectorSettings settings;
  settings.url = url_of(address);
  if (!settings.url.starts_with("http://") && !settings.url.starts_with("https://"))
    throw InputError(fmt::format("traces are sent to an address that begins with http:// or https://, found '{}'",
                                 shown_url(settings.url)));
  const Variable headers("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS");
  for (const auto& [name, value] : pairs_of(headers.name, headers.value)) {
    if (!is_header(name, value))  // may be secret, so that it is not shown
      throw InputError(fmt::format("{}: expected printable headers, found another character", headers.name));
    settings.headers.push_back(name + ": " + value);
  }
  const Variable timeout("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT");
  if (timeout.value.empty()) return settings;
  const bool is_number = timeout.value.size() < 8 && timeout.value.find_first_not_of("0123456789") == std::string::npos;
  if (!is_number || std::stol(timeout.value) == 0)
    throw InputError(
        fmt::format("{}: expected milliseconds, 1 to 9999999, found '{}'", timeout.name, timeout.value.substr(0, 40)));
  settings.timeout = std::chrono::milliseconds(std::stol(timeout.value));
  return settings;
}

std::map<std::string, std::string> resource_attributes() {
  constexpr const char* kVariable = "OTEL_RESOURCE_ATTRIBUTES";
  std::map<std::string, std::string> attributes{{"service.name", "baton"}};
  for (auto& [name, value] : pairs_of(kVariable, environment(kVariable))) attributes[name] = std::move(value);
  if (std::string name = environment("OTEL_SERVICE_NAME"); !name.empty()) attributes["service.name"] = std::move(name);
  return attributes;
}

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
  if (const std::string problem = write_target(path).problem; !problem.empty())
    return fmt::format("{}: {}", path.string(), problem);
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

namespace {

constexpr std::size_t kMaxWaiting = 256;

}  // namespace

TraceQueue::TraceQueue(TraceTarget target, std::function<void(const std::string& line)> on_log)
    : target_(std::move(target)), on_log_(std::move(on_log)), thread_([this](const auto& stop) { work(stop); }) {}

TraceQueue::~TraceQueue() {
  thread_.request_stop();
  thread_.join();
}

EventCallback TraceQueue::follow() {
  struct Followed {
    RunMarks marks;
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  };
  return [this, run = std::make_shared<Followed>()](const Event& event) {
    const auto now = std::chrono::steady_clock::now();
    if (std::holds_alternative<RunStarted>(event)) run->begin = now;
    try {
      run->marks.add(event, std::chrono::duration<double, std::milli>(now - run->begin).count());
      if (const auto* finished = std::get_if<RunFinished>(&event))
        add(spans_of(finished->record, run->marks.turns(finished->record)));
    } catch (const std::bad_alloc&) {  // takes nothing from the run
      const std::lock_guard lock(mutex_);
      ++lost_;
    }
  };
}

void TraceQueue::add(RunTrace trace) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= kMaxWaiting) {
      ++lost_;
      return;
    }
    waiting_.push_back(std::move(trace));
  }
  changed_.notify_one();
}

void TraceQueue::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !waiting_.empty(); })) {
    const RunTrace trace = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    std::string problem = "out of memory";
    try_to([&] { problem = target_.write(trace); });
    lock.lock();
    if (!problem.empty()) ++lost_;
    const std::size_t lost = problem.empty() ? std::exchange(lost_, 0) : lost_;
    lock.unlock();
    try_to([&] { tell(problem, lost); });
    lock.lock();
    if (!problem.empty() && stop.stop_requested()) return;
  }
}

void TraceQueue::tell(const std::string& problem, std::size_t lost) {
  if (!on_log_) return;
  if (problem.empty() && !told_ && lost > 0)
    on_log_(fmt::format("warning: {} traces were lost; more than {} waited for the collector", lost, kMaxWaiting));
  if (problem.empty() == !told_) return;
  told_ = !told_;
  on_log_(problem.empty() ? fmt::format("traces are written again; {} were lost", lost)
                          : "warning: a trace is lost, and so are those that follow until this ends: " + problem);
}

}  // namespace baton
