// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/host/staging.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <system_error>

namespace baton::cuda {

void* DeviceScratch::reserve(std::size_t bytes) {
  if (bytes > bytes_) {
    const std::size_t grown = std::max(bytes, 2 * bytes_);
    void* data = runtime_.allocate(grown);
    if (data_ != nullptr) runtime_.release(data_);  // freed on the stream, after queued work that uses it
    data_ = data;
    bytes_ = grown;
  }
  return data_;
}

Staging::Staging(Runtime& runtime, std::size_t segment_bytes)
    : runtime_(runtime),
      segment_bytes_(segment_bytes),
      pinned_(static_cast<std::byte*>(runtime.allocate_pinned(segment_bytes * kEvents))) {}

Staging::~Staging() {
  // Copies in progress still read the pinned memory. Errors are reported by other calls, which can throw.
  try {
    runtime_.synchronize();
  } catch (...) {  // NOLINT: a destructor
  }
  runtime_.release_pinned(pinned_);
}

std::byte* Staging::take(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  used_ = (used_ + kAlignment - 1) / kAlignment * kAlignment;
  if (used_ + bytes > segment_bytes_) {
    runtime_.record(segment_);
    segment_ = (segment_ + 1) % kEvents;
    runtime_.wait(segment_);
    used_ = 0;
  }
  std::byte* room = pinned_ + static_cast<std::size_t>(segment_) * segment_bytes_ + used_;
  used_ += bytes;
  return room;
}

void Staging::to_device(void* device, std::span<const std::byte> host) {
  auto* to = static_cast<std::byte*>(device);
  // Chunks of half a segment: the first is uploaded while the host reads the second.
  for (std::size_t done = 0; done < host.size();) {
    const std::size_t bytes = std::min(host.size() - done, segment_bytes_ / 2);
    std::byte* room = take(bytes);
    std::memcpy(room, host.data() + done, bytes);
    runtime_.copy_to_device(to + done, room, bytes);
    ++sent_;
    done += bytes;
  }
}

void Staging::to_host(std::span<std::byte> host, const void* device) {
  const auto* from = static_cast<const std::byte*>(device);
  // A chosen token is the last work of its step: the host waits once, for its copy.
  const bool fits = host.size() <= segment_bytes_;
  if (!fits) wait_for_copies();  // all segments serve as one block
  for (std::size_t done = 0; done < host.size();) {
    const std::size_t bytes = fits ? host.size() : std::min(host.size() - done, segment_bytes_ * kEvents);
    std::byte* room = fits ? take(bytes) : pinned_;
    runtime_.copy_to_host(room, from + done, bytes);
    wait_for_copies();
    std::memcpy(host.data() + done, room, bytes);
    done += bytes;
  }
}

void Staging::wait_for_copies() {
  runtime_.wait_for_stream();
  segment_ = 0;
  used_ = 0;
}

namespace {

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

}  // namespace

const void* KeptArrays::put_bytes(std::span<const std::byte> bytes) {
  // Callers that do not mark steps start again here: uploads and launches are in stream order, so no array in use is
  // overwritten.
  constexpr std::size_t kMaxArrays = 256;
  if (step_ != staging_.step() || used_ == kMaxArrays) used_ = 0;
  step_ = staging_.step();
  if (used_ > 0 && same(bytes, arrays_[used_ - 1]->host)) return arrays_[used_ - 1]->data;
  if (used_ == arrays_.size()) arrays_.push_back(std::make_unique<Array>(runtime_));
  Array& array = *arrays_[used_++];
  if (array.data != nullptr && same(bytes, array.host)) return array.data;
  array.host.assign(bytes.begin(), bytes.end());
  array.data = array.device.reserve(std::max<std::size_t>(bytes.size(), 1));
  staging_.to_device(array.data, bytes);
  return array.data;
}

namespace {

constexpr std::size_t kMaxSpareBytes = std::size_t{256} << 20;  // unused memory beyond this is freed
constexpr std::size_t kMinAheadBytes = std::size_t{64} << 20;   // of a block that is pinned before it is needed
constexpr std::size_t kPage = 4096;                             // pieces are whole pages

}  // namespace

PinnedPool::~PinnedPool() {
  if (maker_.joinable()) {
    maker_.request_stop();
    maker_.join();
  }
  try {
    runtime_.synchronize();
  } catch (...) {  // NOLINT: a destructor must not throw; other calls report the error
  }
  for (const auto& [block, bytes] : blocks_) runtime_.release_pinned(block);
}

Buffer PinnedPool::allocate(std::size_t bytes) {
  const std::size_t needed = (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
  std::unique_lock lock(mutex_);
  largest_ = std::max(largest_, needed);
  free_unused_blocks(needed);
  auto piece = smallest_free(needed);
  if (piece == pieces_.end()) {
    lock.unlock();
    void* block = runtime_.allocate_pinned(needed);
    lock.lock();
    piece = add_block(block, needed);
    ++pinned_;
  }
  split(piece, needed);
  piece->second.free = false;
  if (pinned_ > 1 && smallest_free(needed) == pieces_.end()) want_block(needed);
  Buffer buffer{this, piece->first, bytes};
  const Piece before = piece->second;
  lock.unlock();
  wait_for(before);
  return buffer;
}

PinnedPool::Pieces::iterator PinnedPool::smallest_free(std::size_t bytes) {
  auto best = pieces_.end();
  for (auto piece = pieces_.begin(); piece != pieces_.end(); ++piece) {
    if (!piece->second.free || piece->second.bytes < bytes) continue;
    if (best == pieces_.end() || piece->second.bytes < best->second.bytes) best = piece;
  }
  return best;
}

PinnedPool::Pieces::iterator PinnedPool::add_block(void* block, std::size_t bytes) {
  blocks_[block] = bytes;
  return pieces_.insert_or_assign(block, Piece{.bytes = bytes, .block = block}).first;
}

void PinnedPool::split(Pieces::iterator piece, std::size_t bytes) {
  if (piece->second.bytes == bytes) return;
  Piece rest = piece->second;
  rest.bytes -= bytes;
  pieces_.emplace(static_cast<std::byte*>(piece->first) + bytes, rest);
  piece->second.bytes = bytes;
}

void PinnedPool::merge_with_next(Pieces::iterator piece) {
  const auto next = std::next(piece);
  if (next == pieces_.end() || next->second.block != piece->second.block) return;
  if (!piece->second.free || !next->second.free) return;
  piece->second.bytes += next->second.bytes;
  piece->second.last_upload = std::max(piece->second.last_upload, next->second.last_upload);
  piece->second.last_download = std::max(piece->second.last_download, next->second.last_download);
  pieces_.erase(next);
}

void PinnedPool::wait_for(const Piece& piece) {
  runtime_.wait_for(piece.last_upload);
  runtime_.wait_for(piece.last_download);
}

/// Frees blocks of which nothing is used, but for some that the next pieces may take.
void PinnedPool::free_unused_blocks(std::size_t bytes) {
  std::size_t spare = 0;
  for (const auto& [data, piece] : pieces_) spare += piece.free ? piece.bytes : 0;
  const std::size_t max_spare = std::max({kMaxSpareBytes, 2 * largest_, bytes});
  for (auto piece = pieces_.begin(); piece != pieces_.end() && spare > max_spare;) {
    const auto block = blocks_.find(piece->first);
    if (!piece->second.free || block == blocks_.end() || block->second != piece->second.bytes) {
      ++piece;
      continue;
    }
    wait_for(piece->second);
    spare -= piece->second.bytes;
    runtime_.release_pinned(block->first);
    blocks_.erase(block);
    piece = pieces_.erase(piece);
  }
}

void PinnedPool::want_block(std::size_t bytes) {
  if (!ahead_ || wanted_ > 0) return;
  wanted_ = std::max(kMinAheadBytes, 2 * bytes);
  try {
    if (!maker_.joinable()) maker_ = std::jthread([this](const std::stop_token& stop) { make_blocks(stop); });
  } catch (const std::system_error&) {  // no thread can be started
  }
  changed_.notify_one();
}

/// Ends when memory is short: from then on the caller pins what it needs, because wanted_ stays.
void PinnedPool::make_blocks(const std::stop_token& stop) noexcept {
  try {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [this] { return wanted_ > 0; }) && !stop.stop_requested()) {
      const std::size_t bytes = wanted_;
      lock.unlock();
      void* block = runtime_.allocate_pinned(bytes);
      lock.lock();
      add_block(block, bytes);
      wanted_ = 0;
    }
  } catch (const std::exception&) {  // NOLINT: nobody waits for a block
  }
}

void PinnedPool::used_by(const void* data, TransferId transfer, bool upload) {
  const std::lock_guard lock(mutex_);
  const auto piece = pieces_.find(const_cast<void*>(data));
  if (piece != pieces_.end()) (upload ? piece->second.last_upload : piece->second.last_download) = transfer;
}

TransferId PinnedPool::last_use(const void* data) {
  const std::lock_guard lock(mutex_);
  const auto piece = pieces_.find(const_cast<void*>(data));
  return piece == pieces_.end() ? 0 : std::max(piece->second.last_upload, piece->second.last_download);
}

void PinnedPool::release(void* data, std::size_t /*bytes*/) noexcept {
  const std::lock_guard lock(mutex_);
  const auto piece = pieces_.find(data);
  piece->second.free = true;
  merge_with_next(piece);
  if (piece != pieces_.begin()) merge_with_next(std::prev(piece));
}

namespace {

constexpr std::int64_t kWidth = 2 * editing::kBand;
constexpr std::int64_t kMaxCellRows = std::int64_t{1} << 18;  // rows of cells per batch: 256 MiB

std::int64_t size_of(std::span<const std::int32_t> text) { return static_cast<std::int64_t>(text.size()); }

}  // namespace

std::vector<Alignment> TextPairs::align(Stream stream, ConstTensorView sketches, std::span<const TextPair> pairs) {
  std::vector<Alignment> alignments;
  while (!pairs.empty()) {
    std::size_t count = 0;
    for (std::int64_t rows = 0; count < pairs.size(); ++count) {
      rows += size_of(pairs[count].text);
      if (count > 0 && rows > kMaxCellRows) break;
    }
    align_some(stream, sketches, pairs.first(count), alignments);
    pairs = pairs.subspan(count);
  }
  return alignments;
}

void TextPairs::align_some(Stream stream, ConstTensorView sketches, std::span<const TextPair> pairs,
                           std::vector<Alignment>& alignments) {
  std::vector<std::int32_t> sent;  // all texts; a text of consecutive pairs is stored once
  std::vector<std::size_t> at;     // where the two texts of each pair begin in `sent`
  std::int64_t rows = 0;
  for (const TextPair& pair : pairs) {
    const bool again = !at.empty() && pair.text.data() == pairs[at.size() / 2 - 1].text.data() &&
                       pair.text.size() == pairs[at.size() / 2 - 1].text.size();
    at.push_back(again ? at[at.size() - 2] : sent.size());
    if (!again) sent.insert(sent.end(), pair.text.begin(), pair.text.end());
    at.push_back(sent.size());
    sent.insert(sent.end(), pair.other.begin(), pair.other.end());
    rows += size_of(pair.text);
  }
  const auto count = static_cast<std::int64_t>(pairs.size());
  DeviceScratch texts(runtime_), cells(runtime_), made(runtime_), described(runtime_);
  auto* ids = texts.reserve<std::int32_t>(std::max<std::int64_t>(1, size_of(sent)));
  auto* cell = cells.reserve<std::uint16_t>(std::max<std::int64_t>(1, rows) * kWidth);
  auto* result = made.reserve<std::int32_t>(2 * rows + count);  // counterparts and mismatches, then the costs
  std::vector<DevicePair> all;
  std::int64_t row = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const TextPair& pair = pairs[static_cast<std::size_t>(i)];
    const auto n = static_cast<std::int32_t>(pair.text.size());
    all.push_back({ids + at[static_cast<std::size_t>(2 * i)], ids + at[static_cast<std::size_t>(2 * i) + 1],
                   cell + row * kWidth, result + row, result + rows + row, result + 2 * rows + i, n,
                   static_cast<std::int32_t>(pair.other.size())});
    row += n;
  }
  staging_.to_device(ids, std::as_bytes(std::span(sent)));
  auto* device_pairs = described.reserve<DevicePair>(count);
  staging_.to_device(device_pairs, std::as_bytes(std::span(all)));
  launch_align(stream, device_pairs, count, sketches);
  std::vector<std::int32_t> back(static_cast<std::size_t>(2 * rows + count));
  staging_.to_host(std::as_writable_bytes(std::span(back)), result);
  row = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t n = size_of(pairs[static_cast<std::size_t>(i)].text);
    Alignment& alignment = alignments.emplace_back();
    const auto first = back.begin() + row;
    alignment.to.assign(first, first + n);
    for (std::int64_t k = 0; k < n; ++k) alignment.mismatch.push_back(editing::in_ones(first[rows + k]));
    if (n > 0)
      alignment.distance = editing::in_ones(back[static_cast<std::size_t>(2 * rows + i)]) / static_cast<float>(n);
    row += n;
  }
}

namespace {

// A graph holds a few hundred launches. A batch has as many forms as sequences while it grows and shrinks.
constexpr std::size_t kMaxKnownSteps = 96;

/// Sets a flag to true for the lifetime of the object.
class Raised {
 public:
  explicit Raised(bool& flag) : flag_(flag) { flag_ = true; }
  ~Raised() { flag_ = false; }
  Raised(const Raised&) = delete;
  Raised& operator=(const Raised&) = delete;

 private:
  bool& flag_;
};

}  // namespace

Stream Replays::stream() {
  Stream stream = runtime_.stream();
  if (logging_) stream.log = &log_;
  return stream;
}

void Replays::multiply(const Product& p) {
  if (logging_) {
    log_.add(p.out, p.out_stride, p.x, p.x_stride, p.w, p.w_stride, p.bias, p.t, p.n, p.c, p.dtype, p.out_dtype);
  } else {
    runtime_.multiply(p);
  }
}

void Replays::run(const std::function<void()>& work) {
  log_launches(work);
  const auto found = std::find_if(known_.begin(), known_.end(), [&](const Known& known) { return is_logged(known); });
  if (found != known_.end()) {
    known_.splice(known_.begin(), known_, found);
    Known& known = *found;
    if (known.graph == nullptr && known.fixed) {
      // The second log shows whether the arrays are all on the device now: nothing may be uploaded and no address
      // change.
      const std::uint64_t sent = staging_.sent();
      log_launches(work);
      known.fixed = staging_.sent() == sent && is_logged(known);
      try {
        if (known.fixed) known.graph = capture(work);
      } catch (const BackendError&) {  // the device cannot capture it: ordinary launches do the same work
        known.fixed = false;
      }
    }
    if (known.graph != nullptr) return runtime_.replay(*known.graph);
  } else {
    if (known_.size() >= kMaxKnownSteps) known_.pop_back();
    known_.push_front({{log_.bytes().begin(), log_.bytes().end()}, nullptr, true});
  }
  staging_.begin_step();
  work();
}

bool Replays::is_logged(const Known& known) const {
  const std::span<const std::byte> log = log_.bytes();
  return known.log.size() == log.size() && std::memcmp(known.log.data(), log.data(), log.size()) == 0;
}

void Replays::log_launches(const std::function<void()>& work) {
  log_.clear();
  staging_.begin_step();
  const Raised logging(logging_);
  work();
}

std::unique_ptr<Graph> Replays::capture(const std::function<void()>& work) {
  staging_.begin_step();
  const Raised capturing(capturing_);
  runtime_.begin_capture();
  try {
    work();
  } catch (...) {
    runtime_.end_capture();
    throw;
  }
  return runtime_.end_capture();
}

}  // namespace baton::cuda
