// SPDX-License-Identifier: Apache-2.0
#include "sdk/lab/correction_learner.h"

#include <Eigen/Dense>

#include <algorithm>
#include <stdexcept>

#include "engine/tensor/tensor.h"

namespace baton::inline v1::lab {

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
Rows rows_of(std::span<const std::uint16_t> kv, const KvWidth& shape, std::int32_t n, std::int32_t first) {
  Rows rows(n, 2 * (shape.total() - shape.before(first)));
  for (std::int32_t layer = first; layer < shape.layers(); ++layer) {
    const std::int64_t width = 2 * shape.layer(layer), before = 2 * shape.before(layer);
    const std::int64_t column = before - 2 * shape.before(first);
    for (std::int32_t i = 0; i < n; ++i) {
      const std::uint16_t* from = kv.data() + before * n + i * width;
      for (std::int64_t j = 0; j < width; ++j) rows(i, column + j) = bf16_to_f32(from[j]);
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

/// Means of inputs and outputs over tokens.
struct Means {
  VectorXd x, y;
};

/// The tokens of all texts but the held-out ones, and the maps that fit them.
class Fit {
 public:
  virtual ~Fit() = default;
  virtual void add(const Text& text) = 0;
  virtual Means means() const = 0;
  virtual Factors solve(double penalty, std::int64_t rank) const = 0;
};

/// Solves by sums over all tokens of x, y, x x^T, x y^T: for few inputs.
class CovarianceFit : public Fit {
 public:
  CovarianceFit(std::int64_t inputs, std::int64_t outputs)
      : sum_x_(VectorXd::Zero(inputs)),
        sum_y_(VectorXd::Zero(outputs)),
        xx_(MatrixXd::Zero(inputs, inputs)),
        xy_(MatrixXd::Zero(inputs, outputs)) {}

  void add(const Text& text) override {
    tokens_ += text.x.rows();
    sum_x_ += text.x.colwise().sum().transpose().cast<double>();
    sum_y_ += text.y.colwise().sum().transpose().cast<double>();
    const MatrixXf x_t = text.x.transpose();
    xx_ += (x_t * text.x).cast<double>();
    xy_ += (x_t * text.y).cast<double>();
  }

  Means means() const override {
    const auto n = static_cast<double>(tokens_);
    return {sum_x_ / n, sum_y_ / n};
  }

  Factors solve(double penalty, std::int64_t rank) const override {
    const auto n = static_cast<double>(tokens_);
    const MatrixXd covariance = xx_ - sum_x_ * sum_x_.transpose() / n;
    MatrixXd penalised = covariance;
    penalised.diagonal().array() += penalty * covariance.trace() / static_cast<double>(xx_.rows()) + 1e-12;
    const MatrixXd map = penalised.ldlt().solve(xy_ - sum_x_ * sum_y_.transpose() / n);
    const MatrixXd v = leading(sum_y_.size(), rank, [&](const MatrixXd& basis) -> MatrixXd {
      return map.transpose() * (covariance * (map * basis));
    });
    return {map * v, v};
  }

 private:
  std::int64_t tokens_ = 0;
  VectorXd sum_x_, sum_y_;
  MatrixXd xx_, xy_;
};

/// Solves by the inner products of tokens that are drawn evenly: for many inputs.
class DrawnFit : public Fit {
 public:
  DrawnFit(std::int64_t inputs, std::int64_t outputs, std::int64_t max_tokens)
      : x_(max_tokens, inputs), y_(max_tokens, outputs) {}

  void add(const Text& text) override {
    for (Eigen::Index i = 0; i < text.x.rows(); ++i) {
      if (seen_++ % stride_ != 0) continue;
      if (kept_ == x_.rows()) {  // drops every second token, and skips as many of those that follow
        for (std::int64_t k = 0; 2 * k < kept_; ++k) {
          x_.row(k) = x_.row(2 * k).eval();
          y_.row(k) = y_.row(2 * k).eval();
        }
        kept_ = (kept_ + 1) / 2;
        stride_ *= 2;
        if ((seen_ - 1) % stride_ != 0) continue;
      }
      x_.row(kept_) = text.x.row(i);
      y_.row(kept_) = text.y.row(i);
      ++kept_;
    }
  }

  Means means() const override {
    return {x_.topRows(kept_).colwise().mean().transpose().cast<double>(),
            y_.topRows(kept_).colwise().mean().transpose().cast<double>()};
  }

  Factors solve(double penalty, std::int64_t rank) const override {
    const Means mean = means();
    const MatrixXd cx = (x_.topRows(kept_).cast<double>().rowwise() - mean.x.transpose());
    const MatrixXd cy = (y_.topRows(kept_).cast<double>().rowwise() - mean.y.transpose());
    const MatrixXd products = cx * cx.transpose();
    MatrixXd penalised = products;
    penalised.diagonal().array() += penalty * products.trace() / static_cast<double>(x_.cols()) + 1e-12;
    const MatrixXd weights = penalised.ldlt().solve(cy);
    const MatrixXd fitted = products * weights;
    const MatrixXd v = leading(y_.cols(), std::min<std::int64_t>(rank, kept_), [&](const MatrixXd& basis) -> MatrixXd {
      return fitted.transpose() * (fitted * basis);
    });
    return {cx.transpose() * (weights * v), v};
  }

 private:
  Rows x_, y_;  // rows [0, kept_) are in use
  std::int64_t kept_ = 0, stride_ = 1, seen_ = 0;
};

/// Returns the fraction of the squared changes of the held-out texts that the map leaves.
double left_of(const Factors& factors, const Means& means, const std::vector<Text>& aside) {
  const MatrixXf encoder = factors.encoder.cast<float>(), decoder = factors.decoder.cast<float>();
  const Eigen::RowVectorXf mx = means.x.transpose().cast<float>(), my = means.y.transpose().cast<float>();
  double all = 0.0, rest = 0.0;
  for (const Text& text : aside) {
    const MatrixXf change = (((text.x.rowwise() - mx) * encoder) * decoder.transpose()).rowwise() + my;
    all += text.y.squaredNorm();
    rest += (text.y - change).squaredNorm();
  }
  return all > 0.0 ? rest / all : 1.0;
}

}  // namespace

struct LinearFit::State {
  KvWidth shape;
  std::int64_t rank = 0;
  std::int32_t texts = 0;
  std::int64_t tokens = 0;
  std::vector<Text> aside;
  std::unique_ptr<Fit> fit;

  std::int64_t inputs() const { return 2 * shape.total(); }
  std::int64_t outputs() const { return inputs() - 2 * shape.layer(0); }
};

LinearFit::LinearFit(const KvWidth& shape, const LinearFitOptions& options) {
  if (shape.layers() < 2 || shape.total() == shape.layer(0))
    throw std::invalid_argument("linear fit: expected at least 2 layers and a width of at least 1");
  const std::int64_t inputs = 2 * shape.total(), outputs = inputs - 2 * shape.layer(0);
  const std::int64_t token_bytes = (inputs + outputs) * static_cast<std::int64_t>(sizeof(float));
  const auto tokens =
      std::clamp<std::int64_t>(options.max_tokens, 2, std::max<std::int64_t>(2, options.max_bytes / token_bytes));
  state_ = std::make_unique<State>(State{shape, options.rank > 0 ? options.rank : outputs, 0, 0, {}, nullptr});
  if (inputs <= options.max_inputs) {
    state_->fit = std::make_unique<CovarianceFit>(inputs, outputs);
  } else {
    state_->fit = std::make_unique<DrawnFit>(inputs, outputs, tokens);
  }
}

LinearFit::~LinearFit() = default;
LinearFit::LinearFit(LinearFit&&) noexcept = default;

void LinearFit::add(std::span<const std::uint16_t> base, std::span<const std::uint16_t> truth, std::int32_t n) {
  State& state = *state_;
  if (n < 1 || static_cast<std::int64_t>(base.size()) != n * state.inputs() || truth.size() != base.size())
    throw std::invalid_argument("linear fit: the text's KV differs in shape from the fit's");
  Text text{rows_of(base, state.shape, n, 0), rows_of(truth, state.shape, n, 1)};
  text.y -= text.x.rightCols(state.outputs());
  ++state.texts;
  if (state.texts % kAsideEvery == 2 && state.aside.size() < kMaxAsideTexts) {
    state.aside.push_back(std::move(text));
    return;
  }
  state.tokens += n;
  state.fit->add(text);
}

std::int32_t LinearFit::texts() const { return state_->texts; }
std::int64_t LinearFit::tokens() const { return state_->tokens; }

std::shared_ptr<const LinearCorrection> LinearFit::fit() const {
  const State& state = *state_;
  if (state.tokens == 0 || state.aside.empty()) return nullptr;
  const Means means = state.fit->means();
  Factors best;
  double left = HUGE_VAL;
  for (const double penalty : kPenalties) {
    Factors factors = state.fit->solve(penalty, state.rank);
    const double now = left_of(factors, means, state.aside);
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
  const VectorXd bias = means.y - decoder * (encoder * means.x);
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

}  // namespace baton::inline v1::lab
