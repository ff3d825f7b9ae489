// SPDX-License-Identifier: Apache-2.0
// The JSON forms of the records, shared by RunRecord::to_json and to_json(Event).
#pragma once

#include <baton/run_record.h>

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace baton {

nlohmann::ordered_json json_of(const KvRecord& record);
nlohmann::ordered_json json_of(const SlotRecord& record);
nlohmann::ordered_json json_of(const AgentRecord& record);
nlohmann::ordered_json json_of(const RunRecord& record);

/// JSON has no NaN and no infinity: they become 0.
double finite(double value);

/// indent < 0: one line. Invalid UTF-8 becomes U+FFFD.
std::string dump(const nlohmann::ordered_json& json, int indent);

}  // namespace baton
