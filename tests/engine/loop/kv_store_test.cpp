// SPDX-License-Identifier: Apache-2.0
// KV that outlives an engine: the second engine reads what the first has computed, and whatever lies in the folder, its
// answers are those without one.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/kv/kv_store.h"
#include "engine/loop/step_engine.h"
#include "tests/support/reuse_prompts.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_engine.h"

namespace baton::test::kv_store_test {
namespace {

namespace fs = std::filesystem;
using namespace reuse_prompts;
constexpr std::int64_t kBudget = 64 << 20;

ReuseOptions prefix() {
  ReuseOptions reuse;
  reuse.method = &prefix_method();
  return reuse;
}

std::shared_ptr<StepEngine> engine_with(const fs::path& folder, std::int64_t budget = kBudget,
                                        const std::string& settings = "model", const TinyOptions& model = {}) {
  auto engine = tiny_engine({}, model);
  KvLayout layout = engine->model().kv_layout();
  layout.raw_keys = true;
  engine->set_store(std::make_unique<KvStore>(folder, budget, settings, layout), true);
  return engine;
}

std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".kv") files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

std::vector<char> bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const fs::path& file, const std::vector<char>& bytes) {
  std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::int64_t size_of_all(const fs::path& folder) {
  std::int64_t bytes = 0;
  for (const fs::path& file : files_of(folder)) bytes += static_cast<std::int64_t>(fs::file_size(file));
  return bytes;
}

bool equal(const Run& a, const Run& b) { return a.logits == b.logits; }

TEST_CASE("a later engine reads the beginning that an earlier one computed, and answers the same") {
  const TempFolder folder;
  for (const TinyOptions& model :
       {TinyOptions{}, TinyOptions{.layers = 4, .window = 21, .qk_norm = true, .gemma = true},
        TinyOptions{.layers = 5, .window = 21, .qk_norm = true, .gemma4 = true},
        TinyOptions{.dtype = DType::f32, .kv_dtype = DType::f32}}) {
    const fs::path own =
        folder.path() / std::to_string(model.layers) / std::to_string(static_cast<int>(model.kv_dtype));
    for (const std::size_t length : {100u, 300u, 480u}) {
      const std::vector<PromptPart> prompt = {text(length, length), text(9, 2)};
      const Run expected = ask(*tiny_engine({}, model), prompt, prefix());
      const Run first = ask(*engine_with(own, kBudget, "model", model), prompt, prefix());
      CHECK(first.result.stored_tokens == 0);
      const auto later = engine_with(own, kBudget, "model", model);
      const Run second = ask(*later, prompt, prefix());
      INFO("length " << length << ", layers " << model.layers);
      CHECK(second.result.stored_tokens == static_cast<std::int64_t>((length + 9) / KvStore::kBlock * KvStore::kBlock));
      CHECK(second.result.kv_computed < first.result.kv_computed + (length < 128 ? 1 : 0));
      CHECK(equal(first, expected));
      CHECK(equal(second, expected));
      CHECK(ask(*later, prompt, prefix()).result.stored_tokens == 0);  // it is in memory now
    }
  }
}

TEST_CASE("prompts with a common beginning share its files, and a longer one continues it") {
  const TempFolder folder;
  const PromptPart common = text(300, 1);
  ask(*engine_with(folder.path()), {common, text(100, 2)}, prefix());
  CHECK(files_of(folder.path()).size() == 3);
  ask(*engine_with(folder.path()), {common, text(100, 3)}, prefix());
  CHECK(files_of(folder.path()).size() == 4);  // two blocks are those of both
  const std::vector<PromptPart> longer = {common, text(100, 3), text(100, 4)};
  const Run third = ask(*engine_with(folder.path()), longer, prefix());
  CHECK(third.result.stored_tokens == 384);
  CHECK(equal(third, ask(*tiny_engine(), longer, prefix())));
  CHECK(ask(*engine_with(folder.path()), longer, prefix()).result.stored_tokens == 384);
}

TEST_CASE("KV of other settings is not taken") {
  const TempFolder folder;
  const std::vector<PromptPart> prompt = {text(300, 1)};
  ask(*engine_with(folder.path()), prompt, prefix());
  CHECK(ask(*engine_with(folder.path(), kBudget, "other"), prompt, prefix()).result.stored_tokens == 0);
  CHECK(ask(*engine_with(folder.path()), {text(300, 2)}, prefix()).result.stored_tokens == 0);
  CHECK(ask(*engine_with(folder.path()), prompt, prefix()).result.stored_tokens == 256);
}

TEST_CASE("a file that is damaged, cut, foreign or gone is computed, and is whole again afterwards") {
  const TempFolder folder;
  const std::vector<PromptPart> prompt = {text(300, 1)};
  const Run expected = ask(*engine_with(folder.path()), prompt, prefix());
  const std::vector<fs::path> files = files_of(folder.path());
  REQUIRE(files.size() == 2);
  const std::vector<char> one = bytes_of(files[0]), other = bytes_of(files[1]);
  std::vector<std::vector<char>> wrong = {{}, other};
  for (std::size_t at = 0; at < one.size(); at += at < 600 ? 37 : 4096) {
    wrong.push_back(one);
    wrong.back()[at] = static_cast<char>(wrong.back()[at] ^ 0x40);
    wrong.emplace_back(one.begin(), one.begin() + static_cast<std::ptrdiff_t>(at));
  }
  for (const std::vector<char>& bytes : wrong) {
    write(files[0], bytes);
    const auto engine = engine_with(folder.path());
    const Run run = ask(*engine, prompt, prefix());
    CHECK(equal(run, expected));
    CHECK(run.result.stored_tokens < 256);
    CHECK(engine->stats().store.damaged == 1);
  }
  CHECK(bytes_of(files[0]) == one);
  fs::remove(files[1]);
  CHECK(equal(ask(*engine_with(folder.path()), prompt, prefix()), expected));
  CHECK(bytes_of(files[1]) == other);
  fs::remove_all(folder.path());
  const auto engine = engine_with(folder.path());
  fs::remove_all(folder.path());  // while it is open
  CHECK(equal(ask(*engine, prompt, prefix()), expected));
}

TEST_CASE("what was used least recently goes when the budget is full, the end of a prompt first") {
  const TempFolder folder;
  ask(*engine_with(folder.path()), {text(300, 1)}, prefix());
  const std::int64_t block = size_of_all(folder.path()) / 2;
  const std::int64_t budget = 20 * block;
  for (std::uint64_t seed = 2; seed < 30; ++seed) {
    ask(*engine_with(folder.path(), budget), {text(300, seed)}, prefix());
    CHECK(size_of_all(folder.path()) <= budget);
  }
  CHECK(size_of_all(folder.path()) >= budget / 2);
  CHECK(ask(*engine_with(folder.path(), budget), {text(300, 29)}, prefix()).result.stored_tokens == 256);
  CHECK(ask(*engine_with(folder.path(), budget), {text(300, 1)}, prefix()).result.stored_tokens == 0);
}

TEST_CASE("what is left of a prompt is a beginning") {
  const TempFolder folder;
  TinyOptions model;
  model.context = 4096;
  const auto blocks = static_cast<std::size_t>(KvStore::kBlock);
  const std::vector<PromptPart> first = {text(10 * blocks + 5, 1)};
  ask(*engine_with(folder.path(), kBudget, "model", model), first, prefix());
  const std::vector<fs::path> its = files_of(folder.path());
  REQUIRE(its.size() == 10);
  const std::int64_t block = size_of_all(folder.path()) / 10;
  const auto left = [&] { return std::ranges::count_if(its, [](const fs::path& file) { return fs::exists(file); }); };
  for (std::uint64_t seed = 2; left() > 6; ++seed) {
    REQUIRE(seed < 60);
    ask(*engine_with(folder.path(), 32 * block, "model", model), {text(2 * blocks + 5, seed)}, prefix());
  }
  const std::int64_t there = left();
  CHECK(there > 0);
  const Run run = ask(*engine_with(folder.path(), kBudget, "model", model), first, prefix());
  CHECK(run.result.stored_tokens == there * KvStore::kBlock);
  CHECK(equal(run, ask(*tiny_engine({}, model), first, prefix())));
}

TEST_CASE("only requests that ask for it use a store, and a folder that is there keeps its permissions and files") {
  const TempFolder folder;
  const fs::path shared = folder.path() / "shared";
  fs::create_directory(shared);
  fs::permissions(shared, fs::perms::owner_all | fs::perms::group_all);
  write(shared / "screen.kv", {'x'});
  fs::create_directory(shared / "0123456789abcdef0123456789abcdef");
  write(shared / "0123456789abcdef0123456789abcdef" / "screen.kv", {'x'});
  const auto engine = tiny_engine();
  KvLayout layout = engine->model().kv_layout();
  layout.raw_keys = true;
  engine->set_store(std::make_unique<KvStore>(shared, 300 << 10, "model", layout), false);
  ask(*engine, {text(300, 1)}, prefix());
  engine->finish_store();
  CHECK(engine->stats().store.written_bytes == 0);
  ReuseOptions asking = prefix();
  asking.store = true;
  for (std::uint64_t seed = 2; seed < 20; ++seed) ask(*engine, {text(300, seed)}, asking);
  engine->finish_store();
  CHECK(engine->stats().store.written_bytes > 0);
  CHECK((fs::status(shared).permissions() & fs::perms::mask) == (fs::perms::owner_all | fs::perms::group_all));
  CHECK(fs::exists(shared / "screen.kv"));
  CHECK(fs::exists(shared / "0123456789abcdef0123456789abcdef" / "screen.kv"));
}

TEST_CASE("requests that begin together read a beginning once") {
  const TempFolder folder;
  TinyOptions model;
  model.context = 4096;
  const PromptPart common = text(1000, 1);
  ask(*engine_with(folder.path(), kBudget, "model", model), {common, text(30, 2)}, prefix());
  const auto engine = engine_with(folder.path(), kBudget, "model", model);
  const auto alone = tiny_engine({}, model);
  std::vector<std::future<Run>> runs;
  for (std::uint64_t number = 0; number < 4; ++number) {
    GenerationRequest request;
    request.prompt = {common, text(40, 10 + number)};
    request.reuse = prefix();
    request.forced = {1, 2};
    runs.push_back(start(*engine, std::move(request)));
  }
  for (std::uint64_t number = 0; number < 4; ++number)
    CHECK(equal(runs[number].get(), ask(*alone, {common, text(40, 10 + number)}, prefix())));
  CHECK(engine->stats().store.read_tokens == 896);
}

TEST_CASE("files are their owner's alone, and a folder that cannot be used is an error with its name") {
  const TempFolder folder;
  const fs::path own = folder.path() / "kv";
  ask(*engine_with(own), {text(300, 1)}, prefix());
  CHECK((fs::status(own).permissions() & fs::perms::mask) == fs::perms::owner_all);
  for (const fs::path& file : files_of(own))
    CHECK((fs::status(file).permissions() & fs::perms::mask) == (fs::perms::owner_read | fs::perms::owner_write));
  write(folder.path() / "file", {'x'});
  CHECK_THROWS_AS(engine_with(folder.path() / "file"), fs::filesystem_error);
}

TEST_CASE("a text is read behind another beginning, and handed over as from memory") {
  ReuseOptions reuse;
  reuse.method = &rectify_method();
  reuse.range = kRange;
  reuse.min_tokens = 16;
  reuse.prefix = false;
  reuse.record = true;
  const auto prompt_of = [&](std::uint64_t role) {
    std::vector<PromptPart> prompt = {text(40, role), text(200, 7), text(20, 9)};
    prompt[1].slot = "document";
    return prompt;
  };
  const auto run = [&](StepEngine& engine, std::vector<PromptPart> prompt, std::uint64_t number) {
    GenerationRequest request;
    request.prompt = std::move(prompt);
    request.reuse = reuse;
    request.run = number;
    request.forced = {1, 2, 3};
    Run made = start(engine, std::move(request)).get();
    REQUIRE(made.result.error.empty());
    return made;
  };
  for (const std::int64_t readers : {0, 1}) {
    const TempFolder folder;
    const auto with_store = [&] { return engine_with(folder.path(), kBudget, "model", {.layers = kLayers}); };
    std::vector<PromptPart> first = prompt_of(1);
    first[1].readers = readers;
    const Run author = run(*with_store(), first, 1);
    CHECK(!author.result.uses[1].from_segment);
    const auto later = with_store();
    const Run reader = run(*later, prompt_of(2), 1);
    CHECK(reader.result.uses[1].from_segment);
    CHECK(reader.result.stored_tokens == 200);
    CHECK(reader.result.kv_computed < author.result.kv_computed);
    REQUIRE(reader.result.segments.size() == 3);
    CHECK(reader.result.segments[1]);  // for the readers behind it

    const auto both = tiny_engine({}, {.layers = kLayers});
    first[1].readers = 1;
    const Run before = run(*both, first, 1);
    std::vector<PromptPart> second = prompt_of(2);
    second[1].segment = before.result.segments[1];
    REQUIRE(second[1].segment);
    const Run from_memory = run(*both, second, 2);
    CHECK(from_memory.result.uses[1].from_segment);
    CHECK(equal(from_memory, reader));
  }
}

TEST_CASE("engines that use one folder at the same time disturb each other in nothing") {
  const TempFolder folder;
  std::vector<std::shared_ptr<StepEngine>> engines;
  for (int i = 0; i < 3; ++i) engines.push_back(engine_with(folder.path(), 1 << 20));
  const auto alone = tiny_engine();
  for (std::uint64_t round = 0; round < 6; ++round) {
    std::vector<std::future<Run>> runs;
    const std::vector<PromptPart> prompt = {text(400, round / 2), text(5, 3)};
    for (const auto& engine : engines) {
      GenerationRequest request;
      request.prompt = prompt;
      request.reuse = prefix();
      request.forced = {1, 2};
      runs.push_back(start(*engine, std::move(request)));
    }
    const Run expected = ask(*alone, prompt, prefix());
    for (auto& one : runs) CHECK(equal(one.get(), expected));
  }
}

}  // namespace
}  // namespace baton::test::kv_store_test
