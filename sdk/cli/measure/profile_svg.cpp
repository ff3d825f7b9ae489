// SPDX-License-Identifier: Apache-2.0
// The profile of a model as SVG: two or three panels over one axis of layers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sdk/cli/console/html.h"
#include "sdk/cli/measure/profile_plot.h"
#include "sdk/cli/measure/svg.h"

namespace baton::cli {
namespace {

constexpr double kProfileWidth = 720, kProfileLeft = 70, kProfileRight = 24;
constexpr double kProfileTitle = 72, kUpper = 230, kProfileGap = 34, kLower = 120, kProfileBelow = 66;

/// A round step that cuts [low, 1] into at most `pieces`.
double profile_step_for(double low, double pieces) {
  for (const double step : {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2}) {
    if ((1 - low) / step <= pieces) return step;
  }
  return 0.5;
}

class PlotPanel {
 public:
  PlotPanel(double top, double height, int layers, const std::vector<double>& values, const std::vector<double>& errors)
      : top_(top), height_(height), layers_(layers), values_(values), errors_(errors) {
    double lowest = 1;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!std::isnan(values[i])) lowest = std::min(lowest, values[i] - error(i));
    }
    step_ = profile_step_for(std::max(lowest, -1.0), height / 35);
    low_ = std::max(-1.0, std::floor(lowest / step_) * step_);
    if (1 - low_ < step_) low_ = 1 - step_;
  }

  double x(double layer) const {
    return kProfileLeft + 10 + layer * (kProfileWidth - kProfileLeft - kProfileRight - 20) / std::max(1, layers_ - 1);
  }

  Markup axes(const std::string& title) const {
    Markup out;
    for (int i = 0; low_ + i * step_ <= 1 + step_ / 2; ++i) {
      const double value = low_ + i * step_;
      out += html(
          "<line x1='{}' x2='{}' y1='{:.1f}' y2='{:.1f}' class='grid'/><text x='{}' y='{:.1f}' "
          "class='end'>{:.{}f}</text>\n",
          kProfileLeft, kProfileWidth - kProfileRight, y(value), y(value), kProfileLeft - 8, y(value) + 4, value,
          step_ < 0.01 ? 3 : 2);
    }
    const double middle = top_ + height_ / 2;
    return out + html("<text class='middle' transform='translate(18 {:.1f}) rotate(-90)'>{}</text>\n", middle, title);
  }

  Markup curve(const std::string& colour) const {
    Markup out;
    for (std::size_t begin = 0; begin < values_.size();) {  // unknown values split the curve
      std::size_t end = begin;
      while (end < values_.size() && !std::isnan(values_[end])) ++end;
      if (end > begin) out += piece(begin, end, colour);
      begin = end + 1;
    }
    return out;
  }

 private:
  double y(double value) const { return top_ + (1 - value) / (1 - low_) * height_; }
  double error(std::size_t i) const { return i < errors_.size() && !std::isnan(errors_[i]) ? errors_[i] : 0.0; }

  Markup piece(std::size_t begin, std::size_t end, const std::string& colour) const {
    Markup upper, lower, line, dots;
    for (std::size_t i = begin; i < end; ++i) {
      const double at = x(static_cast<double>(i));
      upper += html("{:.1f},{:.1f} ", at, y(std::min(1.0, values_[i] + error(i))));
      lower = html("{:.1f},{:.1f} ", at, y(std::max(low_, values_[i] - error(i)))) + lower;
      line += html("{:.1f},{:.1f} ", at, y(values_[i]));
      dots += html("<circle cx='{:.1f}' cy='{:.1f}' r='2.5' fill='{}'/>\n", at, y(values_[i]), colour);
    }
    return html(
               "<polygon points='{}{}' fill='{}' opacity='0.2'/>\n<polyline points='{}' fill='none' stroke='{}' "
               "stroke-width='1.8'/>\n",
               upper, lower, colour, line, colour) +
           dots;
  }

  double top_, height_;
  int layers_;
  const std::vector<double>& values_;
  const std::vector<double>& errors_;
  double step_ = 0.1, low_ = 0;
};

}  // namespace

Markup profile_svg(const ModelProfile& profile) {
  const auto layers = static_cast<int>(profile.similarity.size());
  const ProfiledRange range = profile.range();
  const PlotPanel upper(kProfileTitle, kUpper, layers, profile.similarity, profile.similarity_error);
  const PlotPanel lower(kProfileTitle + kUpper + kProfileGap, kLower, layers, profile.correlation,
                        profile.correlation_error);
  std::vector<double> left = profile.effect ? profile.effect->left_end : std::vector<double>();
  const std::vector<double> no_errors;
  for (double& share : left) share = std::min(share, 1.0);  // a NaN stays one
  const PlotPanel effect(kProfileTitle + kUpper + kLower + 2 * kProfileGap, kLower, layers, left, no_errors);
  const double bottom = kProfileTitle + kUpper + kProfileGap + kLower + (left.empty() ? 0.0 : kProfileGap + kLower);
  const double height = bottom + kProfileBelow;

  Markup out = begin_svg(kProfileWidth, height, kProfileLeft,
                         profile.model.filename().string() + ": which layers RelayCaching recomputes");
  out += html("<rect x='{:.1f}' y='{}' width='{:.1f}' height='{}' fill='#f3efe2'/>\n", upper.x(range.start),
              kProfileTitle, upper.x(range.end) - upper.x(range.start), bottom - kProfileTitle);
  out += upper.axes("similarity S") + lower.axes("correlation ρ");
  if (!left.empty()) out += effect.axes("KL left up to l");
  struct Mark {
    int layer;
    const char* name;
    double above;  // neighbours stand on different lines
  };
  for (const Mark& mark :
       {Mark{range.start, "start", 22}, Mark{range.detect, "detect", 8}, Mark{range.end, "end", 22}}) {
    const double x = upper.x(mark.layer);
    out += html("<line x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}' stroke='#a05a00' stroke-dasharray='4 3'/>\n", x,
                kProfileTitle, bottom);
    out += html("<text x='{:.1f}' y='{}' class='middle' fill='#a05a00'>{} {}</text>\n",
                std::min(x, kProfileWidth - kProfileRight - 22), kProfileTitle - mark.above, mark.name, mark.layer);
  }
  out += upper.curve("#1f5fa8") + lower.curve("#2a7d4f") + (left.empty() ? "" : effect.curve("#8a3f8f"));
  const int every = std::max(1, (layers + 19) / 20);
  for (int layer = 0; layer < layers; layer += every) {
    out += html("<text x='{:.1f}' y='{}' class='middle'>{}</text>\n", upper.x(layer), bottom + 18, layer);
  }
  out += html("<text x='{}' y='{}' class='middle'>layer</text>\n", (kProfileLeft + kProfileWidth - kProfileRight) / 2,
              bottom + 36);
  out += html(
      "<text x='{}' y='{}' class='end' font-size='10' fill='#777'>{} hand-overs ({}), {} tokens; bands: standard "
      "error</text>\n",
      kProfileWidth - kProfileRight, height - 8, profile.hand_overs, escaped(profile.source), profile.tokens);
  return out + "</svg>\n";
}

}  // namespace baton::cli
