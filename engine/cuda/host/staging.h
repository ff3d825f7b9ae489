// SPDX-License-Identifier: Apache-2.0
// Copies between ordinary host memory and the device through pinned memory. They are asynchronous to the host: the
// caller may change its memory as soon as a call returns.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "engine/backend/host_operations.h"
#include "engine/cuda/host/runtime.h"
#include "engine/cuda/kernels/kernels.h"
#include "engine/tensor/tensor.h"

namespace baton::cuda {

/// Device memory that is kept between calls. It grows to the largest request; growing loses the content.
class DeviceScratch {
 public:
  explicit DeviceScratch(Runtime& runtime) : runtime_(runtime) {}
  ~DeviceScratch() {
    if (data_ != nullptr) runtime_.release(data_);
  }
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;

  void* reserve(std::size_t bytes);
  template <class T>
  T* reserve(std::int64_t count) {
    return static_cast<T*>(reserve(static_cast<std::size_t>(count) * sizeof(T)));
  }

 private:
  Runtime& runtime_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

class Staging {
 public:
  /// Allocates kEvents segments of pinned memory of `segment_bytes` each. Throws BackendError.
  explicit Staging(Runtime& runtime, std::size_t segment_bytes = std::size_t{4} << 20);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Uploads on the main stream. Large copies are split into chunks: one is uploaded while the host reads the next.
  void to_device(void* device, std::span<const std::byte> host);
  /// Downloads after all work queued so far on the main stream, and blocks until the copy is complete. Transfers may
  /// still be in progress then.
  void to_host(std::span<std::byte> host, const void* device);

  /// Marks the beginning of an engine step, or of its repetition: KeptArrays start again at their first arrays.
  void begin_step() { ++step_; }
  std::uint64_t step() const { return step_; }
  /// Returns the number of uploads so far.
  std::uint64_t sent() const { return sent_; }

 private:
  /// Returns `bytes` (at most a segment) of pinned memory that no copy in progress uses.
  std::byte* take(std::size_t bytes);
  /// Afterwards no copy uses pinned memory of the staging.
  void wait_for_copies();

  Runtime& runtime_;
  std::size_t segment_bytes_;
  std::byte* pinned_;
  int segment_ = 0;
  std::size_t used_ = 0;  // bytes of the current segment
  std::uint64_t step_ = 0;
  std::uint64_t sent_ = 0;
};

/// Small arrays on the device for one purpose. The n-th put() of an engine step uses the n-th array, and uploads the
/// content only when that array's content differs. So content that every step repeats (the caches of each layer) is
/// uploaded once, and a step of the same form finds its arrays at the same addresses, as a replay requires.
class KeptArrays {
 public:
  KeptArrays(Runtime& runtime, Staging& staging) : runtime_(runtime), staging_(staging) {}
  template <class T>
  const T* put(std::span<const T> values) {
    return static_cast<const T*>(put_bytes(std::as_bytes(values)));
  }

 private:
  struct Array {
    explicit Array(Runtime& runtime) : device(runtime) {}
    DeviceScratch device;
    std::vector<std::byte> host;
    void* data = nullptr;
  };
  const void* put_bytes(std::span<const std::byte> bytes);

  Runtime& runtime_;
  Staging& staging_;
  std::vector<std::unique_ptr<Array>> arrays_;
  std::size_t used_ = 0;  // arrays that the current step has used
  std::uint64_t step_ = 0;
};

// PinnedPool: pinned host memory that is used for long, as by segments in the host tier. Memory is pinned in blocks,
// which are divided into pieces and used again, because pinning takes as long as copying. Once blocks are needed
// repeatedly, the next one is pinned on a thread of its own before it is needed.

/// Threads: one caller at a time, except release, which any thread may call.
class PinnedPool final : public BufferOwner {
 public:
  /// `ahead`: blocks may be pinned on another thread, too.
  explicit PinnedPool(Runtime& runtime, bool ahead = false) : runtime_(runtime), ahead_(ahead) {}
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  /// Returns memory of unspecified content that no transfer uses any more. Throws BackendError when memory is short.
  Buffer allocate(std::size_t bytes);
  /// Records that a transfer reads or writes this memory; it is not reused before the transfer is complete. Ignores
  /// memory of another pool.
  void used_by(const void* data, TransferId transfer, bool upload);
  /// Returns the latest transfer passed to used_by for this memory, or 0; 0 for memory of another pool.
  TransferId last_use(const void* data);
  /// Makes the memory available again. Transfers that use it may still be in progress.
  void release(void* data, std::size_t bytes) noexcept override;

 private:
  struct Piece {
    std::size_t bytes = 0;
    void* block = nullptr;
    bool free = true;
    TransferId last_upload = 0, last_download = 0;  // those of one direction are complete in their order
  };
  using Pieces = std::map<void*, Piece>;

  Pieces::iterator smallest_free(std::size_t bytes);
  Pieces::iterator add_block(void* block, std::size_t bytes);
  void split(Pieces::iterator piece, std::size_t bytes);
  void merge_with_next(Pieces::iterator piece);
  void wait_for(const Piece& piece);
  void free_unused_blocks(std::size_t bytes);
  void want_block(std::size_t bytes);
  void make_blocks(const std::stop_token& stop) noexcept;

  Runtime& runtime_;
  const bool ahead_;
  std::mutex mutex_;
  Pieces pieces_;                        // guarded by mutex_
  std::map<void*, std::size_t> blocks_;  // guarded by mutex_
  std::size_t pinned_ = 0;               // blocks that the caller had to wait for
  std::size_t largest_ = 0;              // bytes of the largest piece so far
  std::size_t wanted_ = 0;               // bytes of the block that the thread is to pin; guarded by mutex_
  std::condition_variable_any changed_;
  std::jthread maker_;
};

// TextPairs: aligns pairs of texts on the device (align.cu), in batches of bounded memory.

class TextPairs {
 public:
  TextPairs(Runtime& runtime, Staging& staging) : runtime_(runtime), staging_(staging) {}

  /// Returns one alignment per pair and blocks until they are computed; `sketches` [rows, kSketchWidth] f32 is device
  /// memory. Throws BackendError when memory is short.
  std::vector<Alignment> align(Stream stream, ConstTensorView sketches, std::span<const TextPair> pairs);

 private:
  void align_some(Stream stream, ConstTensorView sketches, std::span<const TextPair> pairs,
                  std::vector<Alignment>& alignments);

  Runtime& runtime_;
  Staging& staging_;
};

// Replays: engine steps that repeat, kept as CUDA graphs. The launches of a step are first written to a log, without
// launching. A step whose log has occurred before is captured, and from then on replayed. So the host only checks and
// compares in a decode step, and the device runs it without gaps. A replay is exact: every kernel, grid, address and
// number in it equals that of the current step (docs/decisions/cuda.md).

class Replays {
 public:
  Replays(Runtime& runtime, Staging& staging) : runtime_(runtime), staging_(staging) {}

  /// Runs `work`, which must launch only through stream() and multiply(), and upload only through the staging. May call
  /// `work` several times. Throws BackendError.
  void run(const std::function<void()>& work);

  /// Returns the stream or log that launches must use now.
  Stream stream();
  void multiply(const Product& product);
  /// True while work is logged or captured: nothing can be copied to the host then.
  bool deferred() const { return logging_ || capturing_; }

 private:
  struct Known {
    std::vector<std::byte> log;
    std::unique_ptr<Graph> graph;  // null: the log has occurred, but is not captured
    bool fixed = true;             // false: it uploads data every time, or its capture failed
  };
  bool is_logged(const Known& known) const;
  void log_launches(const std::function<void()>& work);
  std::unique_ptr<Graph> capture(const std::function<void()>& work);

  Runtime& runtime_;
  Staging& staging_;
  LaunchLog log_;
  bool logging_ = false;
  bool capturing_ = false;
  std::list<Known> known_;  // the most recently used first
};

}  // namespace baton::cuda
