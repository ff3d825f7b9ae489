// SPDX-License-Identifier: Apache-2.0
// What an MCP server may send: a stream of events, messages, lists of tools; read, or refused with an exception. A list
// that was read has tools whose calls can be enforced.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "agents/mcp/connection.h"
#include "engine/base/event_stream.h"
#include "engine/text/schema/schema.h"

namespace {

void take(std::string_view text) {
  try {
    const baton::RpcMessage message = baton::read_rpc(text);
    if (message.kind == baton::RpcMessage::Kind::request) baton::rpc_answer(message);
    if (message.kind != baton::RpcMessage::Kind::result) return;
    std::vector<baton::ToolSchema> tools;
    std::vector<std::string> left_out;
    baton::read_tools(text, tools, left_out);
    for (const baton::ToolSchema& tool : tools) {
      if (!baton::check_parameters(tool.parameters, baton::UnknownKeywords::ignored).empty()) std::abort();
      baton::call_grammar({}, std::span(&tool, 1), {});
    }
  } catch (const std::runtime_error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  take(bytes);
  baton::EventStream stream(take);
  for (std::size_t at = 0; at < size; at += 7) stream.add(bytes.substr(at, 7));
  baton::said(bytes);
  return 0;
}
