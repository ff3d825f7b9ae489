// SPDX-License-Identifier: Apache-2.0
// vLLM's /v1/completions with what it adds to OpenAI's API, as the documentation of its versions 0.10.2 to 0.33.0
// describes it (docs.vllm.ai: OpenAI-Compatible Server, Structured Outputs).
#include <charconv>

#include "engine/remote/completion_event.h"
#include "engine/remote/request_body.h"
#include "engine/remote/server_api.h"
#include "engine/remote/server_json.h"
#include "engine/text/constrain/gbnf_writer.h"

namespace baton {
namespace {

constexpr std::int32_t kVllmBlock = 16;  // tokens; its default, and only full blocks are found again
constexpr std::uint64_t kVllmSeeds = std::uint64_t{1} << 63;
constexpr int kStructuredOutputs = 11;  // of 0.11; 0.12 ignores what stood in its place

/// True for a release 0.N before the given one. Versions of another form are newer, or are built from source.
bool is_before(std::string_view version, int minor) {
  if (!version.starts_with("0.") || version.find("dev") != std::string_view::npos) return false;
  int number = minor;
  std::from_chars(version.data() + 2, version.data() + version.size(), number);
  return number < minor;
}

class VllmApi final : public ServerApi {
 public:
  VllmApi(std::string model, std::string_view version)
      : model_(std::move(model)), is_old_(is_before(version, kStructuredOutputs)) {}

  std::string_view name() const override { return "vllm"; }
  bool ids() const override { return true; }
  std::int32_t cache_block() const override { return kVllmBlock; }
  bool cuts_stops() const override { return false; }

  ServerRequest answer(const GenerationRequest& request, const std::vector<TokenId>& prompt, int) const override {
    const SamplingParams& sampling = request.sampling;
    RequestBody body = common(prompt, request.max_tokens);
    body.set("stream", true);
    body.set("stream_options", RequestBody().set("include_usage", true));
    body.set("return_token_ids", true);
    // Everything that the server would otherwise take from the model's generation_config.json.
    body.set("temperature", sampling.temperature);
    body.set("top_k", sampling.top_k > 0 ? sampling.top_k : -1);
    body.set("top_p", sampling.top_p);
    body.set("min_p", sampling.min_p);
    body.set("repetition_penalty", sampling.repetition_penalty);
    body.set("presence_penalty", 0.0);
    body.set("frequency_penalty", 0.0);
    body.set("skip_special_tokens", true);
    body.set("ignore_eos", false);
    body.set("seed", sampling.seed % kVllmSeeds);
    if (!request.stop.empty()) {
      body.set("stop", request.stop);
      body.set("include_stop_str_in_output", true);  // otherwise text lags behind its ids
    }
    if (request.constraint && is_old_) body.set("guided_grammar", gbnf_of(*request.constraint));
    if (request.constraint && !is_old_)
      body.set("structured_outputs", RequestBody().set("grammar", gbnf_of(*request.constraint)));
    if (request.reuse.method->prefixes == Method::Prefixes::never && !is_old_) body.set("cache_salt", fresh_salt());
    return {"/v1/completions", body.text()};
  }

  /// One token is the least that it generates; its KV is never computed.
  ServerRequest warm_up(const std::vector<TokenId>& prompt, int, bool yields) const override {
    RequestBody body = common(prompt, 1);
    body.set("stream", false);
    body.set("temperature", 0.0);
    if (yields) body.set("priority", 1);  // that of the others is 0, and higher ones come later
    return {"/v1/completions", body.text()};
  }

  ServerPiece read(std::string_view json) const override { return read_completion(json); }

 private:
  RequestBody common(const std::vector<TokenId>& prompt, std::int32_t max_tokens) const {
    return RequestBody().set("model", model_).set("prompt", prompt).set("max_tokens", max_tokens);
  }

  std::string model_;
  bool is_old_;
};

}  // namespace

std::unique_ptr<ServerApi> make_vllm_api(std::string model, std::string_view version) {
  return std::make_unique<VllmApi>(std::move(model), version);
}

}  // namespace baton
