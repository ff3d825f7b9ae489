// SPDX-License-Identifier: Apache-2.0
// Continues prompts greedily, one JSON object a line, for tests/published/greedy_peer.py:
//   {"text": "...", "tokens": 64}  or  {"ids": [...], "tokens": 64}   ->   {"ids": [...], "tokens": [...], "gaps":
//   [...]}
// Ids of a text are those of plain completion. A token that ends an answer ends this one, unless "ends" is false; a gap
// is the best logit less the second. With "logits": true, "logits" are those of the prompt's last position.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/backend/make_backend.h"
#include "engine/model/forward.h"
#include "engine/model/model.h"

namespace {

using Json = nlohmann::json;

/// The best token and how far ahead of the second it is.
std::pair<baton::TokenId, float> best_of(std::span<const float> logits) {
  std::vector<std::size_t> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::partial_sort(order.begin(), order.begin() + 2, order.end(),
                    [&](std::size_t a, std::size_t b) { return std::pair(-logits[a], a) < std::pair(-logits[b], b); });
  return {static_cast<baton::TokenId>(order[0]), logits[order[0]] - logits[order[1]]};
}

Json answer(baton::Backend& backend, const baton::Model& model, const Json& question) {
  const auto count = question.value("tokens", std::size_t{64});
  std::vector<baton::TokenId> ids = question.contains("ids")
                                        ? question["ids"].get<std::vector<baton::TokenId>>()
                                        : model.tokenizer->encode_with_template(question["text"].get<std::string>());
  Json out = {{"ids", ids}, {"tokens", Json::array()}, {"gaps", Json::array()}};
  baton::KvCache cache(backend, model.kv_layout(), static_cast<std::int32_t>(ids.size() + count));
  baton::Forward forward(backend, model);
  while (out["tokens"].size() < count) {
    baton::StepRows rows;
    const std::int32_t index = rows.add_cache(&cache);
    for (auto at = static_cast<std::size_t>(cache.length()); at < ids.size(); ++at)
      rows.add_row(index, static_cast<std::int32_t>(at), ids[at]);
    rows.logits_rows.push_back(static_cast<std::int32_t>(rows.size()) - 1);
    const std::span<const float> logits = forward.run(rows);
    if (question.value("logits", false) && !out.contains("logits"))
      out["logits"] = std::vector<float>(logits.begin(), logits.end());
    const auto [token, gap] = best_of(logits);
    cache.commit(static_cast<std::int32_t>(ids.size()));
    out["tokens"].push_back(token);
    out["gaps"].push_back(gap);
    const std::vector<std::int32_t>& ends = model.config.eos_tokens;
    if (question.value("ends", true) && std::find(ends.begin(), ends.end(), token) != ends.end()) break;
    ids.push_back(token);
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4) {
    std::cerr << "usage: baton_answer_check MODEL [bf16|f32 [bf16|f32]] < questions   (weights, KV)\n";
    return 2;
  }
  try {
    const auto backend = baton::make_backend({"cpu", 0});
    baton::ModelOptions options;
    const auto type = [&](int at) { return std::string(argv[at]) == "f32" ? baton::DType::f32 : baton::DType::bf16; };
    if (argc > 2) options.dtype = options.kv_dtype = type(2);
    if (argc > 3) options.kv_dtype = type(3);
    const auto model = baton::open_model(*backend, argv[1], options);
    for (std::string line; std::getline(std::cin, line);)
      std::cout << answer(*backend, *model, Json::parse(line)).dump() << std::endl;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
