// SPDX-License-Identifier: Apache-2.0
// Opening a model that a server of another project runs: what kind of server it is, its vocabulary and its template.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "engine/engine.h"
#include "engine/remote/model_server.h"

namespace baton {

/// A model of a server.
struct ServerModel {
  ServerAddress address;
  std::string model;         // its name there; empty: the only one, or whichever the server takes
  std::string api = "auto";  // auto, llama, vllm, sglang, openai
  /// The tokenizer and the chat template of the model; null: the server is asked, or takes messages.
  std::shared_ptr<const ModelText> text;
  std::int32_t context = 0;  // maximum tokens of a prompt and its answer; 0: what the server says
  double slowdown = 0.0;     // as LocalEngineOptions::slowdown; 0: that of the CPU
};

/// Asks the server what it is. Throws BackendError, ModelError for a template or tokenizer that cannot be used, and
/// Interrupted soon after a stop was requested.
std::shared_ptr<InferenceEngine> open_server(const ServerModel& model, const std::stop_token& stop = {});

}  // namespace baton
