// SPDX-License-Identifier: Apache-2.0
// A header (magic, version, counts), metadata pairs, the tensor table, padding, the tensors' data; all little-endian.
#include "engine/model/gguf.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "engine/base/errors.h"
#include "engine/base/files.h"
#include "engine/base/json_fields.h"
#include "engine/model/weights.h"

namespace baton {

std::size_t size_of(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32:
      return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
      return 8;
    case GgufType::text:
    case GgufType::array:
      break;
  }
  return 0;
}

namespace {

constexpr std::size_t kMaxGgufName = 65535;  // bytes of a key or a tensor's name, as the format has it
constexpr std::size_t kMaxGgufRank = 4;
constexpr int kMaxDepth = 4;  // of arrays in arrays; no file is known that has any
constexpr std::uint64_t kMaxGgufElements = std::uint64_t{1} << 48;
constexpr std::uint32_t kMaxAlignment = 1 << 20;
constexpr std::uint32_t kDefaultAlignment = 32;
constexpr std::size_t kMinPairBytes = 8 + 4 + 1;        // bytes of a metadata pair: length, type, a value of one byte
constexpr std::size_t kMinTensorBytes = 8 + 4 + 4 + 8;  // bytes of a table entry: length, rank, type, offset

/// What is read, for errors: "the version", or "key \"x\": its type". Names have up to kMaxGgufName bytes, and there
/// are millions of reads: the text is only made where an error is.
class What {
 public:
  What(const char* kind, std::string_view name = {}, const char* detail = "")
      : kind_(kind), name_(name), detail_(detail) {}

  What with(const char* detail) const { return {kind_, name_, detail}; }
  std::string text() const {
    return name_.empty() ? kind_ : fmt::format("{} {}{}", kind_, describe(Json(std::string(name_))), detail_);
  }

 private:
  const char* kind_;
  std::string_view name_;
  const char* detail_;
};

/// The file has what is to be read, the part of it that is there has not.
struct HeadEnds {};

/// Reads forward through the beginning of a file; every read is checked.
class Reader {
 public:
  Reader(std::span<const std::byte> head, std::uint64_t file_bytes, const std::string& origin)
      : head_(head), file_bytes_(file_bytes), origin_(origin) {}

  std::uint64_t place() const { return place_; }
  std::uint64_t left() const { return file_bytes_ - place_; }

  [[noreturn]] void fail(std::uint64_t place, const std::string& problem) const {
    throw ModelError(fmt::format("{}: byte {}: {}", origin_, place, problem));
  }

  std::span<const std::byte> take(std::uint64_t bytes, const What& what) {
    if (bytes > left())
      fail(place_, fmt::format("{} takes {} bytes, but only {} follow; truncated?", what.text(), bytes, left()));
    if (bytes > head_.size() - place_) throw HeadEnds();
    const auto taken = head_.subspan(place_, static_cast<std::size_t>(bytes));
    place_ += taken.size();
    return taken;
  }

  template <class Value>
  Value number(const What& what) {
    Value value;
    std::memcpy(&value, take(sizeof(Value), what).data(), sizeof(Value));
    return value;
  }

  std::span<const std::byte> text(const What& what) {
    const std::uint64_t begin = place_;
    const auto length = number<std::uint64_t>(what);
    if (length > left())
      fail(begin,
           fmt::format("{} has a length of {}, but only {} bytes follow; truncated?", what.text(), length, left()));
    return take(length, what);
  }

  std::string name(const What& what) {
    const std::uint64_t begin = place_;
    const auto bytes = text(what);
    if (bytes.empty() || bytes.size() > kMaxGgufName)
      fail(begin, fmt::format("{} has {} bytes, expected 1 to {}", what.text(), bytes.size(), kMaxGgufName));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  /// Of a count whose elements take at least `least` bytes each.
  std::uint64_t count(const What& what, std::size_t least) {
    const std::uint64_t begin = place_;
    const auto value = number<std::uint64_t>(what);
    if (value > left() / least)
      fail(begin, fmt::format("{} is {}, but only {} bytes follow, enough for {}; truncated?", what.text(), value,
                              left(), left() / least));
    return value;
  }

  GgufType type(const What& what) {
    const std::uint64_t begin = place_;
    const auto id = number<std::uint32_t>(what);
    if (id > static_cast<std::uint32_t>(GgufType::f64))
      fail(begin, fmt::format("{} is {}, expected the number of a type, 0 to 12", what.text(), id));
    return static_cast<GgufType>(id);
  }

 private:
  std::span<const std::byte> head_;
  std::uint64_t file_bytes_;
  const std::string& origin_;
  std::uint64_t place_ = 0;
};

GgufValue read_value(Reader& in, GgufType type, const What& what, int depth);

void read_array(Reader& in, GgufValue& value, const What& what, int depth) {
  if (depth == kMaxDepth)
    in.fail(value.place, fmt::format("{} has arrays in arrays deeper than {}", what.text(), kMaxDepth));
  value.element = in.type(what.with(": the type of its elements"));
  const std::size_t size = size_of(value.element);
  const std::size_t least = size != 0 ? size : value.element == GgufType::text ? 8 : 12;
  value.count = in.count(what.with(": the number of its elements"), least);
  if (size != 0) {
    value.bytes = in.take(value.count * size, what);
    return;
  }
  const std::uint64_t left = in.left();
  const Reader start = in;
  for (std::uint64_t i = 0; i < value.count; ++i) {
    if (value.element == GgufType::text) {
      in.text(what);
    } else {
      read_value(in, GgufType::array, what, depth + 1);
    }
  }
  value.bytes = Reader(start).take(left - in.left(), what);
}

GgufValue read_value(Reader& in, GgufType type, const What& what, int depth) {
  GgufValue value;
  value.type = type;
  value.place = in.place();
  if (type == GgufType::text) {
    value.bytes = in.text(what);
  } else if (type == GgufType::array) {
    read_array(in, value, what, depth);
  } else {
    value.bytes = in.take(size_of(type), what);
    if (type == GgufType::boolean && std::to_integer<unsigned>(value.bytes[0]) > 1)
      in.fail(value.place,
              fmt::format("{} is {}, expected 0 or 1", what.text(), std::to_integer<unsigned>(value.bytes[0])));
  }
  return value;
}

std::map<std::string, GgufValue, std::less<>> read_metadata(Reader& in, std::uint64_t pairs) {
  std::map<std::string, GgufValue, std::less<>> values;
  for (std::uint64_t i = 0; i < pairs; ++i) {
    const std::uint64_t begin = in.place();
    const std::string key = in.name("a key");
    const What what("key", key);
    const GgufType type = in.type(what.with(": its type"));
    if (!values.emplace(key, read_value(in, type, what, 0)).second) in.fail(begin, what.text() + " is there twice");
  }
  return values;
}

struct TableEntry {
  std::string name;
  std::size_t place = 0;  // of its offset in the file
  std::uint64_t offset = 0;
  GgufTensor tensor;

  What what() const { return {"tensor", name}; }
};

TableEntry read_entry(Reader& in) {
  TableEntry entry;
  entry.name = in.name("a tensor's name");
  const std::uint64_t rank_place = in.place();
  const auto rank = in.number<std::uint32_t>(entry.what());
  if (rank == 0 || rank > kMaxGgufRank)
    in.fail(rank_place, fmt::format("{} has {} dimensions, expected 1 to {}", entry.what().text(), rank, kMaxGgufRank));
  std::uint64_t product = 1;
  for (std::uint32_t axis = 0; axis < rank; ++axis) {
    const std::uint64_t place = in.place();
    const auto extent = in.number<std::uint64_t>(entry.what());
    if (extent == 0 || extent > kMaxGgufElements || product > kMaxGgufElements / extent)
      in.fail(place, fmt::format("{} has an extent of {} behind {} elements, expected at least 1 and at most {} in all",
                                 entry.what().text(), extent, product, kMaxGgufElements));
    product *= extent;
    entry.tensor.shape.insert(entry.tensor.shape.begin(), static_cast<std::int64_t>(extent));
  }
  const std::uint64_t type_place = in.place();
  entry.tensor.type_id = in.number<std::uint32_t>(entry.what());
  entry.tensor.type = block_type_of(entry.tensor.type_id);
  if (entry.tensor.type) {
    const BlockFormat& format = format_of(*entry.tensor.type);
    if (entry.tensor.shape.back() % format.values != 0)
      in.fail(type_place, fmt::format("{} has rows of {} values, expected a multiple of {}, the block of {}",
                                      entry.what().text(), entry.tensor.shape.back(), format.values, format.name));
  }
  entry.place = in.place();
  entry.offset = in.number<std::uint64_t>(entry.what());
  return entry;
}

/// Gives each tensor its bytes, and checks that no two share any.
void place_tensors(const Reader& in, std::vector<TableEntry>& table, std::uint64_t data_offset,
                   std::uint64_t data_bytes, std::uint32_t alignment) {
  std::vector<const TableEntry*> order;
  for (TableEntry& entry : table) {
    if (entry.offset % alignment != 0)
      in.fail(entry.place,
              fmt::format("{} begins at {}, expected a multiple of {}", entry.what().text(), entry.offset, alignment));
    if (entry.offset > data_bytes)
      in.fail(entry.place, fmt::format("{} begins at {} of {} bytes of data; truncated?", entry.what().text(),
                                       entry.offset, data_bytes));
    if (!entry.tensor.type) continue;  // its size is not known
    std::int64_t values = 1;
    for (const std::int64_t extent : entry.tensor.shape) values *= extent;
    const auto bytes = static_cast<std::uint64_t>(row_bytes(*entry.tensor.type, values));
    if (bytes > data_bytes - entry.offset)
      in.fail(entry.place, fmt::format("{} takes bytes {} to {} of {} bytes of data; truncated?", entry.what().text(),
                                       entry.offset, entry.offset + bytes, data_bytes));
    entry.tensor.begin = data_offset + entry.offset;
    entry.tensor.bytes = bytes;
    order.push_back(&entry);
  }
  std::ranges::sort(order, {}, &TableEntry::offset);
  for (std::size_t i = 1; i < order.size(); ++i) {
    const TableEntry &before = *order[i - 1], &entry = *order[i];
    if (before.offset + before.tensor.bytes > entry.offset)
      in.fail(entry.place, fmt::format("{} begins at {}, expected {} or more: it overlaps {}", entry.what().text(),
                                       entry.offset, before.offset + before.tensor.bytes, before.what().text()));
  }
}

std::uint32_t read_version(Reader& in) {
  if (in.left() < 4 || std::memcmp(in.take(4, "the magic").data(), "GGUF", 4) != 0)
    in.fail(0, "expected a GGUF file, which begins with the letters GGUF");
  const std::uint64_t place = in.place();
  const auto version = in.number<std::uint32_t>("the version");
  if ((version & 0xffffu) == 0 && version != 0) in.fail(place, "the file is big-endian, expected little-endian");
  if (version != 2 && version != 3) in.fail(place, fmt::format("GGUF version {}, expected 2 or 3", version));
  return version;
}

std::uint32_t alignment_of(const GgufMetadata& metadata) {
  const std::int64_t alignment = metadata.integer_or("general.alignment", kDefaultAlignment, 1, kMaxAlignment);
  if (!std::has_single_bit(static_cast<std::uint64_t>(alignment)))
    metadata.fail("general.alignment", "expected a power of two");
  return static_cast<std::uint32_t>(alignment);
}

GgufContents parse(Reader& in, std::uint64_t file_bytes, const std::string& origin) {
  GgufContents contents;
  contents.version = read_version(in);
  const std::uint64_t tensors = in.count("the number of tensors", kMinTensorBytes);
  const std::uint64_t pairs = in.count("the number of metadata pairs", kMinPairBytes);
  contents.metadata = GgufMetadata(origin, read_metadata(in, pairs));
  contents.alignment = alignment_of(contents.metadata);

  std::vector<TableEntry> table;
  for (std::uint64_t i = 0; i < tensors; ++i) table.push_back(read_entry(in));
  const std::uint64_t end = in.place();
  contents.data_offset = (end + contents.alignment - 1) / contents.alignment * contents.alignment;
  if (contents.data_offset > file_bytes) {
    if (!table.empty())
      in.fail(end,
              fmt::format("the tensors' data begins at byte {} of {}; truncated?", contents.data_offset, file_bytes));
    contents.data_offset = file_bytes;  // a file of metadata alone needs no padding
  }
  place_tensors(in, table, contents.data_offset, file_bytes - contents.data_offset, contents.alignment);
  for (TableEntry& entry : table) {
    if (!contents.tensors.emplace(entry.name, std::move(entry.tensor)).second)
      in.fail(entry.place, fmt::format("{} is listed twice", entry.what().text()));
  }
  return contents;
}

}  // namespace

std::optional<GgufContents> parse_gguf(std::span<const std::byte> head, std::uint64_t file_bytes,
                                       const std::string& origin) {
  Reader in(head, file_bytes, origin);
  try {
    return parse(in, file_bytes, origin);
  } catch (const HeadEnds&) {
    return std::nullopt;
  }
}

namespace {

template <class Value>
Value read(const std::byte* data) {
  Value value;
  std::memcpy(&value, data, sizeof(Value));
  return value;
}

bool is_integer(GgufType type) {
  return type != GgufType::f32 && type != GgufType::f64 && type != GgufType::boolean && type != GgufType::text &&
         type != GgufType::array;
}

bool is_float(GgufType type) { return type == GgufType::f32 || type == GgufType::f64; }

/// Of an integer type. What is above 2^63 - 1 becomes that: no limit in use is as high.
std::int64_t integer_at(const std::byte* data, GgufType type) {
  switch (type) {
    case GgufType::u8:
      return read<std::uint8_t>(data);
    case GgufType::i8:
      return read<std::int8_t>(data);
    case GgufType::u16:
      return read<std::uint16_t>(data);
    case GgufType::i16:
      return read<std::int16_t>(data);
    case GgufType::u32:
      return read<std::uint32_t>(data);
    case GgufType::i32:
      return read<std::int32_t>(data);
    case GgufType::u64:
      return static_cast<std::int64_t>(std::min<std::uint64_t>(read<std::uint64_t>(data), INT64_MAX));
    default:
      return read<std::int64_t>(data);
  }
}

double number_at(const std::byte* data, GgufType type) {
  if (type == GgufType::f32) return static_cast<double>(read<float>(data));
  if (type == GgufType::f64) return read<double>(data);
  return static_cast<double>(integer_at(data, type));
}

std::string_view view_of_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string shown(const GgufValue& value) {
  if (value.type == GgufType::array) return fmt::format("an array of {}", value.count);
  if (value.type == GgufType::text) {
    constexpr std::size_t kShown = 60;
    const std::string_view text = view_of_text(value.bytes);
    return baton::quoted(std::string(text.substr(0, kShown))) + (text.size() > kShown ? "..." : "");
  }
  if (value.type == GgufType::boolean) return value.bytes[0] == std::byte{0} ? "false" : "true";
  if (is_float(value.type)) return fmt::format("{}", number_at(value.bytes.data(), value.type));
  return fmt::format("{}", integer_at(value.bytes.data(), value.type));
}

}  // namespace

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

std::vector<std::string> GgufMetadata::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : values_) keys.push_back(key);
  return keys;
}

void GgufMetadata::fail(std::string_view key, std::string_view expectation) const {
  const GgufValue* value = find(key);
  if (value == nullptr) throw ModelError(fmt::format("{}: key \"{}\" is missing, {}", origin_, key, expectation));
  throw ModelError(
      fmt::format("{}: byte {}: key \"{}\" is {}, {}", origin_, value->place, key, shown(*value), expectation));
}

const GgufValue& GgufMetadata::required(std::string_view key, std::string_view what) const {
  const GgufValue* value = find(key);
  if (value == nullptr) fail(key, fmt::format("expected {}", what));
  return *value;
}

const GgufValue& GgufMetadata::array(std::string_view key, std::string_view what) const {
  const GgufValue& value = required(key, what);
  if (value.type != GgufType::array) fail(key, fmt::format("expected {}", what));
  return value;
}

std::int64_t GgufMetadata::integer(std::string_view key, std::int64_t low, std::int64_t high) const {
  const std::string what = fmt::format("an integer from {} to {}", low, high);
  const GgufValue& value = required(key, what);
  if (!is_integer(value.type)) fail(key, "expected " + what);
  const std::int64_t number = integer_at(value.bytes.data(), value.type);
  if (number < low || number > high) fail(key, "expected " + what);
  return number;
}

std::int64_t GgufMetadata::integer_or(std::string_view key, std::int64_t fallback, std::int64_t low,
                                      std::int64_t high) const {
  return contains(key) ? integer(key, low, high) : fallback;
}

double GgufMetadata::number(std::string_view key, double low, double high) const {
  const std::string what = fmt::format("a number from {} to {}", low, high);
  const GgufValue& value = required(key, what);
  if (!is_integer(value.type) && !is_float(value.type)) fail(key, "expected " + what);
  const double number = number_at(value.bytes.data(), value.type);
  if (!(number >= low && number <= high)) fail(key, "expected " + what);  // NaN is in no range
  return number;
}

double GgufMetadata::number_or(std::string_view key, double fallback, double low, double high) const {
  return contains(key) ? number(key, low, high) : fallback;
}

bool GgufMetadata::flag_or(std::string_view key, bool fallback) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return fallback;
  if (value->type != GgufType::boolean) fail(key, "expected a truth value");
  return value->bytes[0] != std::byte{0};
}

std::string GgufMetadata::text(std::string_view key) const {
  const GgufValue& value = required(key, "a text");
  if (value.type != GgufType::text) fail(key, "expected a text");
  return std::string(view_of_text(value.bytes));
}

std::string GgufMetadata::text_or(std::string_view key, std::string_view fallback) const {
  return contains(key) ? text(key) : std::string(fallback);
}

std::vector<std::string_view> GgufMetadata::texts(std::string_view key) const {
  const GgufValue& value = array(key, "an array of texts");
  if (value.element != GgufType::text) fail(key, "expected an array of texts");
  std::vector<std::string_view> texts;
  texts.reserve(value.count);
  for (std::size_t at = 0; texts.size() < value.count;) {  // lengths were checked when the file was parsed
    const auto length = static_cast<std::size_t>(read<std::uint64_t>(value.bytes.data() + at));
    texts.push_back(view_of_text(value.bytes.subspan(at + 8, length)));
    at += 8 + length;
  }
  return texts;
}

std::vector<std::int64_t> GgufMetadata::integers(std::string_view key) const {
  const GgufValue& value = array(key, "an array of integers");
  if (!is_integer(value.element)) fail(key, "expected an array of integers");
  std::vector<std::int64_t> integers;
  integers.reserve(value.count);
  const std::size_t width = size_of(value.element);
  for (std::size_t i = 0; i < value.count; ++i)
    integers.push_back(integer_at(value.bytes.data() + i * width, value.element));
  return integers;
}

std::vector<bool> GgufMetadata::flags(std::string_view key) const {
  const GgufValue& value = array(key, "an array of truth values");
  if (value.element != GgufType::boolean) fail(key, "expected an array of truth values");
  std::vector<bool> flags;
  flags.reserve(value.count);
  for (const std::byte byte : value.bytes) flags.push_back(byte != std::byte{0});
  return flags;
}

std::vector<float> GgufMetadata::numbers(std::string_view key, bool finite) const {
  const GgufValue& value = array(key, "an array of numbers");
  if (!is_integer(value.element) && !is_float(value.element)) fail(key, "expected an array of numbers");
  std::vector<float> numbers;
  numbers.reserve(value.count);
  const std::size_t width = size_of(value.element);
  for (std::size_t i = 0; i < value.count; ++i) {
    numbers.push_back(static_cast<float>(number_at(value.bytes.data() + i * width, value.element)));
    if (finite && !std::isfinite(numbers.back()))
      fail(key, fmt::format("with {} at {}, expected finite numbers", numbers.back(), i));
  }
  return numbers;
}

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

std::string GgufFiles::fingerprint(std::string_view settings, const std::stop_token& stop) const {
  std::vector<const InputFile*> files;
  for (const auto& part : parts_) files.push_back(&part->file);
  return fingerprint_of(settings, files, stop);
}

}  // namespace baton
