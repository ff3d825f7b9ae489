// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/cuda/host_memory.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

namespace baton::test {
namespace {

std::size_t bytes_of(const ConstTensorView& view) {
  if (view.rows <= 0 || view.cols <= 0) return 0;
  return static_cast<std::size_t>((view.rows - 1) * view.stride + view.cols) * size_of(view.dtype);
}

class HostMemory final : public Backend {
 public:
  explicit HostMemory(std::unique_ptr<Backend> device) : device_(std::move(device)) {}

  KvOperations& kv() override { return kv_; }
  Recurrence& recurrence() override { return recurrence_; }
  StreamOperations& streams() override { return streams_; }
  void multiply(TensorView x, ConstTensorView by, GateFunction function) override {
    Moved m(*this);
    device_->multiply(m.view(x), m.view(by), function);
    m.back();
  }
  BackendInfo info() const override { return device_->info(); }

  Buffer allocate(std::size_t bytes) override { return mirror(device_->allocate(bytes), bytes); }
  Buffer allocate_uninitialized(std::size_t bytes) override {
    return mirror(device_->allocate_uninitialized(bytes), bytes);
  }
  /// Memory of the host with the content of the device's.
  Buffer mirror(Buffer twin, std::size_t bytes) {
    auto* data = static_cast<std::byte*>(std::aligned_alloc(64, std::max<std::size_t>(64, (bytes + 63) / 64 * 64)));
    if (data == nullptr) throw BackendError("no host memory");
    device_->copy_to_host({data, bytes}, twin.data());
    owned_.emplace(data, std::move(twin));
    return {this, data, bytes};
  }
  void release(void* data, std::size_t /*bytes*/) noexcept override {
    owned_.erase(static_cast<std::byte*>(data));
    std::free(data);
  }
  void copy_to_device(std::byte* out, std::span<const std::byte> host) override {
    std::copy(host.begin(), host.end(), out);
  }
  void copy_to_host(std::span<std::byte> out, const std::byte* device) override {
    std::copy_n(device, out.size(), out.begin());
  }
  std::unique_ptr<Matrix> load_matrix(std::span<const ConstTensorView> parts, DType dtype,
                                      Activations activations) override {
    return device_->load_matrix(parts, dtype, activations);
  }
  std::unique_ptr<Matrix> load_quantized_rows(std::span<const BlockRows> parts, Activations activations) override {
    return device_->load_quantized_rows(parts, activations);
  }
  std::unique_ptr<Matrix> random_matrix(std::int64_t rows, std::int64_t cols, DType dtype, std::uint64_t seed,
                                        float deviation, Activations activations) override {
    return device_->random_matrix(rows, cols, dtype, seed, deviation, activations);
  }
  std::size_t kv_slab_bytes(const KvShape& shape, std::int32_t capacity) const override {
    return device_->kv_slab_bytes(shape, capacity);
  }
  DType operand_type(DType weight) const override { return device_->operand_type(weight); }
  DType gate_type(DType weight) const override { return device_->gate_type(weight); }

  void embed(TensorView out, const Matrix& table, std::span<const std::int32_t> ids) override {
    Moved m(*this);
    device_->embed(m.view(out), table, ids);
    m.back();
  }
  void rms_norm(TensorView out, ConstTensorView x, std::span<const float> weight, float eps) override {
    Moved m(*this);
    device_->rms_norm(m.view(out), m.view(x), weight, eps);
    m.back();
  }
  void add_rms_norm(TensorView out, TensorView x, ConstTensorView delta, std::span<const float> weight,
                    float eps) override {
    Moved m(*this);
    device_->add_rms_norm(m.view(out), m.view(x), m.view(delta), weight, eps);
    m.back();
  }
  void add(TensorView x, ConstTensorView delta) override {
    Moved m(*this);
    device_->add(m.view(x), m.view(delta));
    m.back();
  }
  void head_rms_norm(TensorView x, std::span<const float> weight, float eps) override {
    Moved m(*this);
    device_->head_rms_norm(m.view(x), weight, eps);
    m.back();
  }
  void matmul(TensorView out, ConstTensorView x, const Matrix& w, std::span<const float> bias) override {
    Moved m(*this);
    device_->matmul(m.view(out), m.view(x), w, bias);
    m.back();
  }
  void rope(TensorView x, std::int32_t head_dim, const RopeAngles& angles) override {
    Moved m(*this);
    device_->rope(m.view(x), head_dim, m.angles(angles));
    m.back();
  }
  void gelu_mul(TensorView out, ConstTensorView gate_up) override {
    Moved m(*this);
    device_->gelu_mul(m.view(out), m.view(gate_up));
    m.back();
  }
  void add_weighted_rows(TensorView x, ConstTensorView in, std::span<const std::int32_t> index,
                         std::span<const float> weight) override {
    Moved m(*this);
    device_->add_weighted_rows(m.view(x), m.view(in), index, weight);
    m.back();
  }
  void scale(TensorView x, float factor) override {
    Moved m(*this);
    device_->scale(m.view(x), factor);
    m.back();
  }
  void soft_cap(TensorView x, float cap) override {
    Moved m(*this);
    device_->soft_cap(m.view(x), cap);
    m.back();
  }
  void silu_mul(TensorView out, ConstTensorView gate_up, const ClampedGate& clamped) override {
    Moved m(*this);
    device_->silu_mul(m.view(out), m.view(gate_up), clamped);
    m.back();
  }
  void choose(ChosenToken* out, ConstTensorView logits, std::span<const TokenChoice> how) override {
    Moved m(*this);
    auto* chosen = m.to_device(reinterpret_cast<std::byte*>(out), how.size() * sizeof(ChosenToken));
    device_->choose(reinterpret_cast<ChosenToken*>(chosen), m.view(logits), how);
    m.back();
  }
  std::vector<Alignment> align(ConstTensorView sketches, std::span<const TextPair> pairs) override {
    Moved m(*this);
    return device_->align(m.view(sketches), pairs);
  }
  void gather_rows(TensorView out, ConstTensorView x, std::span<const std::int32_t> index) override {
    Moved m(*this);
    device_->gather_rows(m.view(out), m.view(x), index);
    m.back();
  }
  void scatter_rows(TensorView x, ConstTensorView in, std::span<const std::int32_t> index) override {
    Moved m(*this);
    device_->scatter_rows(m.view(x), m.view(in), index);
    m.back();
  }

 private:
  /// The memory of one operation: pieces of host memory, and where they are on the device. Pieces that overlap (an
  /// operation in place, columns of one matrix) share one copy of their union.
  class Moved {
   public:
    explicit Moved(HostMemory& owner) : device_(*owner.device_) {}

    TensorView view(TensorView v) {
      if (bytes_of(v) > 0) v.data = to_device(v.data, bytes_of(v));
      return v;
    }
    ConstTensorView view(ConstTensorView v) {
      if (bytes_of(v) > 0) v.data = to_device(const_cast<std::byte*>(v.data), bytes_of(v));
      return v;
    }
    RopeAngles angles(const RopeAngles& a) { return {view(a.cos), view(a.sin)}; }
    std::span<const KvSlab> slabs(std::span<const KvSlab> from, const KvShape& shape) {
      slabs_.assign(from.begin(), from.end());
      for (KvSlab& slab : slabs_) {
        if (slab.capacity <= 0 || slab.capacity % kKeyBlock != 0) continue;  // refused by the device
        const std::size_t bytes = device_.kv_slab_bytes(shape, slab.capacity);
        if (slab.keys != nullptr) slab.keys = to_device(slab.keys, bytes);
        if (slab.values != nullptr) slab.values = to_device(slab.values, bytes);
        if (slab.raw_keys != nullptr) slab.raw_keys = to_device(slab.raw_keys, bytes);
      }
      return slabs_;
    }

    /// `floats`: of a layer's state.
    StateRows states(const StateRows& rows, std::int64_t floats) {
      const auto moved = [&](const float* state) {
        return state == nullptr ? nullptr
                                : reinterpret_cast<float*>(
                                      to_device(reinterpret_cast<std::byte*>(const_cast<float*>(state)),
                                                static_cast<std::size_t>(rows.offset + floats) * sizeof(float)));
      };
      runs_.assign(rows.runs.begin(), rows.runs.end());
      for (StateRun& run : runs_) {
        run.from = moved(run.from);
        run.to = moved(run.to);
      }
      return {rows.rows, runs_, rows.offset};
    }

    /// Sends a piece; its place on the device, with the same alignment to 64 bytes.
    std::byte* to_device(std::byte* host, std::size_t bytes) {
      for (const Piece& piece : pieces_) {
        if (host >= piece.host && host + bytes <= piece.host + piece.bytes) return piece.device() + (host - piece.host);
      }
      const std::size_t shift = reinterpret_cast<std::uintptr_t>(host) % 64;
      Piece& piece = pieces_.emplace_back(Piece{host, bytes, shift, device_.allocate(bytes + shift)});
      device_.copy_to_device(piece.device(), {host, bytes});
      piece.before.assign(host, host + bytes);
      return piece.device();
    }

    /// Brings back what has changed: pieces may share memory that only one of them wrote.
    void back() {
      for (const Piece& piece : pieces_) {
        std::vector<std::byte> after(piece.bytes);
        device_.copy_to_host(after, piece.device());
        for (std::size_t i = 0; i < piece.bytes; ++i) {
          if (after[i] != piece.before[i]) piece.host[i] = after[i];
        }
      }
    }

   private:
    struct Piece {
      std::byte* host;
      std::size_t bytes, shift;
      Buffer buffer;
      std::vector<std::byte> before = {};
      std::byte* device() const { return buffer.data() + shift; }
    };
    Backend& device_;
    std::vector<Piece> pieces_;
    std::vector<KvSlab> slabs_;
    std::vector<StateRun> runs_;
  };

  class MovedRecurrence final : public Recurrence {
   public:
    explicit MovedRecurrence(HostMemory& owner) : owner_(owner) {}

    void convolve(TensorView out, ConstTensorView x, const ConvWeights& weights, const StateRows& rows) override {
      Moved m(owner_);
      owner_.device_->recurrence().convolve(m.view(out), m.view(x), weights,
                                            m.states(rows, conv_state_floats(x.cols, weights.length)));
      m.back();
    }
    void delta_rule(TensorView out, const DeltaRows& in, const DeltaShape& shape, const DeltaWeights& weights,
                    const StateRows& rows) override {
      Moved m(owner_);
      owner_.device_->recurrence().delta_rule(m.view(out), {m.view(in.qkv), m.view(in.write), m.view(in.decay)}, shape,
                                              weights, m.states(rows, shape.state_floats()));
      m.back();
    }
    void scan(TensorView out, const ScanRows& in, const ScanShape& shape, const ScanWeights& weights,
              const StateRows& rows) override {
      Moved m(owner_);
      owner_.device_->recurrence().scan(m.view(out), {m.view(in.xbc), m.view(in.step)}, shape, weights,
                                        m.states(rows, shape.state_floats()));
      m.back();
    }

   private:
    HostMemory& owner_;
  };

  class MovedStreams final : public StreamOperations {
   public:
    explicit MovedStreams(HostMemory& owner) : owner_(owner) {}

    void mix(TensorView out, ConstTensorView x, ConstTensorView in, ConstTensorView weight,
             std::int64_t width) override {
      Moved m(owner_);
      owner_.device_->streams().mix(m.view(out), m.view(x), m.view(in), m.view(weight), width);
      m.back();
    }
    void correct(TensorView out, ConstTensorView x, ConstTensorView in, ConstTensorView weight,
                 std::int32_t active) override {
      Moved m(owner_);
      owner_.device_->streams().correct(m.view(out), m.view(x), m.view(in), m.view(weight), active);
      m.back();
    }
    void match_rms(TensorView x, ConstTensorView like, float least) override {
      Moved m(owner_);
      owner_.device_->streams().match_rms(m.view(x), m.view(like), least);
      m.back();
    }
    void keep_peaks(TensorView x, float deviations) override {
      Moved m(owner_);
      owner_.device_->streams().keep_peaks(m.view(x), deviations);
      m.back();
    }
    void scale_columns(TensorView out, ConstTensorView x, std::span<const float> weight) override {
      Moved m(owner_);
      owner_.device_->streams().scale_columns(m.view(out), m.view(x), weight);
      m.back();
    }

   private:
    HostMemory& owner_;
  };

  class MovedKv final : public KvOperations {
   public:
    explicit MovedKv(HostMemory& owner) : KvOperations(owner), owner_(owner) {}

    void store_kv(std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows, ConstTensorView k,
                  ConstTensorView v, const RopeAngles& angles) override {
      Moved m(owner_);
      owner_.device_->kv().store_kv(m.slabs(slabs, shape), shape, rows, m.view(k), m.view(v), m.angles(angles));
      m.back();
    }
    void insert_kv(std::span<const KvSlab> layers, const KvShape& shape, std::int32_t begin,
                   std::span<const ConstTensorView> k, std::span<const ConstTensorView> v,
                   std::span<const KvCorrection> corrections, const RopeAngles& angles) override {
      Moved m(owner_);
      const auto views = [&](std::span<const ConstTensorView> all) {
        std::vector<ConstTensorView> moved;
        for (const ConstTensorView& one : all) moved.push_back(one.data == nullptr ? one : m.view(one));
        return moved;
      };
      std::vector<std::vector<ConstTensorView>> offsets;
      for (const KvCorrection& one : corrections) offsets.push_back(views(one.offset));
      std::vector<KvCorrection> moved;
      for (std::size_t i = 0; i < corrections.size(); ++i)
        moved.push_back({offsets[i], corrections[i].row, corrections[i].weight});
      owner_.device_->kv().insert_kv(m.slabs(layers, shape), shape, begin, views(k), views(v), moved, m.angles(angles));
      m.back();
    }
    void load_kv(TensorView k, TensorView v, const KvSlab& slab, const KvShape& shape, std::int32_t begin) override {
      Moved m(owner_);
      owner_.device_->kv().load_kv(m.view(k), m.view(v), m.slabs({&slab, 1}, shape)[0], shape, begin);
      m.back();
    }
    void save_kv(TensorView raw_k, TensorView v, const KvSlab& slab, const KvShape& shape,
                 std::int32_t begin) override {
      Moved m(owner_);
      owner_.device_->kv().save_kv(m.view(raw_k), m.view(v), m.slabs({&slab, 1}, shape)[0], shape, begin);
      m.back();
    }
    void value_deviation(std::span<float> out, std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows,
                         ConstTensorView v, ValueMeasure measure) override {
      Moved m(owner_);
      owner_.device_->kv().value_deviation(out, m.slabs(slabs, shape), shape, rows, m.view(v), measure);
      m.back();
    }
    void attention(TensorView out, ConstTensorView q, std::span<const KvSlab> slabs, const KvShape& shape,
                   const RowSpan& rows, const AttentionScores& scores,
                   std::span<AttentionSum* const> received) override {
      Moved m(owner_);
      std::vector<AttentionSum*> sums;
      for (std::size_t i = 0; i < received.size(); ++i) {
        const std::size_t count =
            i < slabs.size() ? static_cast<std::size_t>(shape.kv_heads) * static_cast<std::size_t>(slabs[i].capacity)
                             : 0;
        sums.push_back(received[i] == nullptr
                           ? nullptr
                           : reinterpret_cast<AttentionSum*>(
                                 m.to_device(reinterpret_cast<std::byte*>(received[i]), count * sizeof(AttentionSum))));
      }
      owner_.device_->kv().attention(m.view(out), m.view(q), m.slabs(slabs, shape), shape, rows, scores, sums);
      m.back();
    }
    void norm_store_rope(const QkvRows& qkv, const HeadNorms& norms, std::span<const KvSlab> slabs,
                         const KvShape& shape, const RowSpan& rows, const RopeAngles& angles) override {
      Moved m(owner_);
      owner_.device_->kv().norm_store_rope({m.view(qkv.q), m.view(qkv.k), m.view(qkv.v)}, norms, m.slabs(slabs, shape),
                                           shape, rows, m.angles(angles));
      m.back();
    }

   private:
    HostMemory& owner_;
  };

  std::unique_ptr<Backend> device_;
  MovedKv kv_{*this};
  MovedRecurrence recurrence_{*this};
  MovedStreams streams_{*this};
  std::map<std::byte*, Buffer> owned_;
};

}  // namespace

std::unique_ptr<Backend> with_host_memory(std::unique_ptr<Backend> device) {
  return std::make_unique<HostMemory>(std::move(device));
}

}  // namespace baton::test
