// SPDX-License-Identifier: Apache-2.0
#include "sdk/src/model_ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "agents/prompts/prompt.h"
#include "engine/base/files.h"
#include "engine/base/random.h"
#include "engine/reuse/schedule.h"

namespace baton {
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

namespace {

constexpr std::int32_t kHandOvers = 12;
constexpr std::int32_t kDocumentTokens = 192;  // maximum of a text that is handed over

/// The laboratory's, set once at the start of its program.
PaperRanges& paper_ranges() {
  static PaperRanges the_ranges = nullptr;
  return the_ranges;
}

void keep(const std::filesystem::path& file, const std::string& text) {
  if (file.empty()) return;
  try {
    write_whole(file, text);
  } catch (const std::filesystem::filesystem_error&) {
    // The next process measures again.
  }
}

bool can_be_relayed(const Plan& plan, const SlotSource& slot, const Inputs* inputs, const Model& model) {
  if (!hands_over(*slot.method)) return false;
  std::int64_t most = plan.reuse.min_tokens;
  if (slot.kind == SlotSource::Kind::agent_output) {
    const PlannedTurn& author = plan.turns[static_cast<std::size_t>(slot.turn)];
    if (author.is_written()) most = author.max_tokens;
  } else if (slot.kind == SlotSource::Kind::input && inputs != nullptr) {
    if (const auto text = inputs->find(slot.name); text != inputs->end())
      most = static_cast<std::int64_t>(model.tokenizer->encode(text->second, SpecialTokens::as_text).size());
  }
  return most >= plan.reuse.min_tokens;
}

}  // namespace

void check_layers(const WorkflowSpec& spec, const std::string& name, const Model& model) {
  const LayerRange& range = spec.relay.options.range;
  const std::int32_t layers = model.config.layers;
  if (range.end < layers) return;  // the reader has checked the order
  Diagnostics diagnostics;
  diagnostics.add_sources(spec.sources);
  diagnostics.error(spec.relay.layers_where, "E0412",
                    fmt::format("relay: layers.end {} is not a layer of model '{}', which has {}; expected at most {}",
                                range.end, name, layers, layers - 1));
  diagnostics.fail();
}

void check_reuse(const WorkflowSpec& spec, const ReuseOptions& reuse, const std::string& name,
                 const LocalEngine& engine) {
  const double asked = asked_reuse(reuse);
  if (asked <= 0.0) return;
  const std::int32_t layers = engine.model().config.layers;
  LayerRange range = reuse.range;
  if (!range.given()) range = wants_paper_range(reuse) ? engine.calibration().paper_range : engine.calibration().range;
  const double bound = max_reuse(reuse, range, layers);
  if (asked <= bound + 1e-6) return;
  Diagnostics diagnostics;
  diagnostics.add_sources(spec.sources);
  diagnostics.error(
      spec.relay.reuse_where, "E0412",
      fmt::format(
          "relay: method {} cannot reuse {:.3f} of the entries of model '{}'; expected at most {:.3f}, since its "
          "layers up to the choice are computed for every token",
          reuse.method->name, asked, name, bound));
  diagnostics.fail();
}

bool can_be_relayed(const Plan& plan, const PlannedTurn& turn, const Inputs* inputs, const Model& model) {
  return std::any_of(turn.slots.begin(), turn.slots.end(),
                     [&](const SlotSource& slot) { return can_be_relayed(plan, slot, inputs, model); });
}

void set_paper_ranges(PaperRanges ranges) { paper_ranges() = ranges; }

void ensure_layer_range(LocalEngine& engine, bool paper, const std::function<void(double share)>& on_progress,
                        const std::stop_token& stop) {
  const Model& model = engine.model();
  const auto is_set = [&] {
    const Calibration now = engine.calibration();
    return (paper ? now.paper_range : now.range).valid(model.config.layers);
  };
  if (is_set() || stop.stop_requested()) return;
  const FoundProfile found = find_profile(model);
  // One that was made at first use of the paper's layers says nothing of better ones.
  const bool chosen =
      found.profile && (found.profile->reading == RangeReading::effect || found.file == profile_beside(model.path));
  if (chosen) update_calibration(engine, [&](Calibration& now) { now.range = found.profile->range(); });
  if (paper) {
    if (paper_ranges() == nullptr)
      throw ModelError(
          fmt::format("{}: the layers of RelayCaching's profiler are found by baton-lab alone", model.path.string()));
    return paper_ranges()(engine, found.profile, on_progress, stop);
  }
  if (chosen) return;
  const auto levels = find_levels(model);
  update_calibration(engine, [&](Calibration& now) {
    now.range = levels ? levels->levels.range : LayerRange::by_depth(model.config.layers);
  });
  if (is_set()) return;
  throw ModelError(fmt::format("{}: a model of {} layers has no layer range; at least {} are needed",
                               model.path.string(), model.config.layers, kMinRangeLayers));
}

void ensure_relay_levels(LocalEngine& engine, const std::function<void(double share)>& on_progress,
                         const std::stop_token& stop) {
  const Model& model = engine.model();
  if (!engine.calibration().levels.levels.empty() || stop.stop_requested()) return;
  if (const auto found = find_levels(model))
    return update_calibration(engine, [&](Calibration& now) { now.levels = found->levels; });
  ProfilerOptions options;
  options.on_progress = on_progress;
  options.stop = stop;
  std::vector<CalibrationHandOver> written = synthetic_hand_overs(model, kHandOvers / 2, options.max_tokens, 0);
  std::vector<CalibrationHandOver> given = document_hand_overs(model, kHandOvers / 2, 0), hand_overs;
  for (std::size_t i = 0; i < written.size(); ++i) {  // in turn: the first few hold both kinds
    hand_overs.push_back(std::move(written[i]));
    hand_overs.push_back(std::move(given[i]));
  }
  options.max_tokens = kDocumentTokens;
  const auto measured = measure_levels(engine, hand_overs, options);
  if (on_progress) on_progress(1.0);
  if (!measured) return;
  update_calibration(engine, [&](Calibration& now) { now.levels = *measured; });
  keep(levels_in_cache(model.fingerprint),
       to_json(StoredLevels{model.fingerprint, model.config.layers, "synthetic", *measured}));
}

void read_relay_history(LocalEngine& engine) {
  if (auto found = find_places(engine.model().fingerprint))
    update_calibration(engine, [&](Calibration& now) { now.history = std::move(*found); });
}

void keep_relay_history(LocalEngine& engine) {
  const std::string& fingerprint = engine.model().fingerprint;
  if (auto history = engine.changed_history())
    keep(places_in_cache(fingerprint), to_json(StoredPlaces{fingerprint, std::move(*history)}));
}

std::set<std::pair<std::string, std::string>> hand_overs_between(const Plan& plan) {
  std::set<std::pair<std::string, std::string>> across, within;
  for (const PlannedTurn& turn : plan.turns) {
    for (const SlotSource& slot : turn.slots) {
      if (slot.kind != SlotSource::Kind::agent_output) continue;
      const PlannedTurn& source = plan.turns[static_cast<std::size_t>(slot.turn)];
      if (source.served || turn.served) continue;
      (source.model == turn.model ? within : across).emplace(source.model, turn.model);
    }
  }
  return across.empty() ? within : across;
}

StoredPair pair_of(const Model& author, const Model& reader) {
  if (auto found = find_pair(author, reader)) return *std::move(found);
  throw ModelError(
      fmt::format("{0}: it has not been measured which layers this model recomputes in texts of {1}; run "
                  "`baton-lab profile --model {0} --author {1}` once",
                  reader.path.string(), author.path.string()));
}

}  // namespace baton
