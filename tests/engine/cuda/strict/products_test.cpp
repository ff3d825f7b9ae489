// SPDX-License-Identifier: Apache-2.0
// Products by the real code over the strict cuBLASLt: which algorithm runs, and that every condition of the library's
// documentation holds for any shape, alignment and bias.
#include "engine/cuda/host/products.h"

#include <catch2/catch.hpp>
#include <random>

#include "engine/base/files.h"
#include "engine/cuda/host/runtime.h"
#include "engine/cuda/host/staging.h"
#include "tests/support/strict/strict.h"
#include "tests/support/temp_folder.h"

namespace baton::test::products_test {
namespace {

/// Products of random numbers on the device, and what they should be.
class Case {
 public:
  Case(std::int64_t t, std::int64_t n, std::int64_t c, bool biased, const std::filesystem::path& measured = {})
      : runtime_(cuda::make_device_runtime(0, measured)), staging_(*runtime_, 1 << 16), t_(t), n_(n), c_(c) {
    std::mt19937 random(static_cast<std::uint32_t>(t * 1000 + n * 10 + c));
    const auto numbers = [&](std::int64_t count) {
      std::vector<float> all(static_cast<std::size_t>(count));
      for (float& one : all) one = static_cast<float>(static_cast<int>(random() % 9) - 4) / 4;
      return all;
    };
    x_ = numbers((t + 1) * (c + kMaxPadding));
    w_ = numbers(n * c);
    if (biased) bias_ = numbers(n);
    x_device_ = put(x_);
    w_device_ = put(w_);
    if (biased) bias_device_ = put(bias_);
    out_ = static_cast<float*>(runtime_->allocate(static_cast<std::size_t>(t * n) * sizeof(float)));
  }
  ~Case() {
    for (void* memory : memory_) runtime_->release(memory);
    runtime_->release(out_);
  }
  /// x begins `shift` numbers into its memory; its rows are `padding` numbers longer than they need to be.
  bool is_right(std::int64_t shift, std::int64_t padding) {
    const std::int64_t stride = c_ + padding;
    runtime_->clear(out_, static_cast<std::size_t>(t_ * n_) * sizeof(float));
    runtime_->multiply({.out = out_,
                        .out_stride = n_,
                        .x = reinterpret_cast<const std::byte*>(x_device_ + shift),
                        .x_stride = stride,
                        .w = reinterpret_cast<const std::byte*>(w_device_),
                        .w_stride = c_,
                        .bias = bias_device_,
                        .t = t_,
                        .n = n_,
                        .c = c_,
                        .dtype = DType::f32});
    std::vector<float> out(static_cast<std::size_t>(t_ * n_));
    staging_.to_host(std::as_writable_bytes(std::span(out)), out_);
    for (std::int64_t t = 0; t < t_; ++t) {
      for (std::int64_t n = 0; n < n_; ++n) {
        double sum = bias_.empty() ? 0.0 : bias_[static_cast<std::size_t>(n)];
        for (std::int64_t c = 0; c < c_; ++c)
          sum += x_[static_cast<std::size_t>(shift + t * stride + c)] * w_[static_cast<std::size_t>(n * c_ + c)];
        if (!(std::abs(out[static_cast<std::size_t>(t * n_ + n)] - sum) <= 1e-4)) return false;
      }
    }
    return true;
  }
  static constexpr std::int64_t kMaxPadding = 4;

 private:
  float* put(const std::vector<float>& values) {
    void* memory = memory_.emplace_back(runtime_->allocate(values.size() * sizeof(float)));
    staging_.to_device(memory, std::as_bytes(std::span(values)));
    return static_cast<float*>(memory);
  }
  std::unique_ptr<cuda::Runtime> runtime_;
  cuda::Staging staging_;
  std::int64_t t_, n_, c_;
  std::vector<float> x_, w_, bias_;
  std::vector<void*> memory_;
  float *x_device_ = nullptr, *w_device_ = nullptr, *bias_device_ = nullptr, *out_ = nullptr;
};

TEST_CASE("products of any shape, alignment and bias meet the conditions of cuBLASLt") {
  for (const std::int64_t t : {1, 8, 9, 30}) {
    for (const bool biased : {false, true}) {
      Case one(t, 12, 20, biased);
      for (const std::int64_t shift : {0, 1, 2, 0}) {
        for (const std::int64_t padding : {0, 4}) {
          INFO(t << " rows, shifted by " << shift << ", padded by " << padding << (biased ? ", with a bias" : ""));
          REQUIRE(one.is_right(shift, padding));
        }
      }
    }
  }
}

TEST_CASE("few rows run with the fastest algorithm, many with the library's first choice") {
  strict::restart({.devices = {{.memory = std::size_t{1} << 30}}});  // room to empty the cache while measuring
  {
    Case few(4, 12, 20, false);
    REQUIRE(few.is_right(0, 0));
    const auto measured = strict::algorithms();
    CHECK(measured.size() == 3);
    REQUIRE(few.is_right(0, 0));
    CHECK(strict::algorithms().at(1) == measured.at(1) + 1);  // the strict library's second is its fastest
  }
  {
    const auto before = strict::algorithms();
    Case many(30, 12, 20, false);
    REQUIRE(many.is_right(0, 0));
    CHECK(strict::algorithms().at(0) == before.at(0) + 1);
    CHECK(strict::algorithms().at(1) == before.at(1));
  }
}

std::uint64_t products_run() {
  std::uint64_t all = 0;
  for (const auto& [algorithm, count] : strict::algorithms()) all += count;
  return all;
}

TEST_CASE("what was measured of a product is known to the next process, unless the file is wrong") {
  const TempFolder folder;
  // Returns how many products the library ran for one of ours.
  const auto run = [&] {
    strict::restart();
    Case one(4, 12, 20, false, folder.path());
    REQUIRE(one.is_right(0, 0));
    const std::uint64_t ran = products_run();
    REQUIRE(one.is_right(0, 0));
    CHECK(strict::algorithms().at(1) > 0);  // the strict library's second is its fastest
    return ran;
  };
  const std::uint64_t measuring = run();
  CHECK(measuring > 3);
  CHECK(run() == 1);

  std::vector<std::filesystem::path> files(std::filesystem::directory_iterator(folder.path()), {});
  REQUIRE(files.size() == 1);
  const std::string good = InputFile(files[0]).text(1 << 20);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    REQUIRE(text.find(from) != std::string::npos);
    return text.replace(text.find(from), from.size(), to);
  };
  const std::string bad[] = {"",
                             "[]",
                             "{",
                             good.substr(0, good.size() / 2),
                             std::string(std::size_t{3} << 20, ' '),
                             std::string(100'000, '['),
                             changed("\":1}", "\":10}"),
                             changed("\":1}", "\":-1}"),
                             changed("\":1}", "\":1e300}"),
                             changed("\":1}", "\":\"1\"}"),
                             changed("\":1}", "\":{}}"),
                             changed("\"format\":1", "\"format\":2"),
                             changed("compute capability 8.6", "compute capability 9.0"),
                             changed("\"fastest\":{", "\"other\":{")};
  for (const std::string& text : bad) {
    INFO(text.substr(0, 200));
    write_whole(files[0], text);
    CHECK(run() == measuring);
    CHECK(run() == 1);
    CHECK(InputFile(files[0]).text(1 << 20) == good);
  }
  write_whole(files[0], changed("\":1}", "\":7}"));  // a way that the library does not offer for this product
  CHECK(run() == measuring);
  std::filesystem::remove(files[0]);
  std::filesystem::create_directory(files[0]);
  CHECK(run() == measuring);
  CHECK(run() == measuring);
}

}  // namespace
}  // namespace baton::test::products_test
