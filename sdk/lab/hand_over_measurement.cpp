// SPDX-License-Identifier: Apache-2.0
#include "sdk/lab/hand_over_measurement.h"

#include <baton/distributions.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <numeric>

#include "agents/prompts/prompt.h"
#include "engine/base/random.h"
#include "engine/reuse/rectify/rectify.h"

namespace baton::inline v1::lab {

namespace {

/// Shared with the callbacks, which run on the engine's thread.
struct Batch {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::vector<GenerationResult> results;
  std::vector<RequestId> ids;  // the calling thread's
  std::size_t finished = 0;
  std::int64_t decoded = 0;  // tokens of those that are not finished, and of those that are
  std::int64_t most = 0;     // tokens that all may decode

  double share() const {
    const auto all = static_cast<double>(results.size());
    const double tokens = most > 0 ? static_cast<double>(decoded) / static_cast<double>(most) : 0.0;
    return std::max(static_cast<double>(finished) / all, 0.95 * std::min(1.0, tokens));
  }
};

void submit(InferenceEngine& engine, const std::shared_ptr<Batch>& batch, std::size_t index,
            GenerationRequest request) {
  request.callbacks.on_token = [batch](TokenId, const std::string&) {
    const std::lock_guard lock(batch->mutex);
    ++batch->decoded;
    batch->changed.notify_all();
  };
  request.callbacks.on_finished = [batch, index,
                                   own = std::move(request.callbacks.on_finished)](GenerationResult result) {
    try {
      if (own) own(result);
    } catch (const std::exception& error) {
      result.reason = FinishReason::error;
      result.error = error.what();
    }
    const std::lock_guard lock(batch->mutex);
    batch->results[index] = std::move(result);
    ++batch->finished;
    batch->changed.notify_all();
  };
  batch->ids.push_back(engine.submit(std::move(request)));
}

}  // namespace

std::optional<std::vector<GenerationResult>> run_all(InferenceEngine& engine, std::vector<GenerationRequest> requests,
                                                     const std::stop_token& stop, const BatchProgress& progress) {
  const auto batch = std::make_shared<Batch>();
  batch->results.resize(requests.size());
  for (const auto& request : requests) batch->most += request.max_tokens;
  std::exception_ptr thrown;
  bool stopped = false;
  try {
    for (std::size_t i = 0; i < requests.size(); ++i) submit(engine, batch, i, std::move(requests[i]));
    for (double shown = 0.0; !stopped;) {
      {
        std::unique_lock lock(batch->mutex);
        const auto news = [&] { return batch->finished == batch->results.size() || batch->share() > shown; };
        stopped = !batch->changed.wait(lock, stop, news) || stop.stop_requested();
        if (batch->finished == batch->results.size()) break;
        shown = batch->share();
      }
      if (progress && !stopped) progress(shown);
    }
  } catch (...) {
    thrown = std::current_exception();
  }
  if (thrown || stopped) {
    for (const RequestId id : batch->ids) engine.cancel(id);
  }
  std::unique_lock lock(batch->mutex);
  batch->changed.wait(lock,
                      [&] { return batch->finished == batch->ids.size(); });  // callbacks use what the caller owns
  if (thrown) std::rethrow_exception(thrown);
  if (stopped) return std::nullopt;
  for (const GenerationResult& result : batch->results) {
    if (result.reason == FinishReason::error) throw EngineError(EngineError::Kind::invalid, result.error);
  }
  return std::move(batch->results);
}

namespace {

GenerationRequest request_of(std::vector<PromptPart> prompt, std::int32_t max_tokens, ReuseOptions reuse = {}) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.reuse = std::move(reuse);
  request.reuse.min_tokens = 1;
  request.reuse.prefix = false;
  return request;
}

/// Progress of a batch that is the part from `begin` to `end` of the work.
BatchProgress part_of(const BatchProgress& progress, double begin, double end) {
  if (!progress) return {};
  return [&progress, begin, end](double share) { progress(begin + share * (end - begin)); };
}

}  // namespace

HandOverMeasurement::HandOverMeasurement(LocalEngine& author, LocalEngine& reader,
                                         std::span<const CalibrationHandOver> hand_overs,
                                         const ProfilerOptions& options, std::int32_t reply_tokens)
    : author_(author),
      reader_(reader),
      options_(options),
      reply_tokens_(reply_tokens),
      last_(reader.model().config.layers - 1) {
  for (const CalibrationHandOver& one : hand_overs) cases_.push_back({one, {}, {}});
}

bool HandOverMeasurement::prepare(const BatchProgress& progress) {
  std::vector<GenerationRequest> requests;
  std::erase_if(cases_, [&](const Case& one) { return !fits(one.from.producer.size() + one.from.answer.size()); });
  for (const Case& one : cases_) requests.push_back(producer_request(one.from, options_.max_tokens));
  const auto answers = run_all(author_, std::move(requests), options_.stop, part_of(progress, 0.0, 0.8));
  if (!answers) return false;
  for (std::size_t i = 0; i < cases_.size(); ++i) cases_[i].from.answer = (*answers)[i].tokens;
  std::erase_if(cases_, [&](const Case& one) {
    const CalibrationHandOver& from = one.from;
    const auto reply = static_cast<std::size_t>(reply_tokens_);
    return from.answer.size() < static_cast<std::size_t>(options_.min_tokens) ||
           !fits(from.before.size() + from.answer.size() + from.after.size() + reply);
  });
  requests.clear();
  for (Case& one : cases_) {
    requests.push_back(request_of(prompt_of(one, nullptr), reply_tokens_));
    requests.back().callbacks.on_logits = [&full = one.full](std::span<const float> logits) {
      full.emplace_back(logits.begin(), logits.end());
    };
  }
  const auto replies = run_all(reader_, std::move(requests), options_.stop, part_of(progress, 0.8, 1.0));
  if (!replies) return false;
  for (std::size_t i = 0; i < cases_.size(); ++i) cases_[i].reply = (*replies)[i].tokens;
  return true;
}

std::optional<std::vector<std::vector<double>>> HandOverMeasurement::measure(std::span<const ReuseOptions> candidates,
                                                                             std::vector<std::vector<double>>* left,
                                                                             const BatchProgress& progress) {
  const auto segments = record(candidates.front(), static_cast<std::int64_t>(candidates.size()));
  if (!segments) return std::nullopt;
  std::vector<std::vector<double>> sums(candidates.size(), std::vector<double>(cases_.size(), 0.0));
  std::vector<GenerationRequest> requests;
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      const Case& one = cases_[i];
      GenerationRequest request = request_of(prompt_of(one, (*segments)[i]), reply_tokens_, candidates[c]);
      request.forced = one.reply;
      request.callbacks.on_logits = [&sum = sums[c][i], &full = one.full,
                                     at = std::size_t{0}](std::span<const float> logits) mutable {
        if (at < full.size()) sum += divergence(full[at++], logits);
      };
      requests.push_back(std::move(request));
    }
  }
  const auto results = run_all(reader_, std::move(requests), options_.stop, progress);
  if (!results) return std::nullopt;
  for (const GenerationResult& result : *results) {
    for (const PartUse& use : result.uses) {
      if (!use.reason.empty())
        throw EngineError(EngineError::Kind::memory, "an answer's KV was not reused: " + use.reason);
    }
  }
  for (std::size_t c = 0; left != nullptr && c < candidates.size(); ++c) {
    left->emplace_back();
    for (std::size_t i = 0; i < cases_.size(); ++i)
      left->back().push_back((*results)[c * cases_.size() + i].guard_left);
  }
  for (std::vector<double>& of : sums) {
    for (std::size_t i = 0; i < cases_.size(); ++i)
      of[i] /= static_cast<double>(std::max<std::size_t>(1, cases_[i].full.size()));
  }
  return sums;
}

double HandOverMeasurement::mean_of(std::span<const double> divergences) const {
  double sum = 0.0;
  for (std::size_t i = 0; i < divergences.size(); ++i)
    sum += divergences[i] * static_cast<double>(cases_[i].full.size());
  return sum / static_cast<double>(std::max<std::int64_t>(1, tokens()));
}

std::int64_t HandOverMeasurement::tokens() const {
  return std::accumulate(cases_.begin(), cases_.end(), std::int64_t{0}, [](std::int64_t sum, const Case& one) {
    return sum + static_cast<std::int64_t>(one.full.size());
  });
}

bool HandOverMeasurement::fits(std::size_t tokens) const {
  return tokens < static_cast<std::size_t>(std::min(author_.model().options.context, reader_.model().options.context));
}

std::vector<PromptPart> HandOverMeasurement::prompt_of(const Case& one, const SegmentHandle& segment) const {
  PromptPart answer{"answer", one.from.answer};
  if (between() && segment)
    answer.imported_kv = author_.exported_kv(segment);
  else
    answer.segment = segment;
  return consumer_prompt(one.from, std::move(answer));
}

/// Makes the answers' segments in one prefill each, with the hidden states at the input of the candidate's first layer.
std::optional<std::vector<SegmentHandle>> HandOverMeasurement::record(const ReuseOptions& candidate,
                                                                      std::int64_t readers) {
  const LayerRange& range = candidate.range;
  std::vector<GenerationRequest> requests;
  for (const Case& one : cases_) {
    PromptPart answer{"answer", one.from.answer, nullptr, readers};
    answer.export_kv = between();
    requests.push_back(request_of({{"", one.from.producer}, std::move(answer)}, 1));
    requests.back().reuse.record = true;
    requests.back().reuse.range = {range.start, range.start + 1, last_};
    if (range.is_group(last_ + 1)) {
      requests.back().reuse.method = candidate.method;
      requests.back().reuse.range = range;
    }
  }
  auto results = run_all(author_, std::move(requests), options_.stop);
  if (!results) return std::nullopt;
  std::vector<SegmentHandle> segments;
  for (GenerationResult& result : *results) {
    if (!result.segments.at(1)) throw EngineError(EngineError::Kind::memory, "no memory to keep an answer's KV");
    segments.push_back(std::move(result.segments[1]));
  }
  return segments;
}

GenerationRequest producer_request(const CalibrationHandOver& hand_over, std::int32_t max_tokens) {
  GenerationRequest request;
  request.prompt = {{"", hand_over.producer, nullptr, 0}};
  request.max_tokens = max_tokens;
  request.forced = hand_over.answer;
  request.forced.resize(std::min(request.forced.size(), static_cast<std::size_t>(max_tokens)));
  return request;
}

std::vector<PromptPart> consumer_prompt(const CalibrationHandOver& hand_over, PromptPart answer) {
  std::vector<PromptPart> prompt;
  if (!hand_over.before.empty()) prompt.push_back({"", hand_over.before, nullptr, 0});
  prompt.push_back(std::move(answer));
  if (!hand_over.after.empty()) prompt.push_back({"", hand_over.after, nullptr, 0});
  return prompt;
}

namespace {

constexpr std::size_t kFew = 3;  // fewer measured hand-overs say too little, whatever the time

ReuseOptions candidate(const LayerRange& range, double reuse) {
  ReuseOptions options;
  options.method = &rectify_method();
  options.range = range;
  own<RectifyOptions>(options).correct = false;
  own<RectifyOptions>(options).reuse = reuse;
  return options;
}

}  // namespace

RelayLevel level_of(double reuse, std::span<const double> divergences) {
  RelayLevel level{reuse, 0.0, 0.0};
  std::vector<double> logs;
  double sum = 0.0;
  const auto n = static_cast<double>(divergences.size());
  for (const double value : divergences) {
    level.divergence += value / n;
    logs.push_back(std::log(std::max(value, kMinDivergence)));
    sum += logs.back();
  }
  level.high = std::max(level.divergence, std::exp(sum / n + next_margin(logs)));
  return level;
}

double fit_guard(std::span<const GuardPoint> points) {
  double logs = 0.0, n = 0.0;
  for (const GuardPoint& point : points) {
    if (point.left <= 0.0 || point.divergence <= 0.0) continue;
    logs += std::log(point.divergence / point.left);
    n += 1.0;
  }
  return n > 0.0 ? std::exp(logs / n) : 0.0;
}

std::optional<RelayLevels> measure_levels(LocalEngine& engine, std::span<const CalibrationHandOver> hand_overs,
                                          const ProfilerOptions& options, const LevelOptions& asked) {
  RelayLevels found;
  found.range = LayerRange::by_depth(engine.model().config.layers);
  const ModelConfig& config = engine.model().config;
  if (!found.range.valid(config.layers) || !config.stores_kv(found.range.detect)) return std::nullopt;
  std::vector<ReuseOptions> candidates;
  for (const double reuse : asked.reuse) candidates.push_back(candidate(found.range, reuse));
  const auto progress = [&](double share) {
    if (options.on_progress) options.on_progress(share);
  };
  std::vector<std::vector<double>> divergences(candidates.size());  // of each candidate, per hand-over
  std::vector<GuardPoint> points;
  // Adds the hand-overs from `begin` to `end`. Returns false when stopped.
  const auto add = [&](std::size_t begin, std::size_t end) {
    const auto whole = static_cast<double>(hand_overs.size());
    const double done = static_cast<double>(begin) / whole, all = static_cast<double>(end - begin) / whole;
    progress(done);
    HandOverMeasurement measurement(engine, engine, hand_overs.subspan(begin, end - begin), options,
                                    asked.reply_tokens);
    if (!measurement.prepare([&](double share) { progress(done + all * 0.4 * share); })) return false;
    if (measurement.empty()) return true;
    std::vector<std::vector<double>> left;
    const auto measured =
        measurement.measure(candidates, &left, [&](double share) { progress(done + all * (0.4 + 0.6 * share)); });
    if (!measured) return false;
    for (std::size_t c = 0; c < candidates.size(); ++c) {
      divergences[c].insert(divergences[c].end(), (*measured)[c].begin(), (*measured)[c].end());
      for (std::size_t i = 0; i < left[c].size(); ++i) points.push_back({left[c][i], (*measured)[c][i]});
    }
    return true;
  };
  const auto begin = std::chrono::steady_clock::now();
  const std::size_t first = std::min(std::max<std::size_t>(asked.first, 1), hand_overs.size());
  if (!add(0, first)) return std::nullopt;
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  const double expected = taken.count() * static_cast<double>(hand_overs.size()) / static_cast<double>(first);
  const bool within = expected <= std::chrono::duration<double>(asked.time).count();
  if ((within || divergences.front().size() < kFew) && !add(first, hand_overs.size())) return std::nullopt;
  if (divergences.front().empty()) return std::nullopt;
  found.guard_scale = fit_guard(points);
  for (std::size_t i = 0; i < candidates.size(); ++i) found.levels.push_back(level_of(asked.reuse[i], divergences[i]));
  progress(1.0);
  return found;
}

namespace {

/// The same hand-overs with every standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t below(std::uint64_t bound) { return next_random(state_) % bound; }
  /// From low to high, at least 0.
  int number(int low, int high) {
    const auto numbers = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
    return low + static_cast<int>(below(numbers));
  }
  template <std::size_t N>
  const char* one_of(const std::array<const char*, N>& list) {
    return list[below(N)];
  }

 private:
  std::uint64_t state_;
};

struct Role {
  const char* title;
  const char* text;
};

constexpr std::array<Role, 4> kRoles = {{
    {"Analyst",
     "You are a mathematical analyst. You will be given a math problem and maybe answers of other agents. Repeat the "
     "problem, name each quantity with a letter, then put in the numbers. The last line is only the final result."},
    {"Solver",
     "You are a math expert. You will be given a math problem and hints of other agents. Repeat the problem, then give "
     "your own solution step by step. The last line is only the final result."},
    {"Inspector",
     "You are an inspector. You will be given a math problem and answers of other agents. Repeat the problem, solve it "
     "step by step, then check every answer and say which step is wrong. The last line is only the final result."},
    {"Decision maker",
     "You are a decision maker. You will be given a math problem and solutions of other agents. Check them against the "
     "problem and name those that are right. The last line is only the final result."},
}};

constexpr std::array<const char*, 8> kNames = {"Anna", "Tom", "Mia", "Paul", "Lily", "Max", "Sara", "Jack"};
constexpr std::array<const char*, 8> kItems = {"apples", "pens",    "books",  "cards",
                                               "nuts",   "candles", "stamps", "shells"};

std::string problem(Random& random) {
  const char* name = random.one_of(kNames);
  const char* item = random.one_of(kItems);
  const int a = random.number(12, 40), b = random.number(2, 9), c = random.number(2, 9);
  switch (random.below(4)) {
    case 0:
      return fmt::format(
          "{0} has {2} {1}. {0} buys {3} more {1} and gives {4} {1} to a friend. How many {1} does {0} have?", name,
          item, a, b, c);
    case 1:
      return fmt::format(
          "{0} buys {3} boxes with {4} {1} each. {0} already has {2} {1}. How many {1} does {0} have in total?", name,
          item, a, b, c);
    case 2:
      return fmt::format("{0} pays for {3} {1} at {4} coins each with {2} coins. How many coins does {0} get back?",
                         name, item, a + b * c, b, c);
    default:
      return fmt::format(
          "{0} puts {2} {1} into {3} boxes, the same number into each. {0} gives {4} boxes away. How many {1} are "
          "left?",
          name, item, b * (c + 4), b, 1);
  }
}

/// Returns `count` sentences that a team may have before the question.
std::string notes(Random& random, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += fmt::format("{} has {} {} in the box.{}", random.one_of(kNames), random.number(10, 60),
                        random.one_of(kItems), i + 1 < count ? " " : "\n\n");
  }
  return text;
}

std::vector<TokenId> tokens_of(const std::vector<PromptPart>& parts, std::size_t begin, std::size_t end) {
  std::vector<TokenId> tokens;
  for (std::size_t i = begin; i < end; ++i) tokens.insert(tokens.end(), parts[i].tokens.begin(), parts[i].tokens.end());
  return tokens;
}

/// The tokens of a prompt before and after its one placeholder, and of `text` as its value.
struct AroundSlot {
  std::vector<TokenId> before, value, after;
};
AroundSlot around_slot(const Model& model, const std::vector<PromptMessage>& messages, const std::string& text) {
  const auto parts = build_prompt(model, messages, [&](const std::string&, PieceStart start) {
    return model.tokenizer->encode_piece(text, SpecialTokens::as_text, start);
  });
  std::size_t slot = 0;
  while (slot < parts.size() && parts[slot].slot.empty()) ++slot;
  return {tokens_of(parts, 0, slot), tokens_of(parts, slot, slot + 1), tokens_of(parts, slot + 1, parts.size())};
}

/// One hand-over with `desk` notes before the consumer's question.
CalibrationHandOver hand_over(const Model& model, Random random, int desk) {
  const std::size_t first = random.below(kRoles.size());
  const Role& producer = kRoles[first];
  const Role& consumer = kRoles[(first + 1 + random.below(kRoles.size() - 1)) % kRoles.size()];
  const std::string question = "Question:\n" + problem(random);
  const std::vector<PromptMessage> asked = {{"system", {{producer.text, {}}}}, {"user", {{question, {}}}}};
  const std::vector<PromptMessage> read = {
      {"system", {{consumer.text, {}}}},
      {"user", {{fmt::format("{}{}\n\n{}:\n", notes(random, desk), question, producer.title), {}}, {{}, "answer"}}}};
  CalibrationHandOver made;
  const auto prompt = build_prompt(model, asked, [](const std::string&, PieceStart) { return std::vector<TokenId>(); });
  made.producer = tokens_of(prompt, 0, prompt.size());
  AroundSlot around = around_slot(model, read, "The answer.");  // the value that stands there is generated
  made.before = std::move(around.before);
  made.after = std::move(around.after);
  return made;
}

/// A text of `count` facts that one agent has read and that another one is asked about.
CalibrationHandOver document_hand_over(const Model& model, Random random, int count) {
  std::string text;
  const int asked = random.number(0, count - 1);
  std::string question;
  for (int i = 0; i < count; ++i) {
    const char* name = random.one_of(kNames);
    const char* item = random.one_of(kItems);
    const int number = random.number(10, 99), price = random.number(2, 9);
    text += fmt::format("{}. {} keeps {} {} in room {} and sells each of them for {} coins. ", i + 1, name, number,
                        item, random.number(100, 999), price);
    if (i == asked)
      question = fmt::format("\n\nQuestion: Say in one sentence what line {} of the text tells about {}.", i + 1, name);
  }
  const std::size_t first = random.below(kRoles.size());
  const Role& reader = kRoles[(first + 1) % kRoles.size()];
  const std::vector<PromptMessage> read = {{"system", {{kRoles[first].text, {}}}}, {"user", {{{}, "text"}}}};
  const std::vector<PromptMessage> asks = {
      {"system", {{fmt::format("{} Answer from the text, in few words.", reader.title), {}}}},
      {"user", {{"Text:\n", {}}, {{}, "text"}, {question, {}}}}};
  CalibrationHandOver made;
  made.producer = around_slot(model, read, text).before;
  AroundSlot around = around_slot(model, asks, text);
  made.before = std::move(around.before);
  made.answer = std::move(around.value);
  made.after = std::move(around.after);
  return made;
}

}  // namespace

std::vector<CalibrationHandOver> document_hand_overs(const Model& model, std::int32_t count, std::uint64_t seed) {
  constexpr std::array<int, 3> kLines = {3, 5, 8};  // some 75 to 200 tokens
  std::vector<CalibrationHandOver> made;
  for (std::int32_t i = 0; i < count; ++i) {
    const Random random(seed * 1'000'003 + 500'009 + static_cast<std::uint64_t>(i));
    made.push_back(document_hand_over(model, random, kLines[static_cast<std::size_t>(i) % kLines.size()]));
  }
  return made;
}

std::vector<CalibrationHandOver> synthetic_hand_overs(const Model& model, std::int32_t count, std::int32_t max_tokens,
                                                      std::uint64_t seed) {
  constexpr std::array<int, 4> kDesks = {0, 1, 3, 6};  // up to some 80 tokens
  std::vector<CalibrationHandOver> made;
  for (std::int32_t i = 0; i < count; ++i) {
    const Random random(seed * 1'000'003 + static_cast<std::uint64_t>(i));
    int desk = kDesks[static_cast<std::size_t>(i) % kDesks.size()];
    CalibrationHandOver one = hand_over(model, random, desk);
    const auto fits = [&] {
      return one.before.size() + one.after.size() + static_cast<std::size_t>(max_tokens) <
             static_cast<std::size_t>(model.options.context);
    };
    while (desk > 0 && !fits()) one = hand_over(model, random, desk /= 2);
    made.push_back(std::move(one));
  }
  return made;
}

std::vector<CalibrationHandOver> level_hand_overs(const Model& model, std::int32_t count, std::int32_t max_tokens,
                                                  std::uint64_t seed) {
  std::vector<CalibrationHandOver> written = synthetic_hand_overs(model, count / 2, max_tokens, seed);
  std::vector<CalibrationHandOver> given = document_hand_overs(model, count / 2, seed), all;
  for (std::size_t i = 0; i < written.size(); ++i) {  // in turn: the first few hold both kinds
    all.push_back(std::move(written[i]));
    all.push_back(std::move(given[i]));
  }
  return all;
}

}  // namespace baton::inline v1::lab
