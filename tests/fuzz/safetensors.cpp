// SPDX-License-Identifier: Apache-2.0
// A safetensors header from the network: it is refused, or every tensor of it lies inside the file.
#include "engine/model/safetensors.h"

#include <cstdlib>
#include <set>
#include <string>

#include "engine/model/config.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check(std::span<const std::byte> file) {
  std::uint64_t data_offset = 0;
  std::map<std::string, baton::TensorInfo> tensors;
  try {
    data_offset = baton::safetensors_data_offset(file, file.size(), "fuzz");
    tensors = baton::parse_safetensors_header(file, file.size(), "fuzz");
  } catch (const baton::ModelError&) {
    return;
  }
  require(data_offset >= 8 && data_offset <= file.size());
  std::set<std::size_t> begins;
  for (const auto& [name, info] : tensors) {
    require(info.begin <= info.end && info.end <= file.size() - data_offset);
    if (info.begin < info.end) require(begins.insert(info.begin).second);
    if (!info.dtype) continue;
    std::int64_t elements = 1;
    for (const std::int64_t extent : info.shape) require(!__builtin_mul_overflow(elements, extent, &elements));
    require(static_cast<std::size_t>(elements) * size_of(*info.dtype) == info.end - info.begin);
  }
}

}  // namespace

/// The first byte chooses: the rest is a whole file, or (what mutation rarely finds) a header under a right length,
/// before 16 bytes of data.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string file(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] != 'F') {
    std::string length;
    for (int byte = 0; byte < 8; ++byte) length.push_back(static_cast<char>(file.size() >> (8 * byte)));
    file = length + file + std::string(16, '\0');
  }
  check(std::as_bytes(std::span(file.data(), file.size())));
  return 0;
}
