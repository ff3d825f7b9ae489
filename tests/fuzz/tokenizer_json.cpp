// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json that anybody may have written: it is refused with ModelError, or it encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/model/config.h"
#include "engine/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto tokenizer = baton::Tokenizer::parse({reinterpret_cast<const char*>(data), size}, "fuzz");
    const auto ids =
        tokenizer->encode("Hello,  w\xC3\xB6rld 123\n\xE4\xBD\xA0 <s>\xFF", baton::SpecialTokens::recognise);
    tokenizer->encode_with_template("a b");
    tokenizer->decode(ids, true);
    for (const auto id : ids) tokenizer->token_bytes(id);
  } catch (const baton::ModelError&) {
  }
  return 0;
}
