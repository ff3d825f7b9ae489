// SPDX-License-Identifier: Apache-2.0
// The endpoint /completion of llama-server, as its README describes it (tools/server in llama.cpp).
#include <algorithm>
#include <array>

#include "engine/base/json_fields.h"
#include "engine/remote/server_api.h"
#include "engine/text/constrain/grammar.h"

namespace baton {
namespace {

constexpr std::int32_t kLlamaBlock = 16;             // tokens; its cache has no blocks, but a warm-up costs a request
constexpr std::uint64_t kLlamaSeeds = 0xFFFF'FFFFu;  // the last one means a random seed
constexpr std::array kSamplers = {"penalties", "temperature", "top_k", "top_p", "min_p"};  // in our sampler's order
constexpr std::array kResponseFields = {"content",   "tokens",  "tokens_predicted", "tokens_evaluated", "stop",
                                        "stop_type", "id_slot", "timings"};  // the end would repeat the prompt

class LlamaApi final : public ServerApi {
 public:
  std::string_view name() const override { return "llama"; }
  bool ids() const override { return true; }
  std::int32_t cache_block() const override { return kLlamaBlock; }

  ServerRequest answer(const GenerationRequest& request, const std::vector<TokenId>& prompt, int slot) const override {
    const SamplingParams& sampling = request.sampling;
    RequestBody body = common(prompt, slot);
    body.set("n_predict", request.max_tokens);
    body.set("stream", true);
    body.set("return_progress", true);
    body.set("cache_prompt", reuses_prefixes(*request.reuse.method));
    // Everything that the server would otherwise take from its command line.
    body.set("samplers", kSamplers);
    body.set("temperature", sampling.temperature);
    body.set("top_k", sampling.top_k);
    body.set("top_p", sampling.top_p);
    body.set("min_p", sampling.min_p);
    body.set("repeat_penalty", sampling.repetition_penalty);
    body.set("repeat_last_n", static_cast<std::int64_t>(prompt.size()) + request.max_tokens);  // all of them
    body.set("presence_penalty", 0.0);
    body.set("frequency_penalty", 0.0);
    body.set("dynatemp_range", 0.0);
    body.set("mirostat", 0);
    body.set("ignore_eos", false);
    body.set("seed", sampling.seed % kLlamaSeeds);
    body.set("stop", request.stop);
    if (request.constraint) body.set("grammar", gbnf_of(*request.constraint));
    return {"/completion", body.text()};
  }

  ServerRequest warm_up(const std::vector<TokenId>& prompt, int slot, bool) const override {
    RequestBody body = common(prompt, slot);
    body.set("n_predict", 0);
    body.set("stream", false);
    body.set("cache_prompt", true);
    body.set("temperature", 0.0);
    return {"/completion", body.text()};
  }

  std::string slots_path() const override { return "/slots"; }
  std::vector<int> idle_slots(std::string_view json) const override {
    const std::string origin = "its answer to /slots";
    const JsonDocument document = parse_server_json(json, origin);
    std::vector<int> idle;
    if (!document->is_array()) throw ModelError(origin + " is no list");
    for (const Json& slot : *document) {
      const JsonFields fields(slot, origin);
      if (!fields.flag_or("is_processing", true)) idle.push_back(fields.integer("id", 0, kMaxServerCount));
    }
    return idle;
  }

  ServerPiece read(std::string_view json) const override {
    const std::string origin = "its answer";
    const JsonDocument document = parse_server_json(json, origin);
    ServerPiece piece;
    if (document->is_object() && document->contains("error")) {
      piece.error = error_text(*document);
      return piece;
    }
    const JsonFields fields(*document, origin);
    piece.text = fields.text_or("content", "");
    piece.tokens = count(fields, "tokens_predicted");
    piece.prompt = count(fields, "tokens_evaluated");
    if (const Json* progress = fields.find("prompt_progress")) {
      const JsonFields of(*progress, origin, "prompt_progress.");
      piece.progress = true;
      piece.processed = count(of, "processed");
      piece.prompt = count(of, "total");
      piece.cached = count(of, "cache");
      return piece;
    }
    piece.ids = fields.integers("tokens", 0, kMaxServerCount);
    if (const Json* timings = fields.find("timings")) {
      const JsonFields of(*timings, origin, "timings.");
      piece.cached = count(of, "cache_n");
      piece.prompt_ms = of.number_or("prompt_ms", -1.0, -1.0, kMaxServerMs);
      piece.decode_ms = of.number_or("predicted_ms", -1.0, -1.0, kMaxServerMs);
    }
    piece.last = fields.flag_or("stop", false);
    if (!piece.last) return piece;
    piece.slot = fields.integer_or("id_slot", -1, -1, kMaxServerCount);
    const std::string type = fields.text_or("stop_type", "limit");
    piece.reason = type == "eos" ? FinishReason::eos : type == "word" ? FinishReason::stop : FinishReason::length;
    return piece;
  }

 private:
  static RequestBody common(const std::vector<TokenId>& prompt, int slot) {
    RequestBody body;
    body.set("prompt", prompt).set("return_tokens", true).set("response_fields", kResponseFields);
    if (slot >= 0) body.set("id_slot", slot);
    return body;
  }
};

}  // namespace

std::unique_ptr<ServerApi> make_llama_api() { return std::make_unique<LlamaApi>(); }

}  // namespace baton
