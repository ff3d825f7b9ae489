// SPDX-License-Identifier: Apache-2.0
#include "sdk/src/model_ranges.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/files.h"
#include "engine/reuse/schedule.h"
#include "sdk/src/calibration.h"

namespace baton {
namespace {

constexpr std::int32_t kHandOvers = 12;
constexpr std::int32_t kDocumentTokens = 192;  // maximum of a text that is handed over
constexpr std::int32_t kGroupsAtFirstUse = 8;  // places where a group may begin or end

void keep(const std::filesystem::path& file, const std::string& text) {
  if (file.empty()) return;
  try {
    write_whole(file, text);
  } catch (const std::filesystem::filesystem_error&) {
    // The next process measures again.
  }
}

bool can_be_relayed(const Plan& plan, const SlotSource& slot, const Inputs* inputs, const Model& model) {
  if (!slot.method->segments) return false;
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

void check_reuse(const WorkflowSpec& spec, ReuseOptions reuse, const std::string& name, const LocalEngine& engine) {
  if (reuse.reuse <= 0.0) return;
  const std::int32_t layers = engine.model().config.layers;
  if (!reuse.range.given())
    reuse.range = reuse.paper_layers ? engine.calibration().paper_range : engine.calibration().range;
  const double bound = max_reuse(reuse, layers);
  if (reuse.reuse <= bound + 1e-6) return;
  Diagnostics diagnostics;
  diagnostics.add_sources(spec.sources);
  diagnostics.error(
      spec.relay.reuse_where, "E0412",
      fmt::format(
          "relay: method {} cannot reuse {:.3f} of the entries of model '{}'; expected at most {:.3f}, since its "
          "layers up to the choice are computed for every token",
          reuse.method->name, reuse.reuse, name, bound));
  diagnostics.fail();
}

bool can_be_relayed(const Plan& plan, const PlannedTurn& turn, const Inputs* inputs, const Model& model) {
  return std::any_of(turn.slots.begin(), turn.slots.end(),
                     [&](const SlotSource& slot) { return can_be_relayed(plan, slot, inputs, model); });
}

void ensure_layer_range(LocalEngine& engine, bool paper, const std::function<void(double share)>& on_progress,
                        const std::stop_token& stop) {
  const Model& model = engine.model();
  const auto is_set = [&] {
    const Calibration now = engine.calibration();
    return (paper ? now.paper_range : now.range).valid(model.config.layers);
  };
  if (is_set() || stop.stop_requested()) return;
  const auto paper_range = [&](const StoredProfile& found) {
    return paper_range_of(found, rounding_of(model.options.kv_dtype));
  };
  const FoundProfile found = find_profile(model);
  // One that was made at first use of the paper's layers says nothing of better ones.
  const bool chosen =
      found.profile && (found.profile->reading == RangeReading::effect || found.file == profile_beside(model.path));
  if (found.profile && (paper || chosen)) {
    return update_calibration(engine, [&](Calibration& now) {
      now.paper_range = paper_range(*found.profile);
      if (chosen) now.range = found.profile->range();
    });
  }
  if (!paper) {
    const auto levels = find_levels(model);
    update_calibration(engine, [&](Calibration& now) {
      now.range = levels ? levels->levels.range : LayerRange::by_depth(model.config.layers);
    });
    if (is_set()) return;
  }
  ProfilerOptions options;
  options.on_progress = on_progress;
  options.stop = stop;
  const auto measured =
      measure_profile(engine, synthetic_hand_overs(model, kHandOvers, options.max_tokens, 0), options);
  if (on_progress) on_progress(1.0);  // whoever shows it can take it away
  if (!measured) return;
  const StoredProfile profile = to_stored(*measured, model, "synthetic");
  update_calibration(engine, [&](Calibration& now) {
    now.paper_range = paper_range(profile);
    if (!paper) now.range = profile.range();
  });
  if (paper) keep(profile_in_cache(model.fingerprint), to_json(profile));
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

std::optional<StoredPair> find_group(LocalEngine& author, LocalEngine& reader,
                                     const std::function<void(double share)>& on_progress,
                                     const std::stop_token& stop) {
  if (stop.stop_requested()) return std::nullopt;
  if (auto found = find_pair(author.model(), reader.model())) return found;
  ProfilerOptions options;
  options.on_progress = on_progress;
  options.stop = stop;
  const std::int32_t layers = reader.model().config.layers;
  const GroupOptions groups{.step = std::max(2, layers / kGroupsAtFirstUse)};
  const auto measured = measure_groups(
      author, reader, synthetic_hand_overs(reader.model(), kHandOvers, options.max_tokens, 0), options, groups);
  if (on_progress) on_progress(1.0);
  if (!measured) return std::nullopt;
  if (!measured->problem.empty())
    throw ModelError(fmt::format("{}: {}", reader.model().path.string(), measured->problem));
  StoredPair profile{
      author.model().fingerprint, reader.model().fingerprint, layers, "synthetic", groups.left, *measured};
  keep(pair_in_cache(profile.author, profile.reader), to_json(profile));
  return profile;
}

}  // namespace baton
