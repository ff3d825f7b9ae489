// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a GGUF file, in the terms of Hugging Face's tokenizer.json.
#pragma once

#include <memory>
#include <string>

#include "engine/model/gguf.h"
#include "engine/text/tokenizer.h"

namespace baton {

/// The tokenizer that the tokenizer.json of the same model describes. Byte-level BPE ("gpt2", with its pre-tokenizer by
/// name) and SentencePiece BPE ("llama"). Throws ModelError for another model or pre-tokenizer, by name, and for
/// metadata that contradicts itself.
std::shared_ptr<const Tokenizer> gguf_tokenizer(const GgufMetadata& metadata);

/// The text of a token that the metadata names: "bos", "eos"; empty: it names none.
std::string gguf_special_text(const GgufMetadata& metadata, const std::string& which);

}  // namespace baton
