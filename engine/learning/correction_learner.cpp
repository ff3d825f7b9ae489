// SPDX-License-Identifier: Apache-2.0
#include "engine/learning/correction_learner.h"

#include <Eigen/Dense>

#include <algorithm>
#include <stdexcept>

#include "engine/tensor/tensor.h"

namespace baton {
namespace {

using Rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Eigen::MatrixXd;
using Eigen::MatrixXf;
using Eigen::VectorXd;

constexpr std::int32_t kAsideEvery = 8;
constexpr std::size_t kMaxAsideTexts = 24;                 // maximum held-out texts
constexpr double kPenalties[] = {1e-2, 1e-3, 1e-4, 1e-5};  // fractions of the mean of the covariance's diagonal
constexpr int kIterations = 4;                             // subspace iterations; the spectra decay fast

/// Returns a matrix with a row for each token and columns for layers [first, L).
Rows rows_of(std::span<const std::uint16_t> kv, KvWidth shape, std::int32_t n, std::int32_t first) {
  const std::int64_t width = std::int64_t{2} * shape.width;
  Rows rows(n, (shape.layers - first) * width);
  for (std::int32_t layer = first; layer < shape.layers; ++layer) {
    for (std::int32_t i = 0; i < n; ++i) {
      const std::uint16_t* from = kv.data() + (std::int64_t{layer} * n + i) * width;
      for (std::int64_t j = 0; j < width; ++j) rows(i, (layer - first) * width + j) = bf16_to_f32(from[j]);
    }
  }
  return rows;
}

struct Text {
  Rows x;  // [n, F]
  Rows y;  // [n, F'] changes
};

/// A map reduced to the `rank` directions of the largest changes: encoder^T [F, r], V [F', r].
struct Factors {
  MatrixXd encoder;
  MatrixXd decoder;
};

MatrixXd orthonormal(const MatrixXd& basis) {
  const Eigen::HouseholderQR<MatrixXd> qr(basis);
  return qr.householderQ() * MatrixXd::Identity(basis.rows(), basis.cols());
}

/// Returns the leading directions of the fitted changes; Y Y^T is given as a function that multiplies it by a basis.
template <class Product>
MatrixXd leading(std::int64_t outputs, std::int64_t rank, const Product& product) {
  MatrixXd basis(outputs, std::min(rank, outputs));
  std::uint64_t state = 1;  // a fixed seed, so that results repeat
  for (std::int64_t i = 0; i < basis.size(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    basis.data()[i] = static_cast<double>(state >> 33) / static_cast<double>(1u << 31) - 0.5;
  }
  for (int i = 0; i < kIterations; ++i) basis = orthonormal(product(orthonormal(basis)));
  return basis;
}

}  // namespace

struct LinearFit::State {
  KvWidth shape;
  LinearFitOptions options;
  std::int64_t inputs = 0, outputs = 0;
  std::int32_t texts = 0;
  std::int64_t tokens = 0;
  std::vector<Text> aside;
  // With covariance: sums over tokens of x, y, x x^T, x y^T.
  VectorXd sum_x, sum_y;
  MatrixXd xx, xy;
  // With inner products: the drawn tokens.
  Rows x, y;
  std::int64_t kept = 0, stride = 1, seen = 0;

  bool by_covariance() const { return inputs <= options.max_inputs; }

  void count(const Text& text) {
    sum_x += text.x.colwise().sum().transpose().cast<double>();
    sum_y += text.y.colwise().sum().transpose().cast<double>();
    const MatrixXf x_t = text.x.transpose();
    xx += (x_t * text.x).cast<double>();
    xy += (x_t * text.y).cast<double>();
  }

  void keep(const Text& text) {
    for (Eigen::Index i = 0; i < text.x.rows(); ++i) {
      if (seen++ % stride != 0) continue;
      if (kept == options.max_tokens) {  // drops every second token, and skips as many of those that follow
        for (std::int64_t k = 0; 2 * k < kept; ++k) {
          x.row(k) = x.row(2 * k).eval();
          y.row(k) = y.row(2 * k).eval();
        }
        kept = (kept + 1) / 2;
        stride *= 2;
        if ((seen - 1) % stride != 0) continue;
      }
      x.row(kept) = text.x.row(i);
      y.row(kept) = text.y.row(i);
      ++kept;
    }
  }

  VectorXd mean_x() const {
    return by_covariance() ? VectorXd(sum_x / static_cast<double>(tokens))
                           : VectorXd(x.topRows(kept).colwise().mean().transpose().cast<double>());
  }
  VectorXd mean_y() const {
    return by_covariance() ? VectorXd(sum_y / static_cast<double>(tokens))
                           : VectorXd(y.topRows(kept).colwise().mean().transpose().cast<double>());
  }

  Factors solve(double penalty) const {
    const std::int64_t rank = options.rank > 0 ? options.rank : outputs;
    if (by_covariance()) {
      const auto n = static_cast<double>(tokens);
      const MatrixXd covariance = xx - sum_x * sum_x.transpose() / n;
      MatrixXd penalised = covariance;
      penalised.diagonal().array() += penalty * covariance.trace() / static_cast<double>(inputs) + 1e-12;
      const MatrixXd map = penalised.ldlt().solve(xy - sum_x * sum_y.transpose() / n);
      const MatrixXd v = leading(outputs, rank, [&](const MatrixXd& basis) -> MatrixXd {
        return map.transpose() * (covariance * (map * basis));
      });
      return {map * v, v};
    }
    const MatrixXd cx = (x.topRows(kept).cast<double>().rowwise() - mean_x().transpose());
    const MatrixXd cy = (y.topRows(kept).cast<double>().rowwise() - mean_y().transpose());
    const MatrixXd products = cx * cx.transpose();
    MatrixXd penalised = products;
    penalised.diagonal().array() += penalty * products.trace() / static_cast<double>(inputs) + 1e-12;
    const MatrixXd weights = penalised.ldlt().solve(cy);
    const MatrixXd fitted = products * weights;
    const MatrixXd v = leading(outputs, std::min<std::int64_t>(rank, kept), [&](const MatrixXd& basis) -> MatrixXd {
      return fitted.transpose() * (fitted * basis);
    });
    return {cx.transpose() * (weights * v), v};
  }

  /// Returns the fraction of the squared changes of the held-out texts that the map leaves.
  double left(const Factors& factors) const {
    const MatrixXf encoder = factors.encoder.cast<float>(), decoder = factors.decoder.cast<float>();
    const Eigen::RowVectorXf mx = mean_x().transpose().cast<float>(), my = mean_y().transpose().cast<float>();
    double all = 0.0, rest = 0.0;
    for (const Text& text : aside) {
      const MatrixXf change = (((text.x.rowwise() - mx) * encoder) * decoder.transpose()).rowwise() + my;
      all += text.y.squaredNorm();
      rest += (text.y - change).squaredNorm();
    }
    return all > 0.0 ? rest / all : 1.0;
  }
};

LinearFit::LinearFit(KvWidth shape, const LinearFitOptions& options) : state_(std::make_unique<State>()) {
  if (shape.layers < 2 || shape.width < 1)
    throw std::invalid_argument("linear fit: expected at least 2 layers and a width of at least 1");
  state_->shape = shape;
  state_->options = options;
  state_->inputs = std::int64_t{shape.layers} * 2 * shape.width;
  state_->outputs = state_->inputs - std::int64_t{2} * shape.width;
  if (state_->by_covariance()) {
    state_->sum_x = VectorXd::Zero(state_->inputs);
    state_->sum_y = VectorXd::Zero(state_->outputs);
    state_->xx = MatrixXd::Zero(state_->inputs, state_->inputs);
    state_->xy = MatrixXd::Zero(state_->inputs, state_->outputs);
  } else {
    const std::int64_t token_bytes = (state_->inputs + state_->outputs) * static_cast<std::int64_t>(sizeof(float));
    std::int64_t& tokens = state_->options.max_tokens;
    tokens = std::clamp<std::int64_t>(tokens, 2, std::max<std::int64_t>(2, options.max_bytes / token_bytes));
    state_->x.resize(tokens, state_->inputs);
    state_->y.resize(tokens, state_->outputs);
  }
}

LinearFit::~LinearFit() = default;
LinearFit::LinearFit(LinearFit&&) noexcept = default;

void LinearFit::add(std::span<const std::uint16_t> base, std::span<const std::uint16_t> truth, std::int32_t n) {
  State& state = *state_;
  if (n < 1 || static_cast<std::int64_t>(base.size()) != n * state.inputs || truth.size() != base.size())
    throw std::invalid_argument("linear fit: the text's KV differs in shape from the fit's");
  Text text{rows_of(base, state.shape, n, 0), rows_of(truth, state.shape, n, 1)};
  text.y -= text.x.rightCols(state.outputs);
  ++state.texts;
  if (state.texts % kAsideEvery == 2 && state.aside.size() < kMaxAsideTexts) {
    state.aside.push_back(std::move(text));
    return;
  }
  state.tokens += n;
  if (state.by_covariance()) {
    state.count(text);
  } else {
    state.keep(text);
  }
}

std::int32_t LinearFit::texts() const { return state_->texts; }
std::int64_t LinearFit::tokens() const { return state_->tokens; }

std::shared_ptr<const LinearCorrection> LinearFit::fit() const {
  const State& state = *state_;
  if (state.tokens == 0 || state.aside.empty()) return nullptr;
  Factors best;
  double left = HUGE_VAL;
  for (const double penalty : kPenalties) {
    Factors factors = state.solve(penalty);
    const double now = state.left(factors);
    if (now >= left) break;
    left = now;
    best = std::move(factors);
  }
  auto correction = std::make_shared<LinearCorrection>();
  correction->shape = state.shape;
  correction->rank = static_cast<std::int32_t>(best.encoder.cols());
  correction->left = static_cast<float>(left);
  correction->texts = state.texts;
  const auto rounded = [](const MatrixXd& matrix, std::vector<std::uint16_t>& bits) {  // row by row
    MatrixXd back(matrix.rows(), matrix.cols());
    for (Eigen::Index i = 0; i < matrix.rows(); ++i) {
      for (Eigen::Index j = 0; j < matrix.cols(); ++j) {
        bits.push_back(f32_to_bf16(static_cast<float>(matrix(i, j))));
        back(i, j) = bf16_to_f32(bits.back());
      }
    }
    return back;
  };
  const MatrixXd encoder = rounded(best.encoder.transpose(), correction->encoder);
  const MatrixXd decoder = rounded(best.decoder, correction->decoder);
  const VectorXd bias = state.mean_y() - decoder * (encoder * state.mean_x());
  for (const double value : bias) correction->bias.push_back(static_cast<float>(value));
  return correction;
}

std::vector<float> apply(const LinearCorrection& correction, std::span<const std::uint16_t> base, std::int32_t n) {
  const Rows x = rows_of(base, correction.shape, n, 0);
  const auto matrix = [](const std::vector<std::uint16_t>& bits, std::int64_t rows, std::int64_t cols) {
    Rows values(rows, cols);
    for (std::int64_t i = 0; i < values.size(); ++i) values.data()[i] = bf16_to_f32(bits[static_cast<std::size_t>(i)]);
    return values;
  };
  const Rows encoder = matrix(correction.encoder, correction.rank, correction.inputs());
  const Rows decoder = matrix(correction.decoder, correction.outputs(), correction.rank);
  const Eigen::Map<const Eigen::RowVectorXf> bias(correction.bias.data(), correction.outputs());
  const Rows change = ((x * encoder.transpose()) * decoder.transpose()).rowwise() + bias;
  return {change.data(), change.data() + change.size()};
}

void CorrectionLearner::add(const PlaceSample& sample) {
  if (!sample.generated) return;
  const std::lock_guard lock(mutex_);
  auto found = std::find_if(places_.begin(), places_.end(), [&](const Place& one) { return one.key == sample.key; });
  if (found == places_.end()) {
    places_.push_back({sample.key, {}, LinearFit(sample.shape, options_)});
    found = std::prev(places_.end());
  }
  found->readers.insert(sample.reader);
  found->fit.add(sample.base, sample.truth, sample.length);
}

std::vector<LearnedPlace> CorrectionLearner::fit(const std::function<void(double)>& on_progress,
                                                 const std::stop_token& stop) const {
  const std::lock_guard lock(mutex_);
  std::vector<LearnedPlace> learned;
  for (const Place& place : places_) {
    if (stop.stop_requested()) break;
    learned.push_back({place.key, place.readers, place.fit.texts(), place.fit.tokens(), place.fit.fit()});
    if (on_progress) on_progress(static_cast<double>(learned.size()) / static_cast<double>(places_.size()));
  }
  return learned;
}

}  // namespace baton
