// The loop of one run; executor.cpp checks the request first.
#pragma once

#include <map>
#include <string>

#include "workflows/executor.h"

namespace baton {

/// `inputs`: complete, with the defaults.
RunRecord execute_run(const RunRequest& request, const std::map<std::string, std::string>& inputs);

}  // namespace baton
