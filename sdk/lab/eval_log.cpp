// SPDX-License-Identifier: Apache-2.0
#include "sdk/lab/eval_measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>

#include "engine/base/json/json_reader.h"
#include "sdk/console/options.h"
#include "sdk/console/terminal.h"
#include "sdk/console/text.h"

namespace baton::inline v1::lab {
using namespace cli;

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

namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr const char* kHead = "baton_eval";  // the first key of the first line
constexpr int kFormat = 2;

struct ShareField {
  const char* name;
  Share Tally::*share;
};
constexpr ShareField kShares[] = {{"right", &Tally::right},
                                  {"exact", &Tally::exact},
                                  {"reused_entries", &Tally::reused_entries},
                                  {"ahead_entries", &Tally::ahead_entries},
                                  {"relayed_entries", &Tally::relayed_entries},
                                  {"relayed_bound", &Tally::relayed_bound},
                                  {"long_entries", &Tally::long_entries},
                                  {"recomputed_tokens", &Tally::recomputed_tokens},
                                  {"reused_turns", &Tally::reused_turns},
                                  {"warm_reused_turns", &Tally::warm_reused_turns}};

struct CountField {
  const char* name;
  std::int64_t Tally::*count;
};
constexpr CountField kCounts[] = {{"anchors_bytes", &Tally::anchors_bytes},
                                  {"turns", &Tally::turns},
                                  {"output_tokens", &Tally::output_tokens},
                                  {"failed", &Tally::failed}};

struct SumField {
  const char* name;
  double Tally::*sum;
};
constexpr SumField kSums[] = {{"score", &Tally::score}, {"ttft_ms", &Tally::ttft_ms}, {"wall_ms", &Tally::wall_ms}};

OrderedJson json_of(const Share& share) { return {share.part, share.whole}; }

OrderedJson json_of(const Distances& distances) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [turn, distance] : distances) {
    json[turn] = {{"agreeing", distance.agreeing}, {"kl", distance.kl}};
    if (distance.guard >= 0.0) json[turn]["guard"] = distance.guard;
  }
  return json;
}

OrderedJson json_of(const MethodOutcome& outcome) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [name, share] : kShares) json[name] = json_of(outcome.tally.*share);
  OrderedJson& agents = json["right_by_agent"] = OrderedJson::array();
  for (const auto& [agent, share] : outcome.tally.right_by_agent) agents.push_back({agent, share.part, share.whole});
  for (const auto& [name, count] : kCounts) json[name] = outcome.tally.*count;
  for (const auto& [name, sum] : kSums) json[name] = outcome.tally.*sum;
  json["distances"] = json_of(outcome.distances);
  return json;
}

// Reading throws OrderedJson::exception for a missing key and another type.

Share share_of(const OrderedJson& json) { return {json.at(0).get<std::int64_t>(), json.at(1).get<std::int64_t>()}; }

/// A number that is not finite was written as null.
double number_of(const OrderedJson& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

Distances distances_of(const OrderedJson& json) {
  Distances distances;
  for (const auto& [turn, one] : json.get<std::map<std::string, OrderedJson>>()) {
    TurnDistance& distance = distances[turn];
    distance.agreeing = one.at("agreeing").get<std::int64_t>();
    for (const OrderedJson& kl : one.at("kl")) distance.kl.push_back(number_of(kl));
    distance.guard = one.value("guard", -1.0);
  }
  return distances;
}

MethodOutcome outcome_of(const OrderedJson& json) {
  MethodOutcome outcome;
  for (const auto& [name, share] : kShares) outcome.tally.*share = share_of(json.at(name));
  for (const OrderedJson& one : json.at("right_by_agent")) {
    outcome.tally.right_by_agent.emplace_back(one.at(0).get<std::string>(),
                                              Share{one.at(1).get<std::int64_t>(), one.at(2).get<std::int64_t>()});
  }
  for (const auto& [name, count] : kCounts) outcome.tally.*count = json.at(name).get<std::int64_t>();
  for (const auto& [name, sum] : kSums) outcome.tally.*sum = number_of(json.at(name));
  outcome.distances = distances_of(json.at("distances"));
  return outcome;
}

std::string dump(const OrderedJson& json) { return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

/// "methods: [...] in the file, [...] now" for each setting that differs.
std::string differences(const OrderedJson& theirs, const OrderedJson& ours) {
  std::string text;
  const auto add = [&](const std::string& name, const std::string& there, const std::string& here) {
    text += fmt::format("\n  {}: {} in the file, {} now", name, there, here);
  };
  for (const auto& [name, value] : ours.items()) {
    if (!theirs.contains(name))
      add(name, "missing", dump(value));
    else if (theirs[name] != value)
      add(name, dump(theirs[name]), dump(value));
  }
  for (const auto& [name, value] : theirs.items())
    if (!ours.contains(name)) add(name, dump(value), "missing");
  return text;
}

JsonDocument read_line_of(const std::string& path, const std::string& line, std::size_t number, const char* mistake) {
  try {
    return read_json(line);
  } catch (const JsonError& error) {
    throw Failure(kInvalidFile, fmt::format("--resume {}:{}: {}: {}", path, number, mistake, error.what()));
  }
}

OrderedJson settings_of(const std::string& path, const std::string& line) {
  const JsonDocument document = read_line_of(path, line, 1, "not a file of an evaluation");
  const OrderedJson& head = *document;
  if (!head.is_object() || !head.contains(kHead) || !head.contains("settings") || !head["settings"].is_object()) {
    throw Failure(kInvalidFile,
                  fmt::format("--resume {}:1: not a file of an evaluation: expected an object with \"{}\" "
                              "and \"settings\"",
                              path, kHead));
  }
  if (head[kHead] != kFormat) {
    throw Failure(kInvalidFile, fmt::format("--resume {}:1: the format of an evaluation {}; expected {}", path,
                                            dump(head[kHead]), kFormat));
  }
  return head["settings"];
}

}  // namespace

std::string digest(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

EvalLog::EvalLog(std::string path, const OrderedJson& settings) : path_(std::move(path)) {
  const std::string head = dump({{kHead, kFormat}, {"settings", settings}});
  std::error_code error;
  const std::string text = fs::exists(path_, error) ? read_file(path_) : std::string();
  const std::size_t whole = text.rfind('\n') + 1;  // 0 without a line
  if (whole == 0 && text != head.substr(0, text.size()))
    throw Failure(kInvalidFile, fmt::format("--resume {}:1: not a file of an evaluation", path_));
  std::size_t number = 0;
  for (std::size_t begin = 0, end = 0; begin < whole; begin = end + 1) {
    end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    if (++number > 1) {
      read_line(line, number);
    } else if (const std::string other = differences(settings_of(path_, line), settings); !other.empty()) {
      throw Failure(kInvalidFile, fmt::format("--resume {}: it was begun with other settings:{}", path_, other));
    }
  }
  if (whole < text.size()) fs::resize_file(path_, whole, error);
  if (error) throw Failure(kUsage, fmt::format("--resume {}: it cannot be written: {}", path_, error.message()));
  file_.emplace(fmt::format("--resume {}", path_), path_);
  if (number == 0) file_->add(head);
}

void EvalLog::read_line(const std::string& line, std::size_t number) {
  const JsonDocument document = read_line_of(path_, line, number, "not a finished question");
  const OrderedJson& json = *document;
  try {
    QuestionOutcome outcome;
    const std::pair<int, std::string> key(json.at("agents").get<int>(), json.at("id").get<std::string>());
    outcome.model = json.at("model").get<std::string>();
    outcome.full_score = json.at("full").get<double>();
    for (const OrderedJson& method : json.at("methods")) outcome.methods.push_back(outcome_of(method));
    if (const OrderedJson& floor = json.at("floor"); !floor.is_null()) outcome.floor = distances_of(floor);
    check_model(outcome.model);
    if (!outcomes_.emplace(key, std::move(outcome)).second) {
      throw Failure(kInvalidFile,
                    fmt::format("--resume {}:{}: question '{}' has a line already", path_, number, key.second));
    }
  } catch (const OrderedJson::exception& wrong) {
    throw Failure(kInvalidFile,
                  fmt::format("--resume {}:{}: not a finished question: {}", path_, number, wrong.what()));
  }
}

void EvalLog::check_model(const std::string& model) {
  if (model_.empty()) model_ = model;
  if (model == model_) return;
  throw Failure(kInvalidFile, fmt::format("--resume {}: model {} answered its first questions, model {} a later one",
                                          path_, model_, model));
}

std::optional<QuestionOutcome> EvalLog::take(int team, const std::string& question, const std::vector<Score>& methods) {
  const auto found = outcomes_.find({team, question});
  if (found == outcomes_.end()) return std::nullopt;
  QuestionOutcome outcome = std::move(found->second);
  outcomes_.erase(found);
  const bool fits = std::equal(methods.begin(), methods.end(), outcome.methods.begin(), outcome.methods.end(),
                               [](const Score& score, const MethodOutcome& one) {
                                 const auto& ours = score.tally.right_by_agent;
                                 const auto& theirs = one.tally.right_by_agent;
                                 return std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end(),
                                                   [](const auto& a, const auto& b) { return a.first == b.first; });
                               });
  if (fits) return outcome;
  throw Failure(kInvalidFile,
                fmt::format("--resume {}: question '{}' has other methods or agents than the table", path_, question));
}

void EvalLog::add(int team, const std::string& question, const QuestionOutcome& outcome) {
  check_model(outcome.model);
  OrderedJson methods = OrderedJson::array();
  for (const MethodOutcome& one : outcome.methods) methods.push_back(json_of(one));
  const OrderedJson line = {{"agents", team},
                            {"id", question},
                            {"model", outcome.model},
                            {"full", outcome.full_score},
                            {"methods", std::move(methods)},
                            {"floor", outcome.floor ? json_of(*outcome.floor) : OrderedJson(nullptr)}};
  file_->add(dump(line));
}

}  // namespace baton::inline v1::lab
