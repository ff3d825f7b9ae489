// SPDX-License-Identifier: Apache-2.0
#include "engine/learning/level_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "engine/base/json_fields.h"
#include "engine/learning/model_profile.h"
#include "engine/model/model_files.h"

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
                                 level.divergence, level.high));
  }
  const LayerRange& range = stored.levels.range;
  return fmt::format(
      "{{\n  \"schema\": {},\n  \"fingerprint\": {},\n  \"layers\": {},\n  \"source\": {},\n  \"start\": {},\n"
      "  \"detect\": {},\n  \"end\": {},\n  \"guard_scale\": {:.6g},\n  \"levels\": [\n    {}\n  ]\n}}\n",
      kLevelSchema, quoted(stored.fingerprint), stored.layers, quoted(stored.source), range.start, range.detect,
      range.end, stored.levels.guard_scale, fmt::join(levels, ",\n    "));
}

StoredLevels parse_levels(std::string_view text, const std::string& origin) {
  const JsonDocument root = parse_json(text, origin);
  const JsonFields fields(*root, origin);
  if (fields.integer("schema", 1, INT32_MAX) != kLevelSchema)
    fields.fail("schema", fmt::format("this version reads {}", kLevelSchema));
  StoredLevels stored;
  stored.fingerprint = fields.text_or("fingerprint", "");
  if (stored.fingerprint.empty()) fields.fail("fingerprint", "expected a text");
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

std::optional<StoredLevels> find_levels(const Model& model) {
  const auto read = [&](const fs::path& path) -> std::optional<StoredLevels> {
    const auto text = read_profile_file(path);
    if (!text) return std::nullopt;
    StoredLevels stored = parse_levels(*text, path.string());
    if (stored.fingerprint != model.fingerprint || stored.layers != model.config.layers) return std::nullopt;
    return stored;
  };
  if (auto beside = read(levels_beside(model.path))) return beside;
  try {
    return read(levels_in_cache(model.fingerprint));
  } catch (const ModelError&) {  // of another version, or damaged: they are measured again
    return std::nullopt;
  }
}

}  // namespace baton
