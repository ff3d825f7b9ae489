// SPDX-License-Identifier: Apache-2.0
#include "engine/learning/correction_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "engine/base/files.h"
#include "engine/base/hash.h"
#include "engine/base/json_fields.h"
#include "engine/learning/model_profile.h"
#include "engine/model/model.h"
#include "engine/model/safetensors.h"

namespace baton {
namespace fs = std::filesystem;
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
                                             KvWidth shape, std::int64_t rank) {
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
  const KvWidth shape{model.config.layers, model.config.kv_heads * model.config.head_dim};
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
