// SPDX-License-Identifier: Apache-2.0
// Any bytes as text, through our small tokenizers: streaming and whole decoding agree, as_text gives no special token,
// and byte-level tokenizers give back the repaired text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/utf8.h"
#include "engine/text/tokenizer.h"

namespace {

struct Named {
  std::string name;
  std::shared_ptr<const baton::Tokenizer> tokenizer;
};

std::vector<Named> tokenizers() {
  std::vector<Named> out;
  const std::string folder = std::string(BATON_TEST_DIR) + "/golden/tokenizers/";
  for (const std::string name : {"gpt2", "llama3", "qwen", "sp_normalizer", "sp_metaspace"}) {
    std::ifstream file(folder + name + ".json", std::ios::binary);
    const std::string json{std::istreambuf_iterator<char>(file), {}};
    out.push_back({name, baton::Tokenizer::parse(json, name)});
  }
  return out;
}

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<Named> all = tokenizers();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto& [name, tokenizer] : all) {
    tokenizer->encode(text, baton::SpecialTokens::recognise);
    const auto ids = tokenizer->encode(text, baton::SpecialTokens::as_text);
    require(std::none_of(ids.begin(), ids.end(), [&](auto id) { return tokenizer->is_special(id); }));
    const std::string whole = tokenizer->decode(ids, true);
    baton::StreamDecoder decoder(*tokenizer);
    std::string streamed;
    for (const auto id : ids) {
      const std::string piece = decoder.push(id);
      require(baton::utf8::is_valid(piece));
      streamed += piece;
    }
    require(streamed + decoder.finish() == whole);
    if (name == "gpt2" || name == "llama3") require(whole == baton::utf8::repaired(text));
    // Bytes as ids: any order of tokens can be decoded.
    baton::StreamDecoder other(*tokenizer, false);
    std::vector<baton::TokenId> wild;
    std::string pieces;
    for (std::size_t i = 0; i + 1 < size; i += 2) {
      wild.push_back(static_cast<baton::TokenId>(data[i]) * 4 + data[i + 1] % 4);
      pieces += other.push(wild.back());
    }
    require(pieces + other.finish() == tokenizer->decode(wild, false));
  }
  return 0;
}
