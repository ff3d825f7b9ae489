// SPDX-License-Identifier: Apache-2.0
// Takes the place of the room if libcurl was not found when Baton was built.
#include "agents/mcp/connection.h"

namespace baton {

std::unique_ptr<McpConnection> connect_to_address(const McpServerSpec&) {
  throw McpError("this build of Baton connects to no address: " BATON_NO_HTTP);
}

}  // namespace baton
