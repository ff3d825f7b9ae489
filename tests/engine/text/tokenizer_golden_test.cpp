// SPDX-License-Identifier: Apache-2.0
// Our small tokenizers against the ids and texts that Hugging Face `tokenizers` gives
// (tests/golden/make_tokenizers.py).
#include <catch2/catch.hpp>

#include "engine/text/tokenizer.h"
#include "tests/support/golden_files.h"

namespace baton::test::tokenizer_golden_test {
namespace {

std::string streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip_special) {
  StreamDecoder decoder(tokenizer, skip_special);
  std::string out;
  for (const TokenId id : ids) out += decoder.push(id);
  return out + decoder.finish();
}

void check(const Tokenizer& tokenizer, const Json& golden, const Json& lines) {
  for (std::size_t i = 0; i < golden["ids"].size(); ++i) {
    const std::string text = golden_line(lines[i]);
    const std::string key = std::to_string(i);
    CAPTURE(i, text);
    const auto ids = golden_ids(golden["ids"][i]);
    CHECK(tokenizer.encode(text, SpecialTokens::recognise) == ids);
    const auto plain = golden["as_text"].contains(key) ? golden_ids(golden["as_text"][key]) : ids;
    CHECK(tokenizer.encode(text, SpecialTokens::as_text) == plain);
    if (golden["template"].contains(key)) {
      CHECK(tokenizer.encode_with_template(text) == golden_ids(golden["template"][key]));
    }
  }
  for (const Json& entry : golden["decoded"]) {
    const auto ids = golden_ids(entry[0]);
    CAPTURE(entry[0]);
    CHECK(tokenizer.decode(ids, false) == entry[1].get<std::string>());
    CHECK(tokenizer.decode(ids, true) == entry[2].get<std::string>());
    CHECK(streamed(tokenizer, ids, false) == entry[1].get<std::string>());
    CHECK(streamed(tokenizer, ids, true) == entry[2].get<std::string>());
  }
}

}  // namespace

TEST_CASE("each family's tokenizer gives the reference's ids") {
  const Json lines = golden_json("tokenizers/lines.json");
  for (const std::string name : {"gpt2", "llama3", "qwen", "sp_normalizer", "sp_metaspace"}) {
    INFO(name);
    const auto tokenizer = Tokenizer::parse(golden_text("tokenizers/" + name + ".json"), name);
    check(*tokenizer, golden_json("tokenizers/" + name + ".golden.json"), lines);
  }
}

TEST_CASE("each single part of a tokenizer.json gives the reference's ids") {
  const Json lines = golden_json("tokenizers/lines.json");
  for (const Json& variant : golden_json("tokenizers/variants.json")) {
    INFO(variant["name"].get<std::string>());
    Json changed = golden_json("tokenizers/" + variant["base"].get<std::string>() + ".json");
    for (const auto& [key, value] : variant["changes"].items()) {
      if (key == "model") {
        changed["model"].update(value);
      } else if (key == "more_added_tokens") {
        for (const Json& token : value) changed["added_tokens"].push_back(token);
      } else {
        changed[key] = value;
      }
    }
    check(*Tokenizer::parse(changed.dump(), "variant"), variant["golden"], lines);
  }
}

}  // namespace baton::test::tokenizer_golden_test
