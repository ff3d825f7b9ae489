// SPDX-License-Identifier: Apache-2.0
#include "sdk/lab/eval_measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>
#include <thread>

#include "engine/base/json/json_reader.h"
#include "sdk/console/options.h"
#include "sdk/console/terminal.h"
#include "sdk/console/text.h"
#include "sdk/console/view.h"

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
const CountField kCounts[] = {{kMethodBytes, &Tally::method_bytes},
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

using namespace cli;
namespace {

std::string question_text(const Score& score, const Question& question, const RunRecord& record, double reached) {
  const Workflow& workflow = *score.workflow;
  const std::string answer = final_answer(workflow, record);
  const std::string verdict = reached >= 1.0 ? "right " : reached > 0.0 ? fmt::format("{:.2f}  ", reached) : "wrong ";
  std::string out = styled(reached > 0.0 ? Style::green : Style::red, verdict) +
                    styled(Style::bold, printable(question.id, Lines::fold)) + "  " + score.method.text + "  " +
                    styled(Style::dim, duration(record.wall_ms)) + "\n";
  for (const auto& [name, value] : question.inputs) out += "  " + printable(value, Lines::fold) + "\n";
  for (const auto& turn : record.agents) {
    const std::string said = turn.state == TurnState::ok
                                 ? printable(turn.output, Lines::fold)
                                 : fmt::format("{}: ", name_of(turn.state)) + printable(turn.error, Lines::fold);
    out += "  " + styled(Style::cyan, turn_name(turn.agent, turn.round)) + "  " + said + "\n";
  }
  out +=
      fmt::format("  answer {}, expected {}\n\n", answer.empty() ? std::string("none") : printable(answer, Lines::fold),
                  printable(question.answer, Lines::fold));
  return out;
}

}  // namespace

void EvalProgress::count(bool taken) {
  ++done_;
  taken_ += taken ? 1 : 0;
}

void EvalProgress::show(const std::vector<Score>& scores) {
  if (!shown_) return;
  const auto now = Clock::now();
  const auto pause = can_redraw() ? std::chrono::milliseconds(100) : std::chrono::seconds(10);
  if (now - last_ < pause && done_ < questions_) return;
  last_ = now;
  const double ms = std::chrono::duration<double, std::milli>(now - start_).count();
  std::string line = fmt::format("{} of {}", done_, questions_);
  for (const Score& one : scores) {
    if (one.tally.right.whole > 0)
      line += fmt::format(", {} {:.1f} %", one.method.text,
                          100 * one.tally.score / static_cast<double>(one.tally.right.whole));
  }
  if (done_ > taken_ && done_ < questions_) {
    const double each = ms / static_cast<double>(done_ - taken_);
    line += fmt::format(", {} left", duration(each * static_cast<double>(questions_ - done_)));
  }
  note(can_redraw() ? "\r\x1b[K" + head(line, terminal_size().columns - 1) : line + "\n");
}

void EvalProgress::clear() {
  if (!shown_ || !can_redraw()) return;
  note("\r\x1b[K");
  last_ = {};
}

std::optional<std::size_t> QuestionQueue::next() {
  while (next_ < taken_.size() && taken_[next_]) ++next_;
  if (next_ == taken_.size() || error_) return std::nullopt;
  return next_++;
}

void QuestionQueue::fail(std::exception_ptr error, bool more_telling) {
  if (!error_ || more_telling) error_ = std::move(error);
}

void QuestionQueue::rethrow_failure() const {
  if (error_) std::rethrow_exception(error_);
}

void OrderedScores::add(std::size_t index, QuestionOutcome outcome) {
  ahead_.emplace(index, std::move(outcome));
  for (auto next = ahead_.begin(); next != ahead_.end() && next->first == merged_; next = ahead_.erase(next)) {
    merge(next->first, next->second);
    ++merged_;
  }
}

void OrderedScores::add_rest() {
  for (const auto& [index, outcome] : ahead_) merge(index, outcome);
  ahead_.clear();
}

void OrderedScores::merge(std::size_t index, const QuestionOutcome& outcome) {
  if (outcome.floor) floor_.add(*outcome.floor, reference_);
  for (std::size_t i = 0; i < scores_.size(); ++i) {
    scores_[i].tally = sum_of(std::move(scores_[i].tally), outcome.methods[i].tally);
    scores_[i].quality.add(outcome.methods[i].distances, reference_);
    const auto [kl, tokens] = total_of(outcome.methods[i].distances);
    scores_[i].questions.push_back({outcome.methods[i].tally.score, outcome.full_score, kl, tokens});
    scores_[i].binary = scores_[i].binary && questions_[index].check.is_binary();
  }
}

EvalMeasurement::EvalMeasurement(const EvalOptions& options, const Engine& engine, std::vector<Score>& scores,
                                 const std::vector<Question>& questions, EvalLog* log, int team)
    : options_(options),
      engine_(engine),
      questions_(questions),
      log_(log),
      team_(team),
      progress_(!options.quiet, questions.size()),
      queue_(questions.size()),
      sums_(scores, questions, EvalMethod::parse("full").load(options.workflow)) {
  if (compares() && options.floor_limit > 0) {
    EngineOptions f32 = options.engine.options(options.workflow.default_model(), options.quiet);
    f32.kv_dtype = "f32";
    precise_ = Engine::open(f32);
    precise_->prepare(sums_.reference());
  }
  base_.seed = options.seed;
  base_.stop = interrupted();
  if (!options.answers.empty()) answers_.emplace(fmt::format("--answers {}", options.answers), options.answers);
  if (!options.timeout.empty()) base_.timeout = duration_of_option(options.timeout, "--timeout");
}

void EvalMeasurement::run() {
  for (std::size_t i = 0; log_ != nullptr && i < questions_.size(); ++i) {
    auto outcome = log_->take(team_, questions_[i].id, sums_.scores());
    if (!outcome) continue;
    queue_.leave_out(i);
    progress_.count(true);
    sums_.add(i, std::move(*outcome));
  }
  if (progress_.done() > 0 && !options_.quiet)
    note(fmt::format("{} of {} questions were finished before\n", progress_.done(), questions_.size()));
  progress_.show(sums_.scores());
  std::vector<std::jthread> threads;
  try {
    for (int i = 0; i < options_.jobs; ++i) threads.emplace_back([this] { work(); });
  } catch (const std::system_error&) {  // those that have started do all the work
    if (threads.empty()) work();
  }
  threads.clear();
  progress_.clear();
  sums_.add_rest();
  queue_.rethrow_failure();
}

void EvalMeasurement::work() {
  for (;;) {
    std::size_t index = 0;
    {
      const std::lock_guard lock(mutex_);
      const auto next = interrupted().stop_requested() ? std::nullopt : queue_.next();
      if (!next) return;
      index = *next;
    }
    const Question& question = questions_[index];
    try {
      auto outcome = measure(question, index);
      if (!outcome) continue;  // cancelled
      const std::lock_guard lock(mutex_);
      if (log_ != nullptr) log_->add(team_, question.id, *outcome);
      progress_.count(false);
      sums_.add(index, std::move(*outcome));
      progress_.show(sums_.scores());
    } catch (const InputError& wrong) {
      const std::lock_guard lock(mutex_);
      const std::string text = fmt::format("question '{}': {}", question.id, wrong.what());
      queue_.fail(std::make_exception_ptr(Failure(kInvalidFile, text)), true);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      queue_.fail(std::current_exception());
    }
  }
}

RunOptions EvalMeasurement::options_for(const Question& question) const {
  RunOptions options = base_;
  options.inputs = question.inputs;
  return options;
}

/// One line for --answers.
void EvalMeasurement::keep(const Question& question, const Score& score, const Trace& trace) {
  if (!answers_) return;
  const nlohmann::ordered_json line = {{"id", question.id}, {"method", score.method.text}, {"tokens", trace.tokens}};
  answers_->add(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

/// Everything that one method did with one question.
struct EvalMeasurement::Outcome {
  RunRecord record;
  Trace answers;
  Distances distances;
};

/// A run whose distributions are compared with full prefill's, over its answers. Nothing when it was cancelled.
std::optional<EvalMeasurement::Outcome> EvalMeasurement::compare(const Engine& engine, const Workflow& workflow,
                                                                 const Question& question, const Trace& answers,
                                                                 const ReferenceRows& rows) const {
  RunOptions options = options_for(question);
  answers.force(options);
  Comparison comparison(rows);
  comparison.record(options);
  Outcome outcome;
  outcome.record = engine.run(workflow, options);
  if (outcome.record.state == RunState::cancelled) return std::nullopt;
  outcome.answers = answers;
  outcome.distances = comparison.take();
  for (const AgentRecord& agent : outcome.record.agents) {
    const auto found = outcome.distances.find(turn_name(agent.agent, agent.round));
    if (found != outcome.distances.end()) found->second.guard = agent.guard_change;
  }
  return outcome;
}

/// The free run of a method, and the run that is forced to full prefill's answers. Nothing when it was cancelled.
std::optional<EvalMeasurement::Outcome> EvalMeasurement::run_method(const Score& score, const Question& question,
                                                                    const Trace& answers,
                                                                    const ReferenceRows& rows) const {
  auto forced = compare(engine_, *score.forced_workflow, question, answers, rows);
  if (!forced || options_.forced_only) return forced;
  Outcome outcome;
  RunOptions options = options_for(question);
  outcome.answers.record(options, *score.workflow);
  options.on_logits = [](const std::string&, std::span<const float>) {};  // the engine works as it does for full
  outcome.record = engine_.run(*score.workflow, options);
  if (outcome.record.state == RunState::cancelled) return std::nullopt;
  outcome.distances = std::move(forced->distances);
  return outcome;
}

/// Nothing when it was cancelled.
std::optional<QuestionOutcome> EvalMeasurement::measure(const Question& question, std::size_t index) {
  Outcome full;
  ReferenceRows rows(compares());
  RunOptions options = options_for(question);
  full.answers.record(options, sums_.reference());
  rows.record(options, sums_.reference());
  full.record = engine_.run(sums_.reference(), options);
  if (full.record.state == RunState::cancelled) return std::nullopt;
  rows.complete();
  full.distances = no_distances(rows);
  std::vector<Outcome> others;  // of the methods other than full
  for (const Score& score : sums_.scores()) {
    if (score.method.is_reference()) continue;
    auto one = run_method(score, question, full.answers, rows);
    if (!one) return std::nullopt;
    others.push_back(std::move(*one));
  }
  QuestionOutcome outcome;
  outcome.model = full.record.model_fingerprint;
  if (precise_ && index < options_.floor_limit) {
    auto precise = compare(*precise_, sums_.reference(), question, full.answers, rows);
    if (!precise) return std::nullopt;
    outcome.floor = std::move(precise->distances);
  }

  // Answers are judged before the lock is taken: a check may run code for seconds.
  const Tally reference = tally_of(sums_.reference(), question, index, full.record);
  outcome.full_score = reference.score;
  auto next = others.begin();
  for (const Score& score : sums_.scores()) {
    const Outcome& own = score.method.is_reference() ? full : *next++;
    if (own.record.error_kind == ErrorKind::resources) throw Failure(kResources, own.record.error);
    MethodOutcome& one = outcome.methods.emplace_back(MethodOutcome{empty_tally(*score.workflow), own.distances});
    if (score.method.is_reference())
      one.tally = reference;
    else
      one.tally = tally_of(*score.workflow, question, index, own.record);
  }
  const std::lock_guard lock(mutex_);
  next = others.begin();
  auto judged = outcome.methods.begin();
  for (const Score& score : sums_.scores()) {
    const Outcome& own = score.method.is_reference() ? full : *next++;
    MethodOutcome& one = *judged++;
    one.tally.exact.count(own.answers.tokens == full.answers.tokens);
    keep(question, score, own.answers);
    if (!options_.verbose) continue;
    progress_.clear();
    note(question_text(score, question, own.record, one.tally.score));
  }
  return outcome;
}

}  // namespace baton::inline v1::lab
