// SPDX-License-Identifier: Apache-2.0
// Checks the arguments of each operation, then launches its kernels on one stream. Views are device memory. Row
// descriptions, token ids and the weights of norms are host memory and are uploaded through pinned staging buffers, but
// only when they have changed.
#include "engine/cuda/host/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/base/system/process.h"
#include "engine/cuda/attention/attention.h"
#include "engine/cuda/host/device_weights.h"
#include "engine/cuda/host/staging.h"
#include "engine/cuda/kernels/kernels.h"

namespace baton::cuda {
namespace {

/// Blocks per multiprocessor that attention's plan aims at: twice as many as fit at once.
constexpr int kBlocksPerMultiprocessor = 4;

int host_threads() { return std::clamp(usable_cores(), 1, 16); }

/// The device half of the backend, and what its operations share: the stream, uploads of arguments, scratch memory.
class CudaDevice : public Backend {
 public:
  explicit CudaDevice(std::unique_ptr<Runtime> runtime) : owned_(std::move(runtime)) {}

  BackendInfo info() const override {
    return {shared_.runtime.facts().name, shared_.runtime.facts().description, host_threads(),
            shared_.runtime.free_bytes(), false};
  }

  Buffer allocate(std::size_t bytes) override {
    Buffer buffer = allocate_uninitialized(bytes);
    clear(buffer.data(), bytes);
    return buffer;
  }
  Buffer allocate_uninitialized(std::size_t bytes) override {
    return {this, shared_.runtime.allocate(std::max<std::size_t>(bytes, 1)), bytes};
  }
  void clear(std::byte* out, std::size_t bytes) override {
    if (bytes > 0) shared_.runtime.clear(out, bytes);
  }
  void release(void* data, std::size_t /*bytes*/) noexcept override { shared_.runtime.release(data); }
  void copy_to_device(std::byte* out, std::span<const std::byte> host) override {
    shared_.staging.to_device(out, host);
  }
  void copy_to_host(std::span<std::byte> out, const std::byte* device) override {
    if (shared_.replays.deferred()) throw std::logic_error("a step that may be replayed must not copy to the host");
    if (!out.empty()) shared_.staging.to_host(out, device);
  }

  Buffer allocate_host(std::size_t bytes) override { return shared_.pinned.allocate(bytes); }
  TransferId upload(const Buffer& device, const Buffer& host, std::size_t begin, std::size_t bytes) override {
    return transfer(device, host, begin, bytes, true);
  }
  TransferId download(const Buffer& host, const Buffer& device, std::size_t begin, std::size_t bytes) override {
    return transfer(device, host, begin, bytes, false);
  }
  void follow(TransferId transfer) override {
    if (shared_.replays.deferred()) throw std::logic_error("a step that may be replayed must not wait for a transfer");
    shared_.runtime.follow(transfer);
  }
  void wait_for(TransferId transfer) override { shared_.runtime.wait_for(transfer); }
  void wait() override { shared_.runtime.synchronize(); }

  void mark() override {
    if (!shared_.replays.deferred()) shared_.runtime.marks().mark();
  }
  std::vector<double> take_marks() override { return shared_.runtime.marks().take(); }

  void run_step(const std::function<void()>& work, bool repeats) override {
    shared_.padding = repeats;
    if (repeats) return shared_.replays.run(work);
    shared_.staging.begin_step();
    work();
  }

  Buffer keep(std::span<const float> values) override { return shared_.vectors.keep(values); }

  /// Where launches go: the stream, or a log of the step.
  Stream stream() { return shared_.replays.stream(); }
  /// What operations share. A plain record of data.
  struct Shared {
    explicit Shared(Runtime& device) : runtime(device) {}
    Runtime& runtime;
    Staging staging{runtime};
    PinnedPool pinned{runtime, !is_set("BATON_CUDA_PINNED", "direct")};
    Replays replays{runtime, staging};
    KeptVectors vectors{runtime, staging};
    bool padding = false;  // pad plans, so that later steps have the same sizes and can be replayed
  };
  Shared& shared() { return shared_; }
  DeviceScratch& scratch() { return operand_; }

  StreamOperations& streams() override;

 private:
  TransferId transfer(const Buffer& device, const Buffer& host, std::size_t begin, std::size_t bytes, bool is_upload) {
    if (begin + bytes > std::min(device.bytes(), host.bytes()))
      throw std::invalid_argument(
          fmt::format("transfer of bytes [{}, {}) is invalid: the device buffer has {} bytes, the host buffer {}",
                      begin, begin + bytes, device.bytes(), host.bytes()));
    const TransferId id = shared_.runtime.transfer({.memory = device.data(),
                                                    .device = device.data() + begin,
                                                    .host = host.data() + begin,
                                                    .bytes = bytes,
                                                    .upload = is_upload,
                                                    .after = shared_.pinned.last_use(host.data())});
    shared_.pinned.used_by(host.data(), id, is_upload);
    return id;
  }

  std::unique_ptr<Runtime> owned_;
  Shared shared_{*owned_};
  DeviceScratch operand_{*owned_};
  std::unique_ptr<StreamOperations> streams_;  // made when they are first used
};

/// A RowSpan on the device, uploaded when it has changed.
class KeptRows {
 public:
  KeptRows(Runtime& runtime, Staging& staging) : array_(runtime, staging) {}
  DeviceRows put(const RowSpan& rows) {
    together_.clear();
    for (const auto& part : {rows.sequence, rows.position, rows.key_begin}) {
      together_.insert(together_.end(), part.begin(), part.end());
    }
    const std::int32_t* all = array_.put(std::span<const std::int32_t>(together_));
    return {all, all + rows.size(), all + 2 * rows.size(), rows.size()};
  }

 private:
  KeptArrays array_;
  std::vector<std::int32_t> together_;
};

/// True when every row is aligned to 16 bytes.
bool is_whole(const ConstTensorView& view) {
  return reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0 &&
         view.stride * static_cast<std::int64_t>(size_of(view.dtype)) % 16 == 0;
}

/// Attention in tiles: its plan, and the arrays that its kernels read.
class TiledAttention {
 public:
  explicit TiledAttention(CudaDevice& device) : device_(device) {}

  void run(AttentionCall call, const KvShape& shape, const RowSpan& rows, const AttentionShape& grouped) {
    plan_.make(rows, grouped, kBlocksPerMultiprocessor * runtime_.facts().multiprocessors, device_.shared().padding);
    call.rows = tile_rows_.put(plan_.rows());
    const AttentionTile* narrow = narrow_.put(plan_.narrow());
    const AttentionTile* wide = wide_.put(plan_.wide());
    const MergeRow* merges = merges_.put(plan_.merges());
    const std::int64_t slots = std::int64_t{plan_.slots()} * call.heads;
    const std::int64_t scores = std::int64_t{plan_.score_rows()} * kKeyBlock * call.kv_heads * call.parts;
    const bool record = call.received != nullptr;
    // The rows of results come first, because they are written in pairs of columns and must be aligned.
    float* scratch = partial_.reserve<float>(slots * (shape.head_dim + 2) +
                                             (record ? scores + rows.size() * call.heads : std::int64_t{0}));
    call.partial = scratch;
    if (record) call.scores = scratch + slots * shape.head_dim;
    call.partial_max = scratch + slots * shape.head_dim + (record ? scores : std::int64_t{0});
    call.partial_sum = call.partial_max + slots;
    if (record) call.logsum = call.partial_sum + slots;
    launch_attention_tiles(device_.stream(), call, shape.head_dim, narrow, plan_.narrow().size(), wide,
                           plan_.wide().size());
    launch_attention_merge(device_.stream(), call, shape.head_dim, merges, plan_.merges().size());
    if (call.received != nullptr) {
      launch_attention_received(device_.stream(), call, shape.head_dim, narrow, plan_.narrow().size(), wide,
                                plan_.wide().size());
    }
  }

 private:
  CudaDevice& device_;
  Runtime& runtime_ = device_.shared().runtime;
  Staging& staging_ = device_.shared().staging;
  KeptArrays tile_rows_{runtime_, staging_}, narrow_{runtime_, staging_}, wide_{runtime_, staging_},
      merges_{runtime_, staging_};
  DeviceScratch partial_{runtime_};
  AttentionPlan plan_;
};

/// The operations on KV caches.
class CudaKv final : public KvOperations {
 public:
  explicit CudaKv(CudaDevice& device) : KvOperations(device), device_(device) {}

  void store_kv(std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows, ConstTensorView k,
                ConstTensorView v, const RopeAngles& angles) override {
    check_store_kv(slabs, shape, rows, k, v, angles);
    launch_store_kv(stream(), slabs_.put(slabs), shape, stored_.put(rows), k, v, angles);
  }

  void insert_kv(std::span<const KvSlab> layers, const KvShape& shape, std::int32_t begin,
                 std::span<const ConstTensorView> k, std::span<const ConstTensorView> v,
                 std::span<const KvCorrection> corrections, const RopeAngles& angles) override {
    check_insert_kv(layers, shape, begin, k, v, corrections, angles);
    const std::int64_t rows = angles.cos.rows;
    counterparts_.clear();
    for (const KvCorrection& one : corrections)
      counterparts_.insert(counterparts_.end(), one.row.begin(), one.row.end());
    const std::int32_t* row = counterpart_.put(std::span<const std::int32_t>(counterparts_));
    std::vector<DevicePlacement> all;
    std::vector<DeviceCorrection> offsets;
    bool aligned = angles.cos.cols % 8 == 0 && is_whole(angles.cos) && is_whole(angles.sin);
    const auto start = [&](const ConstTensorView& view) {
      aligned = aligned && is_whole(view);
      return view.data;
    };
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      DevicePlacement& one = all.emplace_back(DevicePlacement{.slab = layers[layer]});
      if (!k.empty()) {
        one.k = start(k[layer]);
        one.v = start(v[layer]);
        one.k_stride = k[layer].stride;
        one.v_stride = v[layer].stride;
      }
      for (std::size_t i = 0; i < corrections.size(); ++i) {
        const ConstTensorView& offset = corrections[i].offset[layer];
        offsets.push_back({reinterpret_cast<const std::uint16_t*>(start(offset)), offset.stride,
                           row + static_cast<std::int64_t>(i) * rows, corrections[i].weight});
      }
    }
    const InsertedKv placed{.layers = placement_.put(std::span<const DevicePlacement>(all)),
                            .count = static_cast<int>(all.size()),
                            .dtype = k.empty() ? DType::f32 : k[0].dtype,
                            .aligned = aligned,
                            .offsets = correction_.put(std::span<const DeviceCorrection>(offsets)),
                            .corrections = static_cast<int>(corrections.size())};
    launch_insert_kv(stream(), placed, shape, begin, angles);
  }

  void norm_store_rope(const QkvRows& qkv, const HeadNorms& norms, std::span<const KvSlab> slabs, const KvShape& shape,
                       const RowSpan& rows, const RopeAngles& angles) override {
    check_store_kv(slabs, shape, rows, qkv.k, qkv.v, angles);
    check_rope(qkv.q, shape.head_dim, angles);
    for (const auto& [x, weight] : {std::pair(qkv.q, norms.q), std::pair(qkv.k, norms.k)}) {
      if (weight.empty()) continue;
      check_head_norm(x, weight);
      check_length("head norm weight", weight.size(), shape.head_dim);
    }
    if (qkv.k.dtype != DType::f32 || qkv.v.dtype != DType::f32)
      return KvOperations::norm_store_rope(qkv, norms, slabs, shape, rows, angles);
    const DeviceNorms weights{vectors_.put(norms.q), vectors_.put(norms.k), norms.eps};
    launch_norm_store_rope(stream(), qkv, weights, slabs_.put(slabs), shape, stored_.put(rows), angles);
  }

  void load_kv(TensorView k, TensorView v, const KvSlab& slab, const KvShape& shape, std::int32_t begin) override {
    check_load_kv(k, v, slab, shape, begin);
    launch_load_kv(stream(), k, v, slab, shape, begin);
  }

  void save_kv(TensorView raw_k, TensorView v, const KvSlab& slab, const KvShape& shape, std::int32_t begin) override {
    check_save_kv(raw_k, v, slab, shape, begin);
    launch_save_kv(stream(), raw_k, v, slab, shape, begin);
  }

  void value_deviation(std::span<float> out, std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows,
                       ConstTensorView v, ValueMeasure measure) override {
    check_value_deviation(out.size(), slabs, shape, rows, v);
    if (out.empty()) return;
    float* device_out = device_.scratch().reserve<float>(static_cast<std::int64_t>(out.size()));
    launch_value_deviation(stream(), device_out, slabs_.put(slabs), shape, compared_.put(rows), v, measure);
    deviations_.resize(out.size());
    device_.copy_to_host(std::as_writable_bytes(std::span(deviations_)),
                         reinterpret_cast<const std::byte*>(device_out));
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (rows.sequence[i] != kNoSequence) out[i] = deviations_[i];
    }
  }

  void attention(TensorView out, ConstTensorView q, std::span<const KvSlab> slabs, const KvShape& shape,
                 const RowSpan& rows, const AttentionScores& scores, std::span<AttentionSum* const> received) override {
    check_attention(out, q, slabs, shape, rows, received, DType::bf16);
    check_sinks(scores.sinks, q, shape);
    if (rows.size() == 0) return;
    const auto heads = static_cast<std::int32_t>(q.cols / shape.head_dim);
    const AttentionShape grouped{heads, shape.kv_heads};
    AttentionCall call{.slabs = slabs_.put(slabs),
                       .q = reinterpret_cast<const float*>(q.data),
                       .q_stride = q.stride,
                       .out = out.data,
                       .out_stride = out.stride,
                       .out_bf16 = out.dtype == DType::bf16 ? 1 : 0,
                       .heads = heads,
                       .kv_heads = shape.kv_heads,
                       .part_heads = grouped.part_heads(),
                       .parts = grouped.parts(),
                       .scale = scores.scale,
                       .sinks = vectors_.put(scores.sinks)};
    if (std::ranges::any_of(received, [](const AttentionSum* sums) { return sums != nullptr; })) {
      call.received = received_.put(received);
    }
    // Tiles read and write pairs of columns.
    const auto in_pairs = [](const ConstTensorView& view) {
      return reinterpret_cast<std::uintptr_t>(view.data) % 8 == 0 && (view.rows <= 1 || view.stride % 2 == 0);
    };
    if (has_tiles(shape) && in_pairs(q) && in_pairs(out)) {
      tiles_.run(call, shape, rows, grouped);
    } else {
      launch_attention_rows(stream(), call, shape, attended_.put(rows));
    }
  }

 private:
  Stream stream() { return device_.stream(); }

  CudaDevice& device_;
  Runtime& runtime_ = device_.shared().runtime;
  Staging& staging_ = device_.shared().staging;
  KeptVectors& vectors_ = device_.shared().vectors;
  KeptArrays slabs_{runtime_, staging_}, received_{runtime_, staging_}, placement_{runtime_, staging_},
      counterpart_{runtime_, staging_}, correction_{runtime_, staging_};
  KeptRows stored_{runtime_, staging_}, compared_{runtime_, staging_}, attended_{runtime_, staging_};
  TiledAttention tiles_{device_};
  std::vector<std::int32_t> counterparts_;
  std::vector<float> deviations_;
};

/// The operations of layers with a state.
class CudaRecurrence final : public Recurrence {
 public:
  explicit CudaRecurrence(CudaDevice& device) : device_(device) {}

  void convolve(TensorView out, ConstTensorView x, const ConvWeights& weights, const StateRows& rows) override {
    check_convolve(out, x, weights, rows);
    launch_convolve(device_.stream(), out, x,
                    {vectors_.put(weights.taps), vectors_.put(weights.bias), weights.length, weights.silu ? 1 : 0},
                    put(rows));
  }

  void delta_rule(TensorView out, const DeltaRows& in, const DeltaShape& shape, const DeltaWeights& weights,
                  const StateRows& rows) override {
    check_delta_rule(out, in, shape, weights, rows);
    float* keys = keys_.reserve<float>(rows.size() * 2 * shape.key_cols());
    launch_delta_rule(device_.stream(), out, in,
                      {shape.key_heads, shape.value_heads, shape.key_dim, shape.value_dim, shape.tiled ? 1 : 0},
                      {vectors_.put(weights.rate), vectors_.put(weights.bias), keys}, put(rows));
  }

  void scan(TensorView out, const ScanRows& in, const ScanShape& shape, const ScanWeights& weights,
            const StateRows& rows) override {
    check_scan(out, in, shape, weights, rows);
    launch_scan(device_.stream(), out, in, {shape.heads, shape.head_dim, shape.groups, shape.state},
                {vectors_.put(weights.rate), vectors_.put(weights.bias), vectors_.put(weights.skip), weights.least,
                 weights.most},
                put(rows));
  }

 private:
  DeviceStates put(const StateRows& rows) {
    runs_on_host_.clear();
    chains_on_host_.clear();
    for (const StateRun& run : rows.runs) {
      if (!run.goes_on) chains_on_host_.push_back(static_cast<std::int32_t>(runs_on_host_.size()));
      runs_on_host_.push_back({run.begin, run.end, run.from, run.to});
    }
    const auto sequences = static_cast<std::int64_t>(chains_on_host_.size());
    chains_on_host_.push_back(static_cast<std::int32_t>(runs_on_host_.size()));
    return {rows_.put(rows.rows),
            runs_.put(std::span<const DeviceRun>(runs_on_host_)),
            chains_.put(std::span<const std::int32_t>(chains_on_host_)),
            sequences,
            rows.size(),
            rows.offset};
  }

  CudaDevice& device_;
  Runtime& runtime_ = device_.shared().runtime;
  Staging& staging_ = device_.shared().staging;
  KeptVectors& vectors_ = device_.shared().vectors;
  KeptArrays rows_{runtime_, staging_}, runs_{runtime_, staging_}, chains_{runtime_, staging_};
  DeviceScratch keys_{runtime_};
  std::vector<DeviceRun> runs_on_host_;
  std::vector<std::int32_t> chains_on_host_;
};

class CudaStreams final : public StreamOperations {
 public:
  explicit CudaStreams(CudaDevice& device) : device_(device) {}

  void mix(TensorView out, ConstTensorView x, ConstTensorView in, ConstTensorView weight, std::int64_t width) override {
    check_mix(out, x, in, weight, width);
    launch_mix(device_.stream(), out, x, in, weight, width);
  }
  void correct(TensorView out, ConstTensorView x, ConstTensorView in, ConstTensorView weight,
               std::int32_t active) override {
    check_correct(out, x, in, weight, active);
    launch_correct(device_.stream(), out, x, in, weight, active);
  }
  void match_rms(TensorView x, ConstTensorView like, float least) override {
    check_match_rms(x, like, least);
    launch_match_rms(device_.stream(), x, like, least);
  }
  void keep_peaks(TensorView x, float deviations) override {
    check_keep_peaks(x, deviations);
    launch_keep_peaks(device_.stream(), x, deviations);
  }
  void scale_columns(TensorView out, ConstTensorView x, std::span<const float> weight) override {
    check_scale_columns(out, x, weight);
    launch_scale_columns(device_.stream(), out, x, device_.shared().vectors.put(weight));
  }

 private:
  CudaDevice& device_;
};

StreamOperations& CudaDevice::streams() {
  if (!streams_) streams_ = std::make_unique<CudaStreams>(*this);
  return *streams_;
}

/// Products, and operations on rows of activations.
class CudaBackend final : public CudaDevice {
 public:
  using CudaDevice::CudaDevice;

  KvOperations& kv() override { return kv_; }
  Recurrence& recurrence() override { return recurrence_; }

  std::unique_ptr<Matrix> load_matrix(std::span<const ConstTensorView> parts, DType dtype,
                                      Activations activations) override {
    const std::int64_t rows = check_parts(parts, dtype, activations);
    auto matrix = std::make_unique<DeviceMatrix>(shared().runtime, rows, parts[0].cols, dtype);
    for (std::int64_t first = 0; const ConstTensorView& part : parts) {
      matrix->load(first, part, stream(), shared().staging, scratch());
      first += part.rows;
    }
    return matrix;
  }

  std::unique_ptr<Matrix> load_quantized_rows(std::span<const BlockRows> parts, Activations activations) override {
    check_quantized_parts(parts);
    const bool keeps = activations == Activations::int8 &&
                       std::ranges::all_of(parts, [](const BlockRows& part) { return is_quantized(part.type); });
    if (!keeps) return CudaDevice::load_quantized_rows(parts, activations);
    return std::make_unique<DeviceBlocks>(shared().runtime, shared().staging, parts, host_threads());
  }

  std::unique_ptr<Matrix> random_matrix(std::int64_t rows, std::int64_t cols, DType dtype, std::uint64_t seed,
                                        float deviation, Activations /*activations*/) override {
    auto matrix = std::make_unique<DeviceMatrix>(shared().runtime, rows, cols, dtype);
    launch_random_rows(stream(), {matrix->data, dtype, rows, matrix->stride, matrix->stride}, cols, seed, deviation);
    return matrix;
  }

  std::size_t kv_slab_bytes(const KvShape& shape, std::int32_t capacity) const override {
    check_kv_shape(shape);
    check_capacity(capacity);
    return checked_bytes("kv slab", capacity, std::int64_t{shape.kv_heads} * shape.head_dim, size_of(shape.dtype));
  }

  DType operand_type(DType weight) const override { return weight; }
  DType gate_type(DType weight) const override { return f32_gates_ ? DType::f32 : weight; }

  void embed(TensorView out, const Matrix& table, std::span<const std::int32_t> ids) override {
    check_shape("embed out", out, static_cast<std::int64_t>(ids.size()), table.cols);
    check_index("embed ids", ids, table.rows);
    if (const auto* blocks = dynamic_cast<const DeviceBlocks*>(&table)) {
      return QuantizedOperations::embed(stream(), out, *blocks, index_.put(ids));
    }
    launch_copy_rows(stream(), out, nullptr, device(table).view(), index_.put(ids), out.rows);
  }

  void rms_norm(TensorView out, ConstTensorView x, std::span<const float> weight, float eps) override {
    check_rms_norm(out, x, weight, DType::bf16);
    launch_rms_norm(stream(), out, x, shared().vectors.put(weight), eps);
  }

  void add_rms_norm(TensorView out, TensorView x, ConstTensorView delta, std::span<const float> weight,
                    float eps) override {
    check_rms_norm(out, x, weight, DType::bf16);
    check_shape("add_rms_norm delta", delta, x.rows, x.cols);
    launch_add_rms_norm(stream(), out, x, delta, shared().vectors.put(weight), eps);
  }

  void add(TensorView x, ConstTensorView delta) override {
    check_shape("add x", x, x.rows, x.cols);
    check_shape("add delta", delta, x.rows, x.cols);
    launch_add(stream(), x, delta);
  }

  void head_rms_norm(TensorView x, std::span<const float> weight, float eps) override {
    check_head_norm(x, weight);
    launch_head_rms_norm(stream(), x, shared().vectors.put(weight), static_cast<std::int64_t>(weight.size()), eps);
  }

  void matmul(TensorView out, ConstTensorView x, const Matrix& w, std::span<const float> bias) override {
    check_matmul(out, x, w, bias, w.dtype, gate_type(w.dtype));
    if (x.rows == 0) return;
    if (const auto* blocks = dynamic_cast<const DeviceBlocks*>(&w)) {
      return quantized_.matmul(stream(), out, x, *blocks, shared().vectors.put(bias));
    }
    const DeviceMatrix& matrix = device(w);
    Product product{.out = out.data,
                    .out_stride = out.stride,
                    .x = x.data,
                    .x_stride = x.stride,
                    .w = matrix.data,
                    .w_stride = matrix.stride,
                    .bias = shared().vectors.put(bias),
                    .t = x.rows,
                    .n = w.rows,
                    .c = w.cols,
                    .dtype = w.dtype,
                    .out_dtype = out.dtype};
    if (w.dtype == DType::bf16) {  // both operands are padded with zeros
      product.c = matrix.stride;
      const bool as_it_is = x.dtype == DType::bf16 && x.cols == matrix.stride && is_whole(x);
      if (!as_it_is) {
        std::byte* rounded = scratch().reserve<std::byte>(x.rows * matrix.stride * 2);
        launch_copy_rows(stream(), {rounded, DType::bf16, x.rows, matrix.stride, matrix.stride}, nullptr, x, nullptr,
                         x.rows);
        product.x = rounded;
        product.x_stride = matrix.stride;
      }
    }
    shared().replays.multiply(product);
  }

  void rope(TensorView x, std::int32_t head_dim, const RopeAngles& angles) override {
    check_rope(x, head_dim, angles);
    launch_rope(stream(), x, head_dim, angles);
  }

  void choose(ChosenToken* out, ConstTensorView logits, std::span<const TokenChoice> how) override {
    check_shape("choose logits", logits, static_cast<std::int64_t>(how.size()), logits.cols);
    launch_choose(stream(), out, logits, choices_.put(how));
  }

  std::vector<Alignment> align(ConstTensorView sketches, std::span<const TextPair> pairs) override {
    check_align(sketches, pairs);
    return text_pairs_.align(stream(), sketches, pairs);
  }

  void silu_mul(TensorView out, ConstTensorView gate_up, const ClampedGate& clamped) override {
    check_gate(out, gate_up, DType::bf16, DType::bf16);
    launch_silu_mul(stream(), out, gate_up, clamped);
  }

  void gelu_mul(TensorView out, ConstTensorView gate_up) override {
    check_gate(out, gate_up, DType::bf16, DType::bf16);
    launch_gelu_mul(stream(), out, gate_up);
  }

  void multiply(TensorView x, ConstTensorView by, GateFunction function) override {
    check_multiply(x, by);
    launch_multiply(stream(), x, by, function);
  }

  void add_weighted_rows(TensorView x, ConstTensorView in, std::span<const std::int32_t> index,
                         std::span<const float> weight) override {
    check_weighted_rows(x, in, index, weight);
    launch_add_weighted(stream(), x, in, index_.put(index), shares_.put(weight));
  }

  void scale(TensorView x, float factor) override {
    check_shape("scale x", x, x.rows, x.cols);
    launch_scale(stream(), x, factor);
  }

  void soft_cap(TensorView x, float cap) override {
    check_soft_cap(x, cap);
    launch_soft_cap(stream(), x, cap);
  }

  void gather_rows(TensorView out, ConstTensorView x, std::span<const std::int32_t> index) override {
    check_copy_rows("gather_rows", out, x, index);
    launch_copy_rows(stream(), out, nullptr, x, index_.put(index), out.rows);
  }

  void scatter_rows(TensorView x, ConstTensorView in, std::span<const std::int32_t> index) override {
    check_copy_rows("scatter_rows", in, x, index);
    launch_copy_rows(stream(), x, index_.put(index), in, nullptr, in.rows);
  }

 private:
  KeptArrays index_{shared().runtime, shared().staging}, shares_{shared().runtime, shared().staging},
      choices_{shared().runtime, shared().staging};
  QuantizedOperations quantized_{shared().runtime, shared().replays};
  TextPairs text_pairs_{shared().runtime, shared().staging};
  const bool f32_gates_ = is_set("BATON_CUDA_GATES", "f32");
  CudaKv kv_{*this};
  CudaRecurrence recurrence_{*this};
};

}  // namespace

std::unique_ptr<Backend> make_backend_over(std::unique_ptr<Runtime> runtime) {
  return std::make_unique<CudaBackend>(std::move(runtime));
}

}  // namespace baton::cuda
