// SPDX-License-Identifier: Apache-2.0
// A trace in OpenTelemetry's protocol (OTLP), as the JSON of an ExportTraceServiceRequest.
#pragma once

#include <map>
#include <string>

#include "sdk/trace/spans.h"

namespace baton {

/// One line. `resource`: attributes of the program that ran, `service.name` among them. Invalid UTF-8 becomes U+FFFD.
std::string otlp_json(const RunTrace& trace, const std::map<std::string, std::string>& resource);

}  // namespace baton
