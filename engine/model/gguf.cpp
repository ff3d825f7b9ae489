// SPDX-License-Identifier: Apache-2.0
#include "engine/model/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <utility>

#include "engine/base/errors.h"
#include "engine/base/files.h"
#include "engine/base/json_fields.h"
#include "engine/model/weights.h"

namespace baton {
namespace {

constexpr std::string_view kSuffix = ".gguf";
constexpr std::size_t kDigits = 5;             // "-00001-of-00003.gguf"
constexpr std::uint64_t kFirstRead = 1 << 20;  // bytes of a file that are read at first

std::optional<std::uint32_t> digits(std::string_view text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::string gguf_type_name(std::uint32_t id) {
  if (const auto type = block_type_of(id)) return std::string(format_of(*type).name);
  constexpr std::pair<std::uint32_t, std::string_view> kOthers[] = {
      {4, "Q4_2"},   {5, "Q4_3"},   {9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
      {19, "IQ1_S"}, {21, "IQ3_S"}, {22, "IQ2_S"}, {24, "I8"},    {25, "I16"},     {26, "I32"},    {27, "I64"},
      {28, "F64"},   {29, "IQ1_M"}, {34, "TQ1_0"}, {35, "TQ2_0"}, {40, "NVFP4"}};
  for (const auto& [number, name] : kOthers)
    if (number == id) return std::string(name);
  return fmt::format("number {}", id);
}

std::string GgufPartName::of(std::uint32_t part) const {
  return fmt::format("{}-{:05}-of-{:05}.gguf", stem, part, count);
}

std::optional<GgufPartName> gguf_part_name(std::string_view file_name) {
  constexpr std::size_t kTail = 1 + kDigits + 4 + kDigits;  // "-00001-of-00003"
  if (!file_name.ends_with(kSuffix) || file_name.size() < kTail + kSuffix.size()) return std::nullopt;
  const std::string_view name = file_name.substr(0, file_name.size() - kSuffix.size());
  const std::string_view tail = name.substr(name.size() - kTail);
  if (tail[0] != '-' || tail.substr(1 + kDigits, 4) != "-of-") return std::nullopt;
  const auto number = digits(tail.substr(1, kDigits)), count = digits(tail.substr(1 + kDigits + 4));
  if (!number || !count || *number < 1 || *number > *count) return std::nullopt;
  return GgufPartName{std::string(name.substr(0, name.size() - kTail)), *number, *count};
}

struct GgufFiles::Part {
  explicit Part(const std::filesystem::path& path) : file(path) {
    std::optional<GgufContents> parsed;
    for (std::uint64_t bytes = kFirstRead; !parsed; bytes *= 4) {
      head.resize(static_cast<std::size_t>(std::min(bytes, file.size())));
      file.read(0, head);
      parsed = parse_gguf(head, file.size(), path.string());
    }
    if (parsed->data_offset < head.size()) {  // of a vocabulary of 262,000 tokens 9 MB are left over
      head = std::vector<std::byte>(head.begin(), head.begin() + static_cast<std::ptrdiff_t>(parsed->data_offset));
      parsed = parse_gguf(head, file.size(), path.string());
    }
    contents = std::move(*parsed);
  }

  InputFile file;
  std::vector<std::byte> head;
  GgufContents contents;
};

GgufFiles::GgufFiles(const std::filesystem::path& path) {
  const auto name = gguf_part_name(path.filename().string());
  const std::uint32_t count = name ? name->count : 1;
  std::map<std::string, std::string, std::less<>> owner;
  for (std::uint32_t number = 1; number <= count; ++number) {
    parts_.push_back(std::make_unique<Part>(name ? path.parent_path() / name->of(number) : path));
    const GgufMetadata& metadata = parts_.back()->contents.metadata;
    const std::int64_t declared = metadata.integer_or("split.count", 1, 0, 65535);
    if (std::max<std::int64_t>(declared, 1) != count)
      metadata.fail("split.count", fmt::format("expected {}, as the file's name has it", count));
    if (count > 1 && metadata.integer("split.no", 0, 65535) != std::int64_t{number} - 1)
      metadata.fail("split.no", fmt::format("expected {}, as the file's name has it", number - 1));
    for (const auto& [tensor, info] : parts_.back()->contents.tensors) {
      const auto [first, added] = owner.emplace(tensor, parts_.back()->file.path().string());
      if (!added)
        throw ModelError(
            fmt::format("{}: tensor {} is in {} too", metadata.origin(), describe(Json(tensor)), first->second));
    }
  }
  const std::int64_t tensors =
      metadata().integer_or("split.tensors.count", static_cast<std::int64_t>(owner.size()), 0, INT64_MAX);
  if (count > 1 && tensors != static_cast<std::int64_t>(owner.size()))
    metadata().fail("split.tensors.count", fmt::format("expected {}, which the {} files have", owner.size(), count));
}

GgufFiles::~GgufFiles() = default;

const GgufMetadata& GgufFiles::metadata() const { return parts_.front()->contents.metadata; }

const GgufTensor* GgufFiles::find(std::string_view name) const {
  for (const auto& part : parts_) {
    const auto found = part->contents.tensors.find(name);
    if (found != part->contents.tensors.end()) return &found->second;
  }
  return nullptr;
}

std::shared_ptr<const std::byte[]> GgufFiles::read(std::string_view name) const {
  const GgufTensor* tensor = find(name);
  const auto size = static_cast<std::size_t>(tensor == nullptr ? 0 : tensor->bytes);
  const auto bytes = std::make_shared_for_overwrite<std::byte[]>(size);
  read(name, 0, {bytes.get(), size});
  return bytes;
}

void GgufFiles::read(std::string_view name, std::uint64_t begin, std::span<std::byte> out) const {
  for (const auto& part : parts_) {
    const auto found = part->contents.tensors.find(name);
    if (found == part->contents.tensors.end()) continue;
    const std::uint64_t size = found->second.bytes;
    if (begin > size || out.size() > size - begin)
      throw std::logic_error(
          fmt::format("GgufFiles::read: {} bytes at {} of \"{}\", which has {}", out.size(), begin, name, size));
    return part->file.read(found->second.begin + begin, out);
  }
  throw std::logic_error(fmt::format("GgufFiles::read: no tensor \"{}\"", name));
}

std::vector<std::string> GgufFiles::tensor_names() const {
  std::vector<std::string> names;
  for (const auto& part : parts_)
    for (const auto& [name, tensor] : part->contents.tensors) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

std::size_t GgufFiles::total_bytes() const {
  std::size_t bytes = 0;
  for (const auto& part : parts_) bytes += static_cast<std::size_t>(part->file.size()) - part->contents.data_offset;
  return bytes;
}

std::vector<std::filesystem::path> GgufFiles::paths() const {
  std::vector<std::filesystem::path> paths;
  for (const auto& part : parts_) paths.push_back(part->file.path());
  return paths;
}

std::string GgufFiles::fingerprint(std::string_view settings) const {
  std::vector<FingerprintPart> parts;
  for (const auto& part : parts_) parts.push_back({part->file, part->contents.data_offset});
  return fingerprint_of(settings, parts);
}

}  // namespace baton
