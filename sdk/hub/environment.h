// SPDX-License-Identifier: Apache-2.0
// Settings that the environment holds, as tools of the Hugging Face hub read them.
#pragma once

#include <filesystem>
#include <string>

namespace baton {

/// The variable's value; empty: it is not set.
std::string environment(const char* variable);

/// Whether the variable is 1, on, yes or true, in any case.
bool environment_flag(const char* variable);

/// `path` with a leading "~/" replaced by the user's home folder, where HOME says it.
std::filesystem::path home_expanded(const std::string& path);

/// $XDG_CACHE_HOME, else ~/.cache. Throws ModelError where neither XDG_CACHE_HOME nor HOME is set.
std::filesystem::path cache_home();

/// $HF_HOME, else "huggingface" in cache_home().
std::filesystem::path hub_home();

/// Offline mode: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set.
bool hub_offline();

/// $HF_ENDPOINT without slashes at its end, else https://huggingface.co.
std::string hub_endpoint();

}  // namespace baton
