// SPDX-License-Identifier: Apache-2.0
#include "engine/remote/completion_event.h"

#include "engine/remote/server_json.h"

namespace baton {
namespace {

/// vLLM tells which stop text or which token ended the answer; nothing: the end of the text.
FinishReason reason_of(const std::string& reason, const Json* stop) {
  if (reason == "length") return FinishReason::length;
  return stop != nullptr && stop->is_string() ? FinishReason::stop : FinishReason::eos;
}

}  // namespace

std::optional<JsonDocument> read_event(std::string_view json, ServerPiece& piece) {
  if (json == "[DONE]") {
    piece.last = true;
    return std::nullopt;
  }
  JsonDocument document = parse_server_json(json, kAnswer);
  if (document->is_object() && document->contains("error") && !(*document)["error"].is_null()) {
    piece.error = error_text(*document);
    return std::nullopt;
  }
  return document;
}

ServerPiece read_completion(std::string_view json) {
  ServerPiece piece;
  const std::optional<JsonDocument> document = read_event(json, piece);
  if (!document) return piece;
  const std::string origin = kAnswer;
  const JsonFields fields(**document, origin);
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
  piece.ids = choice.integers("token_ids", 0, kMaxServerCount);
  const std::string reason = choice.text_or("finish_reason", "");
  if (reason.empty()) return piece;
  if (reason == "abort" || reason == "error") piece.error = "it has given the request up (" + reason + ")";
  piece.reason = reason_of(reason, choice.find("stop_reason"));
  return piece;
}

}  // namespace baton
