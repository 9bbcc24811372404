#!/bin/sh
# whose_venv.sh FOLDER: says whose the environment in a folder is: "ours" if make made it, "free" if nothing is there, else
# "foreign". Make changes and deletes only its own: uv, VS Code and PyCharm make a .venv in a clone too.
if [ -e "$1/.made_by_make" ]; then # the mark
  echo ours
elif [ -e "$1/pyvenv.cfg" ]; then
  # Before there was a mark, these files said what make had installed.
  for stamp in "$1"/.installed "$1"/.tools "$1"/.torch-* "$1"/.docs.txt; do
    [ ! -e "$stamp" ] || { echo ours; exit; }
  done
  echo foreign
elif [ -L "$1" ] && [ ! -e "$1" ]; then # a link to nothing
  echo foreign
elif [ ! -e "$1" ] || { [ -d "$1" ] && [ -z "$(ls -A "$1")" ]; }; then
  echo free
else
  echo foreign
fi
