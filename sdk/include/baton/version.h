// SPDX-License-Identifier: Apache-2.0
// Version of the library that is linked, which may be newer than these headers.
#pragma once

// Names of the public classes carry the version of the interface, so that two versions can live in one process;
// write baton::Engine, never baton::v1::Engine.
namespace baton::inline v1 {

/// "0.1.0". Never null, static storage, any thread.
const char* version() noexcept;

}  // namespace baton::inline v1
