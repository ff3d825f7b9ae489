// SPDX-License-Identifier: Apache-2.0
// KvStore: KV that outlives the process, in a folder that several processes may share. The exact KV of a prompt's
// beginning lies there in blocks of 128 tokens, that of a text that is handed over in one piece. A file's name says
// what its KV depends on: the model, the settings, and all tokens up to its end (docs/decisions/memory.md).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/clock.h"
#include "engine/kv/segment.h"
#include "engine/kv/segment_handle.h"

namespace baton {

/// True if all numbers are finite. `dtype`: bf16 or f32.
bool is_finite_kv(std::span<const std::byte> kv, DType dtype);

/// KV that is being read from a store: positions [begin, end) of a prompt, or a text with begin 0.
class KvLoad {
 public:
  KvLoad(std::int32_t first, std::int32_t last) : begin(first), end(last) {}

  const std::int32_t begin, end;
  std::vector<std::byte> kv;  // in the order of Segment's constructor; empty: a file was missing or damaged
  double ms = 0.0;            // that reading took

  SegmentHandle segment;  // made of the KV by the first who took it; the engine's thread only

  /// True when kv and ms do not change any more. Waits for that, but no longer than `most`. Any thread.
  bool done(std::chrono::milliseconds most = {}) const;
  /// Nothing of the above but `segment` is written behind this call.
  void finish();

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable wake_;
  bool done_ = false;  // guarded by mutex_
};

/// A thread that runs jobs in their order, those that read before all that write.
class StoreThread {
 public:
  using Job = std::function<void()>;  // must not throw

  StoreThread();
  /// Runs the jobs that write and drops those that read.
  ~StoreThread();
  StoreThread(const StoreThread&) = delete;
  StoreThread& operator=(const StoreThread&) = delete;

  void read(Job job);
  /// False: too many wait, and this one is dropped.
  bool write(Job job);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> reads_, writes_;  // guarded by mutex_
  bool closed_ = false;             // guarded by mutex_
  std::thread thread_;              // last: it uses the others
};

/// The files of one model with its settings. Other processes may add and remove files at any time. What cannot be read
/// is computed, and what cannot be written is lost: no member throws for it. Threads: any.
class KvStore {
 public:
  static constexpr std::int32_t kBlock = 128;  // tokens

  /// `settings` names all that the KV depends on but the tokens. `layout`: of the model, with keys before RoPE and
  /// nothing else. Makes the folder, for its owner alone. Throws std::filesystem::filesystem_error if it cannot be
  /// used.
  KvStore(const std::filesystem::path& folder, std::int64_t budget_bytes, const std::string& settings, KvLayout layout);

  /// Returns the number of first tokens of the prompt, at most `max_tokens`, that lie here: whole blocks.
  std::int32_t stored(std::span<const std::int32_t> prompt, std::int32_t max_tokens) const;
  /// `layout`: of the reader's cache, whose hidden states the text has to have, too.
  bool has_text(std::span<const std::int32_t> text, const KvLayout& layout) const;

  /// Reads positions [begin, end) of a prompt's beginning on the store's thread; `end` is a result of stored(). What is
  /// being read already is not read twice.
  std::shared_ptr<KvLoad> load(std::span<const std::int32_t> prompt, std::int32_t begin, std::int32_t end);
  std::shared_ptr<KvLoad> load_text(std::span<const std::int32_t> text, const KvLayout& layout);

  /// Positions [begin, begin + count) of a prompt are the first tokens of the segment.
  struct Piece {
    std::shared_ptr<const Segment> segment;
    std::int32_t begin = 0, count = 0;
  };
  /// Writes the whole blocks of a prompt's beginning that are not here, later, on the store's thread. `pieces`: their
  /// KV, exact, contiguous from position 0, in memory that the host reads. Dropped if too much waits already.
  void keep(std::vector<std::int32_t> prompt, std::vector<Piece> pieces);
  /// The same for the text of a segment, with its hidden states.
  void keep_text(std::shared_ptr<const Segment> segment);

  KvStoreStats stats() const;

 private:
  struct Source;

  std::filesystem::path file_of(const std::string& name) const { return folder_ / (name + ".kv"); }
  std::vector<std::string> names_of(std::span<const std::int32_t> prompt) const;
  std::string name_of_text(std::span<const std::int32_t> text, const KvLayout& layout) const;
  std::shared_ptr<KvLoad> start_load(std::vector<Source> files, std::int32_t begin, std::int32_t end);
  void read(const std::vector<Source>& files, KvLoad& load);
  void write(const Source& file, const std::vector<Piece>& pieces);
  void add_writing(std::function<void()> job);
  void make_room(std::int64_t written);

  const std::filesystem::path folder_;
  const std::int64_t budget_;
  const std::string settings_;  // the beginning of what names are made of
  const KvLayout layout_;

  mutable std::mutex mutex_;
  std::map<std::string, std::weak_ptr<KvLoad>> loading_;  // guarded by mutex_; by the name of the last file
  KvStoreStats stats_;                                    // guarded by mutex_
  std::int64_t unseen_ = -1;  // bytes written since the size of all was looked at; below 0: never. The thread's alone
  StoreThread thread_;        // last: its jobs use the others
};

}  // namespace baton
