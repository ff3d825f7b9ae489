// SPDX-License-Identifier: Apache-2.0
// Where traces are sent, as the environment of OpenTelemetry's programs says it. It is read only for a user who asked
// for traces.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace baton {

struct CollectorSettings {
  std::string url;                          // "http://localhost:4318/v1/traces"
  std::vector<std::string> headers;         // "Name: value"
  std::chrono::milliseconds timeout{5000};  // of all attempts together
};

/// `address`: "http://host:4318", to which /v1/traces is added where it has no path, or empty: what
/// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT names, else http://localhost:4318. Headers and
/// timeout are those of OTEL_EXPORTER_OTLP_[TRACES_]HEADERS and OTEL_EXPORTER_OTLP_[TRACES_]TIMEOUT. Throws InputError
/// that names the variable.
CollectorSettings collector_settings(const std::string& address);

/// OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME; `service.name` is "baton" where they do not say it. Throws
/// InputError.
std::map<std::string, std::string> resource_attributes();

}  // namespace baton
