// SPDX-License-Identifier: Apache-2.0
// Pinned memory is never written while a copy may still read it; content arrives whole, in any sizes.
#include "engine/cuda/host/staging.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <deque>
#include <random>
#include <thread>

#include "tests/support/simt/emulated_backend.h"
#include "tests/support/strict/strict.h"

namespace baton::test::staging_test {
namespace {

using DeviceRuntime = std::unique_ptr<cuda::Runtime>;  // whose copies run as late as they may

TEST_CASE("staging: what was given arrives, however late the copies are") {
  std::mt19937 random(5);
  const DeviceRuntime owned = cuda::make_device_runtime(0);
  cuda::Runtime& runtime = *owned;
  {
    cuda::Staging staging(runtime, 1024);
    std::vector<std::vector<std::byte>> sent;
    std::vector<void*> memory;
    for (int i = 0; i < 200; ++i) {
      std::vector<std::byte>& bytes = sent.emplace_back(random() % (i % 10 == 0 ? 9000u : 300u));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      memory.push_back(runtime.allocate(bytes.size() + 1));
      std::vector<std::byte> given = bytes;
      staging.to_device(memory.back(), given);
      std::fill(given.begin(), given.end(), std::byte{0});  // ours again
    }
    for (std::size_t i = 0; i < sent.size(); ++i) {
      std::vector<std::byte> back(sent[i].size());
      staging.to_host(back, memory[i]);
      REQUIRE(back == sent[i]);
      runtime.release(memory[i]);
    }
  }
}

TEST_CASE("a result is there while transfers are still in progress, after one wait") {
  const DeviceRuntime owned = cuda::make_device_runtime(0);
  cuda::Runtime& runtime = *owned;
  constexpr std::size_t kBytes = 1000;
  auto* memory = static_cast<std::byte*>(runtime.allocate(2 * kBytes));
  {
    cuda::Staging staging(runtime, 4096);
    cuda::PinnedPool pool(runtime);
    const Buffer down = pool.allocate(kBytes), up = pool.allocate(kBytes);
    std::memset(down.data(), 7, kBytes);
    std::memset(up.data(), 8, kBytes);
    runtime.clear(memory, 2 * kBytes);
    const TransferId downloaded =
        runtime.transfer({.memory = memory, .device = memory, .host = down.data(), .bytes = kBytes, .upload = false});
    pool.used_by(down.data(), downloaded, false);
    const TransferId uploaded = runtime.transfer(
        {.memory = memory, .device = memory + kBytes, .host = up.data(), .bytes = kBytes, .after = downloaded});
    pool.used_by(up.data(), uploaded, true);
    void* result = runtime.allocate(4);
    runtime.clear(result, 4);
    const auto waits = [] { return strict::calls().at("cudaStreamSynchronize"); };
    read_back(staging, static_cast<const char*>(result), 4);  // the counter exists
    const std::uint64_t before = waits();
    REQUIRE(read_back(staging, static_cast<const char*>(result), 4)[3] == 0);
    CHECK(waits() == before + 1);
    CHECK(down.data()[0] != std::byte{0});  // the copy runs as late as it may
    runtime.wait_for(downloaded);
    CHECK(down.data()[0] == std::byte{0});
    runtime.follow(uploaded);
    REQUIRE(read_back(staging, reinterpret_cast<const char*>(memory + kBytes), kBytes)[kBytes - 1] == 8);
    runtime.release(result);
  }
  runtime.release(memory);
}

TEST_CASE("staging: arrays have places in a step, and are sent only when their place holds something else") {
  const DeviceRuntime owned = cuda::make_device_runtime(0);
  cuda::Runtime& runtime = *owned;
  cuda::Staging staging(runtime, 4096);
  cuda::KeptArrays arrays(runtime, staging);
  const auto put = [&](std::vector<std::int32_t> values) { return arrays.put(std::span<const std::int32_t>(values)); };
  staging.begin_step();
  const std::int32_t* first = put({1, 2, 3});
  REQUIRE(put({1, 2, 3}) == first);  // as in the layer before
  const std::int32_t* second = put({4, 5});
  REQUIRE(second != first);
  REQUIRE(put({4, 5}) == second);
  REQUIRE(staging.sent() == 2);

  staging.begin_step();
  REQUIRE(put({1, 2, 3}) == first);
  REQUIRE(put({4, 6}) == second);
  REQUIRE(staging.sent() == 3);
  REQUIRE(read_back(staging, first, 3)[2] == 3);
  REQUIRE(read_back(staging, second, 2)[1] == 6);

  staging.begin_step();
  const std::int32_t* grown = put(std::vector<std::int32_t>(500, 4));
  REQUIRE(read_back(staging, grown, 500)[499] == 4);
  put({});
  put({});
  REQUIRE(staging.sent() == 4);  // nothing to send is not sent
}

TEST_CASE("staging: whoever knows no steps has places without end") {
  const DeviceRuntime owned = cuda::make_device_runtime(0);
  cuda::Runtime& runtime = *owned;
  cuda::Staging staging(runtime, 4096);
  cuda::KeptArrays arrays(runtime, staging);
  for (std::int32_t i = 0; i < 1000; ++i) {
    const std::int32_t* at = arrays.put(std::span<const std::int32_t>(&i, 1));
    REQUIRE(read_back(staging, at, 1)[0] == i);
  }
}

TEST_CASE("staging that ends waits for its copies") {
  const DeviceRuntime runtime = cuda::make_device_runtime(0);
  void* memory = runtime->allocate(100);
  {
    cuda::Staging staging(*runtime, 1024);
    staging.to_device(memory, std::vector<std::byte>(100));
  }
  runtime->release(memory);
}

TEST_CASE("pinned memory that is given back serves again, but not before its copies are made") {
  const DeviceRuntime owned = cuda::make_device_runtime(0);
  cuda::Runtime& runtime = *owned;
  void* device = runtime.allocate(1000);
  {
    cuda::Staging staging(runtime, 1024);
    cuda::PinnedPool pool(runtime);
    const void* first = nullptr;
    for (int i = 0; i < 50; ++i) {
      const std::size_t bytes = 900 - static_cast<std::size_t>(i % 7) * 50;
      Buffer piece = pool.allocate(bytes);
      if (first == nullptr) first = piece.data();
      REQUIRE(piece.bytes() == bytes);
      CHECK(piece.data() == first);  // each fits where the one before was
      std::memset(piece.data(), i, bytes);
      runtime.clear(device, 1000);
      pool.used_by(piece.data(),
                   runtime.transfer({.memory = device, .device = device, .host = piece.data(), .bytes = bytes}), true);
      piece = {};  // given back while the copy is under way
      const Buffer next = pool.allocate(bytes);
      std::memset(next.data(), 99, bytes);
      runtime.synchronize();
      REQUIRE(read_back(staging, static_cast<const char*>(device), bytes)[bytes - 1] == i);
    }
    const Buffer small = pool.allocate(40), large = pool.allocate(5000), same = pool.allocate(40);
    CHECK(small.data() == first);
    CHECK(same.data() != small.data());
    CHECK(large.data() != small.data());
  }
  runtime.release(device);
}

TEST_CASE("pinned memory that nobody uses does not grow") {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  const DeviceRuntime owned = cuda::make_device_runtime(0);
  cuda::Runtime& runtime = *owned;
  cuda::PinnedPool pool(runtime);
  std::vector<Buffer> pieces;
  for (std::size_t i = 0; i < 8; ++i) pieces.push_back(pool.allocate(40 * kMiB + i));
  pieces.clear();
  const Buffer other = pool.allocate(100);
  CHECK(strict::calls().at("cudaFreeHost") == 2);  // 256 MiB are kept
}

TEST_CASE("pinned memory is divided into pieces, which become one again") {
  const DeviceRuntime owned = cuda::make_device_runtime(0);
  cuda::PinnedPool pool(*owned);
  constexpr std::size_t kBytes = 300'000, kMaxPiece = 20'000;
  auto* device = static_cast<std::byte*>(owned->allocate(kMaxPiece));
  const void* whole = pool.allocate(kBytes).data();
  const auto pins = [] { return strict::calls().at("cudaMallocHost"); };
  const std::uint64_t before = pins();
  std::mt19937 random(5);
  std::vector<std::pair<Buffer, std::byte>> pieces;  // with what they are filled with
  for (int i = 0; i < 300; ++i) {
    if (!pieces.empty() && (random() % 2 == 0 || pieces.size() > 6)) {
      const auto at = pieces.begin() + static_cast<std::ptrdiff_t>(random() % pieces.size());
      const Buffer& buffer = at->first;
      const auto is_filled = [&](std::byte one) { return one == at->second; };
      REQUIRE(std::all_of(buffer.data(), buffer.data() + buffer.bytes(), is_filled));
      const TransferId upload =
          owned->transfer({.memory = device, .device = device, .host = buffer.data(), .bytes = buffer.bytes()});
      pool.used_by(buffer.data(), upload, true);  // and is not over when the piece is released
      pieces.erase(at);
    } else {
      Buffer buffer = pool.allocate(1 + random() % kMaxPiece);
      std::memset(buffer.data(), i, buffer.bytes());
      pieces.emplace_back(std::move(buffer), static_cast<std::byte>(i));
    }
  }
  pieces.clear();
  CHECK(pool.allocate(kBytes).data() == whole);
  CHECK(pins() == before);
  owned->release(device);
}

TEST_CASE("a pool that is used repeatedly pins its next blocks before they are needed") {
  constexpr int kPieces = 300;
  for (const bool ahead : {false, true}) {
    strict::restart();
    {
      const DeviceRuntime owned = cuda::make_device_runtime(0);
      cuda::PinnedPool pool(*owned, ahead);
      std::vector<Buffer> pieces;
      for (int i = 0; i < kPieces; ++i) {
        pieces.push_back(pool.allocate(std::size_t{1} << 20));
        if (ahead) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    const std::uint64_t pins = strict::calls().at("cudaMallocHost");
    if (ahead) CHECK(pins < kPieces / 3);
    if (!ahead) CHECK(pins == kPieces);
  }
}

}  // namespace
}  // namespace baton::test::staging_test
