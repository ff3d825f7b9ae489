// SPDX-License-Identifier: Apache-2.0
// A Grammar in GBNF, the notation of llama.cpp, for servers that obey a grammar.
#pragma once

#include <string>

#include "engine/text/constrain/grammar.h"

namespace baton {

/// The same texts as the grammar's, without its limit of depth. Throws ConstraintError where GBNF cannot say it, or
/// beyond a size.
std::string gbnf_of(const Grammar& grammar);

}  // namespace baton
