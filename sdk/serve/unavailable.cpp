// SPDX-License-Identifier: Apache-2.0
// Takes the place of the server if Boost was not found when Baton was built.
#include <baton/errors.h>

#include "sdk/serve/server.h"

namespace baton::serve {

const char* why_no_server() { return BATON_NO_SERVER; }

struct Server::Core {};

Server::Server(const Engine&, ServedWorkflows, ServeOptions) {
  throw ResourceError(ResourceError::Kind::device,
                      std::string("this build of Baton has no server: ") + why_no_server());
}
Server::~Server() = default;
int Server::port() const { return 0; }
void Server::serve(const std::stop_token&) {}

}  // namespace baton::serve
