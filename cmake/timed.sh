#!/bin/sh
# timed.sh TITLE COMMAND...: runs a command between its title and the time that it took.
title=$1 began=$(date +%s)
shift
echo "== $title"
"$@" || exit
echo "== $title: $(($(date +%s) - began)) s"
