// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "engine/reuse/methods.h"
#include "workflows/format/format_types.h"
#include "workflows/format/relay_reader.h"

namespace baton::format_types {

FormatType relay_method() {
  std::vector<std::string> names = {"auto", std::string(kMethodAlias.name)};
  for (const Method& method : methods()) {
    if (method.id != MethodId::automatic) names.emplace_back(method.name);
  }
  return choice(std::move(names));
}

std::vector<FormatKey> relay_keys() {
  return {
      {"relay", "method", relay_method(), false, "auto",
       fmt::format("The method; `auto` chooses per placeholder; `{}` is another name of `{}`.", kMethodAlias.name,
                   method_of(kMethodAlias.method).name)},
      {"relay", "tolerance", number(0, 100), false, "0.02",
       "`auto`: handed-over texts are rectified only where the mean KL divergence of a turn from full prefill is "
       "expected to stay within this many nats per token, in 95 % of the turns, or on average under a guard that "
       "watches each prompt; 0: everything is exact."},
      {"relay", "history", boolean(), false, "true",
       "`auto`: the first turns of each place, and later ones now and then, are measured on the user's own texts, "
       "and decide there ([methods](methods.md#auto)); false: the model's levels alone decide."},
      {"relay", "layers", object("layers"), false,
       "those of the profile, else L/8 to 2 L/3 of L layers; `droidspeak`: the pair's",
       "The layers that `rectify` or `droidspeak` recompute."},
      {"relay", "ttft", time_limit(), false, "none",
       "`droidspeak`: the time in which an agent's first token should come. An agent that is expected to keep it "
       "recomputes more layers than the pair's profile asks for, the largest group that the profile has; while other "
       "prompts wait or are computed, and where the time is too short, it recomputes those of the profile."},
      {"relay", "select", object("select"), false, "",
       "Which tokens `rectify` recomputes in the layers after `layers.detect`."},
      {"relay", "preset", choice({"paper"}), false, "",
       "`rectify` as RelayCaching published it: its choice of tokens, the layers that its profiler finds, no "
       "learned "
       "corrections. Of `select`, `deviation`, `influence` and `suffix` may be set."},
      {"relay", "reuse", number_above(0, 1), false, "",
       "`epic`, `cacheblend`, `rectify`: the fraction of the handed-over (token, layer) entries that is not "
       "recomputed; the number of tokens follows from it, in place of `epic_tokens`, `cacheblend_share`, "
       "`select.share` and thresholds."},
      {"relay", "correct", boolean(), false, "true; false by deviation",
       "`rectify`: reused KV is corrected by the correction that `baton-lab learn` found for the placeholder, if there "
       "is one."},
      {"relay", "epic_tokens", integer(0), false, "16", "`epic`: the first tokens of each segment are recomputed."},
      {"relay", "cacheblend_share", number(0, 1), false, "0.15",
       "`cacheblend`: the fraction of the reused tokens that is recomputed."},
      {"relay", "cacheblend_score", choice({"values", "cosine"}), false, "values",
       "`cacheblend`: ranks tokens by the squared distance of their values, over all segments of a prompt "
       "(`values`, "
       "as published), or by the cosine of their values, in each segment (`cosine`)."},
      {"relay", "anchors", object("anchors"), false, "",
       "How method `anchors` corrects KV, and when its corrections are trusted."},
      {"relay", "min_tokens", integer(1), false, "32", "Shorter segments are computed in full."},
      {"relay", "max_hops", integer(0), false, "4 with `auto` and `verified`, else 0",
       "Texts whose own KV is that many hand-overs away from exact KV are computed in full, since errors add up; "
       "0: no bound."},
      {"relay", "prefix", boolean(), false, "true",
       "Methods other than `full` also reuse the longest exact prefix in the prefix cache."},
      {"relay", "memory", object("memory"), false, "", "Limits of the memory for KV."},

      {"layers", "start", integer(0), true, "",
       "The layer at which reused tokens enter, from their hidden states; 0: from their embeddings."},
      {"layers", "detect", integer(1), false, "",
       "`rectify`: the layer in which values are compared and tokens are chosen."},
      {"layers", "end", integer(1), true, "",
       "The last layer in which the chosen tokens (`droidspeak`: all reused tokens) are recomputed; it must be a "
       "layer of the model."},

      {"select", "deviation", number(0, 1000), false, "1.5",
       "Chooses tokens whose values deviate by more than this multiple of the mean; 0: none."},
      {"select", "influence", number(0, 1000), false, "1.45",
       "Chooses tokens that received more than this multiple of the mean attention; 0: none."},
      {"select", "suffix", integer(0), false, "0; 8 by author, 10 by deviation",
       "How many tokens at the end of each segment are chosen."},
      {"select", "head", integer(0), false, "0; 16 by author and by entropy",
       "How many tokens at the beginning of each segment are chosen."},
      {"select", "share", number(0, 1), false, "0.2; 0.32 by author, 0.25 by entropy, 0 by deviation",
       "Above 0: the fraction that is chosen, best scores first, in place of the thresholds; by change of all segments "
       "of a prompt together, else of each."},
      {"select", "score", choice({"change", "author", "entropy", "deviation"}), false,
       "change; deviation where a threshold is set",
       "What the score of a token measures: how far its values move (`change`), how unsure its author was of it "
       "and "
       "how much it looked back at it (`author`), only the former (`entropy`), or how much its values turn "
       "(`deviation`, the paper's); see docs/methods.md."},
      {"select", "all", boolean(), false, "false",
       "Chooses every token; only the layer range limits what is recomputed."},

      {"anchors", "size", integer(1, 10000), false, "20",
       "Maximum number of anchors in one pool; a pool belongs to one placeholder of one prompt."},
      {"anchors", "gate", choice({"error", "entropy", "none"}), false, "error",
       "Which corrections are trusted: those with a small expected error (`error`), those whose weights have a "
       "small entropy (`entropy`, the paper's eq. 5), or all (`none`)."},
      {"anchors", "compat", choice({"paper"}), false, "",
       "Corrects and decides as KVComm published it; only `size`, `gamma` and `pool` may be set besides."},
      {"anchors", "trust", number(0, 100), false, "0.1",
       "Gate `error`: up to this expected relative error of K and V a placeholder is corrected and none of its "
       "tokens is recomputed."},
      {"anchors", "refuse", number(0, 100), false, "0.16",
       "Gate `error`: above this error a placeholder is computed in full; between `trust` and `refuse` only its "
       "uncertain tokens are recomputed."},
      {"anchors", "recompute", number(0, 1), false, "0.15",
       "The fraction of a placeholder's tokens that is recomputed between `trust` and `refuse`."},
      {"anchors", "gamma", number(0, 100), false, "0.3",
       "Gate `entropy`: weights of more than gamma log(anchors) nats make a text a new anchor."},
      {"anchors", "offsets", choice({"weighted", "nearest", "none"}), false, "weighted",
       "Corrects by all anchors, weighted by their similarity (`weighted`), by the nearest anchor alone "
       "(`nearest`), or not at all (`none`)."},
      {"anchors", "text", choice({"computed", "offset", "base"}), false, "computed",
       "What happens to fixed text behind a placeholder: it is computed (`computed`), corrected like the "
       "placeholder (`offset`), or reused as first seen (`base`)."},
      {"anchors", "aligned", boolean(), false, "true",
       "Tokens are matched to those of an anchor by edit distance; `false`: by index, as in the paper."},
      {"anchors", "rotate", boolean(), false, "true", "`false`: keys stay at their author's positions."},
      {"anchors", "check", integer(0), false, "32",
       "One turn in this many is computed in full, to measure the error; 0: none."},
      {"anchors", "pool", string(), false, "", "Name of the pools; pools of different names share no anchors."},

      {"memory", "device", size(), false, "half of what is free",
       "KV on the device, including that of running prompts. On the CPU, what the limit of a container leaves is "
       "free."},
      {"memory", "host", size(), false, "a quarter of what is available", "KV of a device's segments in host memory."},
  };
}

}  // namespace baton::format_types
