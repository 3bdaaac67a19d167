# shellcheck shell=bash
# How CI builds, once, for tests, programs, benches and the demo. Source it before any cargo command of CI.
# A little optimisation costs the build less than it saves the tests, which play months of virtual time.
export CARGO_PROFILE_DEV_OPT_LEVEL=1
# Nobody debugs here, and a checkout that is built once has no use for what makes the next build quicker: half of the build on disk.
export CARGO_PROFILE_DEV_DEBUG=0
export CARGO_INCREMENTAL=0
# At this level the linker's pass over all parts of a crate gains the programs next to nothing, and takes a quarter of the build.
export CARGO_PROFILE_DEV_LTO=off
