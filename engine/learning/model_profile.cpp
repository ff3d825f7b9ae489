// SPDX-License-Identifier: Apache-2.0
#include "engine/learning/model_profile.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "engine/base/files.h"
#include "engine/base/json_fields.h"
#include "engine/model/model.h"

namespace baton {
namespace fs = std::filesystem;
namespace {

constexpr std::int32_t kProfileSchema = 1;
constexpr std::int32_t kMaxProfileLayers = 4096;
constexpr std::uintmax_t kMaxFileBytes = 8 << 20;

/// Writes six digits, which are enough to find the same range again.
std::string list_of(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) {
    text += text.empty() ? "" : ", ";
    text += std::isfinite(value) ? fmt::format("{:.6f}", value) : "null";
  }
  return "[" + text + "]";
}

std::string range_of(const LayerRange& range, const Agreement& agreement) {
  return fmt::format(R"({{"start": {}, "detect": {}, "end": {}, "agreement": {:.3f}, "agreement_by_layer": {}}})",
                     range.start, range.detect, range.end, agreement.all,
                     list_of({agreement.start, agreement.detect, agreement.end}));
}

std::vector<double> read_list(const JsonFields& fields, const std::string& key, std::int32_t size, double low,
                              double high, bool unknown) {
  const std::string expected =
      fmt::format("expected {} numbers from {:g} to {:g}{}", size, low, high, unknown ? " or null" : "");
  const Json* list = fields.find(key);
  if (list == nullptr || !list->is_array() || list->size() != static_cast<std::size_t>(size))
    fields.fail(key, expected);
  std::vector<double> values;
  for (const Json& entry : *list) {
    if (unknown && entry.is_null()) {
      values.push_back(std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    const double value = entry.is_number() ? entry.get<double>() : low - 1;
    if (!(value >= low && value <= high))
      fields.fail(key, expected + fmt::format("; number {} is {}", values.size(), describe(entry)));
    values.push_back(value);
  }
  return values;
}

LayerRange read_layers(const JsonFields& fields, std::int32_t layers) {
  LayerRange range;
  range.start = fields.integer("start", 0, layers - 3);
  range.detect = fields.integer("detect", range.start + 1, layers - 2);
  range.end = fields.integer("end", range.detect + 1, layers - 1);
  return range;
}

void read_range(const JsonFields& fields, const std::string& key, std::int32_t layers, const std::string& origin,
                LayerRange& range, Agreement& agreement) {
  const Json* value = fields.find(key);
  if (value == nullptr) fields.fail(key, "expected an object");
  const JsonFields inner(*value, origin, key + ".");
  range = read_layers(inner, layers);
  agreement.all = inner.number("agreement", 0, 1);
  const std::vector<double> each = read_list(inner, "agreement_by_layer", 3, 0, 1, false);
  agreement.start = each[0];
  agreement.detect = each[1];
  agreement.end = each[2];
}

std::optional<LayerEffect> read_effect(const JsonFields& fields, std::int32_t layers, const std::string& origin) {
  constexpr double kMaxProfileDivergence = 1e6;
  const Json* value = fields.find("effect");
  if (value == nullptr) return std::nullopt;
  const JsonFields inner(*value, origin, "effect.");
  LayerEffect effect;
  effect.range = read_layers(inner, layers);
  effect.direct = inner.number("kl_direct", 0, kMaxProfileDivergence);
  effect.weighty = inner.number("weighty", 0, kMaxProfileDivergence);
  effect.start = read_list(inner, "left_start", layers, 0, kMaxProfileDivergence, true);
  effect.end = read_list(inner, "left_end", layers, 0, kMaxProfileDivergence, true);
  effect.detect = read_list(inner, "left_detect", layers, 0, kMaxProfileDivergence, true);
  return effect;
}

std::string effect_of(const LayerEffect& effect) {
  return fmt::format(R"({{"start": {}, "detect": {}, "end": {}, "kl_direct": {:.6g}, "weighty": {:.2f}, )"
                     R"("left_start": {}, "left_end": {}, "left_detect": {}}})",
                     effect.range.start, effect.range.detect, effect.range.end, effect.direct, effect.weighty,
                     list_of(effect.start), list_of(effect.end), list_of(effect.detect));
}

}  // namespace

const char* name_of(RangeReading reading) {
  return reading == RangeReading::slope ? "slope" : reading == RangeReading::level ? "level" : "effect";
}

std::optional<RangeReading> parse_reading(std::string_view name) {
  for (const RangeReading reading : {RangeReading::slope, RangeReading::level, RangeReading::effect}) {
    if (name == name_of(reading)) return reading;
  }
  return std::nullopt;
}

LayerRange paper_range_of(const StoredProfile& profile, double rounding) {
  return find_range({profile.similarity, profile.correlation, rounding}, EndReading::slope, {.turn = true}).range;
}

StoredProfile to_stored(const MeasuredProfile& measured, const Model& model, std::string source) {
  for (const FoundRange* found : {&measured.slope, &measured.level}) {
    if (!found->problem.empty()) throw ModelError(fmt::format("{}: {}", model.path.string(), found->problem));
  }
  return {.fingerprint = model.fingerprint,
          .source = std::move(source),
          .hand_overs = measured.hand_overs,
          .tokens = measured.tokens,
          .similarity = measured.curves.similarity,
          .similarity_error = measured.certainty.similarity_error,
          .correlation = measured.curves.correlation,
          .correlation_error = measured.certainty.correlation_error,
          .slope = measured.slope.range,
          .level = measured.level.range,
          .slope_agreement = measured.certainty.slope,
          .level_agreement = measured.certainty.level};
}

std::string to_json(const StoredProfile& profile) {
  std::vector<std::pair<std::string, std::string>> fields = {
      {"schema", std::to_string(kProfileSchema)},
      {"fingerprint", quoted(profile.fingerprint)},
      {"layers", std::to_string(profile.similarity.size())},
      {"source", quoted(profile.source)},
      {"hand_overs", std::to_string(profile.hand_overs)},
      {"tokens", std::to_string(profile.tokens)},
      {"reading", quoted(name_of(profile.reading))},
      {"slope", range_of(profile.slope, profile.slope_agreement)},
      {"level", range_of(profile.level, profile.level_agreement)},
      {"similarity", list_of(profile.similarity)},
      {"similarity_error", list_of(profile.similarity_error)},
      {"correlation", list_of(profile.correlation)},
      {"correlation_error", list_of(profile.correlation_error)}};
  if (profile.effect) fields.emplace_back("effect", effect_of(*profile.effect));
  std::string text;
  for (const auto& [name, value] : fields)
    text += fmt::format("{}  \"{}\": {}", text.empty() ? "" : ",\n", name, value);
  return "{\n" + text + "\n}\n";
}

StoredProfile parse_profile(std::string_view text, const std::string& origin) {
  const JsonDocument root = parse_json(text, origin);
  const JsonFields fields(*root, origin);
  fields.expect_schema(kProfileSchema);
  StoredProfile profile;
  profile.fingerprint = fields.filled_text("fingerprint");
  profile.source = fields.text_or("source", "");
  profile.hand_overs = fields.integer("hand_overs", 1, INT32_MAX);
  profile.tokens = fields.integer("tokens", 1, INT32_MAX);
  const std::int32_t layers = fields.integer("layers", 4, kMaxProfileLayers);
  profile.similarity = read_list(fields, "similarity", layers, -1, 1, false);
  profile.similarity_error = read_list(fields, "similarity_error", layers, 0, 2, true);
  profile.correlation = read_list(fields, "correlation", layers - 1, -1, 1, true);
  profile.correlation_error = read_list(fields, "correlation_error", layers - 1, 0, 2, true);
  read_range(fields, "slope", layers, origin, profile.slope, profile.slope_agreement);
  read_range(fields, "level", layers, origin, profile.level, profile.level_agreement);
  profile.effect = read_effect(fields, layers, origin);
  const auto reading = parse_reading(fields.text_or("reading", ""));
  if (!reading) fields.fail("reading", "expected \"slope\", \"level\" or \"effect\"");
  if (*reading == RangeReading::effect && !profile.effect)
    fields.fail("effect", "expected an object, because \"reading\" is \"effect\"");
  profile.reading = *reading;
  return profile;
}

fs::path profile_beside(const fs::path& model) { return file_beside(model, "baton.profile.json"); }

fs::path profile_in_cache(const std::string& fingerprint) {
  const fs::path cache = user_cache();
  return cache.empty() ? cache : cache / "profiles" / (fingerprint + ".json");
}

std::optional<std::string> read_profile_file(const fs::path& path) {
  std::error_code error;
  if (path.empty() || !fs::exists(path, error)) return std::nullopt;
  if (!fs::is_regular_file(path, error)) throw ModelError(fmt::format("{}: not a file", path.string()));
  const std::uintmax_t size = fs::file_size(path, error);
  if (error || size > kMaxFileBytes) {
    throw ModelError(
        fmt::format("{}: has {} bytes, expected at most {}", path.string(), error ? 0 : size, kMaxFileBytes));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(size), '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(size)))
    throw ModelError(fmt::format("{}: cannot be read", path.string()));
  return text;
}

FoundProfile find_profile(const Model& model) {
  FoundProfile found;
  for (const fs::path& path : {profile_beside(model.path), profile_in_cache(model.fingerprint)}) {
    const auto text = read_profile_file(path);
    if (!text) continue;
    StoredProfile profile = parse_profile(*text, path.string());
    const auto layers = static_cast<std::int32_t>(profile.similarity.size());
    if (profile.fingerprint != model.fingerprint) {
      found.ignored = fmt::format("{}: belongs to other weights or another configuration", path.string());
    } else if (layers != model.config.layers) {
      throw ModelError(
          fmt::format("{}: \"layers\" is {}, expected {}, the model's", path.string(), layers, model.config.layers));
    } else {
      found.profile = std::move(profile);
      found.file = path;
      return found;
    }
  }
  return found;
}

}  // namespace baton
