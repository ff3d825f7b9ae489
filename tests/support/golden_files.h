// SPDX-License-Identifier: Apache-2.0
// Reading the goldens of tests/golden for the tests of this folder.
#pragma once

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"
#include "tests/support/folders.h"

namespace baton::test {

using Json = nlohmann::json;

inline std::string golden_text(const std::string& path) {
  std::ifstream file(test_folder() / "golden" / path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline Json golden_json(const std::string& path) { return Json::parse(golden_text(path)); }

/// "1 2 3"
inline std::vector<TokenId> golden_ids(const Json& words) {
  std::istringstream in(words.get<std::string>());
  return {std::istream_iterator<TokenId>(in), {}};
}

/// {"text": ...} or {"hex": ...}
inline std::string golden_line(const Json& line) {
  if (line.contains("text")) return line["text"];
  std::string out;
  const std::string hex = line["hex"];
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    out.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

}  // namespace baton::test
