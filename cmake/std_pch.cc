// A precompiled header needs a target with a source; this is it.
