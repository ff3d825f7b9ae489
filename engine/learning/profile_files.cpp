// SPDX-License-Identifier: Apache-2.0
#include "engine/learning/profile_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "engine/base/files.h"
#include "engine/base/hash.h"
#include "engine/base/json_fields.h"
#include "engine/model/model.h"
#include "engine/model/safetensors.h"

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

std::vector<GroupPoint> frontier(std::vector<GroupPoint> points) {
  std::sort(points.begin(), points.end(), [](const GroupPoint& a, const GroupPoint& b) {
    return std::pair(a.layers(), a.left) < std::pair(b.layers(), b.left);
  });
  std::vector<GroupPoint> best;
  for (const GroupPoint& point : points) {
    if (best.empty() || point.left < best.back().left) best.push_back(point);
  }
  return best;
}

LayerRange cheapest_group(const std::vector<GroupPoint>& points, double left, std::int32_t layers) {
  for (const GroupPoint& point : frontier(points)) {
    if (point.left <= left) return LayerRange::group(point.start, point.end);
  }
  return LayerRange::group(0, layers - 1);
}

std::vector<std::int32_t> ends_of(const LayerRange& group, std::vector<GroupPoint> points) {
  std::erase_if(points, [&](const GroupPoint& point) { return point.start != group.start || point.end < group.end; });
  std::vector<std::int32_t> ends{group.end};
  for (const GroupPoint& point : frontier(std::move(points))) {
    if (point.end > group.end) ends.push_back(point.end);
  }
  return ends;
}

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

namespace {

static_assert(std::endian::native == std::endian::little);

constexpr const char* kChecksum = "checksum";
constexpr std::uint64_t kMaxFile = std::uint64_t{8} << 30;

std::uint64_t hash_of_padded(std::span<const std::byte> bytes) {
  std::vector<TokenId> words((bytes.size() + sizeof(TokenId) - 1) / sizeof(TokenId), 0);
  if (!bytes.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  return hash_bytes(words.data(), words.size() * sizeof(TokenId), bytes.size());
}

std::uint64_t key_of(const Model& model) { return hash_of_padded(std::as_bytes(std::span(model.fingerprint))); }

class CorrectionFileWriter {
 public:
  template <class T>
  void add(const std::string& name, const char* type, const std::vector<std::int64_t>& shape,
           std::span<const T> values) {
    const auto bytes = std::as_bytes(values);
    header_[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {data_.size(), data_.size() + bytes.size()}}};
    data_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  std::uint64_t hash() const { return hash_of_padded(std::as_bytes(std::span(data_))); }
  std::string file() const {
    std::string header = header_.dump();
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const std::uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header + data_;
  }

 private:
  Json header_ = Json::object();
  std::string data_;
};

class CorrectionFileReader {
 public:
  explicit CorrectionFileReader(const fs::path& file)
      : contents_(InputFile(file).text(kMaxFile)), bytes_(std::as_bytes(std::span(contents_))), origin_(file.string()) {
    tensors_ = parse_safetensors_header(bytes_, bytes_.size(), origin_);
    data_ = safetensors_data_offset(bytes_, bytes_.size(), origin_);
  }

  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }

  [[noreturn]] void fail(const std::string& what) const { throw ModelError(fmt::format("{}: {}", origin_, what)); }

  std::span<const std::byte> bytes(const std::string& name, const char* type,
                                   const std::vector<std::int64_t>& shape) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end() || found->second.type != type || found->second.shape != shape)
      fail(fmt::format("\"{}\" is missing or has another type or shape", name));
    return bytes_.subspan(data_ + found->second.begin, found->second.end - found->second.begin);
  }
  template <class T>
  std::vector<T> array(const std::string& name, const char* type, const std::vector<std::int64_t>& shape) const {
    const auto from = bytes(name, type, shape);
    std::vector<T> values(from.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), from.data(), from.size());
    return values;
  }
  /// Returns all data except the tensor `last`, which must be at its end.
  std::span<const std::byte> data_before(const std::string& last) const {
    const auto found = tensors_.find(last);
    if (found == tensors_.end()) fail(fmt::format("\"{}\" is missing", last));
    return bytes_.subspan(data_, found->second.begin);
  }

 private:
  std::string contents_;
  std::span<const std::byte> bytes_;  // of the contents
  std::string origin_;
  std::map<std::string, TensorInfo> tensors_;
  std::size_t data_ = 0;
};

bool finite(const std::vector<std::uint16_t>& values) {
  return std::all_of(values.begin(), values.end(), [](std::uint16_t bits) { return std::isfinite(bf16_to_f32(bits)); });
}
bool finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

std::shared_ptr<const LinearCorrection> read(const CorrectionFileReader& reader, const std::string& place,
                                             const KvWidth& shape, std::int64_t rank) {
  auto correction = std::make_shared<LinearCorrection>();
  correction->shape = shape;
  correction->rank = static_cast<std::int32_t>(rank);
  const std::int64_t inputs = correction->inputs(), outputs = correction->outputs();
  correction->encoder = reader.array<std::uint16_t>(place + "encoder", "BF16", {rank, inputs});
  correction->decoder = reader.array<std::uint16_t>(place + "decoder", "BF16", {outputs, rank});
  correction->bias = reader.array<float>(place + "bias", "F32", {outputs});
  const auto measured = reader.array<float>(place + "measured", "F32", {2});
  if (!finite(correction->encoder) || !finite(correction->decoder) || !finite(correction->bias) || !finite(measured))
    reader.fail(fmt::format("\"{}\" holds a number that is not finite", place));
  correction->left = measured[0];
  correction->texts = static_cast<std::int32_t>(std::clamp(measured[1], 0.0f, 1e9f));
  return correction;
}

}  // namespace

void save_corrections(const fs::path& file, const Model& model, const Corrections& corrections) {
  CorrectionFileWriter writer;
  for (const auto& [key, correction] : corrections) {
    const std::string place = fmt::format("{:016x}/{}/", key.context, key.slot);
    const std::int64_t rank = correction->rank, inputs = correction->inputs(), outputs = correction->outputs();
    writer.add<float>(place + "bias", "F32", {outputs}, correction->bias);
    const float measured[] = {correction->left, static_cast<float>(correction->texts)};
    writer.add<float>(place + "measured", "F32", {2}, measured);
    writer.add<std::uint16_t>(place + "encoder", "BF16", {rank, inputs}, correction->encoder);
    writer.add<std::uint16_t>(place + "decoder", "BF16", {outputs, rank}, correction->decoder);
  }
  const std::uint64_t checksum[] = {key_of(model), writer.hash()};
  writer.add<std::uint64_t>(kChecksum, "I64", {2}, checksum);
  write_whole(file, writer.file());
}

Corrections load_corrections(const fs::path& file, const Model& model) {
  const CorrectionFileReader reader(file);
  const auto checksum = reader.array<std::uint64_t>(kChecksum, "I64", {2});
  if (checksum[0] != key_of(model)) reader.fail("belongs to other weights or another configuration");
  if (checksum[1] != hash_of_padded(reader.data_before(kChecksum))) reader.fail("is damaged: the checksum differs");
  const KvWidth shape = width_of(model.kv_layout());
  constexpr std::string_view kEncoder = "/encoder";
  Corrections corrections;
  for (const auto& [name, tensor] : reader.tensors()) {
    if (!name.ends_with(kEncoder) || tensor.shape.empty()) continue;
    const std::string place = name.substr(0, name.size() - kEncoder.size() + 1);
    const std::size_t slash = place.find('/');
    const std::string context = place.substr(0, slash);
    if (context.size() != 16 || context.find_first_not_of("0123456789abcdef") != std::string::npos)
      reader.fail(fmt::format("\"{}\" is invalid: expected a name CONTEXT/SLOT/encoder", name));
    const std::int64_t rank = tensor.shape[0];
    if (rank < 1 || rank > (1 << 20))
      reader.fail(fmt::format("\"{}\" has a rank of {}, expected 1 to 1048576", name, rank));
    const std::string slot =
        slash + 1 < place.size() ? place.substr(slash + 1, place.size() - slash - 2) : std::string();
    corrections.emplace(PlaceKey{std::stoull(context, nullptr, 16), slot, {}}, read(reader, place, shape, rank));
  }
  return corrections;
}

fs::path corrections_beside(const fs::path& model) { return file_beside(model, "baton.corrections.safetensors"); }

fs::path corrections_in_cache(const std::string& fingerprint) {
  const fs::path profile = profile_in_cache(fingerprint);
  return profile.empty() ? profile : profile.parent_path() / (fingerprint + ".corrections.safetensors");
}

}  // namespace baton
