// SPDX-License-Identifier: Apache-2.0
// Pools of anchors: what they measure, what they forget, how they are kept in files.
#include <unistd.h>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

#include "engine/reuse/anchors/anchor_store.h"
#include "tests/support/tiny_model.h"

namespace anchor_store_test {

using namespace baton;

namespace {

const KvWidth kShape{{8, 8, 8}}, kUneven{{8, 0, 16}};

SharedText text_of(std::size_t n, std::uint64_t seed) {
  auto text = std::make_shared<SketchedText>();
  text->tokens = baton::test::random_tokens(n, seed);
  for (const TokenId id : text->tokens) {
    for (std::int64_t i = 0; i < SketchedText::kSketch; ++i)
      text->sketch.push_back(static_cast<float>((id >> (i % 8)) & 1) * 0.3f);
  }
  text->hash = hash_of(text->tokens);
  return text;
}

AnchorSample sample_of(const PlaceKey& key, std::uint64_t seed, std::size_t n = 12, const KvWidth& shape = kShape) {
  AnchorSample sample;
  sample.key = key;
  sample.size = 20;
  sample.shape = shape;
  sample.text = text_of(n, seed);
  sample.before = {text_of(5, seed + 1000)};
  sample.length = static_cast<std::int32_t>(n);
  sample.following = 2;
  for (std::size_t i = 0; i < n * 2 * 8 * 3; ++i) {
    const float base = static_cast<float>((seed + i) % 17) * 0.25f;
    sample.base.push_back(f32_to_bf16(base));
    sample.truth.push_back(f32_to_bf16(base + 0.5f));  // the same offset everywhere
  }
  sample.text_kv.assign(2 * 2 * 8 * 3, f32_to_bf16(static_cast<float>(seed)));
  return sample;
}

struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("baton-anchors-" + std::to_string(getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

std::vector<char> bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("anchor store: what corrections leave is measured before a text joins them", "[anchors]") {
  AnchorStore store(1 << 20);
  const PlaceKey key{1, "answer", ""};
  store.learn(sample_of(key, 1));
  AnchorPoolView pool = store.ask(key);
  REQUIRE(pool.anchors.size() == 1);
  CHECK(pool.records.empty());  // there was nothing to correct by
  AlignmentMemo memo;
  AnchorSample second = sample_of(key, 2);
  second.choice = choose_anchors({}, pool, second.text, second.before, memo);
  store.learn(std::move(second));
  pool = store.ask(key);
  REQUIRE(pool.records.size() == 1);
  CHECK(pool.records[0].error < 0.01f);  // the offsets were the same
  CHECK(pool.records[0].plain > 0.1f);
  CHECK(bf16_to_f32(pool.anchors[0]->offset[0]) == 0.5f);
}

TEST_CASE("anchor store: the least used of the older half goes, pools stay in the budget", "[anchors]") {
  AnchorStore store(1 << 20);
  const PlaceKey key{1, "answer", ""};
  for (std::uint64_t i = 0; i < 4; ++i) {
    AnchorSample sample = sample_of(key, i);
    sample.size = 4;
    store.learn(std::move(sample));
  }
  const std::vector<SharedAnchor> first = store.ask(key).anchors;
  ++first[0]->uses;  // the oldest is used, the second never
  AnchorSample fifth = sample_of(key, 9);
  fifth.size = 4;
  store.learn(std::move(fifth));
  const std::vector<SharedAnchor> then = store.ask(key).anchors;
  REQUIRE(then.size() == 4);
  CHECK(then[0] == first[0]);
  CHECK(then[1] == first[2]);

  const std::int64_t one = first[0]->bytes();
  std::int64_t counted = 0;
  AnchorStore small(3 * one + one / 2);
  small.on_bytes([&counted](std::int64_t bytes) { counted += bytes; });
  for (std::uint64_t i = 0; i < 2000; ++i) small.learn(sample_of({i % 7, "answer", ""}, i));
  small.flush();
  const AnchorStoreStats stats = small.stats();
  CHECK(stats.bytes <= small.budget_bytes());
  CHECK(stats.peak_bytes <= small.budget_bytes());
  CHECK(stats.anchors == 3);
  CHECK(counted == stats.bytes);
}

TEST_CASE("anchor store: prompts that never come again do not leave pools without end", "[anchors]") {
  AnchorStore store(1 << 24);
  std::int64_t counted = 0;
  store.on_bytes([&counted](std::int64_t bytes) { counted += bytes; });
  for (std::uint64_t i = 0; i < 5000; ++i) store.learn(sample_of({i, "answer", ""}, i % 50, 2));
  store.flush();
  for (std::uint64_t i = 0; i < 100; ++i) store.ask({10000 + i, "answer", ""});
  const AnchorStoreStats stats = store.stats();
  CHECK(stats.pools == 4096);
  CHECK(stats.anchors == 4096 - 100);
  CHECK(counted == stats.bytes);
}

TEST_CASE("anchor store: anchors that come from many threads are all there", "[anchors]") {
  AnchorStore store(std::int64_t{1} << 30);
  const PlaceKey key{1, "answer", ""};
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (std::uint64_t i = 0; i < 50; ++i) {
          AnchorSample sample = sample_of(key, 1 + t * 50 + i);
          sample.size = 1000;
          store.learn(std::move(sample));
          if (i % 10 == 0) store.ask(key);
        }
      });
    }
  }
  store.flush();
  CHECK(store.stats().anchors == 400);
  CHECK(store.ask(key).anchors.size() == 400);
}

TEST_CASE("anchor file: anchors stay when another process truncates the file", "[anchors]") {
  const Folder folder;
  const std::filesystem::path file = folder.path / "model.anchors";
  AnchorStore store(1 << 20), again(1 << 20);
  for (std::uint64_t i = 0; i < 6; ++i) store.learn(sample_of({i, "answer", ""}, i, 5 + i));
  AnchorSample last = sample_of({6, "answer", ""}, 6, 3);  // no fixed text behind it: an empty array
  last.following = 0;
  last.text_kv.clear();
  store.learn(std::move(last));
  save_anchors(file, "key", store);
  load_anchors(file, "key", kShape, again);
  std::filesystem::resize_file(file, 0);
  const auto saved = store.all();
  for (const auto& [key, pool] : again.all()) {
    const Anchor& anchor = *pool.anchors.at(0);
    CHECK(std::ranges::equal(anchor.offset, saved.at(key).anchors[0]->offset));
    CHECK(std::ranges::equal(anchor.text_kv, saved.at(key).anchors[0]->text_kv));
  }
  CHECK(again.stats().anchors == 7);
}

TEST_CASE("anchor file: what was saved is there again, and a damaged file is refused", "[anchors]") {
  const Folder folder;
  const std::filesystem::path file = folder.path / "model.anchors";
  AnchorStore store(1 << 20);
  const KvWidth shape = GENERATE(kShape, kUneven), other = shape == kShape ? kUneven : kShape;
  for (std::uint64_t i = 0; i < 6; ++i) store.learn(sample_of({i % 2, "answer", "pool"}, i, 5 + i, shape));
  save_anchors(file, "key", store);

  AnchorStore again(1 << 20);
  CHECK(load_anchors(file, "key", shape, again) == 6);
  const auto before = store.all(), after = again.all();
  REQUIRE(before.size() == after.size());
  for (auto a = before.begin(), b = after.begin(); a != before.end(); ++a, ++b) {
    REQUIRE(a->first == b->first);
    REQUIRE(a->second.anchors.size() == b->second.anchors.size());
    for (std::size_t i = 0; i < a->second.anchors.size(); ++i) {
      const Anchor &x = *a->second.anchors[i], &y = *b->second.anchors[i];
      CHECK(x.text->tokens == y.text->tokens);
      CHECK(x.text->hash == y.text->hash);
      CHECK(std::ranges::equal(x.offset, y.offset));
      CHECK(std::ranges::equal(x.text_kv, y.text_kv));
      CHECK(x.before[0]->tokens == y.before[0]->tokens);
    }
  }

  AnchorStore empty(1 << 20);
  const auto refused = [&](const std::string& key, const KvWidth& width, const std::string& reason) {
    try {
      load_anchors(file, key, width, empty);
      return false;
    } catch (const AnchorFileError& error) {
      return std::string(error.what()).find(reason) != std::string::npos && empty.stats().anchors == 0;
    }
  };
  CHECK(refused("another", shape, "another model"));
  CHECK(refused("key", {{8, 8, 8, 8}}, "differs in shape"));
  CHECK(refused("key", other, "differs in shape"));
  const std::vector<char> good = bytes_of(file);
  for (std::size_t at = 0; at < good.size(); at += at < 64 ? 1 : 37) {
    if (at >= 40 && at < 64) continue;  // unused bytes of the head
    std::vector<char> bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    std::ofstream(file, std::ios::binary).write(bad.data(), static_cast<std::streamsize>(bad.size()));
    INFO("byte " << at);
    try {
      load_anchors(file, "key", shape, empty);
      AnchorStore fresh(1 << 20);  // only padding may be anything
      load_anchors(file, "key", shape, fresh);
      bool same = fresh.all().size() == before.size();
      for (const auto& [pool_key, pool] : fresh.all()) {
        for (std::size_t i = 0; i < pool.anchors.size(); ++i)
          same = same && std::ranges::equal(pool.anchors[i]->offset, before.at(pool_key).anchors[i]->offset);
      }
      CHECK(same);
    } catch (const AnchorFileError&) {
    }
  }
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{10}, std::size_t{64}, good.size() / 2, good.size() - 1}) {
    std::ofstream(file, std::ios::binary).write(good.data(), static_cast<std::streamsize>(length));
    CHECK_THROWS_AS(load_anchors(file, "key", shape, empty), AnchorFileError);
  }
}

TEST_CASE("anchor store: layers have widths of their own, and offsets lie behind each other", "[anchors]") {
  AnchorStore store(1 << 20);
  store.learn(sample_of({1, "answer", "pool"}, 3, 4, kUneven));
  const SharedAnchor anchor = store.ask({1, "answer", "pool"}).anchors.at(0);
  CHECK((anchor->offset_of(0).size() == 4 * 2 * 8 && anchor->offset_of(1).empty()));
  CHECK(
      (anchor->offset_of(2).size() == 4 * 2 * 16 && anchor->offset_of(2).data() == anchor->offset.data() + 4 * 2 * 8));
  CHECK((anchor->text_of(2).size() == 2 * 2 * 16 && anchor->text_of(2).data() == anchor->text_kv.data() + 2 * 2 * 8));
  AnchorChoice choice;
  choice.anchors = {anchor};
  choice.weights = {1.0f};
  auto pairs = std::make_shared<Alignment>();
  pairs->to = {0, 1, 2, 3};
  choice.alignments = {pairs};
  std::vector<float> rows(4 * 2 * 16, 1.0f);
  add_offsets(rows, choice, 2, 4);
  CHECK(std::ranges::all_of(rows, [](float one) { return one == 1.5f; }));
}

}  // namespace anchor_store_test
