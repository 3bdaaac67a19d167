//! A library that stands where `libnvidia-ml.so.1` does, scripted by a file.
