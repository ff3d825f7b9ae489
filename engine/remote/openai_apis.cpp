// SPDX-License-Identifier: Apache-2.0
// The languages of servers that speak OpenAI's completions: plain ones, vLLM and SGLang.

#include <fmt/format.h>

#include <charconv>

#include "engine/remote/server_answer.h"
#include "engine/remote/server_api.h"
#include "engine/text/constrain/grammar.h"

namespace baton {

// OpenAI's HTTP API, as far as servers of others have it too: /v1/completions with token ids, or
// /v1/chat/completions with messages.

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

// vLLM's /v1/completions with what it adds to OpenAI's API, as the documentation of its versions 0.10.2 to 0.33.0
// describes it (docs.vllm.ai: OpenAI-Compatible Server, Structured Outputs).

namespace {

constexpr std::int32_t kVllmBlock = 16;  // tokens; its default, and only full blocks are found again
constexpr std::uint64_t kVllmSeeds = std::uint64_t{1} << 63;
constexpr int kStructuredOutputs = 11;  // since 0.11; 0.12 ignores what stood in its place

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
    if (!reuses_prefixes(*request.reuse.method) && !is_old_) body.set("cache_salt", fresh_salt());
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

// SGLang's own /generate, as the documentation of its version 0.5.23 describes it (docs.sglang.io: SGLang Native APIs,
// Sampling Parameters).

namespace {

constexpr std::int32_t kSglangBlock = 16;  // tokens; its cache keeps single ones, but a warm-up costs a request
constexpr std::uint64_t kSglangSeeds = std::uint64_t{1} << 63;

class SglangApi final : public ServerApi {
 public:
  SglangApi(bool deltas, bool caches) : deltas_(deltas), caches_(caches) {}

  std::string_view name() const override { return "sglang"; }
  bool ids() const override { return true; }
  std::int32_t cache_block() const override { return caches_ ? kSglangBlock : 0; }
  bool cuts_stops() const override { return false; }

  ServerRequest answer(const GenerationRequest& request, const std::vector<TokenId>& prompt, int) const override {
    const SamplingParams& sampling = request.sampling;
    // Everything that the server would otherwise take from its command line or the model's generation_config.json.
    RequestBody params;
    params.set("max_new_tokens", request.max_tokens).set("temperature", sampling.temperature);
    params.set("top_k", sampling.top_k > 0 ? sampling.top_k : -1).set("top_p", sampling.top_p);
    params.set("min_p", sampling.min_p).set("repetition_penalty", sampling.repetition_penalty);
    params.set("presence_penalty", 0.0).set("frequency_penalty", 0.0).set("skip_special_tokens", true);
    params.set("ignore_eos", false).set("sampling_seed", sampling.seed % kSglangSeeds);
    if (!request.stop.empty()) {
      params.set("stop", request.stop).set("no_stop_trim", true);  // a part of it has been streamed by then
    }
    if (request.constraint) params.set("ebnf", gbnf_of(*request.constraint));
    RequestBody body;
    body.set("input_ids", prompt).set("sampling_params", params).set("stream", true);
    if (!reuses_prefixes(*request.reuse.method)) body.set("extra_key", fresh_salt());
    return {"/generate", body.text()};
  }

  /// Its own client puts a prompt into the cache like this.
  ServerRequest warm_up(const std::vector<TokenId>& prompt, int, bool) const override {
    RequestBody body;
    body.set("input_ids", prompt).set("stream", false);
    body.set("sampling_params", RequestBody().set("max_new_tokens", 0).set("temperature", 0.0));
    return {"/generate", body.text()};
  }

  ServerPiece read(std::string_view json) const override {
    ServerPiece piece;
    const std::optional<JsonDocument> document = read_event(json, piece);
    if (!document) return piece;
    const std::string origin = kAnswer;
    const JsonFields fields(**document, origin);
    piece.text = fields.text_or("text", "");
    piece.ids = fields.integers("output_ids", 0, kMaxServerCount);
    piece.whole = !deltas_;
    const Json* meta = fields.find("meta_info");
    if (meta == nullptr) fields.fail("meta_info", "expected an object");
    const JsonFields of(*meta, origin, "meta_info.");
    piece.prompt = count(of, "prompt_tokens");
    piece.tokens = count(of, "completion_tokens");
    piece.cached = count(of, "cached_tokens");
    if (const Json* reason = of.find("finish_reason"))
      end(piece, JsonFields(*reason, origin, "meta_info.finish_reason."));
    return piece;
  }

 private:
  /// What it matched is a stop text, or the id of a token that ends answers.
  static void end(ServerPiece& piece, const JsonFields& reason) {
    const std::string type = reason.text_or("type", "");
    const Json* matched = reason.find("matched");
    if (type == "abort") {
      piece.error = reason.text_or("message", "");
      if (piece.error.empty()) piece.error = "aborted";
    }
    piece.reason = type == "length"                             ? FinishReason::length
                   : matched != nullptr && matched->is_string() ? FinishReason::stop
                                                                : FinishReason::eos;
  }

  bool deltas_, caches_;
};

}  // namespace

std::unique_ptr<ServerApi> make_sglang_api(bool deltas, bool caches) {
  return std::make_unique<SglangApi>(deltas, caches);
}

}  // namespace baton
