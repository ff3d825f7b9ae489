// SPDX-License-Identifier: Apache-2.0
#include "engine/learning/pair_profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/base/json_fields.h"
#include "engine/learning/model_profile.h"

namespace baton {
namespace fs = std::filesystem;
namespace {

constexpr std::int32_t kPairSchema = 1;
constexpr std::int32_t kMaxPairLayers = 4096;
constexpr double kMaxPairDivergence = 1e6;

GroupPoint read_point(const Json& value, std::int32_t layers, const std::string& origin) {
  const JsonFields fields(value, origin, "points.");
  GroupPoint point;
  point.start = fields.integer("start", 0, layers - 2);
  point.end = fields.integer("end", point.start + 1, layers - 1);
  point.left = fields.number("left", 0, kMaxPairDivergence);
  return point;
}

}  // namespace

std::string to_json(const StoredPair& profile) {
  const GroupEffect& effect = profile.effect;
  std::vector<std::string> points;
  for (const GroupPoint& point : effect.points)
    points.push_back(fmt::format(R"({{"start": {}, "end": {}, "left": {:.6f}}})", point.start, point.end, point.left));
  const LayerRange group = profile.group();
  return fmt::format(
      "{{\n  \"schema\": {},\n  \"author\": {},\n  \"reader\": {},\n  \"layers\": {},\n  \"source\": {},\n"
      "  \"hand_overs\": {},\n  \"tokens\": {},\n  \"kl_direct\": {:.6g},\n  \"weighty\": {:.2f},\n  \"left\": {:g},\n"
      "  \"start\": {},\n  \"end\": {},\n  \"points\": [\n    {}\n  ]\n}}\n",
      kPairSchema, quoted(profile.author), quoted(profile.reader), profile.layers, quoted(profile.source),
      effect.hand_overs, effect.tokens, effect.direct, effect.weighty, profile.left, group.start, group.end,
      fmt::join(points, ",\n    "));
}

StoredPair parse_pair(std::string_view text, const std::string& origin) {
  const JsonDocument root = parse_json(text, origin);
  const JsonFields fields(*root, origin);
  fields.expect_schema(kPairSchema);
  StoredPair profile;
  for (const auto& [key, value] : {std::pair{"author", &profile.author}, {"reader", &profile.reader}})
    *value = fields.filled_text(key);
  profile.source = fields.text_or("source", "");
  profile.layers = fields.integer("layers", 2, kMaxPairLayers);
  profile.left = fields.number("left", 0, kMaxPairDivergence);
  GroupEffect& effect = profile.effect;
  effect.hand_overs = fields.integer("hand_overs", 1, INT32_MAX);
  effect.tokens = fields.integer("tokens", 1, INT32_MAX);
  effect.direct = fields.number("kl_direct", 0, kMaxPairDivergence);
  effect.weighty = fields.number("weighty", 0, kMaxPairDivergence);
  const Json* points = fields.find("points");
  if (points == nullptr || !points->is_array() || points->empty()) fields.fail("points", "expected a list of groups");
  for (const Json& point : *points) effect.points.push_back(read_point(point, profile.layers, origin));
  return profile;
}

fs::path pair_in_cache(const std::string& author, const std::string& reader) {
  return profile_in_cache(author + "-" + reader);
}

std::optional<StoredPair> find_pair(const Model& author, const Model& reader) {
  const fs::path file = pair_in_cache(author.fingerprint, reader.fingerprint);
  const auto text = read_profile_file(file);
  if (!text) return std::nullopt;
  StoredPair profile = parse_pair(*text, file.string());
  if (profile.author != author.fingerprint || profile.reader != reader.fingerprint ||
      profile.layers != reader.config.layers) {
    throw ModelError(fmt::format("{}: belongs to other models than these two; remove the file", file.string()));
  }
  return profile;
}

}  // namespace baton
