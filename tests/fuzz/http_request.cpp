// SPDX-License-Identifier: Apache-2.0
// What a client may send to `baton serve`: bytes that are read as HTTP, a header that is admitted, a body that is a
// request; or a refusal with a status of 4xx in the form of OpenAI's interface. The first byte chooses whether the rest
// is a whole request or a body alone.
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include <baton/workflow.h>

#include "sdk/serve/chat_request.h"
#include "sdk/serve/connection.h"

namespace {

namespace http = boost::beast::http;
using namespace baton::serve;

const ServedWorkflows& workflows() {
  static const ServedWorkflows served = [] {
    ServedWorkflows all;
    all.add(serve_workflow("team", baton::Workflow::parse(R"(
version: 1
inputs: {before: {type: messages}, question: string}
models: {main: nano}
agents: {a: {prompt: {messages: [{history: before}, {role: user, content: "{{ question }}"}]}}}
workflow: {topology: single, agents: [a]}
)")));
    return all;
  }();
  return served;
}

/// Aborts where a refusal is not what a client may get.
void check(const ApiError& error) {
  if (error.status < 400 || error.status > 499) std::abort();
  if (!nlohmann::json::accept(error_json(error))) std::abort();
}

void take_body(std::string_view body) {
  for (const auto read : {read_chat, read_completion}) {
    try {
      const ChatRequest request = read(body, workflows());
      if (request.workflow == nullptr || request.inputs.count("question") == 0) std::abort();
      if (!nlohmann::json::accept(request.inputs.count("before") == 0 ? "[]" : request.inputs.at("before")))
        std::abort();
    } catch (const ApiError& error) {
      check(error);
    }
  }
}

void take_request(std::string_view bytes) {
  http::request_parser<http::string_body> parser;
  parser.header_limit(16384);
  parser.eager(true);
  while (!bytes.empty() && !parser.is_done()) {
    boost::system::error_code error;
    const std::size_t used = parser.put(boost::asio::buffer(bytes.data(), bytes.size()), error);
    if (error) return;
    if (used == 0) break;
    bytes.remove_prefix(used);
  }
  if (!parser.is_header_done()) return;
  const RequestHead head = head_of(parser);
  static const ApiKeys none({}), some({"first-key", "second-key"});
  for (const ApiKeys* keys : {&none, &some}) {
    try {
      check_framing(parser);
      const Admitted admitted = admit(head, *keys, ServeOptions());
      if (keys == &some && !some.find(head.authorization)) std::abort();
      if (parser.is_done() && runs(admitted.endpoint)) take_body(parser.get().body());
    } catch (const ApiError& error) {
      check(error);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (*data % 2 == 0)
    take_request(bytes);
  else
    take_body(bytes);
  return 0;
}
