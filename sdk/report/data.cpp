// SPDX-License-Identifier: Apache-2.0
#include "sdk/report/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "sdk/console/html.h"
#include "sdk/console/interrupt.h"
#include "sdk/console/terminal.h"
#include "sdk/console/view.h"

namespace baton::cli {
namespace fs = std::filesystem;
namespace {

/// Up to `limit` bytes from where the file stands; false when reading fails.
bool read_start(const UniqueFd& file, std::size_t limit, std::string& bytes) {
  while (bytes.size() < limit) {
    const std::size_t before = bytes.size();
    bytes.resize(std::min(limit, before + (std::size_t{1} << 20)));
    const std::int64_t got = read_some(file, std::as_writable_bytes(std::span(bytes).subspan(before)));
    bytes.resize(before + static_cast<std::size_t>(std::max<std::int64_t>(got, 0)));
    if (got <= 0) return got == 0;
  }
  return true;
}

/// Throws unless nothing is there, or a page.
void require_page_or_nothing(const fs::path& path) {
  const UniqueFd file = open_file(path, Open::read | Open::no_link);  // a link could lead anywhere
  if (!file && errno == ENOENT) return;
  const std::string_view start = kPageStart;
  const std::optional<FileStatus> status = file ? status_of(file) : std::nullopt;
  std::string bytes;
  const bool page =
      status && status->kind == FileKind::regular && read_start(file, start.size(), bytes) && bytes == start;
  if (!page) {
    throw Failure(
        kUsage, fmt::format("{}: the file exists and is not a report; give another name with --output", path.string()));
  }
}

}  // namespace

RecordFiles::RecordFiles(fs::path folder) : folder_(std::move(folder)), opened_(folder_) {
  if (opened_) return;
  const std::string why = errno == ENOTDIR ? "it is not a folder" : std::strerror(errno);
  throw Failure(kUsage,
                fmt::format("{}: {}; expected a folder that 'baton run --record' wrote", folder_.string(), why));
}

std::optional<RecordFiles::Start> RecordFiles::start_of(const std::string& name, std::size_t limit) const {
  const auto fail = [&](const std::string& found) {
    return Failure(kInvalidFile, fmt::format("{}: expected a regular file, found {}", path_of(name), found));
  };
  const UniqueFd file = opened_.open(name);
  if (!file && errno == ENOENT) return std::nullopt;
  if (!file) throw fail(errno == ELOOP || errno == ENOTDIR ? "a symbolic link" : std::strerror(errno));
  const std::optional<FileStatus> status = status_of(file);
  if (!status) throw fail(std::strerror(errno));
  if (status->kind != FileKind::regular)
    throw fail(status->kind == FileKind::folder ? "a folder" : "a pipe or a device");
  Start start;
  start.size = static_cast<std::uint64_t>(status->bytes);
  if (!read_start(file, limit, start.bytes)) throw fail(std::strerror(errno));
  return start;
}

std::optional<std::string> RecordFiles::whole(const std::string& name, std::size_t limit) const {
  auto start = start_of(name, limit + 1);
  if (!start) return std::nullopt;
  if (start->bytes.size() > limit) {
    throw Failure(kInvalidFile, fmt::format("{}: expected at most {} MiB, found {:.0f} MiB", path_of(name), limit >> 20,
                                            static_cast<double>(start->size) / (1 << 20)));
  }
  return std::move(start->bytes);
}

void write_page(const fs::path& path, const std::string& page) {
  require_page_or_nothing(path);
  write_whole_file(path, page);
}

namespace {

constexpr JsonLimits kRecord = {.max_depth = 16};       // a record nests 6 deep
constexpr std::uint64_t kMaxCount = 1'000'000'000'000;  // sums of all counts of a record fit 64 bits
constexpr double kMaxNumber = 1e15;

/// For a message: short, whatever it is.
std::string described(const nlohmann::json* value) {
  if (value == nullptr) return "nothing";
  if (value->is_object()) return "an object";
  if (value->is_array()) return "a list";
  if (value->is_string()) {
    const auto& text = value->get_ref<const std::string&>();
    const std::string_view start = cut(text, 40);
    return fmt::format("the text '{}{}'", start, start.size() < text.size() ? "..." : "");
  }
  return value->dump();
}

/// Inside a file name.
bool is_safe_id(std::string_view id) {
  constexpr std::size_t kMaxIdBytes = 200;
  const auto in_id = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return !id.empty() && id.size() <= kMaxIdBytes && std::all_of(id.begin(), id.end(), in_id);
}

}  // namespace

JsonDocument RecordFields::parse(std::string_view bytes, const std::string& where) {
  JsonDocument json;
  try {
    json = read_json(bytes, kRecord);
  } catch (const JsonError& error) {
    if (error.kind == JsonError::Kind::number)
      throw Failure(kInvalidFile, fmt::format("{}: expected JSON, found a number that is too large", where));
    if (error.kind != JsonError::Kind::syntax) throw Failure(kInvalidFile, fmt::format("{}: {}", where, error.what()));
    const bool ended = error.byte > bytes.size();
    throw Failure(kInvalidFile, fmt::format("{}: expected a JSON object, found {}", where,
                                            ended ? std::string("the end of the text within it")
                                                  : fmt::format("something else at byte {}", error.byte)));
  }
  if (!json->is_object())
    throw Failure(kInvalidFile, fmt::format("{}: expected a JSON object, found {}", where, described(&*json)));
  return json;
}

RecordFields::RecordFields(const Json& object, std::string where, std::string path)
    : object_(&object), where_(std::move(where)), path_(std::move(path)) {}

std::vector<std::string> RecordFields::names(std::string_view bytes, const std::string& object) {
  std::vector<std::string> names;
  bool inside = false;
  const auto look = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::key && depth == 1) inside = value == object;
    if (event == Json::parse_event_t::key && depth == 2 && inside) names.push_back(value.get<std::string>());
    return event == Json::parse_event_t::key || depth == 0;  // nothing else is kept
  };
  [[maybe_unused]] const Json nothing = Json::parse(bytes, look, false);
  return names;
}

void RecordFields::fail(const std::string& name, const std::string& expected) const {
  const auto found = object_->find(name);
  throw Failure(kInvalidFile, fmt::format("{}: {}{}: expected {}, found {}", where_, path_, name, expected,
                                          described(found == object_->end() ? nullptr : &*found)));
}

const RecordFields::Json* RecordFields::find(const char* name) const {
  const auto found = object_->find(name);
  return found == object_->end() ? nullptr : &*found;
}

std::string RecordFields::text(const char* name, std::optional<std::string> otherwise) const {
  const Json* value = find(name);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr || !value->is_string()) fail(name, "a text");
  return value->get<std::string>();
}

std::size_t RecordFields::index_in(const char* name, std::span<const std::string_view> values) const {
  const Json* value = find(name);
  if (value != nullptr && value->is_string()) {
    const auto found = std::find(values.begin(), values.end(), value->get_ref<const std::string&>());
    if (found != values.end()) return static_cast<std::size_t>(found - values.begin());
  }
  fail(name, fmt::format("one of {}", fmt::join(values, ", ")));
}

std::string RecordFields::id(const char* name) const {
  const Json* value = find(name);
  const std::string id = value != nullptr && value->is_string() ? value->get<std::string>() : "";
  if (!is_safe_id(id)) fail(name, "an id of a-z, 0-9 and _");
  return id;
}

std::string RecordFields::turn_id(const char* name) const {
  std::string id = text(name, "");
  const std::size_t number = id.find('#');
  const bool numbered = number != std::string::npos;
  const bool round = !numbered || (number + 1 < id.size() && id.size() - number <= 8 &&
                                   id.find_first_not_of("0123456789", number + 1) == std::string::npos);
  if (!id.empty() && !(is_safe_id(std::string_view(id).substr(0, number)) && round))
    fail(name, "the id of a turn: a-z, 0-9 and _, then perhaps # and a number");
  return id;
}

std::int64_t RecordFields::count(const char* name, std::optional<std::int64_t> otherwise) const {
  const Json* value = find(name);
  if (value == nullptr && otherwise) return *otherwise;
  const bool whole = value != nullptr && (value->is_number_unsigned() ? value->get<std::uint64_t>() <= kMaxCount
                                                                      : value->is_number_integer() && *value == 0);
  if (!whole) fail(name, "a whole number from 0 to 10^12");
  return value->get<std::int64_t>();
}

std::uint64_t RecordFields::unsigned_number(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr || !value->is_number_unsigned()) fail(name, "a whole number from 0 to 2^64 - 1");
  return value->get<std::uint64_t>();
}

double RecordFields::number_up_to(const char* name, double most, const char* expected,
                                  std::optional<double> otherwise) const {
  const Json* value = find(name);
  if (value == nullptr && otherwise) return *otherwise;
  const double number = value != nullptr && value->is_number() ? value->get<double>() : NAN;
  if (!(number >= 0 && number <= most)) fail(name, expected);
  return number;
}

double RecordFields::number(const char* name, std::optional<double> otherwise) const {
  return number_up_to(name, kMaxNumber, "a number from 0 to 10^15", otherwise);
}

double RecordFields::share(const char* name, std::optional<double> otherwise) const {
  return std::min(1.0, number_up_to(name, 1 + 1e-9, "a number from 0 to 1", otherwise));
}

bool RecordFields::truth(const char* name, std::optional<bool> otherwise) const {
  const Json* value = find(name);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr || !value->is_boolean()) fail(name, "true or false");
  return value->get<bool>();
}

RecordFields RecordFields::child(const Json& value, const std::string& name) const {
  return {value, where_, path_ + name + "."};
}

RecordFields RecordFields::object(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr || !value->is_object()) fail(name, "an object");
  return child(*value, name);
}

bool RecordFields::is_null(const char* name) const {
  const Json* value = find(name);
  return value == nullptr || value->is_null();
}

std::optional<RecordFields> RecordFields::object_if_there(const char* name) const {
  if (is_null(name)) return std::nullopt;
  return object(name);
}

std::vector<RecordFields> RecordFields::list(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr || !value->is_array()) fail(name, "a list");
  std::vector<RecordFields> items;
  for (std::size_t i = 0; i < value->size(); ++i) {
    const Json& item = (*value)[i];
    if (!item.is_object()) {
      throw Failure(kInvalidFile, fmt::format("{}: {}{}[{}]: expected an object, found {}", where_, path_, name, i,
                                              described(&item)));
    }
    items.push_back(child(item, fmt::format("{}[{}]", name, i)));
  }
  return items;
}

std::vector<std::string> RecordFields::texts_of(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr || !value->is_array()) fail(name, "a list");
  std::vector<std::string> all;
  for (const Json& item : *value) {
    if (!item.is_string()) fail(name, "a list of texts");
    all.push_back(item.get<std::string>());
  }
  return all;
}

std::vector<std::pair<std::string, std::string>> RecordFields::texts(const char* name) const {
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& [key, value] : object(name).object_->items()) {
    if (!value.is_string()) {
      throw Failure(kInvalidFile, fmt::format("{}: {}{}.{}: expected a text, found {}", where_, path_, name,
                                              cut(key, 40), described(&value)));
    }
    all.emplace_back(key, value.get<std::string>());
  }
  return all;
}

std::vector<std::pair<std::string, double>> RecordFields::shares(const char* name) const {
  std::vector<std::pair<std::string, double>> all;
  for (const auto& [key, value] : object(name).object_->items()) {
    const double number = value.is_number() ? value.get<double>() : -1.0;
    if (!(number >= 0.0 && number <= 1.0)) {
      throw Failure(kInvalidFile, fmt::format("{}: {}{}.{}: expected a number from 0 to 1, found {}", where_, path_,
                                              name, cut(key, 40), described(&value)));
    }
    all.emplace_back(key, number);
  }
  return all;
}

namespace {

constexpr std::size_t kMaxRecordBytes = 64 << 20, kMaxEventsBytes = 256 << 20, kMaxGraphBytes = 16 << 20;

SlotRecord slot_of(const RecordFields& fields) {
  SlotRecord slot;
  slot.name = fields.text("name");
  slot.tokens = fields.count("tokens");
  slot.method = fields.text("method");
  slot.reused_tokens = fields.count("reused_tokens");
  slot.recomputed_tokens = fields.count("recomputed_tokens");
  slot.ahead_tokens = fields.count("ahead_tokens", 0);
  slot.kv_reuse_rate = fields.share("kv_reuse_rate");
  slot.kv_reuse_bound = fields.share("kv_reuse_bound", slot.kv_reuse_rate);
  slot.hops = static_cast<int>(std::min<std::int64_t>(fields.count("hops"), 1'000'000));
  slot.corrected = fields.truth("corrected", false);
  slot.reason = fields.text("reason");
  if (const auto anchors = fields.object_if_there("anchors")) {
    SlotAnchors& found = slot.anchors.emplace();
    found.anchors = static_cast<int>(std::min<std::int64_t>(anchors->count("anchors"), 1'000'000));
    found.ambiguity = anchors->share("ambiguity");
    found.distance = anchors->number("distance");
    if (!anchors->is_null("predicted_error")) found.predicted_error = anchors->number("predicted_error");
  }
  return slot;
}

ToolUse tool_of(const RecordFields& fields) {
  ToolUse use;
  use.tool = fields.text("tool");
  use.arguments = fields.text("arguments");
  use.code = fields.text("code");
  use.ok = fields.truth("ok");
  use.result = fields.text("result");
  use.wall_ms = fields.number("wall_ms");
  use.generation = static_cast<int>(std::min<std::int64_t>(fields.count("generation"), 1'000'000));
  return use;
}

}  // namespace

KvRecord kv_record(const RecordFields& fields) {
  KvRecord kv;
  kv.entries = fields.count("entries");
  kv.reused = fields.count("reused");
  kv.computed = fields.count("computed");
  kv.ahead = fields.count("ahead", 0);
  kv.reuse_rate = fields.share("reuse_rate");
  return kv;
}

AgentRecord agent_record(const RecordFields& fields) {
  AgentRecord agent;
  agent.agent = fields.id("agent");
  agent.turn = fields.turn_id("turn");
  agent.role = fields.text("role");
  agent.model = fields.text("model", "");
  const std::int64_t round = fields.count("round");
  if (round < 1 || round > 1'000'000) fields.fail("round", "a whole number from 1 to 10^6");
  agent.round = static_cast<int>(round);
  agent.state = fields.one_of<TurnState>("state");
  agent.error = fields.text("error", "");
  agent.attempts = static_cast<int>(std::min<std::int64_t>(fields.count("attempts", 1), 1'000'000));
  agent.prompt_tokens = fields.count("prompt_tokens");
  agent.output_tokens = fields.count("output_tokens");
  agent.output = fields.text("output");
  agent.answer = fields.text("answer", "");
  if (!fields.is_null("probabilities")) agent.probabilities = fields.shares("probabilities");
  if (!fields.is_null("tools")) {
    for (const RecordFields& tool : fields.list("tools")) agent.tools.push_back(tool_of(tool));
  }
  agent.finish_reason = fields.one_of_if_there<FinishReason>("finish_reason");
  agent.truncated = fields.truth("truncated", agent.finish_reason == FinishReason::length);
  agent.kv = kv_record(fields.object("kv"));
  agent.ttft_ms = fields.number("ttft_ms");
  agent.prefill_ms = fields.number("prefill_ms");
  agent.decode_ms = fields.number("decode_ms");
  agent.tokens_per_s = fields.number("tokens_per_s");
  agent.drafted_tokens = fields.count("drafted_tokens", 0);
  agent.accepted_tokens = fields.count("accepted_tokens", 0);
  agent.tentative_ms = fields.number("tentative_ms", 0);
  agent.tentative_tokens = fields.count("tentative_tokens", 0);
  agent.confirmed_tokens = fields.count("confirmed_tokens", 0);
  for (auto [name, value] :
       {std::pair("expected_nats", &agent.expected_nats), std::pair("guard_nats", &agent.guard_nats),
        std::pair("guard_change", &agent.guard_change)}) {
    if (!fields.is_null(name)) *value = fields.number(name);
  }
  for (const RecordFields& slot : fields.list("slots")) agent.slots.push_back(slot_of(slot));
  if (const auto history = fields.object_if_there("history")) {
    HistoryRecord& found = agent.history.emplace();
    found.runs = static_cast<int>(std::min<std::int64_t>(history->count("runs"), 1'000'000));
    found.forgotten = static_cast<int>(std::min<std::int64_t>(history->count("forgotten"), 1'000'000));
    found.tokens = history->count("tokens");
    found.continued = history->count("continued");
  }
  return agent;
}

namespace {

/// The texts as the file has them; `names` holds each of their names.
NamedTexts in_order(std::vector<NamedTexts::value_type> texts, const std::vector<std::string>& names) {
  std::unordered_map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < names.size(); ++i) places.emplace(names[i], i);
  std::sort(texts.begin(), texts.end(),
            [&](const auto& a, const auto& b) { return places.at(a.first) < places.at(b.first); });
  return NamedTexts(std::move(texts));
}

RunRecord run_of(const std::string& bytes, const std::string& file) {
  const JsonDocument json = RecordFields::parse(bytes, file);
  const RecordFields fields(*json, file, "");
  RunRecord run;
  if (fields.count("schema") != run.schema) fields.fail("schema", fmt::format("{}", run.schema));
  run.workflow = fields.text("workflow");
  run.state = fields.one_of<RunState>("state");
  run.error = fields.text("error", "");
  run.error_kind = fields.one_of_if_there<ErrorKind>("error_kind");
  const RecordFields model = fields.object("model");
  run.model_path = model.text("path");
  run.model_fingerprint = model.text("fingerprint");
  run.device = fields.text("device");
  run.device_fallback = fields.text("device_fallback", "");
  run.relay = fields.text("relay");
  run.seed = fields.unsigned_number("seed");
  run.version = fields.text("version", "");
  run.date = fields.text("date", "");
  run.threads = static_cast<int>(std::min<std::int64_t>(fields.count("threads", 0), 1'000'000));
  if (!fields.is_null("inputs")) run.inputs = in_order(fields.texts("inputs"), RecordFields::names(bytes, "inputs"));
  run.outputs = in_order(fields.texts("outputs"), RecordFields::names(bytes, "outputs"));
  run.load_ms = fields.number("load_ms", 0);
  run.measure_ms = fields.number("measure_ms", 0);
  run.wall_ms = fields.number("wall_ms");
  for (const RecordFields& agent : fields.list("agents")) run.agents.push_back(agent_record(agent));
  const RecordFields memory = fields.object("memory");
  const auto bytes_of = [&memory](const char* name, std::optional<double> otherwise = {}) {
    return static_cast<std::int64_t>(memory.number(name, otherwise));
  };
  run.memory.weights_bytes = bytes_of("weights_bytes");
  run.memory.kv_peak_bytes = bytes_of("kv_peak_bytes");
  run.memory.segments_peak_bytes = bytes_of("segments_peak_bytes");
  run.memory.host_segments_peak_bytes = bytes_of("host_segments_peak_bytes", 0);
  run.memory.anchors_bytes = bytes_of("anchors_bytes", 0);
  return run;
}

}  // namespace

double TurnTime::begin_ms() const {
  for (const Piece& piece : pieces) {
    if (piece.kind != Piece::Kind::wait) return piece.begin_ms;
  }
  return end_ms();
}

Report read_report(const std::filesystem::path& folder) {
  const RecordFiles files(folder);
  const auto run = files.whole("run.json", kMaxRecordBytes);
  if (!run) {
    throw Failure(kInvalidFile, fmt::format("{}: expected a folder that 'baton run --record' wrote, found no run.json",
                                            folder.string()));
  }
  Report report;
  report.run = run_of(*run, files.path_of("run.json"));
  report.times.resize(report.run.agents.size());
  if (const auto events = files.whole("events.ndjson", kMaxEventsBytes)) {
    read_events(*events, files.path_of("events.ndjson"), report);
  } else {
    report.no_times = "events.ndjson is missing";
  }
  if (const auto graph = files.whole("graph.json", kMaxGraphBytes))
    report.graph = read_graph(*graph, files.path_of("graph.json"), report.run);
  const std::size_t shown = std::min(report.run.agents.size(), kMaxTurns);
  for (std::size_t i = 0; i < shown; ++i) {
    report.prompts.push_back(files.start_of("prompts/" + turn_name(report.run.agents[i]) + ".txt", kMaxTextBytes + 1));
  }
  return report;
}

}  // namespace baton::cli
