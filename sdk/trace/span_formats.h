// SPDX-License-Identifier: Apache-2.0
// A trace in OpenTelemetry's protocol (OTLP), as the JSON of an ExportTraceServiceRequest.
// A trace as a file of trace events, which ui.perfetto.dev and chrome://tracing show.
#pragma once

#include <map>
#include <string>

#include "sdk/trace/spans.h"

namespace baton {

/// One line. `resource`: attributes of the program that ran, `service.name` among them. Invalid UTF-8 becomes U+FFFD.
std::string otlp_json(const RunTrace& trace, const std::map<std::string, std::string>& resource);

/// One row for the run and one for each agent, where its turns do not overlap; arrows from the turns that a turn read.
/// Invalid UTF-8 becomes U+FFFD.
std::string chrome_json(const RunTrace& trace);

}  // namespace baton
