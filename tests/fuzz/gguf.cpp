// SPDX-License-Identifier: Apache-2.0
// A GGUF file from the network: it is refused, or every tensor and every value of it lies inside the file. Its
// configuration and tokenizer are read too.
#include "engine/model/gguf.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "engine/base/errors.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

bool inside(std::span<const std::byte> part, std::span<const std::byte> file) {
  if (part.empty()) return true;
  return part.data() >= file.data() && part.data() + part.size() <= file.data() + file.size();
}

template <class Read>
void attempt(const Read& read) {
  try {
    read();
  } catch (const baton::ModelError&) {
  }
}

void check(std::span<const std::byte> file) {
  baton::GgufContents contents;
  try {
    contents = baton::parse_gguf(file, file.size(), "fuzz").value();
  } catch (const baton::ModelError&) {
    return;
  }
  require(contents.data_offset <= file.size());
  for (const std::size_t bytes : {std::size_t{0}, file.size() / 2, static_cast<std::size_t>(contents.data_offset)}) {
    const auto less = baton::parse_gguf(file.first(bytes), file.size(), "fuzz");  // never an error: the file is sound
    require(!less || less->tensors.size() == contents.tensors.size());
  }
  for (const auto& [name, tensor] : contents.tensors) {
    require(!name.empty() && !tensor.shape.empty());
    require(tensor.begin <= file.size() && tensor.bytes <= file.size() - tensor.begin);
    if (!tensor.type) continue;
    std::int64_t values = 1;
    for (const std::int64_t extent : tensor.shape) require(!__builtin_mul_overflow(values, extent, &values));
    require(tensor.bytes == static_cast<std::uint64_t>(row_bytes(*tensor.type, values)));
  }
  const baton::GgufMetadata& metadata = contents.metadata;
  for (const std::string& key : metadata.keys()) {
    require(inside(metadata.find(key)->bytes, file));
    attempt([&] { (void)metadata.number(key, -1e300, 1e300); });
    attempt([&] { (void)metadata.text(key); });
    attempt([&] { (void)metadata.numbers(key); });
    attempt([&] {
      for (const std::string_view text : metadata.texts(key)) require(inside(std::as_bytes(std::span(text)), file));
    });
  }
  attempt([&] { (void)baton::gguf_eos_tokens(metadata); });
  attempt([&] { (void)baton::gguf_special_text(metadata, "bos"); });
  attempt([&] {
    const auto tokenizer = baton::gguf_tokenizer(metadata);
    (void)tokenizer->decode(tokenizer->encode("Hello w\xc3\xb6rld 123", baton::SpecialTokens::recognise), false);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check(std::as_bytes(std::span(data, size)));
  return 0;
}
