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

#include "engine/base/json/record_fields.h"
#include "sdk/console/html.h"
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

/// The texts as the file has them; `names` holds each of their names.
NamedTexts in_order(std::vector<NamedTexts::value_type> texts, const std::vector<std::string>& names) {
  std::unordered_map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < names.size(); ++i) places.emplace(names[i], i);
  std::sort(texts.begin(), texts.end(),
            [&](const auto& a, const auto& b) { return places.at(a.first) < places.at(b.first); });
  return NamedTexts(std::move(texts));
}

/// Reads the fields of a record, by the table in engine/base/json/record_fields.h. Counts that the record holds as an
/// int are cut at a million.
class RecordReader {
 public:
  /// `file`: the bytes that the fields are of, if the record has texts whose order counts.
  template <class Record>
  static Record read(const RecordFields& fields, const std::string* file = nullptr) {
    Record record;
    RecordReader reader(fields, file);
    FieldsOf<Record>::visit(reader, record);
    return record;
  }

  void text(const char* name, std::string& value, std::optional<std::string> absent = {}) {
    value = fields_.text(name, std::move(absent));
  }
  void id(const char* name, std::string& value) { value = fields_.id(name); }
  void turn_id(const char* name, std::string& value) { value = fields_.turn_id(name); }
  void count(const char* name, std::int64_t& value, std::optional<std::int64_t> absent = {}) {
    value = fields_.count(name, absent);
  }
  void count(const char* name, int& value, std::optional<std::int64_t> absent = {}) {
    value = static_cast<int>(std::min(fields_.count(name, absent), kMaxInt));
  }
  void round(const char* name, int& value) {
    const std::int64_t round = fields_.count(name);
    if (round < 1 || round > kMaxInt) fields_.fail(name, "a whole number from 1 to 10^6");
    value = static_cast<int>(round);
  }
  void number(const char* name, double& value, std::optional<double> absent = {}) {
    value = fields_.number(name, absent);
  }
  void share(const char* name, double& value, std::optional<double> absent = {}) {
    value = fields_.share(name, absent);
  }
  void known(const char* name, double& value) {
    if (!fields_.is_null(name)) value = fields_.number(name);
  }
  void truth(const char* name, bool& value, std::optional<bool> absent = {}) { value = fields_.truth(name, absent); }
  template <class Word>
  void word(const char* name, Word& value) {
    value = fields_.one_of<Word>(name);
  }
  template <class Word>
  void word_or_null(const char* name, std::optional<Word>& value) {
    value = fields_.one_of_if_there<Word>(name);
  }
  template <class Record>
  void object(const char* name, Record& record) {
    record = read<Record>(fields_.object(name));
  }
  template <class Record>
  void object_or_null(const char* name, std::optional<Record>& record) {
    if (const auto found = fields_.object_if_there(name)) record = read<Record>(*found);
  }
  template <class Record>
  void list(const char* name, std::vector<Record>& records) {
    for (const RecordFields& item : fields_.list(name)) records.push_back(read<Record>(item));
  }
  template <class Record>
  void list_or_none(const char* name, std::vector<Record>& records) {
    if (!fields_.is_null(name)) list(name, records);
  }
  void shares(const char* name, std::vector<std::pair<std::string, double>>& shares) {
    if (!fields_.is_null(name)) shares = fields_.shares(name);
  }
  void schema(const char* name, int& value) {
    if (fields_.count(name) != value) fields_.fail(name, fmt::format("{}", value));
  }
  void unsigned_number(const char* name, std::uint64_t& value) { value = fields_.unsigned_number(name); }
  void bytes(const char* name, std::int64_t& value, std::optional<double> absent = {}) {
    value = static_cast<std::int64_t>(fields_.number(name, absent));
  }
  void texts(const char* name, NamedTexts& texts) {
    texts = in_order(fields_.texts(name), RecordFields::names(*file_, name));
  }
  void texts_or_none(const char* name, NamedTexts& named) {
    if (!fields_.is_null(name)) texts(name, named);
  }
  template <class Visit>
  void group(const char* name, const Visit& visit) {
    const RecordFields fields = fields_.object(name);
    RecordReader inner(fields, file_);
    visit(inner);
  }

 private:
  static constexpr std::int64_t kMaxInt = 1'000'000;

  RecordReader(const RecordFields& fields, const std::string* file) : fields_(fields), file_(file) {}

  const RecordFields& fields_;
  const std::string* file_;
};

}  // namespace

KvRecord kv_record(const RecordFields& fields) { return RecordReader::read<KvRecord>(fields); }
AgentRecord agent_record(const RecordFields& fields) { return RecordReader::read<AgentRecord>(fields); }

namespace {

RunRecord run_of(const std::string& bytes, const std::string& file) {
  const JsonDocument json = RecordFields::parse(bytes, file);
  return RecordReader::read<RunRecord>(RecordFields(*json, file, ""), &bytes);
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
