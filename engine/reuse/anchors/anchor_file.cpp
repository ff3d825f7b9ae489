// SPDX-License-Identifier: Apache-2.0
// The file consists of a header of 64 bytes, the arrays of the anchors (each at a multiple of 64), and an index with
// their offsets and checksums. All numbers are little-endian.
#include "engine/reuse/anchors/anchor_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "engine/base/files.h"
#include "engine/base/hash.h"
#include "engine/reuse/between_models.h"

namespace baton {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t kMagic = 0x31524f48434e4142u;  // "BANCHOR1"
constexpr std::size_t kAlignment = 64;
constexpr std::uint32_t kMaxCount = 1u << 26;  // limit of every count: tokens, anchors

struct Head {
  std::uint64_t magic = kMagic;
  std::uint64_t model = 0;  // hash of the model's key
  std::uint64_t index = 0;  // offset of the index, which extends to the end of the file
  std::uint64_t index_hash = 0;
  std::uint64_t head_hash = 0;  // hash of the four fields before
  std::uint64_t unused[3] = {};
};
static_assert(sizeof(Head) == kAlignment);

/// The bytes may lie at any address.
std::uint64_t hash_of_text(const std::string& text) { return hash_of_bytes(std::as_bytes(std::span(text))); }
std::uint64_t hash_of_head(const Head& head) { return hash_of_bytes(std::as_bytes(std::span(&head.magic, 4))); }

class AnchorFileWriter {
 public:
  template <class T>
  void number(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
  }
  template <class T>
  void array(std::span<const T> values) {
    number(static_cast<std::uint32_t>(values.size()));
    const auto bytes = std::as_bytes(values);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void text(const SketchedText& text) {
    array(std::span<const TokenId>(text.tokens));
    array(std::span<const float>(text.sketch));
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads the index; the arrays are read as it names them.
class AnchorFileReader {
 public:
  AnchorFileReader(const InputFile& file, std::span<const std::byte> index) : file_(file), index_(index) {}

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }
  std::uint32_t count() {
    const auto count = number<std::uint32_t>();
    if (count > kMaxCount)
      throw AnchorFileError(fmt::format("a count of {} is invalid: expected at most {}", count, kMaxCount));
    return count;
  }
  template <class T>
  std::vector<T> array() {
    std::vector<T> values;
    const std::size_t n = count();
    const std::byte* bytes = take(n * sizeof(T));
    values.resize(n);
    if (n > 0) std::memcpy(values.data(), bytes, n * sizeof(T));
    return values;
  }
  SharedText text() {
    auto text = std::make_shared<SketchedText>();
    text->tokens = array<TokenId>();
    text->sketch = array<float>();
    if (text->sketch.size() != text->tokens.size() * SketchedText::kSketch)
      throw AnchorFileError("a text's sketch has the wrong size");
    if (!std::all_of(text->sketch.begin(), text->sketch.end(), [](float value) { return std::isfinite(value); }))
      throw AnchorFileError("a text's sketch is not finite");
    text->hash = hash_of(text->tokens);
    return text;
  }
  /// Reads an array that the index refers to into `out`.
  void data(std::span<std::uint16_t> out) {
    const auto begin = number<std::uint64_t>(), bytes = number<std::uint64_t>(), hash = number<std::uint64_t>();
    if (begin % kAlignment != 0 || begin > file_.size() || bytes > file_.size() - begin || bytes != out.size_bytes())
      throw AnchorFileError("an array lies outside of the file");
    file_.read(begin, std::as_writable_bytes(out));
    if (hash_of_bytes(std::as_bytes(out)) != hash) throw AnchorFileError("a checksum is wrong");
  }
  /// Counts elements that are about to be read, before memory is allocated for them.
  void expect(std::size_t elements) {
    if (elements > file_.size() / sizeof(std::uint16_t) - elements_)
      throw AnchorFileError("the arrays are larger than the file");
    elements_ += elements;
  }
  bool at_end() const { return at_ == index_.size(); }

 private:
  const std::byte* take(std::size_t bytes) {
    if (bytes > index_.size() - at_) throw AnchorFileError("it ends too early");
    const std::byte* data = index_.data() + at_;
    at_ += bytes;
    return data;
  }
  const InputFile& file_;
  std::span<const std::byte> index_;
  std::size_t at_ = 0;
  std::size_t elements_ = 0;  // of all arrays
};

std::shared_ptr<Anchor> read_anchor(AnchorFileReader& reader) {
  auto anchor = std::make_shared<Anchor>();
  anchor->shape = {reader.number<std::int32_t>(), reader.number<std::int32_t>()};
  anchor->length = reader.number<std::int32_t>();
  anchor->following = reader.number<std::int32_t>();
  anchor->uses = reader.number<std::uint64_t>();
  anchor->text = reader.text();
  for (std::uint32_t i = reader.count(); i > 0; --i) anchor->before.push_back(reader.text());
  const auto fits = [](std::int32_t value, std::int32_t least) { return least <= value && value <= (1 << 24); };
  if (!fits(anchor->shape.layers, 1) || !fits(anchor->shape.width, 1) || !fits(anchor->length, 1) ||
      !fits(anchor->following, 0) || anchor->length != anchor->text->size()) {
    throw AnchorFileError("an anchor's sizes do not fit");
  }
  const auto elements = [&](std::int32_t rows) {
    return static_cast<std::size_t>(anchor->shape.layers) * static_cast<std::size_t>(rows) * 2 *
           static_cast<std::size_t>(anchor->shape.width);
  };
  const std::size_t offset = elements(anchor->length), text = elements(anchor->following);
  reader.expect(offset);
  reader.expect(text);
  const auto memory = std::make_shared_for_overwrite<std::uint16_t[]>(offset + text);
  const std::span<std::uint16_t> values(memory.get(), offset + text);
  reader.data(values.first(offset));
  reader.data(values.subspan(offset));
  anchor->offset = values.first(offset);
  anchor->text_kv = values.subspan(offset);
  anchor->owner = memory;
  return anchor;
}

using Pools = std::map<PlaceKey, AnchorPoolView>;

std::vector<std::byte> read_bytes(const InputFile& file, std::uint64_t begin) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(file.size() - begin));
  file.read(begin, bytes);
  return bytes;
}

Pools read_pools(const InputFile& file, const std::string& model_key, KvWidth shape) {
  Head head;
  if (file.size() < sizeof(Head)) throw AnchorFileError("it ends too early");
  file.read(0, std::as_writable_bytes(std::span(&head, 1)));
  if (head.magic != kMagic) throw AnchorFileError("it is not an anchor file of this version");
  if (head.head_hash != hash_of_head(head) || head.index < sizeof(Head) || head.index > file.size())
    throw AnchorFileError("a checksum is wrong");
  const std::vector<std::byte> index = read_bytes(file, head.index);
  if (head.index_hash != hash_of_bytes(index)) throw AnchorFileError("a checksum is wrong");
  if (head.model != hash_of_text(model_key)) throw AnchorFileError("it belongs to another model or tokenizer");
  AnchorFileReader reader(file, index);
  Pools pools;
  for (std::uint32_t i = reader.count(); i > 0; --i) {
    PlaceKey key;
    key.context = reader.number<std::uint64_t>();
    const std::vector<char> slot = reader.array<char>(), pool = reader.array<char>();
    key.slot.assign(slot.begin(), slot.end());
    key.pool.assign(pool.begin(), pool.end());
    AnchorPoolView& view = pools[key];
    view.turns = reader.number<std::uint64_t>();
    view.records = reader.array<AnchorRecord>();
    for (std::uint32_t n = reader.count(); n > 0; --n) {
      const std::shared_ptr<Anchor> anchor = read_anchor(reader);
      if (anchor->shape != shape) throw AnchorFileError("an anchor's KV differs in shape from the model's");
      view.anchors.push_back(anchor);
    }
  }
  if (!reader.at_end()) throw AnchorFileError("it has data after its end");
  return pools;
}

}  // namespace

void save_anchors(const std::filesystem::path& file, const std::string& model_key, const AnchorStore& store) try {
  const Pools pools = store.all();
  AtomicFile out(file);
  Head head;
  head.model = hash_of_text(model_key);
  out.write(std::as_bytes(std::span(&head, 1)));  // rewritten with the remaining fields at the end
  std::uint64_t at = sizeof(head);
  AnchorFileWriter index;
  const auto data = [&](std::span<const std::uint16_t> values) {
    const auto bytes = std::as_bytes(values);
    index.number(at);
    index.number(std::uint64_t{bytes.size()});
    index.number(hash_of_bytes(bytes));
    const std::size_t padding = (kAlignment - bytes.size() % kAlignment) % kAlignment;
    const std::byte zeros[kAlignment] = {};
    out.write(bytes);
    out.write(std::span(zeros).first(padding));
    at += bytes.size() + padding;
  };
  index.number(static_cast<std::uint32_t>(pools.size()));
  for (const auto& [key, pool] : pools) {
    index.number(key.context);
    index.array(std::span<const char>(key.slot));
    index.array(std::span<const char>(key.pool));
    index.number(pool.turns);
    index.array(std::span<const AnchorRecord>(pool.records));
    index.number(static_cast<std::uint32_t>(pool.anchors.size()));
    for (const SharedAnchor& anchor : pool.anchors) {
      index.number(anchor->shape.layers);
      index.number(anchor->shape.width);
      index.number(anchor->length);
      index.number(anchor->following);
      index.number(anchor->uses.load());
      index.text(*anchor->text);
      index.number(static_cast<std::uint32_t>(anchor->before.size()));
      for (const SharedText& text : anchor->before) index.text(*text);
      data(anchor->offset);
      data(anchor->text_kv);
    }
  }
  head.index = at;
  head.index_hash = hash_of_bytes(index.bytes());
  head.head_hash = hash_of_head(head);
  out.write(index.bytes());
  out.write_at_start(std::as_bytes(std::span(&head, 1)));
  out.commit();
} catch (const std::filesystem::filesystem_error& error) {
  throw AnchorFileError(fmt::format("{}: the anchors could not be written: {}", file.string(), error.code().message()));
}

std::int64_t load_anchors(const std::filesystem::path& file, const std::string& model_key, KvWidth shape,
                          AnchorStore& store) {
  Pools pools;
  try {
    pools = read_pools(InputFile(file), model_key, shape);
  } catch (const std::exception& error) {
    throw AnchorFileError(fmt::format("{}: not used: {}", file.string(), error.what()));
  }
  std::int64_t anchors = 0;
  for (auto& [key, pool] : pools) {
    anchors += static_cast<std::int64_t>(pool.anchors.size());
    store.restore(key, std::move(pool));
  }
  return anchors;
}

}  // namespace baton
