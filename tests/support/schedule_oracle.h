// SPDX-License-Identifier: Apache-2.0
// What a schedule of rows means, in double: the layer over rows of engine/model/forward.h written once more, slowly.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "engine/model/forward.h"

namespace baton::test {

using Vec = std::vector<double>;
using Random = std::mt19937_64;

/// A weight matrix in double; its rows come out of any backend as embeddings do.
class Table {
 public:
  Table(Backend& backend, const Matrix& matrix) : cols_(static_cast<std::size_t>(matrix.cols)) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(matrix.rows));
    std::iota(ids.begin(), ids.end(), 0);
    values_.resize(ids.size() * cols_);
    backend.embed(view_of(values_.data(), matrix.rows, matrix.cols), matrix, ids);
  }
  Vec row(std::size_t i) const { return {values_.begin() + at(i * cols_), values_.begin() + at((i + 1) * cols_)}; }
  Vec times(const Vec& x, const std::vector<float>& bias) const {
    Vec out(values_.size() / cols_);
    for (std::size_t n = 0; n < out.size(); ++n) {
      out[n] = bias.empty() ? 0.0 : bias[n];
      for (std::size_t c = 0; c < cols_; ++c) out[n] += values_[n * cols_ + c] * x[c];
    }
    return out;
  }

 private:
  static std::ptrdiff_t at(std::size_t i) { return static_cast<std::ptrdiff_t>(i); }
  std::size_t cols_;
  std::vector<float> values_;
};

struct OracleCache {
  std::vector<std::vector<Vec>> k, v;  // [L][position][K * D], k rotated
  std::vector<Vec> hidden;             // [position][C] at the input of hidden_layer
  std::int32_t hidden_layer = 0;
  Vec received;  // [position]
};

class Oracle {
 public:
  Oracle(Backend& backend, const Model& model)
      : model_(model), embedding_(backend, *model.weights.embedding), lm_head_(backend, *model.weights.lm_head) {
    for (const LayerWeights& w : model.weights.layers) {
      Layer& layer = layers_.emplace_back(Layer{{backend, *w.qkv}, {backend, *w.output}, {}, {}, {}, {}, {}, {}});
      if (!w.router) layer.mlps.push_back({{backend, *w.gate_up}, {backend, *w.down}});
      if (w.router && w.gate_up) layer.beside.emplace(Mlp{{backend, *w.gate_up}, {backend, *w.down}});
      if (w.token_input)
        layer.token_input.emplace(Mlp{{backend, *w.token_input->gate}, {backend, *w.token_input->out}});
      for (const ExpertWeights& expert : w.experts)
        layer.mlps.push_back({{backend, *expert.gate_up}, {backend, *expert.down}});
      if (w.router) layer.router.emplace(backend, *w.router);
      if (!w.shared_gate) continue;
      layer.shared.emplace(Mlp{{backend, *w.shared.gate_up}, {backend, *w.shared.down}});
      layer.shared_gate.emplace(backend, *w.shared_gate);
    }
    if (model.weights.token_table == nullptr) return;
    token_table_.emplace(backend, *model.weights.token_table);
    token_projection_.emplace(backend, *model.weights.token_projection);
  }

  /// Logits of the rows that ask for them. choices[d][i]: whether the i-th row of detection d goes on.
  std::vector<Vec> run(StepRows rows, std::vector<OracleCache>& caches, const std::vector<std::vector<bool>>& choices) {
    deviations.assign(rows.detections.size(), {});
    attentions.assign(rows.detections.size(), {});
    std::vector<Vec> x(rows.token.size()), q(x.size());
    for (std::int32_t layer = 0; layer < model_.config.layers; ++layer) {
      const auto cache_of = [&](std::size_t i) -> OracleCache& {
        return caches[static_cast<std::size_t>(rows.sequence[i])];
      };
      std::vector<std::size_t> active;
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (rows.path[i].enter <= layer && layer < rows.path[i].leave) active.push_back(i);
      }
      for (const std::size_t i : active) {
        OracleCache& cache = cache_of(i);
        const auto at = static_cast<std::size_t>(rows.position[i]);
        if (rows.path[i].enter == layer) x[i] = layer == 0 ? embedded(rows.token[i]) : cache.hidden[at];
        if (cache.hidden_layer == layer) cache.hidden[at] = x[i];
        Vec k, v;
        project(x[i], layer, rows.position[i], q[i], k, v);
        Vec& cached = cache.v[static_cast<std::size_t>(layer)][at];
        const std::int32_t d = rows.path[i].detection;
        if (d >= 0 && rows.detections[static_cast<std::size_t>(d)].layer == layer) {
          deviations[static_cast<std::size_t>(d)].push_back(
              deviation(v, cached, layer, rows.detections[static_cast<std::size_t>(d)].measure));
        }
        if (rows.path[i].keeps(layer) || !model_.config.stores_kv(layer)) continue;
        cache.k[static_cast<std::size_t>(layer)][at] = k;
        cached = v;
      }
      for (std::size_t d = 0; d < rows.detections.size(); ++d) {
        if (rows.detections[d].layer != layer) continue;
        attentions[d] = attention_of_readers(rows, static_cast<std::int32_t>(d), active, x, q, caches);
        std::size_t answer = 0;
        std::erase_if(active, [&](std::size_t i) {
          if (rows.path[i].detection != static_cast<std::int32_t>(d)) return false;
          const bool goes_on = choices[d][answer++];
          if (goes_on) rows.path[i].leave = rows.detections[d].leave;
          return !goes_on;
        });
      }
      for (const std::size_t i : active) finish(x[i], q[i], layer, rows.position[i], rows.token[i], cache_of(i));
    }
    std::vector<Vec> logits;
    for (const std::int32_t row : rows.logits_rows) {
      logits.push_back(lm_head_.times(norm(x[static_cast<std::size_t>(row)], model_.weights.final_norm), {}));
      const double cap = model_.config.logit_cap;
      for (double& logit : logits.back()) {
        logit *= static_cast<double>(model_.config.logit_scale);
        logit = cap > 0.0 ? cap * std::tanh(logit / cap) : logit;
      }
    }
    path = rows.path;
    return logits;
  }

  /// Rotates each head of x to the position, as the layer does: pairs (j, j + R/2) of its first R columns.
  Vec rotated(Vec x, std::int32_t position, std::int32_t layer) const {
    const Rope& rope = model_.ropes.distinct()[model_.ropes.of(layer)];
    const auto frequencies = rope.inverse_frequencies();
    const std::size_t half = frequencies.size();
    for (std::size_t head = 0; head < x.size(); head += static_cast<std::size_t>(model_.config.head_dim_of(layer))) {
      for (std::size_t j = 0; j < half; ++j) {
        const double cos = std::cos(position * frequencies[j]) * rope.attention_factor();
        const double sin = std::sin(position * frequencies[j]) * rope.attention_factor();
        const double a = x[head + j], b = x[head + j + half];
        x[head + j] = a * cos - b * sin;
        x[head + j + half] = b * cos + a * sin;
      }
    }
    return x;
  }

  std::vector<Vec> deviations;  // of the last run, by detection
  std::vector<Vec> attentions;  // the same, of the detections' readers
  std::vector<RowPath> path;    // as the rows were run

 private:
  struct Mlp {
    Table gate_up, down;
  };
  struct Layer {
    Table qkv, output;
    std::vector<Mlp> mlps;  // one, or the experts of a mixture
    std::optional<Table> router;
    std::optional<Mlp> shared;
    std::optional<Table> shared_gate;
    std::optional<Mlp> beside;       // the MLP of a layer that has experts too
    std::optional<Mlp> token_input;  // gate, and the projection of the result
  };

  const LayerWeights& weights(std::int32_t layer) const {
    return model_.weights.layers[static_cast<std::size_t>(layer)];
  }

  Vec embedded(TokenId token) const {
    Vec x = embedding_.row(static_cast<std::size_t>(token));
    for (double& value : x) value *= static_cast<double>(model_.config.embedding_scale);
    return x;
  }

  double activated(double gate) const {
    if (model_.config.activation == GateActivation::silu) return gate / (1.0 + std::exp(-gate));
    return gate / 2 * (1.0 + std::tanh(std::sqrt(2 / std::numbers::pi) * (gate + 0.044715 * gate * gate * gate)));
  }

  /// With a limit, the clamped SwiGLU of gpt-oss.
  double gated(double gate, double up) const {
    const double limit = model_.config.gate_limit;
    if (limit == 0.0) return activated(gate) * up;
    gate = std::min(gate, limit);
    return (std::clamp(up, -limit, limit) + 1.0) * gate / (1.0 + std::exp(-gate * model_.config.gate_slope));
  }

  Vec through(const Mlp& mlp, const Vec& normed, const std::vector<float>& gate_up_bias,
              const std::vector<float>& down_bias) const {
    const Vec gate_up = mlp.gate_up.times(normed, gate_up_bias);
    Vec hidden(gate_up.size() / 2);
    for (std::size_t f = 0; f < hidden.size(); ++f) hidden[f] = gated(gate_up[f], gate_up[f + hidden.size()]);
    return mlp.down.times(hidden, down_bias);
  }

  /// The sum over the experts of a token, weighted.
  Vec mixed(const Layer& layer, const Vec& normed, const LayerWeights& w, const Vec& routed) const {
    Vec share = layer.router->times(routed, w.router_bias);
    double sum = 0, chosen_sum = 0;
    for (double& one : share) sum += one = std::exp(one);
    std::vector<std::size_t> order(share.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return share[a] > share[b]; });
    order.resize(static_cast<std::size_t>(model_.config.mixture.chosen));
    for (const std::size_t expert : order) chosen_sum += share[expert];
    Vec out(normed.size(), 0.0);
    for (const std::size_t expert : order) {
      const ExpertWeights& own = w.experts[expert];
      const Vec one = through(layer.mlps[expert], normed, own.gate_up_bias, own.down_bias);
      double weight = share[expert] / (model_.config.mixture.normalized ? chosen_sum : sum);
      if (!w.expert_scale.empty()) weight *= static_cast<double>(w.expert_scale[expert]);
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += weight * one[i];
    }
    if (!layer.shared) return out;
    const Vec one = through(*layer.shared, normed, {}, {});
    const double weight = 1.0 / (1.0 + std::exp(-layer.shared_gate->times(normed, {})[0]));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += weight * one[i];
    return out;
  }

  Vec norm(const Vec& x, const std::vector<float>& weight) const {
    double squares = 0;
    for (const double value : x) squares += value * value;
    Vec out(x.size());
    const double scale =
        std::sqrt(squares / static_cast<double>(x.size()) + static_cast<double>(model_.config.norm_eps));
    for (std::size_t i = 0; i < x.size(); ++i) out[i] = x[i] / scale * weight[i];
    return out;
  }

  void project(const Vec& x, std::int32_t layer, std::int32_t position, Vec& q, Vec& k, Vec& v) const {
    const ModelConfig& c = model_.config;
    const LayerWeights& w = weights(layer);
    const Vec all =
        layers_[static_cast<std::size_t>(layer)].qkv.times(c.pre_norms ? norm(x, w.input_norm) : x, w.qkv_bias);
    const auto q_end = all.begin() + c.heads * c.head_dim_of(layer);
    const auto k_end = q_end + (c.stores_kv(layer) ? c.kv_heads_of(layer) * c.head_dim_of(layer) : 0);
    const auto normed = [&](Vec rows, const std::vector<float>& weight) {
      const auto width = static_cast<std::ptrdiff_t>(weight.size());  // of a head, or of all
      for (auto head = rows.begin(); c.qk_norm && head != rows.end(); head += width) {
        const Vec one = norm(Vec(head, head + width), weight);
        std::copy(one.begin(), one.end(), head);
      }
      return rows;
    };
    const auto heads = [&](Vec rows, const std::vector<float>& weight) {
      if (c.norm_behind_rope) return normed(rotated(std::move(rows), position, layer), weight);
      return rotated(normed(std::move(rows), weight), position, layer);
    };
    q = heads(Vec(all.begin(), q_end), w.q_norm);
    if (c.temperature.beta != 0.0)
      for (double& value : q) value *= static_cast<double>(c.temperature.at(position));
    k = heads(Vec(q_end, k_end), w.k_norm);
    v = c.keys_as_values(layer) ? Vec(q_end, k_end) : Vec(k_end, all.end());
    if (!w.v_norm.empty()) v = normed(std::move(v), w.v_norm);
  }

  /// What each compared row's token gets of the readers' attention, on average; empty without readers.
  Vec attention_of_readers(const StepRows& rows, std::int32_t d, const std::vector<std::size_t>& active,
                           const std::vector<Vec>& x, const std::vector<Vec>& q,
                           const std::vector<OracleCache>& caches) const {
    const Detection& detection = rows.detections[static_cast<std::size_t>(d)];
    std::vector<std::size_t> compared;
    std::ranges::copy_if(active, std::back_inserter(compared),
                         [&](std::size_t i) { return rows.path[i].detection == d; });
    if (compared.empty()) return {};
    OracleCache cache = caches[static_cast<std::size_t>(rows.sequence[compared.front()])];
    std::ranges::fill(cache.received, 0.0);
    double readers = 0;
    for (const std::size_t i : active) {
      const bool reads = detection.readers_begin <= rows.position[i] && rows.position[i] < detection.readers_end;
      if (rows.sequence[i] != rows.sequence[compared.front()] || !reads) continue;
      Vec ignored = x[i];
      finish(ignored, q[i], detection.layer, rows.position[i], rows.token[i], cache);
      ++readers;
    }
    Vec attention;
    for (const std::size_t i : compared) {
      if (readers > 0)
        attention.push_back(cache.received[static_cast<std::size_t>(rows.position[i])] / readers / model_.config.heads);
    }
    return attention;
  }

  double deviation(const Vec& a, const Vec& b, std::int32_t layer, ValueMeasure measure) const {
    const auto width = static_cast<std::size_t>(model_.config.head_dim_of(layer));
    double squares = 0;
    for (std::size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
    if (measure == ValueMeasure::squared) return squares;
    double cosines = 0;
    for (std::size_t head = 0; head < a.size(); head += width) {
      double dot = 0, aa = 0, bb = 0;
      for (std::size_t i = head; i < head + width; ++i) dot += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
      cosines += dot / std::sqrt(aa * bb);
    }
    return 1.0 - cosines / model_.config.kv_heads_of(layer);
  }

  /// The input that a layer has of a token.
  Vec token_input(TokenId token, std::int32_t layer) const {
    const ModelConfig& c = model_.config;
    const auto width = static_cast<std::ptrdiff_t>(c.token_input.width), begin = layer * width;
    const Vec row = token_table_->row(static_cast<std::size_t>(token < c.token_input.rows ? token : 0));
    Vec projected = token_projection_->times(embedded(token), {});
    projected = Vec(projected.begin() + begin, projected.begin() + begin + width);
    for (double& value : projected) value /= std::sqrt(c.width);
    Vec input = norm(projected, model_.weights.token_norm);
    for (std::ptrdiff_t i = 0; i < width; ++i) {
      double& value = input[static_cast<std::size_t>(i)];
      value =
          (value + row[static_cast<std::size_t>(begin + i)] * std::sqrt(static_cast<double>(width))) / std::sqrt(2.0);
    }
    return input;
  }

  /// What a row's MLP, experts, or both make of its residual stream.
  Vec fed(const Layer& m, const Vec& x, const LayerWeights& w) const {
    const Vec normed = model_.config.pre_norms ? norm(x, w.mlp_norm) : x;
    if (!m.router) return through(m.mlps[0], normed, w.gate_up_bias, w.down_bias);
    if (!m.beside) return mixed(m, normed, w, normed);
    Vec sum = norm(through(*m.beside, normed, {}, {}), w.mlp_own_norm);
    const Vec other = norm(mixed(m, norm(x, w.experts_norm), w, norm(x, w.router_norm)), w.experts_post_norm);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
    return sum;
  }

  /// Attention over what is cached, then the MLP, and what follows it.
  void finish(Vec& x, const Vec& q, std::int32_t layer, std::int32_t position, TokenId token,
              OracleCache& cache) const {
    const ModelConfig& c = model_.config;
    const auto width = static_cast<std::size_t>(c.head_dim_of(layer));
    const auto& keys = cache.k[static_cast<std::size_t>(c.kv_layer(layer))];
    const auto& values = cache.v[static_cast<std::size_t>(c.kv_layer(layer))];
    const std::int32_t window = c.window[static_cast<std::size_t>(layer)];
    const auto first = static_cast<std::size_t>(window > 0 ? std::max(0, position - window + 1) : 0);
    const auto last = static_cast<std::size_t>(position);
    const double divisor =
        c.score_multiplier > 0.0f
            ? 1.0 / static_cast<double>(c.score_multiplier)
            : std::sqrt(c.query_divisor > 0.0f ? static_cast<double>(c.query_divisor) : c.head_dim_of(layer));
    Vec attended(q.size(), 0.0);
    for (std::size_t h = 0; h < static_cast<std::size_t>(c.heads); ++h) {
      const std::size_t kv = h / static_cast<std::size_t>(c.heads / c.kv_heads_of(layer)) * width;
      Vec weight;
      double sum = 0;
      for (std::size_t key = first; key <= last; ++key) {
        double score = 0;
        for (std::size_t d = 0; d < width; ++d) score += q[h * width + d] * keys[key][kv + d];
        weight.push_back(std::exp(score / divisor));
        sum += weight.back();
      }
      if (!weights(layer).sinks.empty()) sum += std::exp(static_cast<double>(weights(layer).sinks[h]));
      for (std::size_t key = first; key <= last; ++key) {
        const double share = weight[key - first] / sum;
        if (key < last) cache.received[key] += share;
        for (std::size_t d = 0; d < width; ++d) attended[h * width + d] += share * values[key][kv + d];
      }
    }
    const LayerWeights& w = weights(layer);
    const Layer& m = layers_[static_cast<std::size_t>(layer)];
    const auto add = [&](Vec delta, const std::vector<float>& post_norm) {
      if (c.post_norms) delta = norm(delta, post_norm);
      for (double& value : delta) value *= static_cast<double>(c.residual_scale);
      std::transform(x.begin(), x.end(), delta.begin(), x.begin(), std::plus<>());
    };
    add(m.output.times(attended, w.output_bias), w.attention_post_norm);
    add(fed(m, x, w), w.mlp_post_norm);
    if (m.token_input) {
      Vec hidden = m.token_input->gate_up.times(x, {});
      const Vec input = token_input(token, layer);
      for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] = activated(hidden[i]) * input[i];
      add(m.token_input->down.times(hidden, {}), w.token_input->norm);
    }
    for (double& value : x) value *= static_cast<double>(w.scale);
  }

  const Model& model_;
  Table embedding_, lm_head_;
  std::optional<Table> token_table_, token_projection_;
  std::vector<Layer> layers_;
};

/// Caches of one content, of the engine and of the oracle: random keys, values and hidden states at every position.
struct Caches {
  Caches(Backend& backend, const Model& model, const Oracle& oracle, const std::vector<std::int32_t>& lengths,
         std::int32_t hidden_layer, Random& random) {
    const ModelConfig& c = model.config;
    std::normal_distribution<float> normal;
    for (const std::int32_t length : lengths) {
      KvLayout layout = model.kv_layout();
      layout.raw_keys = random() % 2 == 0;
      layout.received = random() % 3 != 0;
      layout.hidden_width = c.width;
      layout.hidden_layer = hidden_layer;
      KvCache& cache = engine.emplace_back(backend, layout, length);
      OracleCache& other = dense.emplace_back();
      other.hidden_layer = hidden_layer;
      other.received.assign(static_cast<std::size_t>(length), 0.0);
      std::vector<std::int32_t> position(static_cast<std::size_t>(length)), zero(position.size(), 0);
      std::iota(position.begin(), position.end(), 0);
      const auto draw = [&](std::int32_t cols, std::vector<float>& flat) {
        flat.resize(position.size() * static_cast<std::size_t>(cols));
        for (float& value : flat) value = normal(random);
        std::vector<Vec> rows;
        for (auto at = flat.begin(); at != flat.end(); at += cols) rows.emplace_back(at, at + cols);
        return rows;
      };
      std::vector<float> k, v, hidden, cos, sin;
      const auto view = [&](std::vector<float>& all) {
        return view_of(all.data(), length, static_cast<std::int64_t>(all.size()) / length);
      };
      for (std::int32_t layer = 0; layer < c.layers; ++layer) {
        if (!c.stores_kv(layer)) {
          other.k.emplace_back(position.size());
          other.v.emplace_back(position.size());
          continue;
        }
        const Rope& rope = model.ropes.distinct()[model.ropes.of(layer)];
        cos.resize(position.size() * rope.inverse_frequencies().size());
        sin.resize(cos.size());
        rope.angles(cos, sin, position);
        const std::int32_t cols = c.kv_heads_of(layer) * c.head_dim_of(layer);
        other.k.push_back(draw(cols, k));
        other.v.push_back(draw(cols, v));
        for (std::size_t i = 0; i < position.size(); ++i)
          other.k.back()[i] = oracle.rotated(other.k.back()[i], position[i], layer);
        const KvSlab slab = cache.slab(layer);
        backend.kv().store_kv({&slab, 1}, layout.shape(layer), {zero, position, zero}, view(k), view(v),
                              {view(cos), view(sin)});
      }
      other.hidden = draw(c.width, hidden);
      backend.scatter_rows(cache.hidden(), view(hidden), position);
      cache.commit(length);
    }
  }
  std::vector<KvCache> engine;
  std::vector<OracleCache> dense;
};

}  // namespace baton::test
