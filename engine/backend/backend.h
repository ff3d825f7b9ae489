// SPDX-License-Identifier: Apache-2.0
// Backend: the dozen operations that every model is made of, over views. The CPU and CUDA implement it; operations that
// are made of others, or that run as well on the host, have a body in backend.cpp, for memory that the host can read.
// engine/backend/make_backend.h is the only place that knows both.
//
// Rows. All operations work on T rows; a row is one token of one sequence (design: docs/architecture.md).
// Batch invariance: on the CPU the result of a row is bit for bit the same whatever other rows share the
// call, however rows are split into calls, and for any number of threads.
//
// Threads: one caller at a time. Views and matrices belong to the backend that allocated them.
// Errors: std::invalid_argument for shapes that do not fit; BackendError for the device.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/backend/alignment.h"
#include "engine/backend/choose.h"
#include "engine/tensor/buffer.h"
#include "engine/tensor/view.h"

namespace baton {

class BackendError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A weight matrix [N, C] (outputs by inputs, as Hugging Face stores it) in the backend's own layout.
class Matrix {
 public:
  virtual ~Matrix() = default;
  std::int64_t rows = 0;      // N
  std::int64_t cols = 0;      // C
  DType dtype = DType::bf16;  // of the stored elements: bf16 or f32
  std::size_t bytes = 0;
};

/// What the KV cache of one layer of one sequence looks like. The layout inside a slab is the backend's.
struct KvShape {
  std::int32_t kv_heads = 0;  // K
  std::int32_t head_dim = 0;  // D
  DType dtype = DType::bf16;  // bf16 or f32
  bool operator==(const KvShape&) const = default;
};

/// The KV cache of one layer of one sequence: rotated keys and values of positions [0, capacity).
struct KvSlab {
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  std::int32_t capacity = 0;      // positions; a multiple of kKeyBlock
  std::int32_t unused = 0;        // no padding: arrays of it are compared as bytes
  std::byte* raw_keys = nullptr;  // [capacity, K * D] keys before RoPE, in the cache's type; null: not kept
};

/// Key blocks have fixed absolute boundaries: block b holds positions [b * kKeyBlock, (b + 1) * kKeyBlock).
inline constexpr std::int32_t kKeyBlock = 64;

/// T rows in the order of the step. Row i is position position[i] of sequence sequence[i] (an index into the
/// slabs of the call) and attends to keys [key_begin[i], position[i]]. Order and scattering are free.
struct RowSpan {
  std::span<const std::int32_t> sequence;   // [T]
  std::span<const std::int32_t> position;   // [T]
  std::span<const std::int32_t> key_begin;  // [T]
  std::int64_t size() const { return static_cast<std::int64_t>(position.size()); }
};

/// What is added to keys and values on their way into a cache: weight * offset[layer][row[i]] for row i.
struct KvCorrection {
  /// One for each layer, [m, 2 K D] bf16: of keys before RoPE, then of values; without data: nothing in that layer.
  std::span<const ConstTensorView> offset;
  std::span<const std::int32_t> row;  // [T]
  float weight = 0.0f;
};

/// A sequence index of a row that an operation is to pass over, where it says so.
inline constexpr std::int32_t kNoSequence = -1;

/// What attention records per cached token and kv head: the sum of the attention weights that later rows gave to it,
/// over the kv head's query heads and over layers (RelayCaching, eq. 6), in units of 2^-24. Integers, so that the order
/// of the sums does not matter.
using AttentionSum = std::uint64_t;
inline constexpr double kAttentionUnit = 1.0 / (1 << 24);

/// cos and sin of the RoPE angles of T rows, [T, R/2] f32 each, computed in double; R = 2 * cos.cols is the rotated
/// width of a head (the first R of its D columns; pairs are (j, j + R/2)). Any attention factor is multiplied in.
struct RopeAngles {
  ConstTensorView cos;
  ConstTensorView sin;
};

/// Weights [D] of q- and k-norm; empty: the model has none.
struct HeadNorms {
  std::span<const float> q, k;
  float eps = 0.0f;
};

/// A copy that runs beside the operations (Backend::copy_up); 0: one that is made.
using Copying = std::uint64_t;

struct BackendInfo {
  std::string name;    // "cpu", "cuda:0"
  std::string device;  // "Intel Xeon ..., AVX-512, 2 threads"
  int threads = 1;
  std::int64_t free_bytes = 0;  // that allocate can give now, about; 0: what the machine has free
  bool host_memory = true;      // operations read memory of the host as their own
};

class Backend : public BufferOwner {
 public:
  virtual ~Backend() = default;
  virtual BackendInfo info() const = 0;

  /// Zeroed memory, aligned to 64 bytes. Throws BackendError naming the size when there is none left.
  virtual Buffer allocate(std::size_t bytes) = 0;
  /// The same with any content, where zeroing it would take time.
  virtual Buffer allocate_uninitialized(std::size_t bytes) { return allocate(bytes); }
  virtual void clear(std::byte* out, std::size_t bytes);
  virtual void copy_to_device(std::byte* out, std::span<const std::byte> host) = 0;
  virtual void copy_to_host(std::span<std::byte> out, const std::byte* device) = 0;

  /// Memory of the host, of any content, for what stays there and is copied from and to the device's beside the
  /// operations. It may be given back at any time, on any thread.
  virtual Buffer allocate_host(std::size_t bytes) { return allocate_uninitialized(bytes); }
  /// Bytes [begin, begin + bytes) of one come to the same place in the other: when the operations given so far are
  /// done, and after what was copied to that host memory before. Operations given later do not wait for it; those
  /// behind follow() do, as for what was to be copied in its direction before. Host memory is read by the host after
  /// wait(). Either buffer may be given back meanwhile.
  virtual Copying copy_up(const Buffer& device, const Buffer& host, std::size_t begin, std::size_t bytes);
  virtual Copying copy_down(const Buffer& host, const Buffer& device, std::size_t begin, std::size_t bytes);
  virtual void follow(Copying copying);
  /// Returns when all operations and copies given so far are done.
  virtual void wait() {}

  /// Runs `work`, the operations of one step. comes_again: steps of this form will follow, as in decoding; then a
  /// backend may call `work` more than once, each time for the same operations over the same memory, which must neither
  /// allocate nor bring anything to the host, and may replay what it launched for an earlier step.
  virtual void run_step(const std::function<void()>& work, bool comes_again);

  /// Notes the time at which the operations given so far are done; within run_step, and not where that is a replay.
  virtual void mark();
  /// Waits for all operations, and returns the milliseconds between the marks since the last call, one fewer than
  /// marks.
  virtual std::vector<double> take_marks();

  /// Stacks host matrices [Ni, C] (bf16, f16 or f32, row-major) into one weight [sum Ni, C] of type `dtype` (bf16,
  /// f32).
  virtual std::unique_ptr<Matrix> load_matrix(std::span<const ConstTensorView> parts, DType dtype) = 0;

  /// A weight [rows, cols] of random numbers, random_weight(seed, place, deviation) rounded to bf16; made where it
  /// stays.
  virtual std::unique_ptr<Matrix> random_matrix(std::int64_t rows, std::int64_t cols, DType dtype, std::uint64_t seed,
                                                float deviation);

  /// Vectors of a model that operations take from host memory (weights of norms, biases) and that do not change while
  /// the result lives: they stay where operations read them, and are known by their address. Others are compared with
  /// what was there before, each time.
  virtual Buffer keep(std::span<const float> /*values*/) { return {}; }

  /// Bytes of the keys (and, the same number, of the values) of one layer for `capacity` positions.
  virtual std::size_t kv_slab_bytes(const KvShape& shape, std::int32_t capacity) const = 0;

  /// The type in which matmul takes inputs for weights of a type as they are; f32 is always taken. What only products
  /// read, the outputs of rms_norm, add_rms_norm, attention and silu_mul, may be asked for in this type.
  virtual DType operand_type(DType weight) const = 0;

  /// out[T, C] f32 = rows `ids` of table [V, C].
  virtual void embed(TensorView out, const Matrix& table, std::span<const std::int32_t> ids) = 0;

  /// out[T, C] = x / sqrt(mean(x^2) + eps) * weight[C].
  virtual void rms_norm(TensorView out, ConstTensorView x, std::span<const float> weight, float eps) = 0;

  /// x[T, C] += delta; out = rms_norm(x). Residual and next norm in one pass.
  virtual void add_rms_norm(TensorView out, TensorView x, ConstTensorView delta, std::span<const float> weight,
                            float eps) = 0;

  /// x[T, C] += delta.
  virtual void add(TensorView x, ConstTensorView delta) = 0;

  /// In place, each group of D columns of x[T, n * D] on its own: q/k-norm. weight[D].
  virtual void head_rms_norm(TensorView x, std::span<const float> weight, float eps) = 0;

  /// out[T, N] = x[T, C] * w^T + bias (bias[N] or empty). One fp32 chain over C in ascending order per element:
  /// acc = fma(x[c], w[c], acc), starting from the bias or zero.
  virtual void matmul(TensorView out, ConstTensorView x, const Matrix& w, std::span<const float> bias) = 0;

  /// Rotates x[T, n * D] in place (queries).
  virtual void rope(TensorView x, std::int32_t head_dim, const RopeAngles& angles) = 0;

  /// Writes keys and values [T, K * D], f32 or of the cache's own type, of the rows into their slabs: k is rounded to
  /// the cache's type (and kept so as raw key, where the slab keeps those), rotated from that value in fp32 and rounded
  /// once more; v is rounded. Rows of kNoSequence are passed over.
  virtual void store_kv(std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows, ConstTensorView k,
                        ConstTensorView v, const RopeAngles& angles) = 0;

  /// store_kv of T rows at positions [begin, begin + T) of one cache, in all the layers given at once, k and v
  /// corrected first: in f32, in the order of the corrections, rounded once. k and v: one for each layer, [T, K * D];
  /// or none: zeros. One pass over all of it.
  virtual void place_kv(std::span<const KvSlab> layers, const KvShape& shape, std::int32_t begin,
                        std::span<const ConstTensorView> k, std::span<const ConstTensorView> v,
                        std::span<const KvCorrection> corrections, const RopeAngles& angles) = 0;

  /// What lies between a layer's products and its attention, in one pass: head_rms_norm of q and k (unless their
  /// weights are empty), store_kv, rope of q. k becomes what was normed, or anything.
  virtual void norm_store_rope(TensorView q, TensorView k, ConstTensorView v, const HeadNorms& norms,
                               std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows,
                               const RopeAngles& angles);

  /// Reads back what is stored: rotated keys and values [n, K * D] f32 of positions [begin, begin + n).
  virtual void load_kv(TensorView k, TensorView v, const KvSlab& slab, const KvShape& shape, std::int32_t begin) = 0;

  /// Copies raw keys and values [n, K * D], both of the cache's type, of positions [begin, begin + n) out of a slab
  /// that keeps raw keys.
  virtual void save_kv(TensorView raw_k, TensorView v, const KvSlab& slab, const KvShape& shape,
                       std::int32_t begin) = 0;

  /// out[i] = 1 - mean over kv heads of cos(v[i], the cached value of row i), RelayCaching eq. 1; v [T, K * D] f32 is
  /// rounded to the cache's type first, so that equal values give exactly 0. A head of zeros counts as equal to zeros
  /// and as orthogonal to all else. Rows of kNoSequence are passed over. `out` [T] is host memory.
  virtual void value_deviation(std::span<float> out, std::span<const KvSlab> slabs, const KvShape& shape,
                               const RowSpan& rows, ConstTensorView v) = 0;

  /// out[T, H * D] = softmax(scale * q . keys) * values over each row's own keys; query head h reads kv head h / (H /
  /// K). Key blocks of kKeyBlock merge in ascending order, in prefill and in decode alike. received: empty, or for each
  /// slab null or [K, capacity] sums, to which the weights that its rows give to keys before them are added.
  virtual void attention(TensorView out, ConstTensorView q, std::span<const KvSlab> slabs, const KvShape& shape,
                         const RowSpan& rows, float scale, std::span<AttentionSum* const> received = {}) = 0;

  /// out[T, F] = silu(gate_up[:, 0:F]) * gate_up[:, F:2F].
  virtual void silu_mul(TensorView out, ConstTensorView gate_up) = 0;

  /// out[i], in the backend's memory: the token that row i of logits [T, V] gives, chosen as how[i] says.
  virtual void choose(ChosenToken* out, ConstTensorView logits, std::span<const TokenChoice> how);

  /// One for each pair; `sketches` [rows, kSketchWidth] f32.
  virtual std::vector<Alignment> align(ConstTensorView sketches, std::span<const TextPair> pairs);

  /// out[i] = x[index[i]];  x[index[i]] = in[i]. f32 on one side and bf16 on the other converts.
  virtual void gather_rows(TensorView out, ConstTensorView x, std::span<const std::int32_t> index) = 0;
  virtual void scatter_rows(TensorView x, ConstTensorView in, std::span<const std::int32_t> index) = 0;

 private:
  std::vector<std::chrono::steady_clock::time_point> marks_;  // of backends whose operations are done when they return
  TokenChooser chooser_;
};

}  // namespace baton
