// SPDX-License-Identifier: Apache-2.0
// Format: https://huggingface.co/docs/safetensors. A u64 header length, a JSON header, the tensors without gaps.
#include "engine/model/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>

#include "engine/base/files.h"
#include "engine/base/json/json_parts.h"
#include "engine/base/json_fields.h"
#include "engine/model/weights.h"

namespace baton {

BlockType block_type_of(DType type) {
  return type == DType::f32 ? BlockType::f32 : type == DType::bf16 ? BlockType::bf16 : BlockType::f16;
}

namespace {

constexpr std::size_t kLengthBytes = 8;          // at the beginning: the header's length
constexpr std::size_t kMaxHeader = 100'000'000;  // the reference implementation's limit
constexpr std::size_t kMaxTensorName = 1024;     // of a tensor or a file, for messages
constexpr std::size_t kMaxRank = 8;
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 48;  // no size in bits leaves 64 bits

void check_name(const std::string& name, const std::string& origin) {
  if (name.size() > kMaxTensorName)
    throw ModelError(fmt::format("{}: a name of {} bytes, expected at most {}: \"{}\"", origin, name.size(),
                                 kMaxTensorName, beginning(name, 64)));
}

/// Bits of an element, 0 for a type that is not known.
std::size_t bits_of(std::string_view type) {
  constexpr std::pair<std::string_view, std::size_t> kTensorTypes[] = {
      {"F32", 32},    {"BF16", 16},   {"F16", 16}, {"BOOL", 8}, {"U8", 8},      {"I8", 8},     {"F8_E5M2", 8},
      {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16}, {"U16", 16}, {"I32", 32},    {"U32", 32},   {"I64", 64},
      {"U64", 64},    {"F64", 64},    {"C64", 64}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}};
  for (const auto& [name, bits] : kTensorTypes)
    if (name == type) return bits;
  return 0;
}

std::optional<DType> dtype_of(std::string_view type) {
  if (type == "F32") return DType::f32;
  if (type == "BF16") return DType::bf16;
  if (type == "F16") return DType::f16;
  return std::nullopt;
}

/// A file with two tensors of one name must be refused.
JsonDocument parse_header_json(std::string_view text, const std::string& origin) {
  try {
    return read_json(text, {.unique_keys = true});
  } catch (const JsonError& error) {
    if (error.kind == JsonError::Kind::repeated_key)
      throw ModelError(fmt::format("{}: tensor {} is listed twice", origin, describe(Json(error.key))));
    throw ModelError(fmt::format("{}: header: {}", origin, error.what()));
  }
}

std::uint64_t unsigned_of(const Json& value, const std::string& where, std::string_view what) {
  if (!value.is_number_unsigned())
    throw ModelError(fmt::format("{}: {} is {}, expected a size", where, what, describe(value)));
  return value.get<std::uint64_t>();
}

const Json& list_of(const Json& entry, const char* key, const std::string& where) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array()) throw ModelError(fmt::format("{}: \"{}\" is not a list", where, key));
  return *found;
}

std::vector<std::int64_t> read_shape(const Json& entry, const std::string& where) {
  const Json& list = list_of(entry, "shape", where);
  if (list.size() > kMaxRank)
    throw ModelError(fmt::format("{}: {} dimensions, at most {} are supported", where, list.size(), kMaxRank));
  std::vector<std::int64_t> shape;
  std::uint64_t product = 1;  // without zeros: [0, 2^62, 2^62] must not overflow a later product either
  for (const Json& extent : list) {
    const std::uint64_t value = unsigned_of(extent, where, "an extent");
    if (value != 0 && product > kMaxElements / value)
      throw ModelError(fmt::format("{}: shape {} times {} is too large", where, shape_text(shape), value));
    product *= std::max<std::uint64_t>(value, 1);
    shape.push_back(static_cast<std::int64_t>(value));
  }
  return shape;
}

TensorInfo read_tensor(const Json& entry, const std::string& where, std::size_t data_bytes) {
  const JsonFields fields(entry, where);
  TensorInfo info;
  info.type = fields.text_or("dtype", "");
  if (info.type.empty() || info.type.size() > kMaxTensorName) fields.fail("dtype", "expected the name of a type");
  info.dtype = dtype_of(info.type);
  info.shape = read_shape(entry, where);

  const Json& offsets = list_of(entry, "data_offsets", where);
  if (offsets.size() != 2)
    throw ModelError(fmt::format("{}: \"data_offsets\" has {} entries, expected 2", where, offsets.size()));
  const std::uint64_t begin = unsigned_of(offsets[0], where, "an offset");
  const std::uint64_t end = unsigned_of(offsets[1], where, "an offset");
  if (begin > end || end > data_bytes)
    throw ModelError(
        fmt::format("{}: bytes [{}, {}) of {} bytes of data; is the file truncated?", where, begin, end, data_bytes));
  info.begin = begin;
  info.end = end;

  std::uint64_t bits = bits_of(info.type);
  if (bits == 0) return info;  // a type of the future: its size is not known
  for (const std::int64_t extent : info.shape) bits *= static_cast<std::uint64_t>(extent);
  if (bits % 8 != 0 || bits / 8 != end - begin)
    throw ModelError(fmt::format("{}: {} {} takes {} bytes, but its offsets span {}", where, info.type,
                                 shape_text(info.shape), bits / 8, end - begin));
  return info;
}

/// Tensors follow each other from 0 to the end: no overlap, no hole, nothing after the last.
void check_layout(const std::map<std::string, TensorInfo>& tensors, const std::string& origin, std::size_t data_bytes) {
  std::vector<const std::pair<const std::string, TensorInfo>*> order;
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  std::size_t end = 0;
  for (const auto* tensor : order) {
    if (tensor->second.begin != end)
      throw ModelError(fmt::format("{}: tensor \"{}\" begins at byte {}, expected {}: tensors {}", origin,
                                   tensor->first, tensor->second.begin, end,
                                   tensor->second.begin < end ? "overlap" : "leave a hole"));
    end = tensor->second.end;
  }
  if (end != data_bytes)
    throw ModelError(fmt::format("{}: the tensors end at byte {} of {} bytes of data", origin, end, data_bytes));
}

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::uint64_t safetensors_data_offset(std::span<const std::byte> first, std::uint64_t file_bytes,
                                      const std::string& origin) {
  if (first.size() < kLengthBytes)
    throw ModelError(
        fmt::format("{}: truncated: {} bytes, a safetensors file has at least {}", origin, first.size(), kLengthBytes));
  std::uint64_t length = 0;
  for (std::size_t byte = kLengthBytes; byte-- > 0;) length = length << 8 | std::to_integer<std::uint64_t>(first[byte]);
  if (length > kMaxHeader)
    throw ModelError(fmt::format("{}: a header of {} bytes, at most {} are allowed; not a safetensors file?", origin,
                                 length, kMaxHeader));
  if (length > file_bytes - kLengthBytes)
    throw ModelError(fmt::format("{}: truncated: a header of {} bytes, but only {} follow", origin, length,
                                 file_bytes - kLengthBytes));
  return kLengthBytes + length;
}

std::map<std::string, TensorInfo> parse_safetensors_header(std::span<const std::byte> head, std::uint64_t file_bytes,
                                                           const std::string& origin) {
  const std::uint64_t data_offset = safetensors_data_offset(head, file_bytes, origin);
  const std::uint64_t data_bytes = file_bytes - data_offset;
  const std::span<const std::byte> text = head.subspan(kLengthBytes, data_offset - kLengthBytes);
  const JsonDocument header = parse_header_json({reinterpret_cast<const char*>(text.data()), text.size()}, origin);
  if (!header->is_object())
    throw ModelError(fmt::format("{}: the header is {}, expected an object", origin, describe(*header)));

  std::map<std::string, TensorInfo> tensors;
  for (const auto& [name, entry] : header->items()) {
    if (name == "__metadata__") continue;
    check_name(name, origin);
    tensors.emplace(name, read_tensor(entry, fmt::format("{}: tensor \"{}\"", origin, name), data_bytes));
  }
  check_layout(tensors, origin, data_bytes);
  return tensors;
}

struct SafetensorsFolder::File {
  explicit File(const std::filesystem::path& path) : origin(path.string()), file(path) {
    std::vector<std::byte> head(static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), kLengthBytes)));
    file.read(0, head);
    data_offset = safetensors_data_offset(head, file.size(), origin);
    head.resize(static_cast<std::size_t>(data_offset));
    file.read(0, head);
    tensors = parse_safetensors_header(head, file.size(), origin);
  }

  std::string origin;
  InputFile file;
  std::uint64_t data_offset = 0;
  std::map<std::string, TensorInfo> tensors;
};

namespace {

/// Shard file -> the tensors that the index says it holds.
std::map<std::string, std::vector<std::string>> read_index(const std::filesystem::path& path) {
  const std::string origin = path.string();
  const JsonDocument index = parse_json(InputFile(path).text(kMaxTextFile), origin);
  const Json* weight_map = JsonFields(*index, origin).find("weight_map");
  if (weight_map == nullptr || !weight_map->is_object() || weight_map->empty())
    JsonFields(*index, origin).fail("weight_map", "expected an object of tensor names and their files");

  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, shard] : weight_map->items()) {
    check_name(tensor, origin);
    const std::string name = shard.is_string() ? shard.get<std::string>() : "";
    check_name(name, origin);
    const bool plain =
        !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
    if (!plain)
      throw ModelError(fmt::format("{}: tensor \"{}\" is in {}, expected the name of a file in the same folder", origin,
                                   tensor, describe(shard)));
    shards[name].push_back(tensor);
  }
  return shards;
}

}  // namespace

SafetensorsFolder::SafetensorsFolder(const std::filesystem::path& folder) {
  const std::filesystem::path single = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  std::error_code ignored;
  if (std::filesystem::exists(single, ignored)) {
    files_.push_back(std::make_unique<File>(single));
    return;
  }
  if (!std::filesystem::exists(index, ignored))
    throw ModelError(fmt::format(
        "{}: neither model.safetensors nor model.safetensors.index.json is there{}", folder.string(),
        std::filesystem::exists(folder / "pytorch_model.bin", ignored) ? "; convert pytorch_model.bin to safetensors"
                                                                       : ""));
  std::map<std::string, std::string> owner;
  for (const auto& [shard, tensors] : read_index(index)) {
    files_.push_back(std::make_unique<File>(folder / shard));
    const File& file = *files_.back();
    for (const std::string& tensor : tensors)
      if (!file.tensors.contains(tensor))
        throw ModelError(fmt::format("{}: tensor \"{}\" is not in {}", index.string(), tensor, shard));
    for (const auto& [tensor, info] : file.tensors)
      if (const auto [first, added] = owner.emplace(tensor, shard); !added)
        throw ModelError(
            fmt::format("{}: tensor \"{}\" is in {} and in {}", index.string(), tensor, first->second, shard));
  }
}

SafetensorsFolder::~SafetensorsFolder() = default;
SafetensorsFolder::SafetensorsFolder(SafetensorsFolder&&) noexcept = default;
SafetensorsFolder& SafetensorsFolder::operator=(SafetensorsFolder&&) noexcept = default;

const SafetensorsFolder::File* SafetensorsFolder::file_of(const std::string& name) const {
  const auto found =
      std::find_if(files_.begin(), files_.end(), [&](const auto& file) { return file->tensors.contains(name); });
  return found == files_.end() ? nullptr : found->get();
}

const SafetensorsFolder::File& SafetensorsFolder::owner(const std::string& name) const {
  if (const File* file = file_of(name)) return *file;
  std::string searched;
  for (const auto& file : files_) searched += (searched.empty() ? "" : ", ") + file->origin;
  throw ModelError(fmt::format("tensor \"{}\" is missing; searched {}", name, searched));
}

bool SafetensorsFolder::contains(const std::string& name) const { return file_of(name) != nullptr; }

const TensorInfo* SafetensorsFolder::find(const std::string& name) const {
  const File* file = file_of(name);
  return file == nullptr ? nullptr : &file->tensors.at(name);
}

std::string SafetensorsFolder::place(const std::string& name) const {
  return fmt::format("{}: tensor \"{}\"", owner(name).origin, name);
}

std::shared_ptr<const std::byte[]> SafetensorsFolder::read(const std::string& name) const {
  const File& file = owner(name);
  const TensorInfo& info = file.tensors.at(name);
  const auto data = std::make_shared_for_overwrite<std::byte[]>(info.end - info.begin);
  file.file.read(file.data_offset + info.begin, {data.get(), info.end - info.begin});
  return data;
}

std::shared_ptr<const std::byte[]> SafetensorsFolder::read(const std::string& name, std::int64_t part) const {
  const File& file = owner(name);
  const TensorInfo& info = file.tensors.at(name);
  const std::size_t bytes = (info.end - info.begin) / static_cast<std::size_t>(info.shape.front());
  const auto data = std::make_shared_for_overwrite<std::byte[]>(bytes);
  file.file.read(file.data_offset + info.begin + static_cast<std::size_t>(part) * bytes, {data.get(), bytes});
  return data;
}

StoredWeight SafetensorsFolder::weight(const std::string& name, std::int64_t rows, std::int64_t cols) const {
  const TensorInfo& info = owner(name).tensors.at(name);
  if (!info.dtype) throw ModelError(fmt::format("{} is of type {}, expected BF16, F16 or F32", place(name), info.type));

  std::int64_t found_rows = 1, found_cols = 1;
  for (std::size_t axis = 0; axis < info.shape.size(); ++axis)
    (axis == 0 && info.shape.size() > 1 ? found_rows : found_cols) *= info.shape[axis];
  if (found_rows != rows || found_cols != cols)
    throw ModelError(fmt::format("{} has shape {}, expected [{}]", place(name), shape_text(info.shape),
                                 rows == 1 ? fmt::to_string(cols) : fmt::format("{}, {}", rows, cols)));
  return {read(name), block_type_of(*info.dtype), rows, cols};
}

std::vector<std::string> SafetensorsFolder::names() const {
  std::vector<std::string> names;
  for (const auto& file : files_)
    for (const auto& [name, info] : file->tensors) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::int64_t> SafetensorsFolder::shape(const std::string& name) const {
  return owner(name).tensors.at(name).shape;
}

std::size_t SafetensorsFolder::total_bytes() const {
  std::size_t bytes = 0;
  for (const auto& file : files_) bytes += static_cast<std::size_t>(file->file.size() - file->data_offset);
  return bytes;
}

std::size_t SafetensorsFolder::bytes_of_type(std::string_view type) const {
  std::size_t bytes = 0;
  for (const auto& file : files_)
    for (const auto& [name, info] : file->tensors)
      if (info.type == type) bytes += info.end - info.begin;
  return bytes;
}

std::string SafetensorsFolder::fingerprint(std::string_view config_json, const std::stop_token& stop) const {
  std::vector<const InputFile*> files;
  for (const auto& file : files_) files.push_back(&file->file);
  return fingerprint_of(config_json, files, stop);
}

}  // namespace baton
