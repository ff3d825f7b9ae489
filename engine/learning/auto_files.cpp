// SPDX-License-Identifier: Apache-2.0
#include "engine/learning/auto_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "engine/base/json_fields.h"
#include "engine/learning/profile_files.h"
#include "engine/model/model.h"

namespace baton {
namespace fs = std::filesystem;
namespace {

constexpr std::int32_t kLevelSchema = 1;
constexpr std::int32_t kMaxLevelLayers = 4096;
constexpr std::size_t kMaxLevels = 100;
constexpr double kMaxLevelDivergence = 1e6;  // nats

RelayLevel read_level(const Json& entry, const std::string& origin, std::size_t number) {
  const JsonFields fields(entry, origin, fmt::format("levels[{}].", number));
  return {fields.number("reuse", 0, 1), fields.number("divergence", 0, kMaxLevelDivergence),
          fields.number("high", 0, kMaxLevelDivergence)};
}

}  // namespace

std::string to_json(const StoredLevels& stored) {
  std::vector<std::string> levels;
  for (const RelayLevel& level : stored.levels.levels) {
    levels.push_back(fmt::format(R"({{"reuse": {:.6g}, "divergence": {:.6g}, "high": {:.6g}}})", level.reuse,
                                 std::min(level.divergence, kMaxLevelDivergence),
                                 std::min(level.high, kMaxLevelDivergence)));
  }
  const LayerRange& range = stored.levels.range;
  return fmt::format(
      "{{\n  \"schema\": {},\n  \"fingerprint\": {},\n  \"layers\": {},\n  \"source\": {},\n  \"start\": {},\n"
      "  \"detect\": {},\n  \"end\": {},\n  \"guard_scale\": {:.6g},\n  \"levels\": [\n    {}\n  ]\n}}\n",
      kLevelSchema, quoted(stored.fingerprint), stored.layers, quoted(stored.source), range.start, range.detect,
      range.end, std::min(stored.levels.guard_scale, kMaxLevelDivergence), fmt::join(levels, ",\n    "));
}

StoredLevels parse_levels(std::string_view text, const std::string& origin) {
  const JsonDocument root = parse_json(text, origin);
  const JsonFields fields(*root, origin);
  fields.expect_schema(kLevelSchema);
  StoredLevels stored;
  stored.fingerprint = fields.filled_text("fingerprint");
  stored.layers = fields.integer("layers", 4, kMaxLevelLayers);
  stored.source = fields.text_or("source", "");
  LayerRange& range = stored.levels.range;
  range.start = fields.integer("start", 0, stored.layers - 3);
  range.detect = fields.integer("detect", range.start + 1, stored.layers - 2);
  range.end = fields.integer("end", range.detect + 1, stored.layers - 1);
  stored.levels.guard_scale = fields.number("guard_scale", 0, kMaxLevelDivergence);
  const Json* list = fields.find("levels");
  if (list == nullptr || !list->is_array() || list->empty() || list->size() > kMaxLevels)
    fields.fail("levels", fmt::format("expected a list of 1 to {} objects", kMaxLevels));
  std::vector<RelayLevel>& levels = stored.levels.levels;
  for (const Json& entry : *list) {
    levels.push_back(read_level(entry, origin, levels.size()));
    if (levels.size() > 1 && levels.back().reuse >= levels[levels.size() - 2].reuse)
      fields.fail("levels", "expected the highest reuse first, each once");
  }
  return stored;
}

fs::path levels_beside(const fs::path& model) { return file_beside(model, "baton.levels.json"); }

fs::path levels_in_cache(const std::string& fingerprint) { return profile_in_cache(fingerprint + ".levels"); }

std::optional<StoredLevels> find_levels(const Model& model, std::span<const fs::path> installed) {
  const auto read = [&](const fs::path& path) -> std::optional<StoredLevels> {
    const auto text = read_profile_file(path);
    if (!text) return std::nullopt;
    StoredLevels stored = parse_levels(*text, path.string());
    if (stored.fingerprint != model.fingerprint || stored.layers != model.config.layers) return std::nullopt;
    return stored;
  };
  if (auto beside = read(levels_beside(model.path))) return beside;
  const auto try_read = [&](const fs::path& path) -> std::optional<StoredLevels> {
    try {
      return read(path);
    } catch (const ModelError&) {  // of another version, or damaged
      return std::nullopt;
    }
  };
  if (auto cached = try_read(levels_in_cache(model.fingerprint))) return cached;
  for (const fs::path& folder : installed) {
    if (auto found = try_read(folder / "levels" / (model.fingerprint + ".json"))) {
      found->levels.shipped = true;
      return found;
    }
  }
  return std::nullopt;
}

namespace {

constexpr std::int32_t kPlaceSchema = 2;
constexpr std::size_t kDigits = 16;          // of a place
constexpr double kMaxPlaceDivergence = 1e6;  // nats

/// A number that has the same effect and does not grow: the first tries count, then one turn in kCheck.
std::uint32_t stored_turns(std::uint32_t turns) {
  constexpr std::uint32_t kCheck = RelayHistory::kCheck;
  return turns <= kCheck ? turns : kCheck + turns % kCheck;
}

PlaceId read_id(const JsonFields& fields) {
  const std::string text = fields.text_or("place", "");
  PlaceId id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.size() != kDigits)
    fields.fail("place", fmt::format("expected {} hexadecimal digits", kDigits));
  return id;
}

void read_place(const Json& entry, const std::string& origin, std::size_t number, RelayHistory& history) {
  const JsonFields fields(entry, origin, fmt::format("places[{}].", number));
  const PlaceId id = read_id(fields);
  if (history.places().count(id) != 0) fields.fail("place", "expected each place once");
  const auto turns = static_cast<std::uint32_t>(fields.integer("turns", 0, INT32_MAX));
  const Json* list = fields.find("observations");
  if (list == nullptr || !list->is_array() || list->size() > RelayHistory::kMaxObservations)
    fields.fail("observations", fmt::format("expected a list of at most {} lists", RelayHistory::kMaxObservations));
  const auto is_within = [](const Json& value, double low, double high) {
    return value.is_number() && value.get<double>() >= low && value.get<double>() <= high;
  };
  std::vector<RelayObservation> observations;
  for (const Json& one : *list) {
    if (!one.is_array() || one.size() != 3 || !is_within(one[0], 0.0, 1.0) ||
        !is_within(one[1], 0.0, kMaxPlaceDivergence) || !is_within(one[2], -1.0, kMaxPlaceDivergence))
      fields.fail("observations",
                  fmt::format("expected lists of a reuse from 0 to 1, a divergence from 0 to {0:g}, and "
                              "what the guard expected, from -1 (unknown) to {0:g}",
                              kMaxPlaceDivergence));
    observations.push_back({one[0].get<double>(), one[1].get<double>(), one[2].get<double>()});
  }
  history.restore(id, std::move(observations), turns);
}

}  // namespace

std::string to_json(const StoredPlaces& stored) {
  using Entry = const std::pair<const PlaceId, RelayHistory::Place>*;
  std::vector<Entry> order;
  for (const auto& entry : stored.history.places()) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](Entry a, Entry b) { return a->second.last_use < b->second.last_use; });
  std::vector<std::string> places;
  for (const Entry entry : order) {
    std::vector<std::string> observations;
    for (const RelayObservation& one : entry->second.observations)
      observations.push_back(fmt::format("[{:.6g}, {:.6g}, {:.6g}]", one.reuse,
                                         std::min(one.divergence, kMaxPlaceDivergence),
                                         std::min(one.guard, kMaxPlaceDivergence)));
    places.push_back(fmt::format(R"({{"place": "{:016x}", "turns": {}, "observations": [{}]}})", entry->first,
                                 stored_turns(entry->second.turns), fmt::join(observations, ", ")));
  }
  return fmt::format("{{\n  \"schema\": {},\n  \"fingerprint\": {},\n  \"places\": [\n    {}\n  ]\n}}\n", kPlaceSchema,
                     quoted(stored.fingerprint), fmt::join(places, ",\n    "));
}

StoredPlaces parse_places(std::string_view text, const std::string& origin) {
  const JsonDocument root = parse_json(text, origin);
  const JsonFields fields(*root, origin);
  fields.expect_schema(kPlaceSchema);
  StoredPlaces stored;
  stored.fingerprint = fields.filled_text("fingerprint");
  const Json* list = fields.find("places");
  if (list == nullptr || !list->is_array() || list->size() > RelayHistory::kMaxPlaces)
    fields.fail("places", fmt::format("expected a list of at most {} objects", RelayHistory::kMaxPlaces));
  std::size_t number = 0;
  for (const Json& entry : *list) read_place(entry, origin, number++, stored.history);
  return stored;
}

fs::path places_in_cache(const std::string& fingerprint) { return profile_in_cache(fingerprint + ".places"); }

std::optional<RelayHistory> find_places(const std::string& fingerprint) {
  const fs::path path = places_in_cache(fingerprint);
  try {
    const auto text = read_profile_file(path);
    if (!text) return std::nullopt;
    StoredPlaces stored = parse_places(*text, path.string());
    if (stored.fingerprint != fingerprint) return std::nullopt;
    return std::move(stored.history);
  } catch (const ModelError&) {  // of another version, or damaged: the places are measured again
    return std::nullopt;
  }
}

}  // namespace baton
