// SPDX-License-Identifier: Apache-2.0
// The python tool: runs the last fenced code block of a text in a separate, confined process and shows what it printed.
#pragma once

#include <memory>

#include "agents/tool.h"

namespace baton {

/// Named "python". Options, all as text: timeout ("10s"), memory ("512MiB"), interpreter (a path, or a name to look
/// for; "python3"). The result is what the code wrote to its two streams, at most 64 KiB; ok when it ended without an
/// error.
std::shared_ptr<const Tool> make_python_tool();

}  // namespace baton
