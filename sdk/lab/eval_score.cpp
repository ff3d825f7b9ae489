// SPDX-License-Identifier: Apache-2.0
#include "sdk/lab/eval_score.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <vector>

#include "engine/registry.h"
#include "sdk/console/terminal.h"
#include "sdk/console/text.h"

#include <baton/distributions.h>
#include <baton/reuse_method.h>
#include <baton/turns.h>

namespace baton::inline v1::lab {

using namespace cli;
const char* const kMethodBytes = "anchors_bytes";

namespace {

bool reads_agents(const TurnInfo& turn) {
  return std::any_of(turn.slots.begin(), turn.slots.end(),
                     [](const SlotInfo& slot) { return slot.source == SlotInfo::Source::agent_output; });
}

}  // namespace

void Trace::record(RunOptions& options, const Workflow& workflow) {
  std::map<std::pair<std::string, int>, std::string> ids;
  for (const TurnInfo& turn : workflow.turns()) ids[{turn.agent, turn.round}] = turn.id;
  options.on_event = [this, ids = std::move(ids)](const Event& event) {
    if (const auto* token = std::get_if<Token>(&event))
      tokens[ids.at({token->agent, token->round})].push_back(token->id);
    else if (const auto* thought = std::get_if<ThinkingToken>(&event))
      thinking[ids.at({thought->agent, thought->round})].push_back(thought->id);
  };
}

void Trace::force(RunOptions& options) const {
  options.forced_outputs = tokens;
  options.forced_thinking = thinking;
}

void ReferenceRows::record(RunOptions& options, const Workflow& workflow) {
  for (const TurnInfo& turn : workflow.turns())
    if (reads_agents(turn)) readers_.insert(turn.id);
  options.on_logits = [this](const std::string& turn, std::span<const float> logits) {
    if (readers_.count(turn) == 0) return;
    const std::lock_guard lock(mutex_);
    LogitsRow row;
    if (compared_) store(row, logits);
    turns_[turn].push_back(std::move(row));
  };
}

void ReferenceRows::complete() {
  if (!compared_) return;
  if (!problem_.empty()) throw Failure(kResources, problem_);
  std::vector<float> memory;
  for (auto& [turn, rows] : turns_) {
    for (LogitsRow& row : rows) {
      const std::span<const float> values = logits(row, memory);
      if (values.empty()) throw Failure(kResources, "eval: logits cannot be read from the temporary file");
      row.log_sum_exp = log_sum_exp(values);
      row.likeliest = likeliest(values);
    }
  }
}

/// Keeps a row in memory, or in the file once there are kMemoryBytes. Called with the lock.
void ReferenceRows::store(LogitsRow& row, std::span<const float> logits) {
  vocabulary_ = logits.size();
  if (memory_bytes_ + logits.size_bytes() <= kMemoryBytes) {
    memory_bytes_ += logits.size_bytes();
    row.logits.assign(logits.begin(), logits.end());
    return;
  }
  if (!problem_.empty()) return;
  if (!file_) {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
    file_ = open_temporary(folder);
    if (!file_)
      problem_ = fmt::format("eval: a file for logits cannot be made in {}: {}", folder.string(), std::strerror(errno));
  }
  row.offset = file_bytes_;
  if (!file_) return;
  if (!write_at(file_, std::as_bytes(logits), file_bytes_)) {
    problem_ = fmt::format("eval: the temporary file of logits cannot be written: {}", std::strerror(errno));
    return;
  }
  file_bytes_ += static_cast<std::int64_t>(logits.size_bytes());
}

std::span<const float> ReferenceRows::logits(const LogitsRow& row, std::vector<float>& memory) const {
  if (!row.logits.empty()) return row.logits;
  memory.resize(vocabulary_);
  const auto bytes = static_cast<std::int64_t>(vocabulary_ * sizeof(float));
  if (read_at(file_, std::as_writable_bytes(std::span(memory)), row.offset) != bytes) return {};
  return memory;
}

void Comparison::record(RunOptions& options) {
  options.on_logits = [this](const std::string& turn, std::span<const float> logits) {
    const auto rows = reference_.turns().find(turn);
    if (rows == reference_.turns().end()) return;
    std::unique_lock lock(mutex_);
    TurnDistance& distance = distances_[turn];  // other turns, on other threads, do not move it
    std::vector<float>& memory = memory_[turn];
    lock.unlock();
    if (distance.kl.size() == rows->second.size()) return;
    const LogitsRow& row = rows->second[distance.kl.size()];
    const std::span<const float> values = reference_.logits(row, memory);
    distance.kl.push_back(values.empty() ? std::nan("")
                                         : divergence(values, row.log_sum_exp, logits, log_sum_exp(logits)));
    distance.agreeing += row.likeliest == likeliest(logits) ? 1 : 0;
  };
}

Distances no_distances(const ReferenceRows& reference) {
  Distances distances;
  for (const auto& [turn, rows] : reference.turns())
    distances[turn] = {std::vector<double>(rows.size(), 0.0), static_cast<std::int64_t>(rows.size())};
  return distances;
}

std::pair<double, std::int64_t> total_of(const Distances& distances) {
  std::pair<double, std::int64_t> total;
  for (const auto& [turn, distance] : distances) {
    for (const double kl : distance.kl) total.first += kl;
    total.second += static_cast<std::int64_t>(distance.kl.size());
  }
  return total;
}

void Quality::add(const Distances& distances, const Workflow& workflow) {
  for (const TurnInfo& turn : workflow.turns()) {
    const auto found = distances.find(turn.id);
    if (found == distances.end()) continue;
    const std::vector<double>& kl = found->second.kl;
    double sum = 0.0;
    for (const double one : kl) sum += one;
    kl_ += sum;
    within_ += !kl.empty() && sum <= kTolerance * static_cast<double>(kl.size()) ? 1 : 0;
    if (!kl.empty()) kl_first_ += kl.front();
    agreeing_ += found->second.agreeing;
    positions_ += static_cast<std::int64_t>(kl.size());
    first_ += kl.empty() ? 0 : 1;
  }
}

using namespace cli;
namespace {

constexpr double kZ = 1.959963984540054;  // 97.5 % quantile of the normal distribution

Interval wilson_interval(double successes, double n) {
  const double p = successes / n, z2 = kZ * kZ;
  const double middle = p + z2 / (2 * n), half = kZ * std::sqrt(p * (1 - p) / n + z2 / (4 * n * n));
  return {(middle - half) / (1 + z2 / n), (middle + half) / (1 + z2 / n)};
}

}  // namespace

Interval newcombe_interval(std::int64_t both, std::int64_t first, std::int64_t second, std::int64_t neither) {
  const auto a = static_cast<double>(both), b = static_cast<double>(first), c = static_cast<double>(second),
             d = static_cast<double>(neither), n = a + b + c + d;
  if (n == 0) return {};
  const double p1 = (a + b) / n, p2 = (a + c) / n;
  const Interval one = wilson_interval(a + b, n), two = wilson_interval(a + c, n);
  const double margins = (a + b) * (c + d) * (a + c) * (b + d);
  double covariance = a * d - b * c;
  if (covariance > 0) covariance = std::max(covariance - n / 2, 0.0);  // the method's continuity correction
  const double phi = margins > 0 ? covariance / std::sqrt(margins) : 0.0;
  const auto distance = [&](double x, double y) { return std::sqrt(std::max(0.0, x * x - 2 * phi * x * y + y * y)); };
  return {p1 - p2 - distance(p1 - one.low, two.high - p2), p1 - p2 + distance(one.high - p1, p2 - two.low)};
}

Interval bootstrap_interval(std::span<const double> values, std::span<const double> weights, int draws,
                            std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> means;
  for (int draw = 0; draw < draws && !values.empty(); ++draw) {
    double sum = 0.0, weight = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t at = random() % values.size();  // no distribution: those differ between libraries
      sum += values[at];
      weight += weights[at];
    }
    if (weight > 0.0) means.push_back(sum / weight);
  }
  if (means.empty()) return {};
  std::sort(means.begin(), means.end());
  const auto at = [&](double quantile) {
    return means[static_cast<std::size_t>(std::llround(quantile * static_cast<double>(means.size() - 1)))];
  };
  return {at(0.025), at(0.975)};
}

namespace {

/// True for a key that stands under `relay.lab`: "layers.start", "select.share", "epic_tokens".
bool is_research_key(const std::string& key) {
  if (key.starts_with("layers.")) return true;
  const std::vector<SharedKey> all = method_keys();
  return std::any_of(all.begin(), all.end(), [&](const SharedKey& one) { return one.key.lab && one.key.name == key; });
}

}  // namespace

EvalMethod EvalMethod::parse(const std::string& text) {
  EvalMethod method;
  method.text = text;
  const std::size_t colon = text.find(':');
  method.name = text.substr(0, colon);
  if (method.name.empty()) throw Failure(kUsage, fmt::format("--methods: '{}' names no method", text));
  for (std::size_t at = colon; at != std::string::npos;) {
    const std::size_t end = text.find(';', at + 1);
    const std::string setting = text.substr(at + 1, end == std::string::npos ? end : end - at - 1);
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw Failure(kUsage,
                    fmt::format("--methods {}: expected KEY=VALUE after ':' or ';', found '{}'", text, setting));
    }
    method.settings.emplace_back(setting.substr(0, equals), setting.substr(equals + 1));
    at = end;
  }
  return method;
}

bool EvalMethod::is_reference() const {
  const ReuseMethod* method = find_reuse_method(name);
  return method != nullptr && !method->reuses;
}

bool EvalMethod::remembers_questions() const {
  const ReuseMethod* method = find_reuse_method(name);
  return method != nullptr && (method->learns || (method->prefixes && !method->ahead));
}

Workflow EvalMethod::load(const WorkflowArguments& arguments, const std::string& pool) const {
  WorkflowArguments changed = arguments;
  const ReuseMethod* method = find_reuse_method(name);  // an unknown one is refused by load
  if (method == nullptr || !(method->segments && method->ahead)) changed.set.push_back("relay.min_tokens=1");
  if (method == nullptr || !method->prefixes || method->ahead)
    changed.set.push_back("relay.prefix=false");  // the methods see the same prompts one after the other
  if (method != nullptr && method->learns)
    changed.set.push_back(fmt::format("relay.lab.{}.pool=eval-{}", method->name, pool));
  return load_with(std::move(changed), arguments);
}

Workflow EvalMethod::load_as_run(const WorkflowArguments& arguments) const { return load_with(arguments, arguments); }

Workflow EvalMethod::load_with(WorkflowArguments changed, const WorkflowArguments& arguments) const {
  changed.relay = name;
  for (const auto& [key, value] : settings)
    changed.set.push_back(fmt::format("relay.{}{}={}", is_research_key(key) ? "lab." : "", key, value));
  try {
    return changed.load();
  } catch (const WorkflowError& error) {
    arguments.load();  // the mistake may be the file's own
    throw Failure(kUsage, fmt::format("--methods {}: {}", text, error.what()));
  }
}

namespace {

using OrderedJson = nlohmann::ordered_json;

/// The last turn of an agent that came to an end, or null.
const AgentRecord* last_turn(const RunRecord& record, const std::string& agent) {
  const AgentRecord* last = nullptr;
  for (const auto& turn : record.agents) {
    if (turn.agent == agent && turn.state == TurnState::ok) last = &turn;
  }
  return last;
}

bool is_exact(const SlotRecord& slot) {
  const ReuseMethod* method = find_reuse_method(slot.method);
  return method != nullptr && method->exact;
}

}  // namespace

std::vector<std::string> agents_at_work(const Workflow& workflow) {
  std::vector<std::string> agents;
  for (const TurnInfo& turn : workflow.turns()) {
    if (std::find(agents.begin(), agents.end(), turn.agent) == agents.end()) agents.push_back(turn.agent);
  }
  return agents;
}

std::string final_answer(const Workflow& workflow, const RunRecord& record) {
  const AgentRecord* turn = last_turn(record, workflow.turns().back().agent);
  if (turn != nullptr && !turn->answer.empty()) return turn->answer;
  const auto agents = workflow.agents();
  const bool has_pattern = std::any_of(agents.begin(), agents.end(), [&](const AgentInfo& agent) {
    return agent.id == workflow.turns().back().agent && agent.has_answer;
  });
  if (has_pattern) return {};
  if (const auto output = record.outputs.find("answer"); output != record.outputs.end()) return output->second;
  return turn == nullptr ? std::string() : turn->output;
}

Tally empty_tally(const Workflow& workflow) {
  Tally tally;
  const auto at_work = agents_at_work(workflow);
  for (const auto& agent : workflow.agents()) {
    if (agent.has_answer && std::find(at_work.begin(), at_work.end(), agent.id) != at_work.end())
      tally.right_by_agent.emplace_back(agent.id, Share{});
  }
  return tally;
}

void ReuseTally::add(const AgentRecord& turn, bool first, std::size_t index) {
  reused_entries.add(turn.kv.reused, turn.kv.entries);
  if (!first) ahead_entries.add(turn.kv.ahead, turn.kv.entries);
  const bool skipped = !turn.slots.empty() && std::all_of(turn.slots.begin(), turn.slots.end(), [](const auto& slot) {
    return !is_exact(slot) || slot.recomputed_tokens == 0;
  });
  reused_turns.count(skipped);
  if (index >= kWarmUp) warm_reused_turns.count(skipped);
  for (const auto& slot : turn.slots) {
    if (is_exact(slot) || slot.tokens == 0) continue;
    const std::int64_t entries = turn.kv.entries / turn.prompt_tokens * slot.tokens;
    const auto part = [&](double rate) { return std::llround(rate * static_cast<double>(entries)); };
    relayed_entries.add(part(slot.kv_reuse_rate), entries);
    relayed_bound.add(part(slot.kv_reuse_bound), entries);
    if (slot.tokens >= kLongTokens) long_entries.add(part(slot.kv_reuse_rate), entries);
    recomputed_tokens.add(slot.recomputed_tokens, slot.tokens);
  }
}

void ReuseTally::merge(const ReuseTally& other) {
  for (Share ReuseTally::*one : {&ReuseTally::reused_entries, &ReuseTally::ahead_entries, &ReuseTally::relayed_entries,
                                 &ReuseTally::relayed_bound, &ReuseTally::long_entries, &ReuseTally::recomputed_tokens,
                                 &ReuseTally::reused_turns, &ReuseTally::warm_reused_turns})
    (this->*one).add((other.*one).part, (other.*one).whole);
}

Tally tally_of(const Workflow& workflow, const Question& question, std::size_t index, const RunRecord& record) {
  Tally tally = empty_tally(workflow);
  const double reached =
      record.state == RunState::ok ? score_of(question.check, final_answer(workflow, record), question.answer) : 0.0;
  tally.score += reached;
  tally.right.count(reached >= 1.0);
  tally.failed += record.state == RunState::ok ? 0 : 1;
  for (auto& [agent, share] : tally.right_by_agent) {
    const AgentRecord* turn = last_turn(record, agent);
    share.count(turn != nullptr && score_of(question.check, turn->answer, question.answer) >= 1.0);
  }
  for (const auto& turn : record.agents) {
    if (turn.prompt_tokens == 0) continue;
    tally.add(turn, &turn == &record.agents.front(), index);
    tally.method_bytes = std::max(tally.method_bytes, record.memory.method_bytes);
    tally.ttft_ms += turn.ttft_ms;
    ++tally.turns;
    tally.output_tokens += turn.output_tokens;
  }
  tally.wall_ms += record.wall_ms;
  return tally;
}

Tally sum_of(Tally tally, const Tally& other) {
  const auto add = [](Share& share, const Share& more) { share.add(more.part, more.whole); };
  tally.score += other.score;
  add(tally.right, other.right);
  for (std::size_t i = 0; i < tally.right_by_agent.size(); ++i)
    add(tally.right_by_agent[i].second, other.right_by_agent[i].second);
  add(tally.exact, other.exact);
  tally.merge(other);
  tally.method_bytes = std::max(tally.method_bytes, other.method_bytes);
  tally.ttft_ms += other.ttft_ms;
  tally.turns += other.turns;
  tally.output_tokens += other.output_tokens;
  tally.failed += other.failed;
  tally.wall_ms += other.wall_ms;
  return tally;
}

PairedScore paired(const Score& score) {
  PairedScore result;
  std::int64_t both = 0, neither = 0;
  std::vector<double> differences, kl, tokens;
  for (const QuestionScore& question : score.questions) {
    differences.push_back(question.score - question.full);
    result.difference += differences.back() / static_cast<double>(score.questions.size());
    result.wins += question.score > question.full ? 1 : 0;
    result.losses += question.score < question.full ? 1 : 0;
    both += question.score >= 1.0 && question.full >= 1.0 ? 1 : 0;
    neither += question.score <= 0.0 && question.full <= 0.0 ? 1 : 0;
    kl.push_back(question.kl);
    tokens.push_back(static_cast<double>(question.tokens));
  }
  const std::vector<double> ones(differences.size(), 1.0);
  result.interval = score.binary ? newcombe_interval(both, result.wins, result.losses, neither)
                                 : bootstrap_interval(differences, ones);
  result.kl = bootstrap_interval(kl, tokens);
  return result;
}

namespace {

double accuracy(const Tally& tally) {
  return tally.right.whole > 0 ? tally.score / static_cast<double>(tally.right.whole) : 0.0;
}

double first_token_ms(const Tally& tally) {
  return tally.turns > 0 ? tally.ttft_ms / static_cast<double>(tally.turns) : 0.0;
}

}  // namespace

OrderedJson json_of(const Score& score) {
  const Tally& tally = score.tally;
  const PairedScore pairs = paired(score);
  const bool compared = !score.method.is_reference();
  const auto if_compared = [&](OrderedJson value) { return compared ? std::move(value) : OrderedJson(nullptr); };
  const auto if_free = [&](OrderedJson value) {
    return compared && score.free ? std::move(value) : OrderedJson(nullptr);
  };
  OrderedJson by_agent = OrderedJson::object();
  for (const auto& [agent, share] : tally.right_by_agent) by_agent[agent] = share.value();
  OrderedJson params = {{"agents", agents_at_work(*score.workflow).size()}};
  for (const auto& [key, value] : score.method.settings) params[key] = value;
  return {{"method", score.method.name},
          {"params", std::move(params)},
          {"questions", tally.right.whole},
          {"accuracy", score.free ? OrderedJson(accuracy(tally)) : OrderedJson(nullptr)},
          {"accuracy_difference", if_free(pairs.difference)},
          {"accuracy_interval", if_free({pairs.interval.low, pairs.interval.high})},
          {"wins", if_free(pairs.wins)},
          {"losses", if_free(pairs.losses)},
          {"accuracy_by_agent", std::move(by_agent)},
          {"exact_match", score.free ? OrderedJson(tally.exact.value()) : OrderedJson(nullptr)},
          {"greedy_agreement", score.quality.agreement()},
          {"kl_first_token", score.quality.kl_first_token()},
          {"kl_mean", score.quality.kl_mean()},
          {"kl_mean_interval", if_compared({pairs.kl.low, pairs.kl.high})},
          {"turns_within_tolerance", score.quality.within_tolerance()},
          {"kv_reuse_rate", tally.relayed_entries.value()},
          {"kv_reuse_bound", tally.relayed_bound.value()},
          {"kv_reuse_rate_long",
           tally.long_entries.whole > 0 ? OrderedJson(tally.long_entries.value()) : OrderedJson(nullptr)},
          {"recomputed_share", tally.recomputed_tokens.value()},
          {"kv_reuse_rate_prompt", tally.reused_entries.value()},
          {"ahead_rate", tally.ahead_entries.value()},
          {"agent_turn_reuse", tally.reused_turns.value()},
          {"agent_turn_reuse_after_50",
           tally.warm_reused_turns.whole > 0 ? OrderedJson(tally.warm_reused_turns.value()) : OrderedJson(nullptr)},
          {kMethodBytes, tally.method_bytes},
          {"ttft_ms", first_token_ms(tally)},
          {"output_tokens", tally.output_tokens},
          {"failed_runs", tally.failed},
          {"wall_ms", tally.wall_ms}};
}

std::string table_of(const std::vector<Score>& scores, const Quality* floor) {
  std::size_t width = 12;
  for (const auto& score : scores) width = std::max(width, score.method.text.size() + 1);
  const auto columns = static_cast<int>(width);
  std::string out = padded("method", columns) +
                    "   right  difference (95 %)    won:lost    KL mean (95 %)                    agree   reused  "
                    "first token        wall\n";
  for (const auto& score : scores) {
    const Tally& tally = score.tally;
    const PairedScore pairs = paired(score);
    std::string difference, games, kl;
    const std::string right = score.free ? fmt::format("{:5.1f} %", 100 * accuracy(tally)) : "      -";
    if (!score.method.is_reference() && score.free) {
      difference = fmt::format("{:+.1f} [{:+.1f}, {:+.1f}]", 100 * pairs.difference, 100 * pairs.interval.low,
                               100 * pairs.interval.high);
      games = fmt::format("{}:{}", pairs.wins, pairs.losses);
    }
    if (!score.method.is_reference())
      kl = fmt::format("{:.2e} [{:.1e}, {:.1e}]", score.quality.kl_mean(), pairs.kl.low, pairs.kl.high);
    out += padded(score.method.text, columns) +
           fmt::format(" {}  {:20}  {:>8}    {:30}  {:5.1f} %  {:5.1f} %  {:>11}  {:>10}\n", right, difference, games,
                       kl, 100 * score.quality.agreement(), 100 * tally.relayed_entries.value(),
                       duration(first_token_ms(tally)), duration(tally.wall_ms));
  }
  if (floor != nullptr) out += padded("noise floor", columns) + fmt::format("{:44}{:.2e}\n", "", floor->kl_mean());
  out +=
      "\n" + padded("method", columns) + "   exact   KL first  within 0.02  (at most)  recomputed    ahead    turns\n";
  for (const auto& score : scores) {
    out += padded(score.method.text, columns) +
           fmt::format(" {:5.1f} %  {:9.2e}      {:5.1f} %    {:5.1f} %     {:5.1f} %  {:5.1f} %  {:5.1f} %\n",
                       100 * score.tally.exact.value(), score.quality.kl_first_token(),
                       100 * score.quality.within_tolerance(), 100 * score.tally.relayed_bound.value(),
                       100 * score.tally.recomputed_tokens.value(), 100 * score.tally.ahead_entries.value(),
                       100 * score.tally.reused_turns.value());
  }
  return out;
}

std::string hand_overs_of(const Workflow& file, const std::vector<Score>& scores) {
  const auto slots_of = [](const Workflow& workflow) {
    std::string out;
    for (const TurnInfo& turn : workflow.turns()) {
      if (turn.slots.empty()) continue;
      out += fmt::format("  {}:", turn.id);
      for (const SlotInfo& slot : turn.slots) out += fmt::format(" {} {};", slot.name, slot.method);
      out.back() = '\n';
    }
    return out;
  };
  std::string out = "run, by the file:\n" + slots_of(file);
  std::string before;  // methods with the same slots are listed together
  for (const Score& score : scores) {
    const std::string slots = slots_of(*score.workflow);
    if (slots == before) {
      out.insert(out.size() - slots.size() - 2, ", " + score.method.text);
    } else {
      out += score.method.text + ":\n" + slots;
    }
    before = slots;
  }
  return out +
         "eval reuses texts of any length (min_tokens: 1) and exact prefixes only by method prefix; run follows the "
         "file's relay.min_tokens (32 without it) and relay.prefix (true without it)\n";
}

std::string agents_of(const std::vector<Score>& scores) {
  std::string out;
  for (const auto& score : scores) {
    out += fmt::format("{}:", score.method.text);
    for (const auto& [agent, share] : score.tally.right_by_agent)
      out += fmt::format("  {} {:.1f} %", agent, 100 * share.value());
    if (score.tally.failed > 0) out += fmt::format("  {} runs failed", score.tally.failed);
    out += "\n";
  }
  return out;
}

}  // namespace baton::inline v1::lab
