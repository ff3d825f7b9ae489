// SPDX-License-Identifier: Apache-2.0
// The interface of a layer kind. A model is a list of layers (layer_list); each has a mixer, which reads what its
// sequence stored at other positions, and a feed-forward part, which sees its own row alone; a third part may follow. A
// kind is a file in this folder and a row of layer_kinds(). The forward pass adds norms and the residual stream around
// the parts.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/model/config.h"
#include "engine/model/model.h"
#include "engine/model/step.h"

namespace baton {

/// The kinds of the parts of a layer, in their order.
struct LayerEntry {
  LayerKind mixer = LayerKind::attention;
  LayerKind feed = LayerKind::feed_forward;
  LayerKind last = LayerKind::none;
};

/// Returns the model's layers, [L].
std::vector<LayerEntry> layer_list(const ModelConfig& config);

/// Returns where the states of the layers begin in a state of the model (engine/kv/kv_cache.h), in floats, and
/// the end of the last one, [L + 1].
std::vector<std::int64_t> state_offsets(const ModelConfig& config);

/// A place in a buffer. The buffer may be allocated later, and again.
class Area {
 public:
  Area() = default;
  Area(const Buffer& memory, std::size_t begin = 0) : memory_(&memory), begin_(begin) {}

  /// Returns a view of the first rows * cols elements as a matrix, which is not checked to fit.
  TensorView view(DType dtype, std::int64_t rows, std::int64_t cols) const {
    return {memory_->data() + begin_, dtype, rows, cols, cols};
  }

 private:
  const Buffer* memory_ = nullptr;
  std::size_t begin_ = 0;
};

/// Working memory of the parts of layers. No two parts run at once, so that all begin at the same place; those with
/// gates (Layer::has_gates) begin behind these.
class PartMemory {
 public:
  explicit PartMemory(Device& device) : device_(device) {}

  /// What is taken next belongs to another part, behind the first `shared` bytes.
  void begin_part(std::size_t shared) { taken_ = shared; }
  /// Returns an area of [rows, cols] f32, which has its memory from provide() on.
  Area take(std::int64_t rows, std::int64_t cols);
  std::size_t taken() const { return taken_; }
  /// Allocates what the largest part has taken since the last call; views of before are invalid. Throws BackendError.
  void provide();

 private:
  Device& device_;
  std::size_t taken_ = 0, most_ = 0;  // bytes
  Buffer memory_;
};

/// The gates of a feed-forward part: the product with [gate, up] and what `down` reads.
class Gates {
 public:
  Gates(Backend& backend, const ModelConfig& config)
      : backend_(backend), config_(config), on_host_(backend.info().host_memory) {}

  void allocate(PartMemory& memory, std::int64_t rows);
  /// At most so many rows run at once: all, or on the CPU, without a mixture, 256.
  std::int64_t max_rows() const { return max_rows_; }
  /// Returns the memory of the product, [rows, 2F], in the type that it may have.
  TensorView gate_up(const Matrix& weight, std::span<const float> bias, std::int64_t rows) const;
  /// Returns the operand of `down`, [rows, F]; on the CPU, and of an MLP without gates, in the place of the product.
  TensorView gated(TensorView gate_up, const Matrix& down);
  /// Returns the type of a product that only gated() reads.
  DType type(const Matrix& gate_up, std::span<const float> bias) const;

  const Area& product_memory() const { return gate_up_; }
  const Area& operand_memory() const { return hidden_; }

 private:
  Backend& backend_;
  const ModelConfig& config_;
  bool on_host_;  // operations read host memory as their own
  std::int64_t max_rows_ = 0;
  Area gate_up_;  // [max_rows_, 2F]
  Area hidden_;   // [T, F]; empty on the CPU
};

/// What the layers of a forward pass share. Everything outlives the layers.
struct LayerContext {
  Backend& backend;
  const Model& model;
  LayerRows& rows;
  StepTimer& timer;
  Gates& gates;
  StepStates& states;

  const LayerWeights& weights(std::int32_t layer) const {
    return model.weights.layers[static_cast<std::size_t>(layer)];
  }
};

/// All layers of one kind: what they compute, and where in the working memory of parts.
/// What a sequence keeps for a layer lies in the sequence's cache, which a step names: keys and values (KvCache::slab),
/// or a state (LayerContext::states). A layer reads what earlier steps wrote there and writes that of its own rows.
/// Threads: the step's.
class Layer {
 public:
  virtual ~Layer() = default;

  /// Takes working memory for so many rows.
  virtual void allocate(PartMemory& memory, std::int64_t rows) = 0;
  /// True if the part writes to LayerContext::gates.
  virtual bool has_gates() const { return false; }
  /// Begins a step, on the host.
  virtual void prepare(const StepRows& /*step*/) {}
  /// Queues what the step needs once, before its first layer. The residual stream holds the rows that begin there.
  virtual void begin(const StepRows& /*step*/) {}
  /// LayerContext::rows.delta() = the part's output for the active rows. `normed` [T, C]: their inputs. A mixer may
  /// drop rows in between (a detection); then it writes those of the others, and step.path says where the rows leave.
  virtual void run(StepRows& step, std::int32_t layer, ConstTensorView normed) = 0;
  /// True if the host decides during a step, so that the launches of a step cannot be replayed.
  virtual bool decides_on_host() const { return false; }

  /// Runs a product with whatever the memory holds.
  using Product =
      std::function<void(const Area& out, DType type, const Area& x, const Matrix& w, std::span<const float> bias)>;
  /// Passes the products of the layer to `run` (Forward::rehearse).
  virtual void rehearse(std::int32_t layer, const Product& run) const = 0;
};

/// What lies around the parts of a layer if a row has several residual streams (AltUp), and the low-rank map alongside
/// attention (LAuReL). Without AltUp all functions do nothing but add_token_input() and collapse(). Threads: the
/// step's.
class AltUp {
 public:
  explicit AltUp(const LayerContext& context);

  void allocate(std::int64_t rows);
  /// Makes the further streams of the active rows, which begin at layer 0, of their embeddings in the first stream.
  void begin();
  /// LayerRows::predictions() = those of all streams; residual() = that of the active stream.
  void predict(std::int32_t layer);
  /// residual() += LAuReL of the layer's normalised input.
  void add_laurel(std::int32_t layer);
  /// The streams = the predictions, corrected by residual(). Then residual() = what token inputs read.
  void correct(std::int32_t layer);
  /// Adds LayerRows::delta() to all streams but the first; of one stream, to that.
  void add_token_input();
  /// Returns one stream [n, C] of all streams [n, N C], n at most the rows of allocate(); valid until the next call.
  ConstTensorView collapse(TensorView streams);
  void rehearse(std::int32_t layer, const Layer::Product& run) const;

 private:
  void route(const AltUpWeights& weights, ConstTensorView x);
  TensorView stream(TensorView all, std::int32_t index) const;

  LayerContext context_;
  const AltUpConfig& config_;
  std::int64_t width_;    // C
  std::int64_t streams_;  // N
  Buffer scratch_;        // [T, C]
  Buffer low_;            // [T, R] of LAuReL
  Buffer routed_;         // [T, N]
  Buffer coefficients_;   // [T, N N]
};

/// One row of the table of kinds.
struct LayerKindRow {
  LayerKind kind;
  std::string_view name;
  std::unique_ptr<Layer> (*make)(const LayerContext& context);
};
/// The rows are in the order of LayerKind; null: `none`.
const std::array<const LayerKindRow*, kLayerKinds>& layer_kinds();

// Each is in the file of its kind.
extern const LayerKindRow kAttentionLayers, kShortConvolutionLayers, kDeltaNetLayers, kMamba2Layers, kParallelLayers;
extern const LayerKindRow kFeedForwardLayers, kExpertsLayers, kMlpAndExpertsLayers, kTokenInputLayers;

// ExpertChoice: which experts of a mixture each row runs through, and with which weights.

/// The choice of a row depends on its own logits alone. Its experts add their results in ascending order, so the row's
/// result has the same bits whatever other rows share the step.
class ExpertChoice {
 public:
  /// Chooses for rows of router logits [T, E]: the `chosen` largest (the lower index at equal values). Their weights
  /// are those in the softmax of the row, or its sigmoids, divided by their sum and scaled as the mixture says. With a
  /// `bias` [E], the largest of these weights plus bias are chosen. `scale` [E], or empty, multiplies the weights.
  void choose(std::span<const float> logits, const MixtureConfig& mixture, std::span<const float> bias = {},
              std::span<const float> scale = {});

  /// Returns the rows of an expert, ascending; empty: no row runs through it.
  std::span<const std::int32_t> rows(std::int32_t expert) const { return of(rows_, expert); }
  /// Returns their weights.
  std::span<const float> weights(std::int32_t expert) const { return of(weights_, expert); }

 private:
  template <class T>
  std::span<const T> of(const std::vector<T>& all, std::int32_t expert) const {
    const std::size_t begin = begin_[static_cast<std::size_t>(expert)];
    return std::span(all).subspan(begin, begin_[static_cast<std::size_t>(expert) + 1] - begin);
  }

  std::vector<float> share_;          // [E] of one row
  std::vector<float> rank_;           // [E] of one row: what experts are chosen by
  std::vector<std::int32_t> chosen_;  // [T, chosen] experts of the rows
  std::vector<float> chosen_weight_;  // [T, chosen]
  std::vector<std::size_t> begin_;    // [E + 1] where the rows of each expert begin
  std::vector<std::int32_t> rows_;    // [T * chosen], by expert
  std::vector<float> weights_;        // [T * chosen]
};

}  // namespace baton
