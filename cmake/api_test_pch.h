// What tests of the whole road include, parsed once.
#pragma once

#include "cmake/api_pch.h"
#include "cmake/test_pch.h"
