// SPDX-License-Identifier: Apache-2.0
#include "engine/remote/server_api.h"

#include <fmt/format.h>

#include <random>

#include "engine/base/string_search.h"

namespace baton {

JsonDocument parse_server_json(std::string_view text, const std::string& origin) {
  constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
  JsonLimits limits;
  limits.max_values = 4'000'000;
  limits.max_bytes = kMaxBytes;
  limits.max_token = kMaxBytes;
  return parse_json(text, origin, limits);
}

std::int64_t count(const JsonFields& fields, const std::string& key) {
  return fields.integer_or(key, -1, -1, kMaxServerCount);
}

std::string dumped(const Json& body) { return body.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string fresh_salt() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

std::string error_text(const Json& body) {
  const Json* error = &body;
  for (const char* key : {"error", "message", "detail"}) {
    if (error->is_object() && error->contains(key)) error = &(*error)[key];
  }
  std::string text = said(error->is_string() ? error->get_ref<const std::string&>() : dumped(*error));
  return text.empty() ? "without words" : text;  // an empty text would be no error
}

std::string words_of_error(std::string_view body) {
  try {
    return error_text(*parse_server_json(body, "its answer"));
  } catch (const std::exception&) {
    return said(body, 200);
  }
}

// A number or a text alone is freed without memory.
void RequestBody::append_number(std::string& out, double value) { out += dumped(Json(value)); }

void RequestBody::append_text(std::string& out, std::string_view text) { out += dumped(Json(text)); }

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

std::string ServerApi::refusal(const GenerationRequest& request) const {
  if (!request.forced.empty()) return "it cannot be given the tokens of its answer";
  if (!request.choices.empty()) return "it does not tell the probabilities of whole texts, which `choose` compares";
  if (request.callbacks.on_logits) return "it gives no logits";
  return {};
}

}  // namespace baton
