// SPDX-License-Identifier: Apache-2.0
#include "tests/support/golden.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/support/folders.h"

namespace baton::test {
namespace {

nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return nlohmann::json::parse(file);
}

}  // namespace

std::filesystem::path golden_folder() { return test_folder() / "golden" / "models"; }

std::vector<float> decode_floats(const std::string& base64) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : base64) {
    const std::size_t digit = kDigits.find(c);
    if (digit == kDigits.npos) break;  // the padding
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count));
  }
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

namespace {

/// Folders with goldens, as paths from golden_folder().
std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_folder() / folder))
    if (std::filesystem::exists(entry.path() / "goldens.json"))
      names.push_back((folder / entry.path().filename()).string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::vector<std::string> golden_names() { return names_in(""); }
std::vector<std::string> quantized_names() { return names_in("../quantized"); }

Golden load_golden(const std::string& name) {
  Golden golden;
  golden.name = name;
  golden.folder = golden_folder() / name;
  const nlohmann::json json = read_json(golden.folder / "goldens.json");
  const nlohmann::json config = read_json(golden.folder / "config.json");
  golden.vocabulary = json.at("vocabulary");
  golden.tolerance = 8.0 * json.at("noise").get<double>();
  golden.exact_in_bf16 = config.value("dtype", config.value("torch_dtype", "")) == "bfloat16";
  for (const nlohmann::json& entry : json.at("prompts")) {
    GoldenPrompt prompt{.ids = entry.at("ids"),
                        .positions = entry.at("positions"),
                        .logits = {},
                        .greedy = entry.at("greedy"),
                        .margin = entry.at("margin")};
    const std::vector<float> all = decode_floats(entry.at("logits"));
    const auto width = static_cast<std::ptrdiff_t>(golden.vocabulary);
    if (all.size() != prompt.positions.size() * golden.vocabulary)
      throw std::runtime_error(name + ": goldens.json stores another number of logits than positions");
    for (auto row = all.begin(); row != all.end(); row += width) prompt.logits.emplace_back(row, row + width);
    golden.prompts.push_back(std::move(prompt));
  }
  return golden;
}

}  // namespace baton::test
