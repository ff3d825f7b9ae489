// SPDX-License-Identifier: Apache-2.0
#include "engine/backend/make_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/backend/host_operations.h"

namespace baton {
namespace {

// Products and attention of a device round their inputs to bf16, relative 1/256; sums of them deviate by less.
constexpr double kTolerance = 1.0 / 64;

std::vector<float> numbers(std::int64_t count, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = random_weight(seed, i, 1.0f);
  return values;
}

/// Values of one backend.
class DeviceNumbers {
 public:
  DeviceNumbers(Backend& backend, std::int64_t rows, std::int64_t cols) : backend_(backend), rows_(rows), cols_(cols) {
    buffer_ = backend.allocate(static_cast<std::size_t>(rows * cols) * sizeof(float));
  }
  DeviceNumbers(Backend& backend, std::int64_t rows, std::int64_t cols, std::uint64_t seed)
      : DeviceNumbers(backend, rows, cols) {
    const std::vector<float> values = numbers(rows * cols, seed);
    backend.copy_to_device(buffer_.data(), std::as_bytes(std::span(values)));
  }
  TensorView view() const { return buffer_.view(DType::f32, rows_, cols_); }
  std::vector<float> read() const {
    std::vector<float> values(static_cast<std::size_t>(rows_ * cols_));
    backend_.copy_to_host(std::as_writable_bytes(std::span(values)), buffer_.data());
    return values;
  }

 private:
  Backend& backend_;
  std::int64_t rows_, cols_;
  Buffer buffer_;
};

/// What differs, or nothing: the largest difference against the largest value.
std::string difference(const std::vector<float>& found, const std::vector<float>& expected) {
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double apart = std::abs(static_cast<double>(found[i]) - expected[i]);
    if (std::isnan(apart)) return fmt::format("value {} is {}, the CPU's {}", i, found[i], expected[i]);
    worst = std::max(worst, apart);
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
  }
  if (worst <= kTolerance * largest) return {};
  return fmt::format("differs from the CPU by {:.3g} where values reach {:.3g}", worst, largest);
}

/// The parts. Each returns what went wrong, or an empty text.
class SelfTest {
 public:
  SelfTest(Backend& subject, Backend& reference) : subject_(subject), reference_(reference) {}

  std::string copies() {
    constexpr std::size_t kBytes = std::size_t{1} << 20;
    const Buffer there = subject_.allocate_host(kBytes), back = subject_.allocate_host(kBytes);
    const Buffer device = subject_.allocate(kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) there.data()[i] = static_cast<std::byte>(i * 37 >> 3);
    subject_.follow(subject_.upload(device, there, 0, kBytes / 2));
    subject_.follow(subject_.upload(device, there, kBytes / 2, kBytes / 2));
    subject_.download(back, device, 0, kBytes);
    subject_.wait();
    if (!std::equal(there.data(), there.data() + kBytes, back.data())) return "bytes changed on the way";
    std::vector<std::byte> all(kBytes);
    subject_.copy_to_host(all, device.data());
    return std::equal(all.begin(), all.end(), there.data()) ? std::string() : "bytes changed in the device's memory";
  }

  std::string product(std::int64_t rows, bool biased) {
    constexpr std::int64_t kOutputs = 192, kInputs = 256;
    const std::vector<float> bias = biased ? numbers(kOutputs, 3) : std::vector<float>{};
    return compare([&](Backend& backend) {
      const std::vector<float> weights = numbers(kOutputs * kInputs, 2);
      const ConstTensorView part = view_of(weights.data(), kOutputs, kInputs);
      const auto matrix = backend.load_matrix({&part, 1}, DType::bf16);
      const DeviceNumbers x(backend, rows, kInputs, 1), out(backend, rows, kOutputs);
      backend.matmul(out.view(), x.view(), *matrix, bias);
      return out.read();
    });
  }

  /// Parts of a matrix in several types, as weights of one layer may have. Values of all are about as large: the
  /// largest one decides what may differ.
  std::string quantized_product(std::int64_t rows) {
    using enum BlockType;
    for (const auto& types : {std::array{q4_k, q5_0, q6_k, q8_0}, std::array{q2_k, q3_k, iq4_nl, mxfp4}}) {
      if (std::string problem = quantized_product(types, rows); !problem.empty()) return problem;
    }
    return {};
  }

  std::string quantized_product(std::span<const BlockType> types, std::int64_t rows) {
    constexpr std::int64_t kOutputs = 40, kInputs = 512;
    constexpr std::uint16_t kScale = 0x1c00;  // 2^-8
    constexpr std::byte kExponent{128 - 5};   // MXFP4 stores its scales as biased exponents
    std::vector<std::vector<std::byte>> blocks;
    std::vector<BlockView> parts;
    for (const BlockType type : types) {
      std::vector<std::byte>& data = blocks.emplace_back(kOutputs * row_bytes(type, kInputs));
      for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 2654435761u >> 13);
      for (const std::int16_t at : format_of(type).scales) {
        for (auto begin = std::size_t{0}; at >= 0 && begin < data.size(); begin += format_of(type).bytes)
          std::memcpy(&data[begin + static_cast<std::size_t>(at)], &kScale, sizeof(kScale));
      }
      for (auto begin = std::size_t{0}; type == BlockType::mxfp4 && begin < data.size(); begin += sizeof(BlockMXFP4))
        data[begin] = kExponent;
      parts.push_back({{}, type, kOutputs, kInputs});
    }
    for (std::size_t i = 0; i < parts.size(); ++i) parts[i].data = blocks[i];
    return compare([&](Backend& backend) {
      const auto matrix = backend.load_quantized_matrix(parts, Activations::int8);
      const DeviceNumbers x(backend, rows, kInputs, 12), out(backend, rows, matrix->rows);
      backend.matmul(out.view(), x.view(), *matrix, {});
      return out.read();
    });
  }

  std::string attention(std::int32_t head_dim, DType dtype) {
    constexpr std::int32_t kHeads = 4, kKvHeads = 2, kPrompt = 70, kCapacity = 128;
    const KvShape shape{kKvHeads, head_dim, dtype};
    return compare([&](Backend& backend) {
      const std::size_t bytes = backend.kv_slab_bytes(shape, kCapacity);
      const Buffer memory = backend.allocate(2 * bytes);
      const KvSlab slab{.keys = memory.data(), .values = memory.data() + bytes, .capacity = kCapacity};
      std::vector<std::int32_t> position(kPrompt), zero(kPrompt, 0);
      for (std::int32_t i = 0; i < kPrompt; ++i) position[static_cast<std::size_t>(i)] = i;
      std::vector<float> cos, sin;
      for (std::int32_t i = 0; i < kPrompt; ++i) {
        for (std::int32_t pair = 0; pair < head_dim / 2; ++pair) {
          cos.push_back(static_cast<float>(std::cos(0.01 * i * (pair + 1))));
          sin.push_back(static_cast<float>(std::sin(0.01 * i * (pair + 1))));
        }
      }
      const auto half = head_dim / 2;
      const DeviceNumbers k(backend, kPrompt, kKvHeads * head_dim, 4), v(backend, kPrompt, kKvHeads * head_dim, 5);
      const DeviceNumbers q(backend, kPrompt, kHeads * head_dim, 6), out(backend, kPrompt + 1, kHeads * head_dim);
      const Buffer angles = backend.allocate(2 * cos.size() * sizeof(float));
      backend.copy_to_device(angles.data(), std::as_bytes(std::span(cos)));
      backend.copy_to_device(angles.data() + cos.size() * sizeof(float), std::as_bytes(std::span(sin)));
      const TensorView both = angles.view(DType::f32, 2 * kPrompt, half);
      const RopeAngles rope{both.row_range(0, kPrompt), both.row_range(kPrompt, 2 * kPrompt)};
      const RowSpan rows{zero, position, zero};
      backend.kv().store_kv({&slab, 1}, shape, rows, k.view(), v.view(), rope);
      backend.rope(q.view(), head_dim, rope);
      const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
      backend.kv().attention(out.view().row_range(0, kPrompt), q.view(), {&slab, 1}, shape, rows,
                             scale);  // as in prefill
      const std::int32_t last = kPrompt - 1, first = 0;
      const RowSpan one{{&first, 1}, {&last, 1}, {&first, 1}};  // as in decoding
      backend.kv().attention(out.view().row_range(kPrompt, kPrompt + 1), q.view().row_range(last, kPrompt), {&slab, 1},
                             shape, one, scale);
      return out.read();
    });
  }

  std::string token_choice() {
    constexpr std::int64_t kRows = 6, kVocabulary = 5000;
    const std::vector<TokenChoice> how = {{.entropy = 1},
                                          {.uniform = 0.3, .temperature = 0.8f},
                                          {.uniform = 0.9, .temperature = 1.0f, .top_k = 40},
                                          {.uniform = 0.5, .temperature = 0.7f, .top_p = 0.9f},
                                          {.uniform = 0.1, .temperature = 1.0f, .top_k = 20, .top_p = 0.5f},
                                          {.uniform = 0.7, .temperature = 1.2f, .min_p = 0.05f}};
    const auto choose = [&](Backend& backend) {
      const DeviceNumbers logits(backend, kRows, kVocabulary, 7);
      const Buffer out = backend.allocate(kRows * sizeof(ChosenToken));
      backend.choose(reinterpret_cast<ChosenToken*>(out.data()), logits.view(), how);
      std::vector<ChosenToken> chosen(kRows);
      backend.copy_to_host(std::as_writable_bytes(std::span(chosen)), out.data());
      return chosen;
    };
    const auto found = choose(subject_), expected = choose(reference_);
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (found[i].id != expected[i].id)
        return fmt::format("way {} chose id {}, the CPU {}", i + 1, found[i].id, expected[i].id);
    }
    const bool same_entropy = std::abs(found[0].entropy - expected[0].entropy) < 1e-3f;
    return same_entropy ? std::string() : "the entropy differs from the CPU's";
  }

  std::string norms_and_gates() {
    constexpr std::int64_t kRows = 5, kWidth = 192;
    const std::vector<float> weight = numbers(kWidth, 8);
    return compare([&](Backend& backend) {
      const DeviceNumbers x(backend, kRows, kWidth, 9), normed(backend, kRows, kWidth),
          gated(backend, kRows, kWidth / 2);
      backend.rms_norm(normed.view(), x.view(), weight, 1e-6f);
      backend.silu_mul(gated.view(), normed.view());
      return gated.read();
    });
  }

  /// Steps that repeat are captured and replayed on a device that can; others run again.
  std::string replays() {
    constexpr std::int64_t kWidth = 128;
    const std::vector<float> weight = numbers(kWidth, 10), values = numbers(kWidth * kWidth, 11);
    const ConstTensorView part = view_of(values.data(), kWidth, kWidth);
    const auto matrix = subject_.load_matrix({&part, 1}, DType::bf16);
    const DeviceNumbers x(subject_, 1, kWidth), normed(subject_, 1, kWidth), out(subject_, 1, kWidth);
    const auto work = [&] {
      subject_.rms_norm(normed.view(), x.view(), weight, 1e-6f);
      subject_.matmul(out.view(), normed.view(), *matrix, {});
    };
    for (std::uint64_t step = 0; step < 6; ++step) {
      const std::vector<float> in = numbers(kWidth, 20 + step);
      subject_.copy_to_device(x.view().data, std::as_bytes(std::span(in)));
      subject_.run_step(work, true);
      const std::vector<float> found = out.read();
      subject_.run_step(work, false);
      if (found != out.read()) return fmt::format("step {} gave something else when it was repeated", step + 1);
    }
    return {};
  }

 private:
  template <class Run>
  std::string compare(const Run& run) {
    return difference(run(subject_), run(reference_));
  }

  Backend& subject_;
  Backend& reference_;
};

}  // namespace

SelfTestPart run_self_test_part(std::string name, const std::function<std::string()>& part) {
  SelfTestPart result{.name = std::move(name), .problem = {}};
  const auto begin = std::chrono::steady_clock::now();
  try {
    result.problem = part();
  } catch (const std::exception& error) {
    result.problem = error.what();
  }
  result.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

void run_self_test(Backend& subject, Backend& reference, const std::function<void(const SelfTestPart&)>& on_part) {
  SelfTest test(subject, reference);
  const auto run = [&](std::string name, const std::function<std::string()>& part) {
    on_part(run_self_test_part(std::move(name), part));
  };
  run("copies both ways", [&] { return test.copies(); });
  for (std::int64_t rows = 1; rows <= 8; ++rows)
    run(fmt::format("product, {} row{}", rows, rows == 1 ? "" : "s"), [&] { return test.product(rows, false); });
  run("product, 40 rows, with a bias", [&] { return test.product(40, true); });
  for (const std::int64_t rows : {1, 12, 200})
    run(fmt::format("product of quantised weights, {} row{}", rows, rows == 1 ? "" : "s"),
        [&] { return test.quantized_product(rows); });
  for (const std::int32_t width : {32, 64, 80, 96, 128})
    run(fmt::format("attention, heads of {}", width), [&] { return test.attention(width, DType::bf16); });
  run("attention, f32 KV", [&] { return test.attention(48, DType::f32); });
  run("norms and gates", [&] { return test.norms_and_gates(); });
  run("choice of tokens", [&] { return test.token_choice(); });
  run("repeated steps", [&] { return test.replays(); });
}

}  // namespace baton
