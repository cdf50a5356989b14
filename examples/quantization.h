// What both quantization examples do: calibrate with a progress bar, keep the statistics as a file,
// convert, compare with f32, and tell which layers lose most.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tandem/quant.h>
#include <tandem/tandem.h>

namespace tandem::examples {

struct QuantizationSettings {
  std::string load;                    // weights, safetensors
  std::string recipe = "x86_default";  // a built-in one, or a path that ends with .toml
  std::string statistics;              // file of ranges; "" keeps none
  bool reuse = false;                  // takes the file as it is: no calibration
  double bound = 0;                    // dB; above 0 the worst layers stay f32 until it holds
  bool sensitivity = false;            // ranks the layers
};

/// Takes an option of these from the command line; false where it is none.
bool set_quantization_option(QuantizationSettings& settings, const std::string& name,
                             const std::string& value);
inline constexpr const char* kQuantizationOptions =
    "--load --recipe --statistics --reuse --bound --sensitivity";

using Batches = std::vector<std::vector<Array>>;

struct Quantized {
  double f32_score = 0;
  double score = 0;
};
/// `score` of the f32 program and of the quantized one, which is printed on the way.
Quantized quantize(const quant::Model& model, const QuantizationSettings& settings,
                   const Batches& batches, const std::function<double(BoundProgram&)>& score);

}  // namespace tandem::examples
