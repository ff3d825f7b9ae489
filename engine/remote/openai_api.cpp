// SPDX-License-Identifier: Apache-2.0
// OpenAI's HTTP API, as far as servers of others have it too: /v1/completions with token ids, or
// /v1/chat/completions with messages.
#include <fmt/format.h>

#include "engine/remote/completion_event.h"
#include "engine/remote/message_text.h"
#include "engine/remote/request_body.h"
#include "engine/remote/server_api.h"

namespace baton {
namespace {

constexpr std::uint64_t kOpenAiSeeds = 0x8000'0000u;
constexpr std::size_t kMaxStops = 4;

class OpenAiApi final : public ServerApi {
 public:
  OpenAiApi(std::string model, bool ids) : model_(std::move(model)), ids_(ids) {}

  std::string_view name() const override { return "openai"; }
  bool ids() const override { return ids_; }
  std::int32_t cache_block() const override { return 0; }  // a server whose requests may cost money

  std::string refusal(const GenerationRequest& request) const override {
    const SamplingParams& sampling = request.sampling;
    if (std::string why = ServerApi::refusal(request); !why.empty()) return why;
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
    RequestBody body;
    body.set("model", model_).set("max_tokens", request.max_tokens).set("temperature", request.sampling.temperature);
    body.set("top_p", request.sampling.top_p).set("seed", request.sampling.seed % kOpenAiSeeds).set("stream", true);
    body.set("stream_options", RequestBody().set("include_usage", true));
    if (!request.stop.empty()) body.set("stop", request.stop);
    if (ids_) return {"/v1/completions", body.set("prompt", prompt).text()};
    std::vector<RequestBody> messages;
    for (const ChatMessage& message : messages_of(prompt))
      messages.push_back(RequestBody().set("role", message.role).set("content", message.content));
    return {"/v1/chat/completions", body.set("messages", messages).text()};
  }

  ServerRequest warm_up(const std::vector<TokenId>&, int, bool) const override { return {}; }  // see cache_block()

  ServerPiece read(std::string_view json) const override { return read_completion(json); }

 private:
  std::string model_;
  bool ids_;
};

}  // namespace

std::unique_ptr<ServerApi> make_openai_api(std::string model, bool ids) {
  return std::make_unique<OpenAiApi>(std::move(model), ids);
}

}  // namespace baton
