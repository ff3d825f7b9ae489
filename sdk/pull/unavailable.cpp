// SPDX-License-Identifier: Apache-2.0
// Takes the place of the room if libcurl or OpenSSL was not found when Baton was built.
#include "sdk/pull/pull.h"

namespace baton {

std::int64_t PullPlan::total_bytes() const { return 0; }
std::int64_t PullPlan::remaining_bytes() const { return 0; }

PullPlan pull_model(const PullRequest& request) {
  throw PullError(PullError::Kind::unavailable,
                  "this build of Baton cannot download '" + request.model +
                      "': " BATON_NO_PULL
                      ". What other tools put into the cache of the Hugging Face hub is found all the same.");
}

}  // namespace baton
