// What most files of the rooms from ops/ on include: the graph and the table of operators, parsed
// once. As with cmake/std_pch.h, no file may rely on it: clang-tidy reads every source without it.
#pragma once

#include "base/diagnostic.h"
#include "cmake/std_pch.h"
#include "ir/text.h"
#include "ops/opdef.h"
