// SPDX-License-Identifier: Apache-2.0
// KvStore: KV that outlives the process, in a folder that several processes may share. The exact KV of a prompt's
// beginning is stored in blocks of 128 tokens, that of a text that may be handed over in one piece. A file's name says
// what its KV depends on: the model, the settings, and all tokens up to its end (docs/decisions/memory.md).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/kv/segment.h"
#include "engine/kv/segment_handle.h"

namespace baton {

/// True if all numbers are finite. `dtype`: bf16 or f32.
bool is_finite_kv(std::span<const std::byte> kv, DType dtype);

/// KV that is being read from a store: positions [begin, end) of a prompt, or a text with begin 0.
class KvLoad {
 public:
  // These are valid once done() has returned true.
  std::int32_t begin = 0, end = 0;  // end == begin: nothing is stored
  std::vector<std::byte> kv;        // in the order of Segment's constructor

  /// True once reading has finished. Waits for that, but no longer than `max_wait`. Any thread.
  bool done(std::chrono::milliseconds max_wait = {}) const;
  /// Called once, by the store.
  void finish();

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable wake_;
  bool done_ = false;  // guarded by mutex_
};

/// A thread that runs jobs in their order, all that read before those that write.
class StoreThread {
 public:
  using Job = std::function<void()>;  // must not throw

  StoreThread();
  /// Runs the jobs that write, for a few seconds at most, and drops all others.
  ~StoreThread();
  StoreThread(const StoreThread&) = delete;
  StoreThread& operator=(const StoreThread&) = delete;

  void read(Job job);
  /// `bytes`: that the job writes. False: too many bytes wait, and the job is dropped.
  bool write(Job job, std::size_t bytes);
  /// Waits until nothing is left to write, for a few seconds at most.
  void finish_writing();

 private:
  struct Writing {
    Job job;
    std::size_t bytes = 0;
  };
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> reads_;       // guarded by mutex_
  std::deque<Writing> writes_;  // guarded by mutex_
  std::size_t waiting_ = 0;     // bytes to write; guarded by mutex_
  bool busy_ = false;           // a job runs; guarded by mutex_
  bool closed_ = false;         // guarded by mutex_
  std::thread thread_;          // last: it uses the others
};

/// The files of one model with its settings. Other processes may add and remove files at any time. What cannot be read
/// is computed, and what cannot be written is lost: no member throws for it. All but the constructor only tell the
/// store's thread what to do, so that a slow disk delays nobody. Threads: any.
class KvStore {
 public:
  static constexpr std::int32_t kBlock = 128;  // tokens

  /// `settings` names all that the KV depends on but the tokens. `layout`: of the model, with keys before RoPE and
  /// nothing else. Makes the folder if it is missing, for its owner alone. Throws std::filesystem::filesystem_error if
  /// it cannot be used.
  KvStore(const std::filesystem::path& folder, std::int64_t budget_bytes, const std::string& settings, KvLayout layout);

  /// Reads the KV of a prompt's beginning behind its first `begin` tokens, as far as it is stored: whole blocks, at
  /// most `max_tokens` in all.
  std::shared_ptr<KvLoad> load(std::vector<std::int32_t> prompt, std::int32_t begin, std::int32_t max_tokens);
  /// Reads the KV of a text. `layout`: of the reader's cache, whose hidden states the text has to have, too.
  std::shared_ptr<KvLoad> load_text(std::vector<std::int32_t> text, const KvLayout& layout);

  /// Positions [begin, begin + count) of a prompt are the first tokens of the segment.
  struct Piece {
    std::shared_ptr<const Segment> segment;
    std::int32_t begin = 0, count = 0;
  };
  /// Writes the whole blocks of a prompt's beginning that are not stored. `pieces`: their KV, exact, contiguous from
  /// position 0, in memory that the host reads.
  void keep(std::vector<std::int32_t> prompt, const std::vector<Piece>& pieces);
  /// The same for the text of a segment, with its hidden states.
  void keep_text(const std::shared_ptr<const Segment>& segment);
  /// True if keep_text was called for this text, or load_text found it.
  bool knows_text(std::span<const std::int32_t> text, const KvLayout& layout) const;

  /// Waits until nothing is left to write, for a few seconds at most.
  void finish_writing() { thread_.finish_writing(); }
  KvStoreStats stats() const;

 private:
  struct Source;

  std::filesystem::path file_of(const std::string& name) const { return folder_ / (name + ".kv"); }
  std::vector<std::string> names_of(std::span<const std::int32_t> prompt) const;
  std::string name_of_text(std::span<const std::int32_t> text, const KvLayout& layout) const;
  void read(std::vector<Source> files, const std::weak_ptr<KvLoad>& wanted);
  bool read_file(const Source& file, std::vector<std::byte>& kv);
  void write(const Source& file, const std::vector<Piece>& pieces);
  void add_writing(Source file, std::shared_ptr<const std::vector<Piece>> pieces);
  void make_room(std::int64_t bytes);

  const std::filesystem::path folder_;
  const std::int64_t budget_;
  const KvLayout layout_;
  const std::string settings_;  // the beginning of what names are made of

  mutable std::mutex mutex_;
  std::set<std::string> texts_;  // names of those that are stored or will be; guarded by mutex_
  KvStoreStats stats_;           // guarded by mutex_
  std::int64_t unscanned_ = -1;  // bytes written since the folder was scanned; below 0: never. The thread's alone
  StoreThread thread_;           // last: its jobs use the others
};

}  // namespace baton
