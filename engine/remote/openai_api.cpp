// SPDX-License-Identifier: Apache-2.0
// OpenAI's HTTP API, as far as servers of others have it too: /v1/completions with token ids, or
// /v1/chat/completions with messages.
#include <fmt/format.h>

#include "engine/base/json_fields.h"
#include "engine/remote/message_text.h"
#include "engine/remote/server_api.h"
#include "engine/remote/server_json.h"

namespace baton {
namespace {

constexpr std::uint64_t kSeeds = 0x8000'0000u;
constexpr std::size_t kMaxStops = 4;

class OpenAiApi final : public ServerApi {
 public:
  OpenAiApi(std::string model, bool ids) : model_(std::move(model)), ids_(ids) {}

  std::string_view name() const override { return "openai"; }
  bool ids() const override { return ids_; }
  std::int32_t cache_block() const override { return 0; }  // a server whose requests may cost money

  std::string refusal(const GenerationRequest& request) const override {
    const SamplingParams& sampling = request.sampling;
    if (!request.forced.empty()) return "it cannot be given the tokens of its answer";
    if (!request.choices.empty()) return "it does not tell the probabilities of whole texts, which `choose` compares";
    if (request.callbacks.on_logits) return "it gives no logits";
    if (request.constraint)
      return "the API of OpenAI has no grammars; with `enforce: false` the output is only checked";
    if (request.stop.size() > kMaxStops)
      return fmt::format("it takes at most {} stop texts, and there are {}", kMaxStops, request.stop.size());
    if (sampling.top_k != 0) return "the API of OpenAI has no `top_k`";
    if (sampling.min_p != 0.0f) return "the API of OpenAI has no `min_p`";
    if (sampling.repetition_penalty != 1.0f) return "the API of OpenAI has no `repetition_penalty`";
    return {};
  }

  ServerRequest answer(const GenerationRequest& request, const std::vector<TokenId>& prompt, int) const override {
    Json body = {{"model", model_},
                 {"max_tokens", request.max_tokens},
                 {"temperature", request.sampling.temperature},
                 {"top_p", request.sampling.top_p},
                 {"seed", request.sampling.seed % kSeeds},
                 {"stream", true},
                 {"stream_options", {{"include_usage", true}}}};
    if (!request.stop.empty()) body["stop"] = request.stop;
    if (ids_) {
      body["prompt"] = prompt;
      return {"/v1/completions", dumped(body)};
    }
    body["messages"] = Json::array();
    for (const ChatMessage& message : messages_of(prompt))
      body["messages"].push_back({{"role", message.role}, {"content", message.content}});
    return {"/v1/chat/completions", dumped(body)};
  }

  ServerRequest warm_up(const std::vector<TokenId>&, int) const override { return {}; }  // see cache_block()

  ServerPiece read(std::string_view json) const override {
    ServerPiece piece;
    if (json == "[DONE]") {
      piece.last = true;
      return piece;
    }
    const std::string origin = "its answer";
    const JsonDocument document = parse_server_json(json, origin);
    if (document->is_object() && document->contains("error") && !(*document)["error"].is_null()) {
      piece.error = error_text(*document);
      return piece;
    }
    const JsonFields fields(*document, origin);
    if (const Json* usage = fields.find("usage")) {
      const JsonFields of(*usage, origin, "usage.");
      piece.prompt = count(of, "prompt_tokens");
      piece.tokens = count(of, "completion_tokens");
      if (const Json* details = of.find("prompt_tokens_details"))
        piece.cached = count(JsonFields(*details, origin, "usage.prompt_tokens_details."), "cached_tokens");
    }
    const Json* choices = fields.find("choices");
    if (choices == nullptr || !choices->is_array() || choices->empty()) return piece;
    const JsonFields choice(choices->front(), origin, "choices[0].");
    if (const Json* delta = choice.find("delta"))
      piece.text = JsonFields(*delta, origin, "choices[0].delta.").text_or("content", "");
    else
      piece.text = choice.text_or("text", "");
    const std::string reason = choice.text_or("finish_reason", "");
    if (!reason.empty()) piece.reason = reason == "length" ? FinishReason::length : FinishReason::eos;
    return piece;
  }

 private:
  std::string model_;
  bool ids_;
};

}  // namespace

std::unique_ptr<ServerApi> make_openai_api(std::string model, bool ids) {
  return std::make_unique<OpenAiApi>(std::move(model), ids);
}

}  // namespace baton
