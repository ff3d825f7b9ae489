#include "sdk/src/model_ranges.h"

#include "sdk/src/calibration.h"

namespace baton {

void ensure_layer_range(Engine& engine, const std::function<void(double share)>& on_progress,
                        const std::stop_token& stop) {
  const Model& model = engine.model();
  if (engine.layer_range().valid(model.config.layers) || stop.stop_requested()) return;
  if (const FoundProfile found = find_profile(model); found.profile)
    return engine.set_layer_range(found.profile->range());
  ProfilerOptions options;
  options.on_progress = on_progress;
  options.stop = stop;
  const auto measured = measure_profile(engine, synthetic_hand_overs(model, 12, options.max_tokens, 0), options);
  if (on_progress) on_progress(1.0);  // whoever shows it can take it away
  if (!measured) return;
  const StoredProfile profile = to_stored(*measured, model, "synthetic");
  engine.set_layer_range(profile.range());
  if (const auto file = profile_in_cache(model.fingerprint); !file.empty()) {
    try {
      write_whole(file, to_json(profile));
    } catch (const std::filesystem::filesystem_error&) {
      // The next process measures again.
    }
  }
}

}  // namespace baton
