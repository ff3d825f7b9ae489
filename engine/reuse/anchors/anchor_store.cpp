// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/anchors/anchor_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "engine/base/files.h"
#include "engine/base/hash.h"
#include "engine/reuse/between_models.h"
#include "engine/tensor/tensor.h"

namespace baton {

namespace {

constexpr std::size_t kRecords = 64;
constexpr std::size_t kMaxPools = 4096;  // prompts that never recur leave pools behind

struct AnchorHeap {
  std::vector<std::uint16_t> offset, text;
};

}  // namespace

std::int64_t Anchor::bytes() const {
  std::size_t bytes = offset.size_bytes() + text_kv.size_bytes() + sizeof(Anchor);
  if (text) bytes += text->tokens.size() * sizeof(TokenId) + text->sketch.size() * sizeof(float);
  return static_cast<std::int64_t>(bytes);
}

void add_offsets(std::span<float> rows, const AnchorChoice& choice, std::int32_t layer, std::int32_t n) {
  for (std::size_t a = 0; a < choice.anchors.size(); ++a) {
    const Anchor& anchor = *choice.anchors[a];
    const std::span<const std::uint16_t> offset = anchor.offset_of(layer);
    const auto width = static_cast<std::size_t>(2 * anchor.shape.layer(layer));
    for (std::int32_t i = 0; i < n; ++i) {
      const auto from =
          static_cast<std::size_t>(std::min(choice.alignments[a]->to[static_cast<std::size_t>(i)], anchor.length - 1));
      for (std::size_t c = 0; c < width; ++c)
        rows[static_cast<std::size_t>(i) * width + c] += choice.weights[a] * bf16_to_f32(offset[from * width + c]);
    }
  }
}

AnchorStore::AnchorStore(std::int64_t budget_bytes) : budget_(budget_bytes), worker_([this] { work(); }) {}

AnchorStore::~AnchorStore() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  samples_.clear();
  wake_.notify_all();
}

AnchorPoolView AnchorStore::ask(const PlaceKey& key) {
  flush();
  std::int64_t freed = 0;
  AnchorPoolView view;
  {
    const std::lock_guard lock(mutex_);
    Pool& pool = pool_of(key, freed);
    view = pool.view;
    ++pool.view.turns;
    ++pool.view.since_learning;
  }
  if (freed > 0 && on_bytes_) on_bytes_(-freed);
  return view;
}

/// Returns the pool, and makes it where it is missing. Where there are too many pools, the least recently used one is
/// removed.
AnchorStore::Pool& AnchorStore::pool_of(const PlaceKey& key, std::int64_t& freed) {
  if (pools_.size() >= kMaxPools && pools_.find(key) == pools_.end()) {
    const auto oldest = std::min_element(pools_.begin(), pools_.end(), [](const auto& a, const auto& b) {
      return a.second.last_use < b.second.last_use;
    });
    freed += prune(oldest->second, 0);
    pools_.erase(oldest);
  }
  Pool& pool = pools_[key];
  pool.last_use = ++clock_;
  return pool;
}

void AnchorStore::learning(const PlaceKey& key) {
  const std::lock_guard lock(mutex_);
  pools_[key].view.since_learning = 0;
}

void AnchorStore::learn(AnchorSample sample) {
  const std::lock_guard lock(mutex_);
  samples_.push_back(std::move(sample));
  ++pending_;
  wake_.notify_all();
}

void AnchorStore::flush() const {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return pending_ == 0 || stopping_; });
}

void AnchorStore::work() {
  for (;;) {
    AnchorSample sample;
    std::function<void(const PlaceSample&)> seen;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !samples_.empty(); });
      if (stopping_) {
        wake_.notify_all();
        return;
      }
      sample = std::move(samples_.front());
      samples_.pop_front();
    }
    try {
      {
        const std::lock_guard lock(mutex_);
        seen = on_sample_;
      }
      if (seen) seen(sample);
      make(sample);
    } catch (const std::exception&) {
      // Without memory the sample is lost; later texts will make other anchors.
    }
    const std::lock_guard lock(mutex_);
    --pending_;
    wake_.notify_all();
  }
}

void AnchorStore::on_sample(std::function<void(const PlaceSample&)> seen) {
  const std::lock_guard lock(mutex_);
  on_sample_ = std::move(seen);
}

void AnchorStore::make(AnchorSample& sample) {
  auto memory = std::make_shared<AnchorHeap>();
  memory->offset.resize(sample.truth.size());
  memory->text = std::move(sample.text_kv);
  std::vector<float> corrected;
  double squares = 0.0, left = 0.0, plain = 0.0;
  for (std::int32_t layer = 0; layer < sample.shape.layers(); ++layer) {
    const std::int64_t doubled = 2 * std::int64_t{sample.length};
    const auto first = static_cast<std::size_t>(doubled * sample.shape.before(layer));
    corrected.resize(static_cast<std::size_t>(doubled * sample.shape.layer(layer)));
    for (std::size_t i = 0; i < corrected.size(); ++i) corrected[i] = bf16_to_f32(sample.base[first + i]);
    add_offsets(corrected, sample.choice, layer, sample.length);
    for (std::size_t i = 0; i < corrected.size(); ++i) {
      const float truth = bf16_to_f32(sample.truth[first + i]), base = bf16_to_f32(sample.base[first + i]);
      memory->offset[first + i] = f32_to_bf16(truth - base);
      if (layer == 0) continue;  // depends on the token alone
      squares += double{truth} * truth;
      plain += double{truth - base} * (truth - base);
      left += double{truth - corrected[i]} * (truth - corrected[i]);
    }
  }
  auto anchor = std::make_shared<Anchor>();
  anchor->shape = sample.shape;
  anchor->text = sample.text;
  anchor->before = std::move(sample.before);
  anchor->length = sample.length;
  anchor->following = sample.following;
  anchor->offset = memory->offset;
  anchor->text_kv = memory->text;
  anchor->owner = memory;
  const auto relative = [&](double sum) { return squares > 0.0 ? static_cast<float>(std::sqrt(sum / squares)) : 0.0f; };
  const AnchorRecord record{sample.choice.distance, relative(left), relative(plain)};
  add(sample.key, std::move(anchor), sample.size, sample.choice.anchors.empty() ? nullptr : &record);
}

void AnchorStore::add(const PlaceKey& key, SharedAnchor anchor, std::int32_t size, const AnchorRecord* record) {
  std::int64_t change = anchor->bytes();
  if (change > budget_) return;
  {
    const std::lock_guard lock(mutex_);
    std::int64_t freed = 0;
    Pool* found = nullptr;
    try {
      found = &pool_of(key, freed);
      auto& anchors = found->view.anchors;
      if (anchors.size() == anchors.capacity()) anchors.reserve(2 * anchors.size() + 1);  // from here on nothing fails
      if (record != nullptr) found->view.records.reserve(kRecords);
    } catch (...) {
      if (on_bytes_) on_bytes_(-freed);
      throw;
    }
    Pool& pool = *found;
    change -= freed;
    const auto twin = std::find_if(pool.view.anchors.begin(), pool.view.anchors.end(), [&](const SharedAnchor& other) {
      return other->text->hash == anchor->text->hash && other->text->tokens == anchor->text->tokens &&
             std::equal(other->before.begin(), other->before.end(), anchor->before.begin(), anchor->before.end(),
                        [](const auto& a, const auto& b) { return a->tokens == b->tokens; });
    });
    if (twin != pool.view.anchors.end()) {
      change -= (*twin)->bytes();
      *twin = std::move(anchor);
    } else {
      pool.view.anchors.push_back(std::move(anchor));
      ++stats_.learned;
    }
    if (record != nullptr) {
      if (pool.view.records.size() < kRecords) {
        pool.view.records.push_back(*record);
      } else {
        pool.view.records[pool.next_record++ % kRecords] = *record;
      }
    }
    stats_.bytes += change + freed;  // `change` holds -freed, which prune() has already subtracted
    change -= prune(pool, static_cast<std::size_t>(std::max(1, size)));
    change -= keep_budget();
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.bytes);
  }
  if (on_bytes_) on_bytes_(change);
}

/// Removes the least used anchors of the older half (KVComm section 3.3). Returns the bytes freed.
std::int64_t AnchorStore::prune(Pool& pool, std::size_t size) {
  std::int64_t freed = 0;
  std::vector<SharedAnchor>& anchors = pool.view.anchors;
  while (anchors.size() > size) {
    const auto half = anchors.begin() + static_cast<std::ptrdiff_t>((anchors.size() + 1) / 2);  // oldest first
    const auto least = std::min_element(anchors.begin(), half,
                                        [](const SharedAnchor& a, const SharedAnchor& b) { return a->uses < b->uses; });
    freed += (*least)->bytes();
    anchors.erase(least);
    ++stats_.pruned;
  }
  stats_.bytes -= freed;
  return freed;
}

/// Removes anchors of the largest pool first.
std::int64_t AnchorStore::keep_budget() {
  std::int64_t freed = 0;
  while (stats_.bytes > budget_) {
    Pool* largest = nullptr;
    std::int64_t most = 0;
    for (auto& [key, pool] : pools_) {
      std::int64_t bytes = 0;
      for (const SharedAnchor& anchor : pool.view.anchors) bytes += anchor->bytes();
      if (bytes > most) most = bytes, largest = &pool;
    }
    if (largest == nullptr) break;
    freed += prune(*largest, largest->view.anchors.size() - 1);
  }
  return freed;
}

std::vector<SharedAnchor> AnchorStore::anchors(const std::string& slot, const std::string& pool,
                                               std::size_t max_count) const {
  std::vector<SharedAnchor> found;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, one] : pools_) {
    if (key.slot != slot || key.pool != pool) continue;
    const auto count = std::min(one.view.anchors.size(), max_count - found.size());
    found.insert(found.end(), one.view.anchors.begin(), one.view.anchors.begin() + static_cast<std::ptrdiff_t>(count));
  }
  return found;
}

AnchorStoreStats AnchorStore::stats() const {
  const std::lock_guard lock(mutex_);
  AnchorStoreStats stats = stats_;
  stats.pools = static_cast<std::int64_t>(pools_.size());
  for (const auto& [key, pool] : pools_) stats.anchors += static_cast<std::int64_t>(pool.view.anchors.size());
  return stats;
}

std::map<PlaceKey, AnchorPoolView> AnchorStore::all() const {
  flush();
  const std::lock_guard lock(mutex_);
  std::map<PlaceKey, AnchorPoolView> views;
  for (const auto& [key, pool] : pools_) views.emplace(key, pool.view);
  return views;
}

void AnchorStore::restore(const PlaceKey& key, AnchorPoolView view) {
  const auto size = static_cast<std::int32_t>(view.anchors.size());
  for (SharedAnchor& anchor : view.anchors) add(key, std::move(anchor), size);
  const std::lock_guard lock(mutex_);
  stats_.learned -= size;
  pools_[key].view.records = std::move(view.records);
  pools_[key].view.turns = view.turns;
}

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

/// The number of layers and their width; a width of 0: they differ, and the width of each follows.
KvWidth read_width(AnchorFileReader& reader) {
  const auto layers = reader.number<std::int32_t>(), width = reader.number<std::int32_t>();
  KvWidth shape;
  if (width == 0) {
    shape.of = reader.array<std::int32_t>();
  } else if (layers > 0 && layers <= (1 << 24)) {
    shape.of.assign(static_cast<std::size_t>(layers), width);
  }
  const auto fits = [](std::int32_t one) { return 0 <= one && one <= (1 << 24); };
  if (shape.of.empty() || shape.layers() != layers || !std::ranges::all_of(shape.of, fits) || shape.total() == 0)
    throw AnchorFileError("an anchor's sizes do not fit");
  return shape;
}

void write_width(AnchorFileWriter& index, const KvWidth& shape) {
  const bool same = std::ranges::all_of(shape.of, [&](std::int32_t one) { return one == shape.of.front(); });
  index.number(shape.layers());
  index.number(same ? shape.of.front() : 0);
  if (!same) index.array(std::span<const std::int32_t>(shape.of));
}

std::shared_ptr<Anchor> read_anchor(AnchorFileReader& reader) {
  auto anchor = std::make_shared<Anchor>();
  anchor->shape = read_width(reader);
  anchor->length = reader.number<std::int32_t>();
  anchor->following = reader.number<std::int32_t>();
  anchor->uses = reader.number<std::uint64_t>();
  anchor->text = reader.text();
  for (std::uint32_t i = reader.count(); i > 0; --i) anchor->before.push_back(reader.text());
  const auto fits = [](std::int32_t value, std::int32_t least) { return least <= value && value <= (1 << 24); };
  if (!fits(anchor->length, 1) || !fits(anchor->following, 0) || anchor->length != anchor->text->size())
    throw AnchorFileError("an anchor's sizes do not fit");
  const auto elements = [&](std::int32_t rows) {
    return static_cast<std::size_t>(2 * std::int64_t{rows} * anchor->shape.total());
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

Pools read_pools(const InputFile& file, const std::string& model_key, const KvWidth& shape) {
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
      write_width(index, anchor->shape);
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

std::int64_t load_anchors(const std::filesystem::path& file, const std::string& model_key, const KvWidth& shape,
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
