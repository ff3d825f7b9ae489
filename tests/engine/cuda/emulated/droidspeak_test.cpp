// SPDX-License-Identifier: Apache-2.0
// KV of a device's engine that engines of other models read, wherever they are.
#include <catch2/catch.hpp>

#include "engine/base/random.h"
#include "engine/cpu/cpu.h"
#include "engine/loop/step_engine.h"
#include "engine/registry.h"
#include "tests/support/asking.h"
#include "tests/support/simt/emulated_backend.h"

namespace baton::test::between_models_test {
namespace {

constexpr std::int32_t kLayers = 4;

std::shared_ptr<StepEngine> engine_on(std::unique_ptr<Backend> backend, const LocalEngineOptions& options = {}) {
  auto model = make_tiny_model(*backend, {.layers = kLayers});
  return std::make_shared<StepEngine>(std::move(backend), std::move(model), options);
}

ReuseOptions droidspeak() {
  ReuseOptions reuse;
  reuse.method = find_method("droidspeak");
  reuse.range = LayerRange::group(1, 2);
  reuse.min_tokens = 1;
  reuse.prefix = false;
  return reuse;
}

PromptPart answer(InferenceEngine& author, bool elsewhere) {
  GenerationRequest request;
  request.prompt = {text(20, 1)};
  request.reuse = droidspeak();
  request.reuse.record = true;
  request.output_readers = 4;
  request.export_output = elsewhere;
  request.forced = random_tokens(30, 2);
  const Run run = start(author, std::move(request)).get();
  REQUIRE(run.result.output);
  return {"answer", run.result.tokens, run.result.output};
}

Run read(InferenceEngine& reader, PromptPart part) {
  Run run = ask(reader, {text(9, 7), std::move(part), text(6, 8)}, droidspeak());
  CHECK(run.result.uses[1].from_segment);
  return run;
}

/// A text of random KV in the backend's memory.
std::shared_ptr<const Segment> random_segment(Backend& backend, std::uint64_t seed) {
  KvLayout layout = make_tiny_model(backend, {.layers = kLayers})->kv_layout();
  layout.raw_keys = true;
  std::vector<TokenId> ids = random_tokens(40, seed);
  const std::size_t bytes = ids.size() * layout.token_bytes();
  std::vector<std::byte> values(bytes);
  for (std::byte& value : values) value = static_cast<std::byte>(next_random(seed) % 64);  // finite
  return std::make_shared<const Segment>(backend, layout, std::move(ids), values);
}

std::vector<std::vector<float>> values_of(const Segment& segment) {
  std::vector<std::vector<float>> values;
  for (std::int32_t layer = 0; layer < kLayers; ++layer) values.push_back(values_on_host(segment, layer));
  return values;
}

}  // namespace

TEST_CASE("KV that another device lends is uploaded layer by layer", "[segments]") {
  const auto author = make_emulated_backend(), reader = make_emulated_backend();
  const auto original = random_segment(*author, 1);
  auto lent = original->copy_to_host();
  author->wait();
  auto copy = lent->copy_to(*reader);
  CHECK(copy->is_uploading());
  for (std::int32_t layer = 0; layer < kLayers; ++layer) copy->upload(layer);
  CHECK(copy->is_uploading());  // nothing waits for it
  lent = nullptr;
  for (std::int32_t layer = 0; layer < kLayers; ++layer) copy->values(layer);
  CHECK_FALSE(copy->is_uploading());                              // the reader's stream waits, the host does not
  const auto other = random_segment(*author, 2)->copy_to_host();  // not into memory that is being copied
  author->wait();
  CHECK(values_of(*copy) == values_of(*original));
}

TEST_CASE("the memory of another device is free again when nobody waits for its copies", "[segments]") {
  const auto author = make_emulated_backend(), reader = make_emulated_backend();
  auto lent = random_segment(*author, 1)->copy_to_host();
  author->wait();
  auto copy = lent->copy_to(*reader);
  for (std::int32_t layer = 0; layer < kLayers; ++layer) copy->upload(layer);
  lent = nullptr;
  copy = nullptr;  // its reader was cancelled
  const auto next = random_segment(*author, 2);
  const auto reused = next->copy_to_host();  // takes the same pinned memory
  author->wait();
  CHECK(values_of(*reused) == values_of(*next));
}

TEST_CASE("KV for other models leaves a copy in host memory, which goes with its segment", "[segments]") {
  const auto author = engine_on(make_emulated_backend());
  PromptPart kept = answer(*author, false), lent = answer(*author, true);
  CHECK(author->exported_kv(kept.segment) == nullptr);
  const auto copy = author->exported_kv(lent.segment);
  REQUIRE(copy);
  CHECK(copy->on_host());
  CHECK(author->stats().segments.exported_bytes == static_cast<std::int64_t>(copy->bytes()));
  CHECK(author->stats().segments.host_peak_bytes == static_cast<std::int64_t>(copy->bytes()));
  const auto own = author->segment(lent.segment);  // nothing runs: this thread may look
  for (std::int32_t layer = 0; layer < kLayers; ++layer)
    CHECK(values_on_host(*copy, layer) == values_on_host(*own, layer));
  lent.segment = nullptr;
  CHECK(author->stats().segments.exported_bytes == 0);
}

TEST_CASE("KV is lent within the host tier's budget", "[segments]") {
  const auto none = engine_on(make_emulated_backend(), {.host_segment_budget_bytes = -1});
  CHECK(none->exported_kv(answer(*none, true).segment) == nullptr);
  const auto first = engine_on(make_emulated_backend());
  const std::int64_t bytes = static_cast<std::int64_t>(first->exported_kv(answer(*first, true).segment)->bytes());
  const auto narrow = engine_on(make_emulated_backend(), {.host_segment_budget_bytes = bytes + bytes / 2});
  const PromptPart one = answer(*narrow, true), two = answer(*narrow, true);
  CHECK(narrow->exported_kv(one.segment) != nullptr);
  CHECK(narrow->exported_kv(two.segment) == nullptr);
  CHECK(narrow->stats().segments.exported_bytes == bytes);
}

TEST_CASE("a device reads what another device, or the CPU, lends it", "[segments]") {
  const auto reader = engine_on(make_emulated_backend());
  const Run expected = read(*reader, answer(*reader, false));
  const auto device = engine_on(make_emulated_backend());
  PromptPart part = answer(*device, true);
  part.imported_kv = device->exported_kv(part.segment);
  part.segment = nullptr;
  CHECK(same(read(*reader, part), expected));  // the weights are the same

  const auto cpu = engine_on(make_cpu_backend(1));
  part = answer(*cpu, true);
  const Run on_cpu = read(*cpu, part);
  part.imported_kv = cpu->exported_kv(part.segment);
  part.segment = nullptr;
  CHECK(distance(read(*reader, part), expected) <
        0.05 * distance(expected,
                        Run{{}, std::vector(expected.logits.size(), std::vector<float>(expected.logits[0].size()))}));
  part.imported_kv = device->exported_kv(answer(*device, true).segment);
  CHECK(distance(read(*cpu, part), on_cpu) <
        0.05 *
            distance(on_cpu, Run{{}, std::vector(on_cpu.logits.size(), std::vector<float>(on_cpu.logits[0].size()))}));
}

}  // namespace baton::test::between_models_test
