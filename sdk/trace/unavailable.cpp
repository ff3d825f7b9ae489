// SPDX-License-Identifier: Apache-2.0
// Takes the place of collector.cpp if Baton was built without what `baton pull` needs.
#include "sdk/trace/trace_target.h"

namespace baton {

std::string send_trace(const CollectorSettings&, const std::string&) {
  return "this build of Baton cannot send anything ('baton pull' says why); it can write traces into files";
}

}  // namespace baton
