// What the commands, the examples and driver/ itself include: the public interface, parsed once. As
// with cmake/std_pch.h, no file may rely on it.
#pragma once

#include <future>

#include "cmake/ops_pch.h"
#include "tandem/tandem.h"
