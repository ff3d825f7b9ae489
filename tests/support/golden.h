// SPDX-License-Identifier: Apache-2.0
// The golden checkpoints of tests/golden/models: what Transformers computes with them. Their format, the tolerance and
// how to make them again are described in tests/golden/make_models.py.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace baton::test {

struct GoldenPrompt {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> positions;     // whose next-token logits are stored; the last is the prompt's last
  std::vector<std::vector<float>> logits;  // [positions][V], Transformers in fp32
  std::vector<std::int32_t> greedy;        // 64 ids; end-of-sequence tokens do not stop it
  double margin = 0.0;                     // smallest gap between best and second logit along `greedy`
};

struct Golden {
  std::string name;
  std::filesystem::path folder;  // config.json and safetensors; there is no tokenizer
  std::int32_t vocabulary = 0;
  double tolerance = 0.0;      // 8 * noise: bound of |logit - golden| for fp32 sums in any order
  bool exact_in_bf16 = false;  // the stored weights are bf16: keeping them in bf16 loses nothing
  std::vector<GoldenPrompt> prompts;
};

/// Names of all golden checkpoints, sorted: a test runs over them or names one.
std::vector<std::string> golden_names();
/// Of quantised checkpoints, in tests/golden/quantized.
std::vector<std::string> quantized_names();

/// Throws std::runtime_error when there is none of that name.
Golden load_golden(const std::string& name);

/// Little-endian fp32 values in base64, as the golden files store them.
std::vector<float> decode_floats(const std::string& base64);

/// tests/golden/models
std::filesystem::path golden_folder();

}  // namespace baton::test
