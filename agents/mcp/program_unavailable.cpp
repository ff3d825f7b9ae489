// SPDX-License-Identifier: Apache-2.0
// Servers that are programs, on systems other than Linux: they are not started.
#include <fmt/format.h>

#include "agents/mcp/connection.h"
#include "engine/base/utf8.h"

namespace baton {

std::unique_ptr<McpConnection> connect_to_program(const McpServerSpec& spec) {
  throw McpError(
      fmt::format("cannot start '{}': servers that are programs need Linux; expected one at an address (url)",
                  said(spec.command.front(), 200)));
}

}  // namespace baton
