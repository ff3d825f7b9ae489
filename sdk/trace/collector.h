// SPDX-License-Identifier: Apache-2.0
// Sends traces to a collector, in OTLP over HTTP.
#pragma once

#include <string>

#include "sdk/trace/trace_target.h"

namespace baton {

/// Sends what otlp_json made. Waits at most for the timeout of the settings and a second; meanwhile it tries again what
/// may succeed later, as the protocol says. Returns why the collector does not have the trace, or has not all of it, in
/// one line without secrets; empty: it has it.
std::string send_trace(const CollectorSettings& settings, const std::string& otlp);

}  // namespace baton
