// SPDX-License-Identifier: Apache-2.0
// Takes the place of the room where libcurl was not found when Baton was built.
#include "engine/backend/backend.h"
#include "engine/remote/http_loop.h"

namespace baton {

std::unique_ptr<HttpLoop> make_http_loop() {
  throw BackendError("this build of Baton runs no model on a server: " BATON_NO_HTTP);
}

}  // namespace baton
