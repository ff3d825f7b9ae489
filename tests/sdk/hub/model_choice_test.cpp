// SPDX-License-Identifier: Apache-2.0
#include "sdk/hub/model_source.h"

#include <catch2/catch.hpp>

#include <algorithm>

namespace model_choice_test {

namespace {

using Names = std::vector<std::string>;

Names chosen(const Names& names, const std::string& choice) {
  std::vector<baton::HubFile> files;
  for (const auto& name : names) files.push_back({name, 1});
  Names out;
  try {
    for (const std::size_t index : baton::choose_model(files, choice, "o/n").files) out.push_back(names[index]);
  } catch (const baton::ChoiceError&) {
    return {"error"};
  }
  return out;
}

}  // namespace

TEST_CASE("a quantisation is a word of the file's name") {
  const Names files = {"m-Q4_K_M.gguf", "m.q4_k_s.gguf", "m-UD-IQ2_XXS.gguf",
                       "m_Q8_0.gguf",   "m-BF16.gguf",   "f16/m-F16.gguf"};
  CHECK(chosen(files, "Q4_K_M") == Names{"m-Q4_K_M.gguf"});
  CHECK(chosen(files, "Q4_K_S") == Names{"m.q4_k_s.gguf"});
  CHECK(chosen(files, "ud-iq2_xxs") == Names{"m-UD-IQ2_XXS.gguf"});
  CHECK(chosen(files, "q8_0") == Names{"m_Q8_0.gguf"});
  CHECK(chosen(files, "F16") == Names{"f16/m-F16.gguf"});
  CHECK(chosen(files, "f16/m-F16.gguf") == Names{"f16/m-F16.gguf"});
  for (const char* none : {"Q4_K", "Q4", "16", "", "gguf"}) CHECK(chosen(files, none) == Names{"error"});
  CHECK(chosen({"Q4_0.gguf", "Q8_0.gguf"}, "Q4_0") == Names{"Q4_0.gguf"});
  CHECK(chosen({"a-Q4_0.gguf", "b-Q4_0.gguf"}, "Q4_0") == Names{"error"});
  CHECK(chosen({"a-Q4_0.gguf", "b-Q4_0.gguf"}, "b-Q4_0") == Names{"b-Q4_0.gguf"});
  CHECK(chosen({"a/m.gguf", "b/m.gguf"}, "m.gguf") == Names{"error"});
}

TEST_CASE("all parts of a split file are chosen, in order, or none") {
  const Names parts = {"m-Q8_0-00002-of-00003.gguf", "m-Q8_0-00003-of-00003.gguf", "m-Q8_0-00001-of-00003.gguf"};
  const Names ordered = {parts[2], parts[0], parts[1]};
  for (const char* choice : {"", "q8_0", "m-Q8_0", "m-Q8_0.gguf", "m-Q8_0-00002-of-00003.gguf"})
    CHECK(chosen(parts, choice) == ordered);
  CHECK(chosen({parts[2], parts[1]}, "Q8_0") == Names{"error"});
  CHECK(chosen({parts[0], parts[1]}, "Q8_0") == Names{"error"});
}

TEST_CASE("a folder of safetensors is chosen where it is whole") {
  const Names folder = {"config.json", "tokenizer.json", "model.safetensors"};
  CHECK(chosen({"README.md", "config.json", "onnx/model.safetensors", "tokenizer.json", "model.safetensors", "a.gguf"},
               "") == folder);
  CHECK(chosen({"config.json", "a.gguf"}, "") == Names{"a.gguf"});
  CHECK(chosen({"config.json", "tokenizer.json"}, "") == Names{"error"});
  CHECK(chosen({"model.safetensors"}, "") == Names{"error"});
  const Names shards = {"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
                        "model-00002-of-00002.safetensors"};
  CHECK(chosen(shards, "").size() == 4);
  CHECK(chosen(shards, "safetensors").size() == 4);
  CHECK(chosen({shards[0], shards[1], shards[3]}, "") == Names{"error"});
}

TEST_CASE("sizes are readable") {
  CHECK(baton::size_text(-1) == "size unknown");
  CHECK(baton::size_text(999) == "999 B");
  CHECK(baton::size_text(4'724'464'025) == "4.4 GiB");
}

}  // namespace model_choice_test
