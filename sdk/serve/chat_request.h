// SPDX-License-Identifier: Apache-2.0
// Workflows that are served, and the requests for them in the form of OpenAI's interface.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <baton/turns.h>
#include <baton/workflow.h>

namespace baton::serve {

struct ServedWorkflow {
  std::string name;  // name of the model
  Workflow workflow;
  std::string message;  // the input that the last message of the user fills; empty: `history` holds it as well
  std::string history;  // the input of type messages that the messages before it fill; empty: they are not read
  std::map<std::string, std::string> inputs{};  // values of other inputs, which a request may replace
  std::set<std::string> shown{};                // the agents that the workflow's outputs name
  int answer = -1;      // the turn whose tokens are the answer as they come; -1: the answer comes whole, at the end
  std::string model{};  // path of a plain model, whose requests have workflows of their own; empty: a workflow
};

/// Chooses the inputs. `message` names that of the message; empty: it is the only text input that is required and has
/// no value in `inputs`, else the only text input. Throws InputError if that is ambiguous, for unknown inputs, and
/// for a workflow with steps that ask, since nobody is there to answer.
ServedWorkflow serve_workflow(std::string name, Workflow workflow, const std::string& message = {},
                              std::map<std::string, std::string> inputs = {});

/// A plain model, a path or a name as in a workflow's file: requests say how it samples, which tools it may call and
/// what form its answer has. Throws InputError, WorkflowError.
ServedWorkflow serve_model(std::string name, std::string path);

/// In the order in which they were added. Immutable while a server uses them.
class ServedWorkflows {
 public:
  /// Throws InputError for a name that is taken, or no model's name (letters, digits, '.', '_', '-'; at most 128).
  void add(ServedWorkflow workflow);
  /// Null: there is none of that name.
  const ServedWorkflow* find(std::string_view name) const;
  const std::vector<ServedWorkflow>& all() const { return workflows_; }
  /// "a, b", for messages.
  std::string names() const;

 private:
  std::vector<ServedWorkflow> workflows_;
};

/// Returns the entry of a workflow in the answer to GET /v1/models; `created`: seconds since 1970.
std::string model_json(const ServedWorkflow& workflow, long long created);
std::string models_json(const ServedWorkflows& workflows, long long created);

// The body of a request that runs a workflow, read and checked (docs/serve.md lists its fields), and what a request is
// refused with, in the form of OpenAI's interface.

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

  int status;         // HTTP status, 4xx or 5xx
  std::string code;   // stable, "model_not_found"
  std::string param;  // the field of the body that is wrong, or empty
  int retry_s;        // when to try again; 0: not at all, or at any time
};

/// {"error": {"message", "type", "param", "code"}}
std::string error_json(const ApiError& error);

struct ChatRequest {
  const ServedWorkflow* workflow = nullptr;
  std::shared_ptr<const ServedWorkflow> own{};  // `workflow`, if it is this request's alone
  std::map<std::string, std::string> inputs{};
  int unread_messages = 0;                   // before the last one, which the workflow has no input for
  std::vector<std::string> unread_fields{};  // fields of the body that do not change the answer
  std::optional<std::uint64_t> seed{};
  bool chat = true;  // a chat completion, else a completion
  bool stream = false;
  bool include_usage = false;         // in a stream
  bool events = false;                // the stream has the run's events
  bool calls = false;                 // the answer may be calls of the client's tools
  int choices = 1;                    // answers that are wanted
  std::optional<int> top_logprobs{};  // log probabilities are wanted, of so many of the likeliest tokens
};

/// The bodies of POST /v1/chat/completions and POST /v1/completions. Throw ApiError (400; 404 for an unknown model).
ChatRequest read_chat(std::string_view body, const ServedWorkflows& workflows);
ChatRequest read_completion(std::string_view body, const ServedWorkflows& workflows);

// Parts of these that the sources of this folder share.

/// The same for a plain model; `request` has what all requests have. `text`: that of the body.
void read_model_request(const nlohmann::json& body, std::string_view text, ChatRequest& request);
/// Null: the object has no such member, it is null, or it is no object.
const nlohmann::json* member_of(const nlohmann::json& object, const char* name);
/// 400, "PARAM: expected EXPECTED, found FOUND".
ApiError wrong_value(const std::string& param, const std::string& expected, const nlohmann::json& found);
/// A text, or a list of parts that are texts.
std::string content_text(const nlohmann::json& content, const std::string& param);

}  // namespace baton::serve
