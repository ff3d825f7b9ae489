// Catch2 version 3 under the name of version 2's header.
#pragma once

#include <catch2/catch_all.hpp>

using Catch::Approx;
namespace Catch {
using Catch::Matchers::ContainsSubstring;
using TestEventListenerBase = EventListenerBase;
inline auto Contains(const std::string& text) { return ContainsSubstring(text); }
}  // namespace Catch
