// Problem: three curves over steps that are not the same steps, and behind each point a list of
// what is alive. Approach: forward and backward each get their width, whatever number of steps a
// curve has there; the list goes along as data, and the page's script shows that of the step under
// the pointer.
#include <fmt/format.h>

#include <algorithm>

#include "driver/page/markup.h"
#include "driver/page/parts.h"

namespace tandem::driver::page {
namespace {

constexpr double kLeft = 80;
constexpr double kWidth = 880;
constexpr double kTop = 12;
constexpr double kHeight = 260;
constexpr double kBottom = kTop + kHeight;

struct Series {
  std::string name;
  std::string style;  // class of the curve
  const std::vector<int64_t>* bytes;
  uint32_t forward_steps;
};

int64_t most_of(const std::vector<int64_t>& bytes) {
  return bytes.empty() ? 0 : std::ranges::max(bytes);
}

class Chart {
 public:
  Chart(const StepTimeline& step, const StepTimeline& saving_all) : step_(step) {
    const double steps = static_cast<double>(step.steps.size());
    border_ = kLeft + kWidth * step.forward_steps / steps;
    if (saving_all.is_known())
      series_.push_back(
          {"if all were saved", "all", &saving_all.planned, saving_all.forward_steps});
    if (!step.measured.empty())
      series_.push_back({"measured", "measured", &step.measured, step.forward_steps});
    series_.push_back({"planned", "planned", &step.planned, step.forward_steps});
    for (const Series& series : series_) most_ = std::max(most_, most_of(*series.bytes));
  }

  std::string text() const {
    return legend() +
           fmt::format(
               "<div class=\"chart\"><svg class=\"memory\" viewBox=\"0 0 {} {}\" "
               "width=\"{}\" height=\"{}\">\n",
               kLeft + kWidth + 10, kBottom + 30, kLeft + kWidth + 10, kBottom + 30) +
           axes() + curves() +
           fmt::format(
               "<line class=\"at\" y1=\"{}\" y2=\"{}\" visibility=\"hidden\"/></svg>"
               "<div class=\"tip\" hidden></div>\n",
               kTop, kBottom) +
           data() + "</div>\n";
  }

 private:
  std::string legend() const {
    std::string text = "<p class=\"legend\">";
    for (const Series& series : series_)
      text += fmt::format("<span class=\"{}\">▬ {}: {} at most</span> ", series.style, series.name,
                          bytes_text(most_of(*series.bytes)));
    return text + fmt::format("<span>arguments, which live anyway: {}</span></p>\n",
                              bytes_text(step_.arguments));
  }

  double x_of(const Series& series, size_t step) const {
    const double forward = series.forward_steps;
    const double all = static_cast<double>(series.bytes->size());
    const double at = static_cast<double>(step);
    if (at < forward) return kLeft + (border_ - kLeft) * at / forward;
    const double behind = std::max(all - forward, 1.0);
    return border_ + (kLeft + kWidth - border_) * (at - forward) / behind;
  }

  double y_of(double bytes) const {
    return kBottom - kHeight * bytes / std::max(static_cast<double>(most_), 1.0);
  }

  std::string axes() const {
    std::string text;
    for (int part = 0; part <= 4; ++part) {
      const double bytes = static_cast<double>(most_) * part / 4;
      text += fmt::format(
          "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
          "<text x=\"{}\" y=\"{:.1f}\" class=\"tick\">{}</text>\n",
          kLeft, kLeft + kWidth, y_of(bytes), y_of(bytes), kLeft - 6, y_of(bytes) + 4,
          bytes_text(static_cast<int64_t>(bytes)));
    }
    return text + fmt::format(
                      "<line class=\"border\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" "
                      "y2=\"{2}\"/><text x=\"{3}\" y=\"{4}\">forward</text>"
                      "<text x=\"{5:.1f}\" y=\"{4}\">backward</text>\n",
                      border_, kTop, kBottom, kLeft, kBottom + 18, border_ + 4);
  }

  /// A level for each step.
  std::string curves() const {
    std::string text;
    for (const Series& series : series_) {
      text += fmt::format("<polyline class=\"{}\" points=\"", series.style);
      for (size_t at = 0; at < series.bytes->size(); ++at) {
        const double y = y_of(static_cast<double>((*series.bytes)[at]));
        text += fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", x_of(series, at), y,
                            x_of(series, at + 1), y);
      }
      text += "\"/>\n";
    }
    return text;
  }

  std::string series_data() const {
    std::string text;
    for (const Series& series : series_)
      text += fmt::format("{}{{\"name\":{},\"forward\":{},\"bytes\":{}}}", text.empty() ? "" : ",",
                          json_text(series.name), series.forward_steps, json_list(*series.bytes));
    return text;
  }

  std::string data() const {
    std::string steps;
    for (const std::string& step : step_.steps)
      steps += (steps.empty() ? "" : ",") + json_text(step);
    std::string blocks;
    for (const runtime::CallTimeline::Block& block : step_.blocks)
      blocks += fmt::format("{}[{},{},{},{},{}]", blocks.empty() ? "" : ",", json_text(block.label),
                            block.bytes, block.first, block.last, block.in_arena ? 1 : 0);
    return fmt::format(
        "<script type=\"application/json\">{{\"left\":{},\"width\":{},"
        "\"border\":{:.1f},\"forward\":{},\"arguments\":{},\"steps\":[{}],"
        "\"series\":[{}],\"blocks\":[{}]}}</script>\n",
        kLeft, kWidth, border_, step_.forward_steps, step_.arguments, steps, series_data(), blocks);
  }

  const StepTimeline& step_;
  std::vector<Series> series_;
  int64_t most_ = 0;
  double border_ = 0;  // between forward and backward
};

}  // namespace

std::string memory_chart(const StepTimeline& step, const StepTimeline& saving_all) {
  if (!step.is_known())
    return "<p>Memory over time is known where all sizes are, and where there is a backward.</p>\n";
  return Chart(step, saving_all).text();
}

}  // namespace tandem::driver::page
