// SPDX-License-Identifier: Apache-2.0
// A chat template that anybody may have written, and hostile messages: rendered, or refused with ModelError.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/model/config.h"
#include "engine/text/templates.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  try {
    const auto chat = baton::ChatTemplate::parse(source, "fuzz");
    baton::ChatOptions options;
    options.bos_token = "<s>";
    options.eos_token = "</s>";
    chat->render({{"system", "Be kind."}, {"user", std::string(source)}, {"assistant", "<think>a</think> b"}}, options);
  } catch (const baton::ModelError&) {
  }
  return 0;
}
