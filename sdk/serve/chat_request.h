// SPDX-License-Identifier: Apache-2.0
// The body of a request that runs a workflow, read and checked (docs/serve.md lists its fields), and what a request is
// refused with, in the form of OpenAI's interface.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "sdk/serve/served_workflow.h"

namespace baton::serve {

/// Ends a request. what() is for the client: it never holds a key, a path of the server or another client's text.
class ApiError : public std::runtime_error {
 public:
  ApiError(int http_status, std::string error_code, const std::string& message, std::string parameter = {},
           int try_again_s = 0)
      : std::runtime_error(message),
        status(http_status),
        code(std::move(error_code)),
        param(std::move(parameter)),
        retry_s(try_again_s) {}

  int status;         // of HTTP, 4xx or 5xx
  std::string code;   // stable, "model_not_found"
  std::string param;  // the field of the body that is wrong, or empty
  int retry_s;        // when to try again; 0: not at all, or at any time
};

/// {"error": {"message", "type", "param", "code"}}
std::string error_json(const ApiError& error);

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
