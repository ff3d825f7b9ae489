// SPDX-License-Identifier: Apache-2.0
// A file: a head of fixed size, the tokens, then for each layer the keys before RoPE and the values of these tokens,
// then, of a text, the hidden states. Numbers are little-endian. Checksums find damage, not malice: whoever can write
// into the folder decides what a prompt's beginning is taken for. Who can only choose prompts cannot: names are hashes
// with a secret of the folder.
#include "engine/kv/kv_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <random>
#include <system_error>
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
/// Bytes that may wait to be written.
constexpr std::size_t kMaxWaiting = std::size_t{1} << 30;
/// The share of the budget that files take after an eviction.
constexpr double kShareLeft = 0.9;
/// The names of folders and files have this many hexadecimal digits.
constexpr std::size_t kNameDigits = 32;
constexpr std::size_t kSecretBytes = 32;
constexpr std::chrono::seconds kMaxClosing{5};
/// This is longer than the finest step of any file system's times.
constexpr std::chrono::milliseconds kBetweenUses{10};

struct FileHead {
  std::uint64_t magic = kMagic;
  std::uint64_t tokens = 0;
  std::uint64_t kv_bytes = 0;
  std::uint64_t body_hash = 0;  // hash of the tokens and the KV
  std::uint64_t head_hash = 0;  // hash of the fields before
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

bool is_name(const std::string& text) {
  return text.size() == kNameDigits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// Offsets of a layer's keys and values in the KV of n tokens, and the bytes of a token's row in each.
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

/// A file was used, the `number`-th of a prompt. The last ones of a prompt count as older, so that they are removed
/// first: what is left is a beginning.
void touch(const fs::path& file, std::size_t number) {
  std::error_code ignored;
  fs::last_write_time(file, fs::file_time_type::clock::now() - kBetweenUses * number, ignored);
}

/// Makes a folder that its owner alone may use. One that is there keeps its permissions.
fs::path private_folder(const fs::path& folder) {
  if (fs::create_directories(folder)) fs::permissions(folder, fs::perms::owner_all);
  return folder;
}

/// What the names of a folder's files depend on, besides their content: drawn when the folder is first used.
std::string secret_of(const fs::path& folder) {
  const fs::path file = folder / "secret";
  if (const UniqueFd made = open_file(file, Open::write | Open::create | Open::only_new)) {
    std::random_device random;
    std::string secret;
    while (secret.size() < kSecretBytes) secret += static_cast<char>(random());
    fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
    if (!write_all(made, secret))
      throw fs::filesystem_error("cannot write", file, std::error_code(errno, std::generic_category()));
    return secret;
  }
  for (int look = 0; look < 100; ++look) {  // another process may be writing it
    std::string secret(kSecretBytes, '\0');
    const UniqueFd there = open_file(file, Open::read | Open::no_link);
    if (!there) break;
    if (read_at(there, std::as_writable_bytes(std::span(secret)), 0) == static_cast<std::int64_t>(kSecretBytes))
      return secret;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  throw fs::filesystem_error("cannot read", file, std::error_code(errno, std::generic_category()));
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

bool KvLoad::done(std::chrono::milliseconds max_wait) const {
  std::unique_lock lock(mutex_);
  return wake_.wait_for(lock, max_wait, [this] { return done_; });
}

void KvLoad::finish() {
  const std::lock_guard lock(mutex_);
  done_ = true;
  wake_.notify_all();
}

StoreThread::StoreThread() : thread_([this] { work(); }) {}

StoreThread::~StoreThread() {
  finish_writing();
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    reads_.clear();
    writes_.clear();
  }
  wake_.notify_all();
  thread_.join();
}

void StoreThread::finish_writing() {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, kMaxClosing, [this] { return writes_.empty() && !busy_; });
}

void StoreThread::read(Job job) {
  const std::lock_guard lock(mutex_);
  reads_.push_back(std::move(job));
  wake_.notify_all();
}

bool StoreThread::write(Job job, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (waiting_ + bytes > kMaxWaiting) return false;
  writes_.push_back({std::move(job), bytes});
  waiting_ += bytes;
  wake_.notify_all();
  return true;
}

void StoreThread::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return closed_ || !reads_.empty() || !writes_.empty(); });
    if (closed_) return;
    Job job;
    if (!reads_.empty()) {
      job = std::move(reads_.front());
      reads_.pop_front();
    } else {
      job = std::move(writes_.front().job);
      waiting_ -= writes_.front().bytes;
      writes_.pop_front();
    }
    busy_ = true;
    lock.unlock();
    job();
    job = nullptr;  // what it holds is freed without the lock
    lock.lock();
    busy_ = false;
    wake_.notify_all();
  }
}

/// A file and its tokens, which begin at `begin` of a prompt.
struct KvStore::Source {
  std::string name;
  std::vector<std::int32_t> tokens;
  std::int32_t begin = 0;
  std::size_t hidden = 0;  // bytes of a token's hidden state behind all keys and values

  std::int32_t size() const { return static_cast<std::int32_t>(tokens.size()); }
  std::int32_t end() const { return begin + size(); }
  std::size_t number() const { return static_cast<std::size_t>(begin / kBlock); }
};

KvStore::KvStore(const fs::path& folder, std::int64_t budget_bytes, const std::string& settings, KvLayout layout)
    : folder_(private_folder(private_folder(folder) / name_of(settings, {}))),
      budget_(budget_bytes),
      layout_(std::move(layout)),
      settings_(secret_of(folder) + settings) {}

/// The names of all whole blocks of a prompt.
std::vector<std::string> KvStore::names_of(std::span<const std::int32_t> prompt) const {
  std::vector<std::string> names;
  for (std::size_t at = 0; at + kBlock <= prompt.size(); at += kBlock) {
    // A name alone would not do: it is known to whoever may list the folder.
    const std::string before = names.empty() ? settings_ : settings_ + names.back();
    names.push_back(name_of(before, prompt.subspan(at, static_cast<std::size_t>(kBlock))));
  }
  return names;
}

std::string KvStore::name_of_text(std::span<const std::int32_t> text, const KvLayout& layout) const {
  return name_of(fmt::format("{} text {} {}", settings_, layout.hidden_width, layout.hidden_layer), text);
}

std::shared_ptr<KvLoad> KvStore::load(std::vector<std::int32_t> prompt, std::int32_t begin, std::int32_t max_tokens) {
  auto load = std::make_shared<KvLoad>();
  load->begin = load->end = begin;
  prompt.resize(std::min(prompt.size(), static_cast<std::size_t>(std::max(max_tokens, 0))));
  thread_.read([this, wanted = std::weak_ptr(load), begin, prompt = std::move(prompt)] {
    try_to([&] {
      const std::vector<std::string> names = names_of(prompt);
      std::vector<Source> files;
      for (std::int32_t at = 0; at < static_cast<std::int32_t>(names.size()); ++at) {
        std::error_code missing;
        if (!fs::is_regular_file(file_of(names[static_cast<std::size_t>(at)]), missing)) break;
        const auto tokens =
            std::span(prompt).subspan(static_cast<std::size_t>(at * kBlock), static_cast<std::size_t>(kBlock));
        if ((at + 1) * kBlock > begin)
          files.push_back({names[static_cast<std::size_t>(at)], {tokens.begin(), tokens.end()}, at * kBlock});
      }
      read(std::move(files), wanted);
    });
    if (const std::shared_ptr<KvLoad> waiting = wanted.lock()) waiting->finish();
  });
  return load;
}

std::shared_ptr<KvLoad> KvStore::load_text(std::vector<std::int32_t> text, const KvLayout& layout) {
  auto load = std::make_shared<KvLoad>();
  std::string name = name_of_text(text, layout);
  thread_.read([this, wanted = std::weak_ptr(load), name = std::move(name), hidden = hidden_bytes(layout),
                text = std::move(text)]() mutable {
    try_to([&] {
      std::error_code missing;
      if (!fs::is_regular_file(file_of(name), missing)) return;
      read({{name, std::move(text), 0, hidden}}, wanted);
      const std::lock_guard lock(mutex_);
      texts_.insert(name);
    });
    if (const std::shared_ptr<KvLoad> waiting = wanted.lock()) waiting->finish();
  });
  return load;
}

/// Fills the load with the KV of the first files, up to one that cannot be read. Stops if nobody waits any more.
void KvStore::read(std::vector<Source> files, const std::weak_ptr<KvLoad>& wanted) {
  if (files.empty()) return;
  std::int32_t begin = 0, end = files.back().end();
  if (const std::shared_ptr<KvLoad> load = wanted.lock()) begin = load->begin;
  std::vector<std::byte> all((layout_.token_bytes() + files[0].hidden) * static_cast<std::size_t>(end - begin)), part;
  std::int32_t there = begin;
  for (const Source& file : files) {
    if (wanted.expired()) return;
    if (!read_file(file, part)) break;
    const std::int32_t from = std::max(begin, file.begin);
    copy_rows(layout_, {part, file.size()}, from - file.begin, {all, end - begin}, from - begin, file.end() - from);
    const std::size_t hidden = file.hidden * file.tokens.size();  // of a text, which is one file
    if (hidden > 0) std::memcpy(&all[all.size() - hidden], &part[part.size() - hidden], hidden);
    there = file.end();
  }
  const std::shared_ptr<KvLoad> load = wanted.lock();
  if (!load || there == begin) return;
  if (there < end) {  // the KV of fewer tokens has other places
    std::vector<std::byte> fewer(layout_.token_bytes() * static_cast<std::size_t>(there - begin));
    copy_rows(layout_, {all, end - begin}, 0, {fewer, there - begin}, 0, there - begin);
    all = std::move(fewer);
  }
  const std::lock_guard lock(mutex_);
  stats_.read_tokens += there - begin;
  stats_.read_bytes += static_cast<std::int64_t>(all.size());
  load->end = there;
  load->kv = std::move(all);
}

/// Returns false if the file cannot be read. One that is not what its name says is removed.
bool KvStore::read_file(const Source& file, std::vector<std::byte>& kv) {
  kv.resize((layout_.token_bytes() + file.hidden) * file.tokens.size());
  std::vector<std::int32_t> tokens(file.tokens.size());
  try {
    const InputFile input(file_of(file.name));
    FileHead head;
    bool right = input.size() == sizeof(head) + tokens.size() * sizeof(std::int32_t) + kv.size();
    if (right) {
      input.read(0, std::as_writable_bytes(std::span(&head, 1)));
      input.read(sizeof(head), std::as_writable_bytes(std::span(tokens)));
      input.read(sizeof(head) + tokens.size() * sizeof(std::int32_t), kv);
      right = head.magic == kMagic && head.head_hash == hash_of(head) && head.tokens == tokens.size() &&
              head.kv_bytes == kv.size() && tokens == file.tokens && head.body_hash == hash_of(tokens, kv) &&
              is_finite_kv(kv, layout_.dtype());
    }
    if (right) {
      touch(file_of(file.name), file.number());
      return true;
    }
    std::error_code ignored;
    fs::remove(file_of(file.name), ignored);
    const std::lock_guard lock(mutex_);
    ++stats_.damaged;
  } catch (const ModelError&) {  // another process has removed it, or it cannot be read at this moment
  }
  return false;
}

void KvStore::keep(std::vector<std::int32_t> prompt, const std::vector<Piece>& pieces) {
  const auto shared = std::make_shared<const std::vector<Piece>>(pieces);
  const std::vector<std::string> names = names_of(prompt);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto tokens = std::span(prompt).subspan(i * kBlock, static_cast<std::size_t>(kBlock));
    add_writing({names[i], {tokens.begin(), tokens.end()}, static_cast<std::int32_t>(i) * kBlock}, shared);
  }
}

void KvStore::keep_text(const std::shared_ptr<const Segment>& segment) {
  const KvLayout& layout = segment->layout();
  if (segment->length() != static_cast<std::int32_t>(segment->tokens().size()) || layout.received) return;
  Source file{name_of_text(segment->tokens().ids(), layout), segment->tokens().ids(), 0, hidden_bytes(layout)};
  {
    const std::lock_guard lock(mutex_);
    if (!texts_.insert(file.name).second) return;
  }
  add_writing(std::move(file), std::make_shared<const std::vector<Piece>>(1, Piece{segment, 0, segment->length()}));
}

bool KvStore::knows_text(std::span<const std::int32_t> text, const KvLayout& layout) const {
  const std::string name = name_of_text(text, layout);
  const std::lock_guard lock(mutex_);
  return texts_.contains(name);
}

/// Writes one file, if it is not there. Throws std::filesystem::filesystem_error.
void KvStore::write(const Source& file, const std::vector<Piece>& pieces) {
  if (std::error_code missing; fs::exists(file_of(file.name), missing)) return touch(file_of(file.name), file.number());
  const std::vector<LayerPlace> places = places_of(layout_, file.size());
  const std::size_t hidden = file.hidden * file.tokens.size();
  std::vector<std::byte> kv(layout_.token_bytes() * file.tokens.size() + hidden);
  std::int32_t filled = 0;
  for (const Piece& piece : pieces) {
    const std::int32_t from = std::max(file.begin, piece.begin), to = std::min(file.end(), piece.begin + piece.count);
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
  if (!is_finite_kv(kv, layout_.dtype())) return;
  FileHead head;
  head.tokens = file.tokens.size();
  head.kv_bytes = kv.size();
  head.body_hash = hash_of(file.tokens, kv);
  head.head_hash = hash_of(head);
  const auto bytes = static_cast<std::int64_t>(sizeof(head) + file.tokens.size() * sizeof(std::int32_t) + kv.size());
  if (file.begin / kBlock * bytes + bytes > budget_ / 2) return;  // a prompt must not evict its own beginning
  make_room(bytes);
  AtomicFile out(file_of(file.name), Links::replace);
  out.write(std::as_bytes(std::span(&head, 1)));
  out.write(std::as_bytes(std::span(file.tokens)));
  out.write(kv);
  out.commit();
  std::error_code ignored;
  fs::permissions(file_of(file.name), fs::perms::owner_read | fs::perms::owner_write, ignored);
  touch(file_of(file.name), file.number());
  const std::lock_guard lock(mutex_);
  stats_.written_bytes += bytes;
}

void KvStore::add_writing(Source file, std::shared_ptr<const std::vector<Piece>> pieces) {
  const std::size_t bytes = (layout_.token_bytes() + file.hidden) * file.tokens.size();
  const bool waits = thread_.write(
      [this, file = std::move(file), pieces = std::move(pieces)] {
        std::string error;
        try {
          return write(file, *pieces);
        } catch (const std::exception& failed) {
          try_to([&] { error = message_of(failed); });
        } catch (...) {
        }
        const std::lock_guard lock(mutex_);
        ++stats_.dropped;
        stats_.error.swap(error);
      },
      bytes);
  if (waits) return;
  const std::lock_guard lock(mutex_);
  ++stats_.dropped;
}

/// Removes the files that were used least recently, of all models of the folder, if the budget has no room for `bytes`
/// more. The folder is scanned once in a while, since other processes write, too.
void KvStore::make_room(std::int64_t bytes) {
  const std::int64_t interval = std::max<std::int64_t>(budget_ / 16, 1);
  if (unscanned_ >= 0 && unscanned_ + bytes < interval) {
    unscanned_ += bytes;
    return;
  }
  struct Found {
    fs::path file;
    fs::file_time_type used;
    std::int64_t bytes = 0;
  };
  std::vector<Found> found;
  std::int64_t total = 0;
  const auto readable = fs::directory_options::skip_permission_denied;
  std::error_code ignored;
  for (const auto& folder : fs::directory_iterator(folder_.parent_path(), readable)) {
    if (!is_name(folder.path().filename().string()) || !folder.is_directory(ignored)) continue;
    for (fs::directory_iterator at(folder.path(), readable, ignored), end; !ignored && at != end;
         at.increment(ignored)) {
      const fs::path& file = at->path();
      std::error_code gone;
      if (file.extension() != ".kv" || !is_name(file.stem().string()) || !at->is_regular_file(gone)) continue;
      const auto size = at->file_size(gone);
      if (gone) continue;
      const auto used = at->last_write_time(gone);
      if (gone) continue;
      found.push_back({file, used, static_cast<std::int64_t>(size)});
      total += found.back().bytes;
    }
  }
  unscanned_ = bytes;
  const std::int64_t more = std::max(interval, bytes);  // may be written before the next scan
  if (total + more <= budget_) return;
  std::ranges::sort(found, {}, &Found::used);
  const auto left = static_cast<std::int64_t>(static_cast<double>(budget_) * kShareLeft) - more;
  for (const Found& one : found) {
    if (total <= left) break;
    if (fs::remove(one.file, ignored)) total -= one.bytes;
  }
}

KvStoreStats KvStore::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace baton
