// SPDX-License-Identifier: Apache-2.0
// The body of a request that runs a workflow, read and checked (docs/serve.md lists its fields).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "sdk/serve/served_workflow.h"

namespace baton::serve {

struct ChatRequest {
  const ServedWorkflow* workflow = nullptr;
  std::map<std::string, std::string> inputs{};
  int unread_messages = 0;  // before the last one, which the workflow has no input for
  std::optional<std::uint64_t> seed{};
  bool chat = true;  // a chat completion, else a completion
  bool stream = false;
  bool include_usage = false;  // in a stream
  bool events = false;         // of the run, in the stream
};

/// The bodies of POST /v1/chat/completions and POST /v1/completions. Throw ApiError (400; 404 for an unknown model).
ChatRequest read_chat(std::string_view body, const ServedWorkflows& workflows);
ChatRequest read_completion(std::string_view body, const ServedWorkflows& workflows);

}  // namespace baton::serve
