// SPDX-License-Identifier: Apache-2.0
// Device: the memory of a backend, the copies between it and the host, and the order of its work. Code that keeps or
// moves data takes a Device; code that computes takes Operations (engine/backend/backend.h) or the whole Backend.
//
// A device may run asynchronously: operations and copies are queued on its main stream in the order of the calls.
// Functions with a body here are for devices whose memory the host reads and whose work is done when a call returns.
//
// Threads: one caller at a time, except where a function says otherwise. Errors: BackendError.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/host_operations.h"
#include "engine/backend/recurrence.h"
#include "engine/tensor/block_types.h"
#include "engine/tensor/tensor.h"

namespace baton {

class BackendError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct BackendInfo {
  std::string name;    // "cpu", "cuda:0"
  std::string device;  // "Intel Xeon ..., AVX-512, 2 threads"
  int threads = 1;
  std::int64_t free_bytes = 0;  // approximate bytes that allocate can still provide; 0: what the machine has free
  bool host_memory = true;      // operations read host memory as their own
  std::string fallback;         // why `auto` took the CPU although a GPU is there, or empty

  /// "cpu: Intel Xeon ..., AVX-512, 2 threads", with the reason of a fallback.
  std::string description() const;
};

/// Identifies an asynchronous copy (Device::upload, Device::download); 0: the copy was already complete on return.
using TransferId = std::uint64_t;

class Device : public BufferOwner {
 public:
  virtual ~Device() = default;
  virtual BackendInfo info() const = 0;

  /// Returns zeroed memory, aligned to 64 bytes. Throws BackendError naming the size when there is not enough.
  virtual Buffer allocate(std::size_t bytes) = 0;
  /// As allocate, with unspecified content: for memory that is written before it is read.
  virtual Buffer allocate_uninitialized(std::size_t bytes) { return allocate(bytes); }
  virtual void clear(std::byte* out, std::size_t bytes);
  virtual void copy_to_device(std::byte* out, std::span<const std::byte> host) = 0;
  /// Waits for the operations that write the memory, and copies it.
  virtual void copy_to_host(std::span<std::byte> out, const std::byte* device) = 0;

  /// Returns host memory of unspecified content for data that is uploaded and downloaded asynchronously. It may be
  /// released at any time, on any thread.
  virtual Buffer allocate_host(std::size_t bytes) { return allocate_uninitialized(bytes); }
  /// Queues an asynchronous copy of bytes [begin, begin + bytes) from `host` to the same range of `device` on the
  /// upload stream, after all work queued so far on the main stream and after earlier transfers of the same host
  /// memory. Returns its id. Work queued later on the main stream does not wait for the copy until follow() says so.
  /// Either buffer may be released before the copy is complete; where another device allocated `host`, not before
  /// wait_for(). Throws BackendError, std::invalid_argument.
  virtual TransferId upload(const Buffer& device, const Buffer& host, std::size_t begin, std::size_t bytes);
  /// Queues the same copy in the other direction on the download stream. The host may read the memory after wait().
  virtual TransferId download(const Buffer& host, const Buffer& device, std::size_t begin, std::size_t bytes);
  /// Makes the work that is queued on the main stream from now on wait for a transfer, and for all transfers queued
  /// before it in the same direction.
  virtual void follow(TransferId transfer);
  /// Blocks until a transfer is complete, and all transfers queued before it in the same direction.
  virtual void wait_for(TransferId /*transfer*/) {}
  /// Blocks until all operations and transfers queued so far are complete.
  virtual void wait() {}

  /// Runs `work`, the operations of one engine step. `repeats`: steps with the same operations will follow, as in
  /// decoding. Then a device may call `work` more than once, each time for the same operations over the same memory,
  /// and may replay the launches of an earlier step; `work` must neither allocate nor copy to the host.
  virtual void run_step(const std::function<void()>& work, bool repeats);

  /// Records the time at which the operations queued so far are complete. A step that repeats records nothing.
  virtual void mark();
  /// Waits for all operations, and returns the milliseconds between consecutive marks since the last call: one value
  /// fewer than there were marks.
  virtual std::vector<double> take_marks();

  /// Keeps a copy of a model's vector (norm weights, biases) where operations read it. Operations then recognise the
  /// vector by its address, so it must not change while the returned buffer lives. Vectors that are not kept are
  /// compared with their last content on every call.
  virtual Buffer keep(std::span<const float> /*values*/) { return {}; }

 private:
  std::vector<std::chrono::steady_clock::time_point> marks_;  // of devices whose work is done when a call returns
};

// Operations: the computations that every model is made of, over views. Pointers in views are the backend's own memory;
// weight spans, row descriptions and token ids are host memory.
//
// Rows. All operations work on T rows; a row is one token of one sequence (design: docs/architecture.md).
// Batch invariance: on the CPU the result of a row is bit for bit the same whatever other rows share the
// call, however rows are split into calls, and for any number of threads.
//
// Threads: one caller at a time. Views and matrices belong to the backend that allocated them.
// Errors: std::invalid_argument for shapes that do not fit; BackendError for the device.

/// A weight matrix [N, C] (outputs by inputs, as Hugging Face stores it) in the backend's own layout.
class Matrix {
 public:
  virtual ~Matrix() = default;
  std::int64_t rows = 0;      // N
  std::int64_t cols = 0;      // C
  DType dtype = DType::bf16;  // of the stored elements: bf16 or f32; f32 where they are quantised
  std::size_t bytes = 0;
};

/// What products make of their inputs. With quantised weights: 8-bit integers with a scale for each block of 32, or the
/// values as they are, with dequantised weights: slower and closer to the weights' own precision. With bf16 weights:
/// the values as they are, or rounded to bf16. With f32 weights: the values as they are.
enum class Activations : std::uint8_t { int8, bf16, f32 };

/// Products of bf16 weights with bf16 activations take smaller weights, activations and biases as zero. All others are
/// multiples of 2^-63, so sums are multiples of 2^-126 and none is denormal: processors differ in what they do then.
inline constexpr float kSmallestOperand = 0x1p-56f;

/// How value_deviation measures: 1 - mean over kv heads of the cosine (RelayCaching eq. 1), or the sum over heads and
/// columns of the squared difference (the squared norm that CacheBlend ranks by).
enum class ValueMeasure : std::uint8_t { cosine, squared };

/// The shape of the KV cache of one layer of one sequence. The layout inside a slab is the backend's.
struct KvShape {
  std::int32_t kv_heads = 0;  // K
  std::int32_t head_dim = 0;  // D
  DType dtype = DType::bf16;  // bf16 or f32
  bool operator==(const KvShape&) const = default;
  /// Returns K * D, the width of a token's keys and of its values.
  std::int64_t width() const { return std::int64_t{kv_heads} * head_dim; }
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

/// T rows in the order of the engine step. Row i is position position[i] of sequence sequence[i] (an index into the
/// slabs of the call) and attends to keys [key_begin[i], position[i]]. Rows may come in any order.
struct RowSpan {
  std::span<const std::int32_t> sequence;   // [T]
  std::span<const std::int32_t> position;   // [T]
  std::span<const std::int32_t> key_begin;  // [T]
  std::int64_t size() const { return static_cast<std::int64_t>(position.size()); }
};

/// An amount that insert_kv adds to keys and values before it writes them: weight * offset[layer][row[i]] for row i.
struct KvCorrection {
  /// One view [m, 2 K D] bf16 per layer: offsets of keys before RoPE, then of values; no data: no offset in that layer.
  std::span<const ConstTensorView> offset;
  std::span<const std::int32_t> row;  // [T]
  float weight = 0.0f;
};

/// The sequence index of a row that an operation skips, where its comment says so.
inline constexpr std::int32_t kNoSequence = -1;

/// The attention that a cached token received, per kv head: the sum of the weights that later rows gave to it, over the
/// kv head's query heads and over layers (RelayCaching, eq. 6), in units of 2^-24. It is an integer, so that the order
/// of the summation does not matter.
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

/// What a row is multiplied by: another one as it is, its sigmoid, its silu, or what is positive of it.
enum class GateFunction : std::uint8_t { none, sigmoid, silu, relu };

/// The clamped SwiGLU of gpt-oss: (u + 1) * g / (1 + exp(-slope * g)) with g = min(gate, limit) and
/// u = clamp(up, -limit, limit).
struct ClampedGate {
  float limit = 0.0f;  // if 0, nothing is clamped and the result is silu(gate) * up
  float slope = 1.0f;
};

/// Products, and operations on rows of activations.
class Operations {
 public:
  virtual ~Operations() = default;

  /// Stacks host matrices [Ni, C] (bf16, f16 or f32, row-major) into one weight [sum Ni, C] of type `dtype` (bf16 or
  /// f32). Activations are f32, or bf16 for bf16 weights: products are then those of inputs rounded to bf16, and values
  /// below kSmallestOperand are zero, also those that embed reads. A device may round them in any case (operand_type).
  virtual std::unique_ptr<Matrix> load_matrix(std::span<const ConstTensorView> parts, DType dtype,
                                              Activations activations = Activations::f32) = 0;

  /// Stacks quantised host matrices [Ni, C] into one weight [sum Ni, C] that products and embed take; its parts may
  /// differ in type. The calling thread reads each row once. A backend that has no product for all of the types keeps
  /// the weight in bf16, or in f32 where activations are f32. With f32 activations the results are those of load_matrix
  /// in f32 of the dequantised values. With int8, output n of a row is one fp32 chain over blocks b of 32 inputs in
  /// ascending order, from bias or zero:
  ///   acc = fma(float(sum of quant[c] * x_quant[c]) * x_scale[b], scale, acc) for each group of inputs with one scale,
  ///   acc = fma(minimum, x_scale[b] * float(sum of x_quant[c]), acc) for each group if the type has minimums;
  /// x_scale = max |x[c]| / 127 of the block, x_quant = x[c] * (127 / max |x[c]|) to nearest, ties to even. A device
  /// may take inputs in bf16 in place of int8 (operand_type), and sum in another order.
  virtual std::unique_ptr<Matrix> load_quantized_rows(std::span<const BlockRows> parts, Activations activations) = 0;

  /// Returns a weight [rows, cols] of random numbers: random_weight(seed, index, deviation) of each element, rounded to
  /// bf16. A device generates it in its own memory.
  virtual std::unique_ptr<Matrix> random_matrix(std::int64_t rows, std::int64_t cols, DType dtype, std::uint64_t seed,
                                                float deviation, Activations activations = Activations::f32) = 0;

  /// Returns the bytes of the keys of one layer for `capacity` positions; the values take as many.
  virtual std::size_t kv_slab_bytes(const KvShape& shape, std::int32_t capacity) const = 0;

  /// Returns the type of inputs that matmul reads without a conversion for weights of type `weight`; it also accepts
  /// f32. Outputs that only matmul reads (those of rms_norm, add_rms_norm, attention, silu_mul and gelu_mul) may have
  /// this type.
  virtual DType operand_type(DType weight) const = 0;

  /// Returns the type that the output of matmul without a bias may have, besides f32, where only silu_mul and gelu_mul
  /// read it.
  virtual DType gate_type(DType /*weight*/) const { return DType::f32; }

  /// out[T, C] f32 = rows `ids` of table [V, C].
  virtual void embed(TensorView out, const Matrix& table, std::span<const std::int32_t> ids) = 0;

  /// out[T, C] = x / sqrt(mean(x^2) + eps) * weight[C]; out may be x.
  virtual void rms_norm(TensorView out, ConstTensorView x, std::span<const float> weight, float eps) = 0;

  /// x[T, C] += delta; out = rms_norm(x). Residual and next norm in one pass.
  virtual void add_rms_norm(TensorView out, TensorView x, ConstTensorView delta, std::span<const float> weight,
                            float eps) = 0;

  /// x[T, C] += delta.
  virtual void add(TensorView x, ConstTensorView delta) = 0;

  /// Applies rms_norm in place to each group of D columns of x[T, n * D] separately (q/k-norm). weight[D].
  virtual void head_rms_norm(TensorView x, std::span<const float> weight, float eps) = 0;

  /// out[T, N] = x[T, C] * w^T + bias (bias[N] or empty). One fp32 chain over C in ascending order per element:
  /// acc = fma(x[c], w[c], acc), starting from the bias or zero. Where the weight's activations are bf16, x[c] is
  /// rounded to bf16 first.
  virtual void matmul(TensorView out, ConstTensorView x, const Matrix& w, std::span<const float> bias) = 0;

  /// Rotates x[T, n * D] in place (queries).
  virtual void rope(TensorView x, std::int32_t head_dim, const RopeAngles& angles) = 0;

  /// out[T, F] = silu(gate_up[:, 0:F]) * gate_up[:, F:2F], or the clamped gate of the two. On the CPU, `out` may be
  /// gate_up[:, 0:F] itself.
  virtual void silu_mul(TensorView out, ConstTensorView gate_up, const ClampedGate& clamped = {}) = 0;

  /// out[T, F] = gelu(gate_up[:, 0:F]) * gate_up[:, F:2F], with gelu(g) = g / 2 * (1 + tanh(sqrt(2 / pi) * (g +
  /// 0.044715 g^3))). On the CPU, `out` may be gate_up[:, 0:F] itself.
  virtual void gelu_mul(TensorView out, ConstTensorView gate_up) = 0;

  /// x[T, C] *= function(by[T, C]). `by` may be x.
  virtual void multiply(TensorView x, ConstTensorView by, GateFunction function) = 0;

  /// x[index[i]] += weight[i] * in[i], with one rounding. The indices of a call are distinct.
  virtual void add_weighted_rows(TensorView x, ConstTensorView in, std::span<const std::int32_t> index,
                                 std::span<const float> weight) = 0;

  /// x[T, C] *= factor.
  virtual void scale(TensorView x, float factor) = 0;

  /// x[T, C] = cap * tanh(x / cap); cap > 0.
  virtual void soft_cap(TensorView x, float cap) = 0;

  /// out[i] = the token that how[i] chooses from row i of logits [T, V]; `out` is the backend's memory.
  virtual void choose(ChosenToken* out, ConstTensorView logits, std::span<const TokenChoice> how);

  /// Aligns the texts of each pair by edit distance (alignment.h) and returns one alignment per pair; `sketches`
  /// [rows, kSketchWidth] f32.
  virtual std::vector<Alignment> align(ConstTensorView sketches, std::span<const TextPair> pairs) = 0;

  /// out[i] = x[index[i]];  x[index[i]] = in[i], where the indices are distinct. One side may be f32 and the other
  /// bf16: the elements are converted.
  virtual void gather_rows(TensorView out, ConstTensorView x, std::span<const std::int32_t> index) = 0;
  virtual void scatter_rows(TensorView x, ConstTensorView in, std::span<const std::int32_t> index) = 0;

 private:
  TokenChooser chooser_;  // scratch of choose()
};

/// What the projections of a layer give to its T rows: queries [T, H * D], keys and values [T, K * D].
struct QkvRows {
  TensorView q, k;
  ConstTensorView v;
};

/// How the scores of attention become weights: the softmax of scale * (q . key) over the keys of a row. A sink is a
/// score of its own, one for each query head: it takes part in the softmax as a key without a value would, unscaled.
struct AttentionScores {
  AttentionScores(float factor, std::span<const float> sink_of_head = {}) : scale(factor), sinks(sink_of_head) {}
  float scale;
  std::span<const float> sinks;  // [H], empty without sinks
};

/// What models with several residual streams need (AltUp): a row has streams of C columns, one behind the other. All
/// views are f32. Results have the same bits whatever other rows share the call.
class StreamOperations {
 public:
  virtual ~StreamOperations() = default;

  /// Stream j of out[T, n C] = stream j of x[T, n C] + the sum over i, ascending, of weight[T, n m][j m + i] * stream i
  /// of in[T, m C]. out is neither x nor in. `width`: C.
  virtual void mix(TensorView out, ConstTensorView x, ConstTensorView in, ConstTensorView weight,
                   std::int64_t width) = 0;

  /// Stream j of out[T, n C] = stream j of x[T, n C] + weight[T, n][j] * (in[T, C] - stream `active` of x). out is not
  /// x.
  virtual void correct(TensorView out, ConstTensorView x, ConstTensorView in, ConstTensorView weight,
                       std::int32_t active) = 0;

  /// x[T, C] *= sqrt(mean(like^2) / max(mean(x^2), least)), with like[T, C] and least > 0.
  virtual void match_rms(TensorView x, ConstTensorView like, float least) = 0;

  /// x[T, C] = max(x - (mean + deviations * standard deviation), 0), both of the row; the variance is divided by C.
  virtual void keep_peaks(TensorView x, float deviations) = 0;

  /// out[T, C] = x[T, C] * weight[C]; out may be x.
  virtual void scale_columns(TensorView out, ConstTensorView x, std::span<const float> weight) = 0;
};

/// What fills KV caches, copies them, and reads them: attention.
class KvOperations {
 public:
  /// `rows`: the same backend's operations, which must outlive this object.
  explicit KvOperations(Operations& rows) : rows_(rows) {}
  virtual ~KvOperations() = default;

  /// Writes the keys and values [T, K * D] of the rows, f32 or of the cache's type, into their slabs. k is rounded to
  /// the cache's type (this is the raw key, which the slab stores if it keeps raw keys), rotated from that value in
  /// fp32 and rounded once more; v is rounded. Rows of kNoSequence are skipped.
  virtual void store_kv(std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows, ConstTensorView k,
                        ConstTensorView v, const RopeAngles& angles) = 0;

  /// As store_kv for T rows at positions [begin, begin + T) of one cache, in all the given layers in one pass. The
  /// corrections are added to k and v first, in f32 and in their order, and the sums are rounded once. k and v have one
  /// view [T, K * D] per layer, or are empty and stand for zeros.
  virtual void insert_kv(std::span<const KvSlab> layers, const KvShape& shape, std::int32_t begin,
                         std::span<const ConstTensorView> k, std::span<const ConstTensorView> v,
                         std::span<const KvCorrection> corrections, const RopeAngles& angles) = 0;

  /// Does all that lies between the matrix products of a layer and its attention, in one pass: head_rms_norm of q and k
  /// (unless their weights are empty), store_kv, rope of q. The content of k is unspecified afterwards.
  virtual void norm_store_rope(const QkvRows& qkv, const HeadNorms& norms, std::span<const KvSlab> slabs,
                               const KvShape& shape, const RowSpan& rows, const RopeAngles& angles);

  /// Reads the rotated keys and the values [n, K * D] f32 of positions [begin, begin + n) from a slab.
  virtual void load_kv(TensorView k, TensorView v, const KvSlab& slab, const KvShape& shape, std::int32_t begin) = 0;

  /// Copies raw keys and values [n, K * D], both of the cache's type, of positions [begin, begin + n) out of a slab
  /// that keeps raw keys.
  virtual void save_kv(TensorView raw_k, TensorView v, const KvSlab& slab, const KvShape& shape,
                       std::int32_t begin) = 0;

  /// out[i] = the deviation of v[i] from the cached value of row i, by `measure`; v [T, K * D] f32 is rounded to the
  /// cache's type first, so that equal values give exactly 0. By cosine, a head of zeros counts as equal to zeros and
  /// as orthogonal to all else. Rows of kNoSequence are skipped. `out` [T] is host memory.
  virtual void value_deviation(std::span<float> out, std::span<const KvSlab> slabs, const KvShape& shape,
                               const RowSpan& rows, ConstTensorView v, ValueMeasure measure) = 0;

  /// out[T, H * D] = softmax(scores) * values over each row's own keys; query head h reads kv head h / (H / K). A sink
  /// comes first, then key blocks of kKeyBlock merge in ascending order, in prefill and in decode alike. `received` is
  /// empty, or has for each slab null or sums [K, capacity], to which the attention weights of its rows on earlier keys
  /// are added.
  virtual void attention(TensorView out, ConstTensorView q, std::span<const KvSlab> slabs, const KvShape& shape,
                         const RowSpan& rows, const AttentionScores& scores,
                         std::span<AttentionSum* const> received = {}) = 0;

 private:
  Operations& rows_;
};

// Backend: a device and the operations over its memory. The CPU and CUDA implement it (docs/architecture.md, "A new
// backend"); engine/backend/make_backend.h is the only place that knows both.

class Backend : public Device, public Operations {
 public:
  virtual KvOperations& kv() = 0;
  virtual Recurrence& recurrence() = 0;
  virtual StreamOperations& streams() = 0;

  // Implementations for memory that the host can read. They use info().threads host threads.
  std::unique_ptr<Matrix> random_matrix(std::int64_t rows, std::int64_t cols, DType dtype, std::uint64_t seed,
                                        float deviation, Activations activations = Activations::f32) override;
  /// Dequantises the parts.
  std::unique_ptr<Matrix> load_quantized_rows(std::span<const BlockRows> parts, Activations activations) override;
  std::vector<Alignment> align(ConstTensorView sketches, std::span<const TextPair> pairs) override;

  /// load_quantized_rows of parts that lie in memory.
  std::unique_ptr<Matrix> load_quantized_matrix(std::span<const BlockView> parts, Activations activations);
};

// Checks at the border of every backend: all backends refuse the same calls with the same messages.

inline constexpr std::int32_t kMaxHeadDim = 512;

/// All checks throw std::invalid_argument with the expected and the actual value.
void check_shape(std::string_view name, const ConstTensorView& view, std::int64_t rows, std::int64_t cols);
/// Checks a view that is f32 or of type `operand`.
void check_operand(std::string_view name, const ConstTensorView& view, std::int64_t rows, std::int64_t cols,
                   DType operand);
void check_length(std::string_view name, std::size_t length, std::int64_t expected);
void check_index(std::string_view name, std::span<const std::int32_t> index, std::int64_t end);

/// Checks that the parts of a weight have equal widths and data, that `dtype` can be stored and that its products can
/// take such activations. Returns the total rows.
std::int64_t check_parts(std::span<const ConstTensorView> parts, DType dtype, Activations activations);

/// Checks that the quantised parts of a weight have equal widths of whole blocks. Returns the total rows.
std::int64_t check_quantized_parts(std::span<const BlockRows> parts);

/// Returns rows * cols * element_bytes; throws std::invalid_argument when a factor is negative or the product
/// overflows.
std::size_t checked_bytes(std::string_view name, std::int64_t rows, std::int64_t cols, std::size_t element_bytes);

// `operand` is the result of the backend's operand_type, `gate` that of its gate_type.
void check_matmul(const ConstTensorView& out, const ConstTensorView& x, const Matrix& w, std::span<const float> bias,
                  DType operand = DType::f32, DType gate = DType::f32);
void check_rms_norm(const ConstTensorView& out, const ConstTensorView& x, std::span<const float> weight,
                    DType operand = DType::f32);
void check_head_norm(const ConstTensorView& x, std::span<const float> weight);
void check_angles(const RopeAngles& angles, std::int64_t rows, std::int32_t head_dim);
void check_rope(const ConstTensorView& x, std::int32_t head_dim, const RopeAngles& angles);
void check_kv_shape(const KvShape& shape);
void check_capacity(std::int32_t capacity);
enum class NoSequence : std::uint8_t { refused, passed_over };
void check_rows(std::span<const KvSlab> slabs, const RowSpan& rows, NoSequence none = NoSequence::refused);
void check_store_kv(std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows, const ConstTensorView& k,
                    const ConstTensorView& v, const RopeAngles& angles);
void check_insert_kv(std::span<const KvSlab> layers, const KvShape& shape, std::int32_t begin,
                     std::span<const ConstTensorView> k, std::span<const ConstTensorView> v,
                     std::span<const KvCorrection> corrections, const RopeAngles& angles);
void check_load_kv(const ConstTensorView& k, const ConstTensorView& v, const KvSlab& slab, const KvShape& shape,
                   std::int32_t begin);
void check_align(const ConstTensorView& sketches, std::span<const TextPair> pairs);
void check_save_kv(const ConstTensorView& raw_k, const ConstTensorView& v, const KvSlab& slab, const KvShape& shape,
                   std::int32_t begin);
void check_value_deviation(std::size_t out, std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows,
                           const ConstTensorView& v);
void check_attention(const ConstTensorView& out, const ConstTensorView& q, std::span<const KvSlab> slabs,
                     const KvShape& shape, const RowSpan& rows, std::span<AttentionSum* const> received,
                     DType operand = DType::f32);
/// `q` and `shape` have passed check_attention.
void check_sinks(std::span<const float> sinks, const ConstTensorView& q, const KvShape& shape);
/// Checks the views of gather_rows and scatter_rows: each is f32 or bf16.
void check_copy_rows(std::string_view name, const ConstTensorView& some, const ConstTensorView& all,
                     std::span<const std::int32_t> index);
/// Checks the views of silu_mul and gelu_mul.
void check_gate(const ConstTensorView& out, const ConstTensorView& gate_up, DType operand = DType::f32,
                DType gate = DType::f32);
void check_multiply(const ConstTensorView& x, const ConstTensorView& by);
void check_weighted_rows(const ConstTensorView& x, const ConstTensorView& in, std::span<const std::int32_t> index,
                         std::span<const float> weight);
void check_soft_cap(const ConstTensorView& x, float cap);
void check_mix(const ConstTensorView& out, const ConstTensorView& x, const ConstTensorView& in,
               const ConstTensorView& weight, std::int64_t width);
void check_correct(const ConstTensorView& out, const ConstTensorView& x, const ConstTensorView& in,
                   const ConstTensorView& weight, std::int32_t active);
void check_match_rms(const ConstTensorView& x, const ConstTensorView& like, float least);
void check_keep_peaks(const ConstTensorView& x, float deviations);
void check_scale_columns(const ConstTensorView& out, const ConstTensorView& x, std::span<const float> weight);

}  // namespace baton
