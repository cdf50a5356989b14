// Post-training quantization in C++: annotate, calibrate, convert. See driver/quantize.h.
#pragma once

#include "driver/quantize.h"
