// SPDX-License-Identifier: Apache-2.0
// The installed CMake package adds the definition to what links it (cmake/baton_package_share.cpp.in), so that a
// program finds the files of the prefix that its library came from, wherever the prefix was moved before.
#pragma once

extern "C" __attribute__((weak)) const char* baton_package_share();  // null where the package was not used
