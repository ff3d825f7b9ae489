// SPDX-License-Identifier: Apache-2.0
// SGLang's own /generate, as the documentation of its version 0.5.23 describes it (docs.sglang.io: SGLang Native APIs,
// Sampling Parameters).
#include "engine/remote/completion_event.h"
#include "engine/remote/request_body.h"
#include "engine/remote/server_api.h"
#include "engine/remote/server_json.h"
#include "engine/text/constrain/gbnf_writer.h"

namespace baton {
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
    if (request.reuse.method->prefixes == Method::Prefixes::never) body.set("extra_key", fresh_salt());
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
