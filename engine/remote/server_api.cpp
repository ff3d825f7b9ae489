// SPDX-License-Identifier: Apache-2.0
#include "engine/remote/server_api.h"

namespace baton {

std::string ServerApi::refusal(const GenerationRequest& request) const {
  if (!request.forced.empty()) return "it cannot be given the tokens of its answer";
  if (!request.choices.empty()) return "it does not tell the probabilities of whole texts, which `choose` compares";
  if (request.callbacks.on_logits) return "it gives no logits";
  return {};
}

}  // namespace baton
