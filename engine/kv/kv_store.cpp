// SPDX-License-Identifier: Apache-2.0
// A file: a head of fixed size, the tokens, then for each layer the keys before RoPE and the values of these tokens.
// Numbers are little-endian. Checksums find damage, not malice: whoever can write the folder decides what a prompt's
// beginning is taken for.
#include "engine/kv/kv_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/errors.h"
#include "engine/base/files.h"
#include "engine/base/hash.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t kMagic = 0x564b4e5441423031u;  // "10BATNKV"
constexpr std::size_t kMaxWaiting = 16;                // prompts and texts that wait to be written
constexpr double kRoomShare = 0.9;                     // of the budget is left when files were removed

struct FileHead {
  std::uint64_t magic = kMagic;
  std::uint64_t tokens = 0;
  std::uint64_t kv_bytes = 0;
  std::uint64_t body_hash = 0;  // of the tokens and the KV
  std::uint64_t head_hash = 0;  // of the fields before
};

std::uint64_t hash_of(const FileHead& head) { return hash_bytes(&head, offsetof(FileHead, head_hash)); }

std::uint64_t hash_of(std::span<const std::int32_t> tokens, std::span<const std::byte> kv) {
  return hash_bytes(kv.data(), kv.size(), hash_bytes(tokens.data(), tokens.size_bytes()));
}

std::size_t hidden_bytes(const KvLayout& layout) {
  return static_cast<std::size_t>(layout.hidden_width) * size_of(layout.dtype());
}

std::string name_of(const std::string& before, std::span<const std::int32_t> tokens) {
  StreamHash hash;
  hash.add(before.data(), before.size());
  hash.add(tokens.data(), tokens.size_bytes());
  return hash.hex();
}

/// Where the keys of a layer begin in the KV of n tokens, and where its values do.
struct LayerPlace {
  std::size_t keys = 0, values = 0, row = 0;
};

std::vector<LayerPlace> places_of(const KvLayout& layout, std::int32_t tokens) {
  std::vector<LayerPlace> places;
  std::size_t at = 0;
  const auto n = static_cast<std::size_t>(tokens);
  for (std::int32_t layer = 0; layer < layout.layers(); ++layer) {
    const std::size_t row = layout.row_bytes(layer);
    places.push_back({at, at + n * row, row});
    at += 2 * n * row;
  }
  return places;
}

/// The KV of so many tokens.
template <class Byte>
struct Rows {
  std::span<Byte> kv;
  std::int32_t tokens = 0;
};

/// Copies rows [from, from + count) to [to, to + count).
void copy_rows(const KvLayout& layout, Rows<const std::byte> source, std::int32_t from, Rows<std::byte> target,
               std::int32_t to, std::int32_t count) {
  const std::vector<LayerPlace> there = places_of(layout, source.tokens), here = places_of(layout, target.tokens);
  for (std::size_t layer = 0; layer < there.size(); ++layer) {
    const std::size_t row = there[layer].row, bytes = static_cast<std::size_t>(count) * row;
    if (bytes == 0) continue;
    const std::size_t skip = static_cast<std::size_t>(from) * row, put = static_cast<std::size_t>(to) * row;
    std::memcpy(&target.kv[here[layer].keys + put], &source.kv[there[layer].keys + skip], bytes);
    std::memcpy(&target.kv[here[layer].values + put], &source.kv[there[layer].values + skip], bytes);
  }
}

/// A file has been used: the `number`-th of a prompt. The last ones count as older, so that they are removed first:
/// without them the others are of use, but not the other way round.
void touch(const fs::path& file, std::int32_t number) {
  std::error_code ignored;
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::microseconds(number), ignored);
}

/// Makes a folder that its owner alone may use.
fs::path private_folder(const fs::path& folder) {
  fs::create_directories(folder);
  fs::permissions(folder, fs::perms::owner_all);
  return folder;
}

}  // namespace

bool is_finite_kv(std::span<const std::byte> kv, DType dtype) {
  const std::size_t width = size_of(dtype);
  for (std::size_t at = 0; at < kv.size(); at += width) {
    std::uint16_t high = 0;  // sign and exponent, of bf16 and of f32
    std::memcpy(&high, kv.data() + at + width - sizeof(high), sizeof(high));
    if ((high & 0x7F80u) == 0x7F80u) return false;
  }
  return true;
}

bool KvLoad::done(std::chrono::milliseconds most) const {
  std::unique_lock lock(mutex_);
  return wake_.wait_for(lock, most, [this] { return done_; });
}

void KvLoad::finish() {
  const std::lock_guard lock(mutex_);
  done_ = true;
  wake_.notify_all();
}

StoreThread::StoreThread() : thread_([this] { work(); }) {}

StoreThread::~StoreThread() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    reads_.clear();
  }
  wake_.notify_all();
  thread_.join();
}

void StoreThread::read(Job job) {
  const std::lock_guard lock(mutex_);
  reads_.push_back(std::move(job));
  wake_.notify_all();
}

bool StoreThread::write(Job job) {
  const std::lock_guard lock(mutex_);
  if (writes_.size() >= kMaxWaiting) return false;
  writes_.push_back(std::move(job));
  wake_.notify_all();
  return true;
}

void StoreThread::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return closed_ || !reads_.empty() || !writes_.empty(); });
    std::deque<Job>& jobs = reads_.empty() ? writes_ : reads_;
    if (jobs.empty()) return;  // closed
    Job job = std::move(jobs.front());
    jobs.pop_front();
    lock.unlock();
    job();
    job = nullptr;  // what it holds is freed without the lock
    lock.lock();
  }
}

/// A file and its tokens, which begin at `begin` of a prompt.
struct KvStore::Source {
  std::string name;
  std::vector<std::int32_t> tokens;
  std::int32_t begin = 0;
  std::size_t hidden = 0;  // bytes of a token's hidden state behind all keys and values

  std::int32_t size() const { return static_cast<std::int32_t>(tokens.size()); }
};

KvStore::KvStore(const fs::path& folder, std::int64_t budget_bytes, const std::string& settings, KvLayout layout)
    : folder_(private_folder(private_folder(folder) / name_of(settings, {}))),
      budget_(budget_bytes),
      settings_(settings),
      layout_(std::move(layout)) {}

/// The names of all whole blocks of a prompt.
std::vector<std::string> KvStore::names_of(std::span<const std::int32_t> prompt) const {
  std::vector<std::string> names;
  for (std::size_t at = 0; at + kBlock <= prompt.size(); at += kBlock)
    names.push_back(
        name_of(names.empty() ? settings_ : names.back(), prompt.subspan(at, static_cast<std::size_t>(kBlock))));
  return names;
}

std::string KvStore::name_of_text(std::span<const std::int32_t> text, const KvLayout& layout) const {
  return name_of(fmt::format("{} text {} {}", settings_, layout.hidden_width, layout.hidden_layer), text);
}

std::int32_t KvStore::stored(std::span<const std::int32_t> prompt, std::int32_t max_tokens) const {
  std::int32_t length = 0;
  std::string name = settings_;
  while (length + kBlock <= std::min(max_tokens, static_cast<std::int32_t>(prompt.size()))) {
    name = name_of(name, prompt.subspan(static_cast<std::size_t>(length), kBlock));
    std::error_code missing;
    if (!fs::is_regular_file(file_of(name), missing)) break;
    length += kBlock;
  }
  return length;
}

bool KvStore::has_text(std::span<const std::int32_t> text, const KvLayout& layout) const {
  std::error_code missing;
  return fs::is_regular_file(file_of(name_of_text(text, layout)), missing);
}

std::shared_ptr<KvLoad> KvStore::load(std::span<const std::int32_t> prompt, std::int32_t begin, std::int32_t end) {
  const std::vector<std::string> names = names_of(prompt.first(static_cast<std::size_t>(end)));
  std::vector<Source> files;
  for (std::int32_t at = begin / kBlock * kBlock; at < end; at += kBlock) {
    const auto tokens = prompt.subspan(static_cast<std::size_t>(at), kBlock);
    files.push_back({names[static_cast<std::size_t>(at / kBlock)], {tokens.begin(), tokens.end()}, at});
  }
  return start_load(std::move(files), begin, end);
}

std::shared_ptr<KvLoad> KvStore::load_text(std::span<const std::int32_t> text, const KvLayout& layout) {
  const auto n = static_cast<std::int32_t>(text.size());
  return start_load({{name_of_text(text, layout), {text.begin(), text.end()}, 0, hidden_bytes(layout)}}, 0, n);
}

std::shared_ptr<KvLoad> KvStore::start_load(std::vector<Source> files, std::int32_t begin, std::int32_t end) {
  const std::lock_guard lock(mutex_);
  std::erase_if(loading_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<KvLoad>& known = loading_[files.back().name];
  if (std::shared_ptr<KvLoad> same = known.lock(); same && same->begin == begin) return same;
  auto load = std::make_shared<KvLoad>(begin, end);
  known = load;
  thread_.read([this, load, files = std::move(files)] {
    if (!try_to([&] { read(files, *load); })) load->kv.clear();
    load->finish();
  });
  return load;
}

/// Fills load.kv. A file that is not what its name says is removed.
void KvStore::read(const std::vector<Source>& files, KvLoad& load) {
  const auto began = Clock::now();
  const std::int32_t n = load.end - load.begin;
  std::vector<std::byte> all((layout_.token_bytes() + files[0].hidden) * static_cast<std::size_t>(n)), part;
  std::vector<std::int32_t> tokens;
  for (const Source& file : files) {
    part.resize((layout_.token_bytes() + file.hidden) * file.tokens.size());
    tokens.resize(file.tokens.size());
    bool right = false;
    try {
      const InputFile input(file_of(file.name));
      FileHead head;
      input.read(0, std::as_writable_bytes(std::span(&head, 1)));
      right = head.magic == kMagic && head.head_hash == hash_of(head) && head.tokens == tokens.size() &&
              head.kv_bytes == part.size() &&
              input.size() == sizeof(head) + tokens.size() * sizeof(std::int32_t) + part.size();
      if (right) {
        input.read(sizeof(head), std::as_writable_bytes(std::span(tokens)));
        input.read(sizeof(head) + tokens.size() * sizeof(std::int32_t), part);
        right = tokens == file.tokens && head.body_hash == hash_of(tokens, part) && is_finite_kv(part, layout_.dtype());
      }
    } catch (const ModelError&) {  // it is missing, or ends too early
      std::error_code missing;
      if (!fs::exists(file_of(file.name), missing)) return;
    }
    std::error_code ignored;
    if (!right) {
      fs::remove(file_of(file.name), ignored);
      const std::lock_guard lock(mutex_);
      ++stats_.damaged;
      return;
    }
    const std::int32_t from = std::max(load.begin, file.begin), to = std::min(load.end, file.begin + file.size());
    copy_rows(layout_, {part, file.size()}, from - file.begin, {all, n}, from - load.begin, to - from);
    const std::size_t hidden = file.hidden * file.tokens.size();  // of a text, which is one file
    if (hidden > 0) std::memcpy(&all[all.size() - hidden], &part[part.size() - hidden], hidden);
    touch(file_of(file.name), file.begin / kBlock);
  }
  load.ms = milliseconds(Clock::now() - began);
  const std::lock_guard lock(mutex_);
  stats_.read_tokens += n;
  stats_.read_bytes += static_cast<std::int64_t>(all.size());
  stats_.read_ms += load.ms;
  load.kv = std::move(all);
}

void KvStore::keep(std::vector<std::int32_t> prompt, std::vector<Piece> pieces) {
  add_writing([this, prompt = std::move(prompt), pieces = std::move(pieces)] {
    const std::vector<std::string> names = names_of(prompt);
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto number = static_cast<std::int32_t>(i);
      if (std::error_code missing; fs::exists(file_of(names[i]), missing)) {
        touch(file_of(names[i]), number);
        continue;
      }
      const auto tokens = std::span(prompt).subspan(i * kBlock, kBlock);
      write({names[i], {tokens.begin(), tokens.end()}, number * kBlock}, pieces);
    }
  });
}

void KvStore::keep_text(std::shared_ptr<const Segment> segment) {
  if (segment->length() != static_cast<std::int32_t>(segment->tokens().size()) || segment->layout().received) return;
  add_writing([this, segment = std::move(segment)] {
    const std::vector<std::int32_t> tokens = segment->tokens().ids();
    const std::string name = name_of_text(tokens, segment->layout());
    std::error_code missing;
    if (fs::exists(file_of(name), missing)) return touch(file_of(name), 0);
    write({name, tokens, 0, hidden_bytes(segment->layout())}, {{segment, 0, segment->length()}});
  });
}

/// Writes one file. Throws std::filesystem::filesystem_error.
void KvStore::write(const Source& file, const std::vector<Piece>& pieces) {
  const std::vector<LayerPlace> places = places_of(layout_, file.size());
  const std::size_t hidden = file.hidden * file.tokens.size();
  std::vector<std::byte> kv(layout_.token_bytes() * file.tokens.size() + hidden);
  const std::int32_t end = file.begin + file.size();
  std::int32_t filled = 0;
  for (const Piece& piece : pieces) {
    const std::int32_t from = std::max(file.begin, piece.begin), to = std::min(end, piece.begin + piece.count);
    if (from >= to) continue;
    filled += to - from;
    for (std::int32_t layer = 0; layer < layout_.layers(); ++layer) {
      const LayerPlace& place = places[static_cast<std::size_t>(layer)];
      if (place.row == 0) continue;
      const auto skip = static_cast<std::size_t>(from - piece.begin) * place.row;
      const auto put = static_cast<std::size_t>(from - file.begin) * place.row;
      const auto bytes = static_cast<std::size_t>(to - from) * place.row;
      std::memcpy(&kv[place.keys + put], piece.segment->raw_keys(layer).data + skip, bytes);
      std::memcpy(&kv[place.values + put], piece.segment->values(layer).data + skip, bytes);
    }
  }
  if (filled != file.size()) return;  // the pieces end before
  if (hidden > 0) std::memcpy(&kv[kv.size() - hidden], pieces[0].segment->hidden().data, hidden);
  FileHead head;
  head.tokens = file.tokens.size();
  head.kv_bytes = kv.size();
  head.body_hash = hash_of(file.tokens, kv);
  head.head_hash = hash_of(head);
  const std::int64_t bytes =
      static_cast<std::int64_t>(sizeof(head) + file.tokens.size() * sizeof(std::int32_t) + kv.size());
  if (bytes > budget_) return;
  make_room(bytes);
  AtomicFile out(file_of(file.name));
  out.write(std::as_bytes(std::span(&head, 1)));
  out.write(std::as_bytes(std::span(file.tokens)));
  out.write(kv);
  out.commit();
  std::error_code ignored;
  fs::permissions(file_of(file.name), fs::perms::owner_read | fs::perms::owner_write, ignored);
  const std::lock_guard lock(mutex_);
  stats_.written_bytes += bytes;
}

void KvStore::add_writing(std::function<void()> job) {
  const auto lost = [this](const std::string& why) {
    const std::lock_guard lock(mutex_);
    ++stats_.dropped;
    if (!why.empty()) stats_.error = why;
  };
  const bool waits = thread_.write([lost, job = std::move(job)] {
    try {
      job();
    } catch (const std::exception& failed) {
      try_to([&] { lost(message_of(failed)); });
    }
  });
  if (!waits) lost({});
}

/// Removes the files that were used least recently, of all models of the folder, if the budget has no room for `bytes`
/// more. The folder is looked through once in a while, since other processes write, too.
void KvStore::make_room(std::int64_t bytes) {
  const std::int64_t often = std::max<std::int64_t>(budget_ / 16, 1);
  if (unseen_ >= 0 && (unseen_ += bytes) < often) return;
  struct Found {
    fs::path file;
    fs::file_time_type used;
    std::int64_t bytes = 0;
  };
  std::vector<Found> found;
  std::int64_t total = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder_.parent_path(), error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    if (at->path().extension() != ".kv" || !at->is_regular_file(gone)) continue;
    const auto size = at->file_size(gone);
    const auto used = at->last_write_time(gone);
    if (gone) continue;
    found.push_back({at->path(), used, static_cast<std::int64_t>(size)});
    total += found.back().bytes;
  }
  unseen_ = 0;
  const std::int64_t more = std::max(often, bytes);  // may be written before it is looked through again
  if (total + more <= budget_) return;
  std::ranges::sort(found, {}, &Found::used);
  const auto left = static_cast<std::int64_t>(static_cast<double>(budget_) * kRoomShare) - more;
  for (const Found& one : found) {
    if (total <= left) break;
    if (fs::remove(one.file, error)) total -= one.bytes;
  }
}

KvStoreStats KvStore::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace baton
