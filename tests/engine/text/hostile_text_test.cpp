// SPDX-License-Identifier: Apache-2.0
// What a text may cost: every normalizer, pre-tokenizer, model and decoder, with texts that were chosen to be slow.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "engine/base/errors.h"
#include "engine/base/system/process.h"
#include "engine/text/constrain/token_masks.h"
#include "tests/engine/text/hostile_texts.h"
#include "tests/support/golden_files.h"
#include "tests/support/process_memory.h"
#include "tests/support/thread_time.h"

namespace baton::test::hostile_text_test {
namespace {

constexpr std::size_t kTextBytes = 1u << 17;

/// Three times what the slowest takes on a core of 2020. A quadratic step takes minutes for a megabyte.
double seconds_for(std::size_t bytes) { return slowdown() * (0.5 + 3e-6 * static_cast<double>(bytes)); }

struct Cost {
  double encode = 0;
  double decode = 0;
  bool refused = false;
};

Cost cost_of(const Tokenizer& tokenizer, const std::string& text) {
  Cost cost;
  const double begin = thread_seconds();
  std::vector<TokenId> ids;
  try {
    ids = tokenizer.encode(text, SpecialTokens::recognise);
  } catch (const ModelError&) {
    cost.refused = true;
  }
  cost.encode = thread_seconds() - begin;
  StreamDecoder decoder(tokenizer);
  std::size_t bytes = 0;
  for (const TokenId id : ids) bytes += decoder.push(id).size();
  bytes += decoder.finish().size();
  CHECK(tokenizer.decode(ids, true).size() == bytes);
  cost.decode = thread_seconds() - begin - cost.encode;
  return cost;
}

/// Checks what a text costs. Returns the seconds of the slower direction.
double check_cost(const TextSubject& subject, const std::string& text) {
  const Cost cost = cost_of(*subject.tokenizer, text);
  if (std::getenv("BATON_TEST_COSTS") != nullptr)
    std::printf("%7.3f s %7.3f s%s %s, %s\n", cost.encode, cost.decode, cost.refused ? " refused" : "",
                subject.name.c_str(), text.substr(0, 20).c_str());
  CHECK((subject.may_refuse || !cost.refused));
  CHECK(cost.encode < seconds_for(text.size()));
  CHECK(cost.decode < seconds_for(text.size()));
  return std::max(cost.encode, cost.decode);
}

std::string repeated(std::string_view unit, std::size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += unit;
  return out;
}

std::shared_ptr<const Tokenizer> golden(const std::string& name) {
  return Tokenizer::parse(golden_text("tokenizers/" + name + ".json"), name);
}

}  // namespace

TEST_CASE("no tokenizer takes longer than its size allows for the texts that make it slow") {
  for (const TextSubject& subject : hostile_tokenizers()) {
    for (const RepeatedText& trigger : subject.triggers) {
      INFO(subject.name << ", " << trigger.before << "(" << trigger.unit.substr(0, 20) << ")*" << trigger.after);
      check_cost(subject, trigger.of(subject.times * kTextBytes));
    }
  }
}

TEST_CASE("no text takes a tokenizer longer than its size allows") {
  const std::size_t inputs = nightly() ? 2000 : 120;
  std::vector<TextSubject> subjects = honest_tokenizers();
  if (nightly()) {
    for (TextSubject& hostile : hostile_tokenizers()) subjects.push_back(std::move(hostile));
  }
  double slowest = 0;
  std::string which;
  for (std::size_t i = 0; i < inputs; ++i) {
    const TextSubject& subject = subjects[i % subjects.size()];
    std::mt19937 random(static_cast<unsigned>(i));
    const std::string text = hostile_text(random, nightly() ? 1u << 20 : kTextBytes);
    INFO(subject.name << ", seed " << i << ", " << text.substr(0, 20));
    const double cost = check_cost(subject, text);
    if (cost > slowest) which = fmt::format("{}, seed {}", subject.name, i);
    slowest = std::max(slowest, cost);
  }
  if (nightly()) WARN(fmt::format("{} texts of a mebibyte; the slowest took {:.2f} s: {}", inputs, slowest, which));
}

TEST_CASE("no token takes a decoder longer than its size allows") {
  for (const SlowPattern& pattern : slow_patterns()) {
    INFO(pattern.regex);
    const auto tokenizer = hostile_decoder(pattern, 60);
    StreamDecoder decoder(*tokenizer);
    for (TokenId id = tokenizer->size() - 3; id < tokenizer->size(); ++id) {
      const double begin = thread_seconds();
      try {
        decoder.push(id);
      } catch (const ModelError&) {
      }
      CHECK(thread_seconds() - begin < 0.05 * slowdown());
    }
  }
}

TEST_CASE("no tokenizer needs more than 512 MiB for a text of a mebibyte") {
  const std::string text = repeated("a", 1u << 20);
  const std::int64_t before = peak_resident();
  for (const TextSubject& subject : growing_tokenizers()) {
    INFO(subject.name);
    const double begin = thread_seconds();
    try {
      subject.tokenizer->encode(text, SpecialTokens::recognise);
    } catch (const ModelError&) {
    }
    CHECK(thread_seconds() - begin < seconds_for(text.size()));
    return_free_memory();
    if (std::getenv("BATON_TEST_COSTS") != nullptr)
      std::printf("%7.3f s, %4lld MiB so far: %s\n", thread_seconds() - begin,
                  static_cast<long long>((peak_resident() - before) >> 20), subject.name.c_str());
    if (!kFreedIsKept) REQUIRE(peak_resident() - before < std::int64_t{512} << 20);
  }
}

TEST_CASE("the limits refuse no text that grows with the tokenizers of the families") {
  for (const TextSubject& subject : honest_tokenizers()) {
    if (subject.may_refuse) continue;
    for (const std::string unit : {"\xEF\xB7\xBA", " ", "."}) {
      INFO(subject.name << ", " << unit);
      CHECK_NOTHROW(subject.tokenizer->encode(repeated(unit, 1u << 18), SpecialTokens::recognise));
    }
  }
}

TEST_CASE("marks on one character are put in order in n log n") {
  const std::size_t bytes = 1u << 18;
  const std::string text = "a" + repeated("\xCC\x81", bytes / 2) + repeated("\xCC\xA7", bytes / 2);
  const Cost cost = cost_of(*golden("qwen"), text);
  CHECK_FALSE(cost.refused);
  CHECK(cost.encode < seconds_for(text.size()));
  // The order of marks is that of Unicode: those of class 202 before those of class 230, and the first one composes.
  const std::string mixed = "a" + repeated("\xCC\x81\xCC\xA7", 80'000);
  const std::string ordered = "\xC3\xA1" + repeated("\xCC\xA7", 40'000) + repeated("\xCC\x81", 40'000 - 2);
  CHECK(golden("qwen")->encode(mixed, SpecialTokens::as_text) ==
        golden("qwen")->encode(ordered, SpecialTokens::as_text));
}

TEST_CASE("a stop ends encoding soon") {
  const std::string text = repeated("\xCC\x81 a\xCC\xA7!", 8u << 20);
  for (const std::string name : {"gpt2", "qwen", "sp_normalizer"}) {
    CAPTURE(name);
    const auto tokenizer = golden(name);
    std::stop_source stopped;
    stopped.request_stop();
    double begin = thread_seconds();
    CHECK_THROWS_AS(tokenizer->encode(text, SpecialTokens::as_text, stopped.get_token()), Interrupted);
    CHECK(thread_seconds() - begin < 0.1 * slowdown());

    std::stop_source later;
    std::jthread timer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      later.request_stop();
    });
    begin = thread_seconds();
    CHECK_THROWS_AS(tokenizer->encode(text, SpecialTokens::as_text, later.get_token()), Interrupted);
    CHECK(thread_seconds() - begin < 0.5 * slowdown());
    CHECK_THROWS_AS(tokenizer->encode_with_template(text, later.get_token()), Interrupted);
  }
}

TEST_CASE("a class costs by its members") {
  std::string wide = "[^";
  for (int i = 0; i < 1500; ++i) wide += fmt::format("\\u{:04X}", 0x100 + 3 * i);
  Json json = golden_json("tokenizers/gpt2.json");
  json["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", wide + "]++x|."}}}, {"behavior", "Isolated"}};
  json["pre_tokenizer"]["invert"] = false;
  const auto tokenizer = Tokenizer::parse(json.dump(), "wide");
  const double begin = thread_seconds();
  CHECK_THROWS_WITH(tokenizer->encode(repeated("\xE0\xB0\xB5", 60'000), SpecialTokens::as_text),
                    Catch::Matchers::Contains("more than the tokenizer's limit of steps"));
  CHECK(thread_seconds() - begin < 1.0 * slowdown());
}

TEST_CASE("reading a vocabulary for masks takes no longer than its size allows, and a stop ends it") {
  const SlowPattern retries{"a+(?=b)|a", {"a"}};
  const auto read = [](const Tokenizer& tokenizer, const std::stop_token& stop = {}) {
    return MaskVocabulary(tokenizer, tokenizer.size(), {}, stop);
  };
  for (const auto& [replacements, message] :
       {std::pair(60, "hostile: a token of 60"), std::pair(1, "hostile: a vocabulary of 60")}) {
    CAPTURE(replacements);
    const auto hostile = hostile_decoder(retries, replacements);
    const double begin = thread_seconds();
    CHECK_THROWS_WITH(read(*hostile), Catch::Matchers::Contains(message));
    CHECK(thread_seconds() - begin < seconds_for(1'000'000));
  }
  const auto tokenizer = hostile_decoder(retries, 1);
  std::stop_source stopped, later;
  stopped.request_stop();
  double begin = thread_seconds();
  CHECK_THROWS_AS(read(*tokenizer, stopped.get_token()), Interrupted);
  CHECK(thread_seconds() - begin < 0.1 * slowdown());
  std::jthread timer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    later.request_stop();
  });
  begin = thread_seconds();
  CHECK_THROWS(read(*tokenizer, later.get_token()));  // a fast machine uses up the steps before
  CHECK(thread_seconds() - begin < 0.5 * slowdown());
}

TEST_CASE("replacements that grow a text without end are refused") {
  Json json = golden_json("tokenizers/gpt2.json");
  Json list = Json::array();
  for (int i = 0; i < 40; ++i) list.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", list}};
  const auto tokenizer = Tokenizer::parse(json.dump(), "growing");
  CHECK_THROWS_WITH(tokenizer->encode("a", SpecialTokens::as_text),
                    "growing: the tokenizer makes more than 65539 pieces of a text of 1 bytes");
  json["normalizer"] = list.front();
  json["normalizer"]["content"] = std::string(2u << 20, 'a');
  CHECK_THROWS_WITH(Tokenizer::parse(json.dump(), "growing")->encode("a", SpecialTokens::as_text),
                    "growing: the tokenizer makes more than 1048592 bytes of a text of 1 bytes");
  json["normalizer"] = nullptr;
  json["decoder"] = {{"type", "Sequence"}, {"decoders", list}};
  const auto decoder = Tokenizer::parse(json.dump(), "growing");
  const std::vector<TokenId> a = decoder->encode("a", SpecialTokens::as_text);
  CHECK_THROWS_AS(decoder->decode(a, false), ModelError);
  for (int i = 0; i < 40; ++i) list.push_back(list.front());
  json["decoder"]["decoders"] = list;
  CHECK_THROWS_WITH(Tokenizer::parse(json.dump(), "x"), Catch::Matchers::Contains("more than 64 steps"));
}

}  // namespace baton::test::hostile_text_test
