// SPDX-License-Identifier: Apache-2.0
#include "sdk/src/model_ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/files.h"
#include "engine/reuse/schedule.h"
#include "sdk/src/model_path.h"

namespace baton {
namespace {

/// The laboratory's, set once at the start of its program.
PaperRanges& paper_ranges() {
  static PaperRanges the_ranges = nullptr;
  return the_ranges;
}

/// Returns why the file could not be written; empty: it was.
std::string keep(const std::filesystem::path& file, const std::string& text) {
  if (file.empty()) return "the environment names no folder for caches (XDG_CACHE_HOME) and no home";
  try {
    write_whole(file, text, Links::replace);
    return {};
  } catch (const std::filesystem::filesystem_error& error) {
    return fmt::format("{}: {}", file.string(), error.code().message());
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
  const auto levels = find_levels(model, share_folders());
  update_calibration(engine, [&](Calibration& now) {
    now.range = levels ? levels->levels.range : LayerRange::by_depth(model.config.layers);
  });
  if (is_set()) return;
  throw ModelError(fmt::format("{}: a model of {} layers has no layer range; at least {} are needed",
                               model.path.string(), model.config.layers, kMinRangeLayers));
}

void ensure_relay_levels(LocalEngine& engine) {
  const Model& model = engine.model();
  if (!engine.calibration().levels.levels.empty()) return;
  RelayLevels levels;
  if (const auto found = find_levels(model, share_folders()))
    levels = found->levels;
  else if (const RelayLevels assumed = assumed_levels(model.config.layers);
           assumed.range.given() && model.config.stores_kv(assumed.range.detect))
    levels = assumed;
  update_calibration(engine, [&](Calibration& now) { now.levels = std::move(levels); });
}

void read_relay_history(LocalEngine& engine) {
  if (auto found = find_places(engine.model().fingerprint))
    update_calibration(engine, [&](Calibration& now) { now.history = std::move(*found); });
}

std::string keep_relay_history(LocalEngine& engine) {
  const std::string& fingerprint = engine.model().fingerprint;
  auto history = engine.changed_history();
  if (!history) return {};
  return keep(places_in_cache(fingerprint), to_json(StoredPlaces{fingerprint, std::move(*history)}));
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
