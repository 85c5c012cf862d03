#!/bin/sh
# The same files, the same layer: every file and folder below $1 has one time, byte code is compiled with that time in it.
#
# In: $1 a tree as it will lie below / of an image, installed by `pip install --no-compile`. What already has the time is
# not touched: it lies in a layer below.
set -eu
time='@315532800' # 1980-01-01, the least that a zip file can say
settle() { find "$1" -newermt "$time" -exec touch --no-dereference --date="$time" {} +; }
settle "$1"
# Sources first: byte code is valid for the time of its source. Some packages have templates that do not compile.
PYTHONHASHSEED=0 python3 -m compileall -qq -s "$1" -p / "$1" || true
settle "$1"
