#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The steps of tools/lib.sh: what they find missing, how they stop, and that they do nothing twice.
# Programs that they would start are replaced by stand-ins in front of PATH.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
lib="$here/../../tools/lib.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin"
failures=0

stand_in() {
  printf '#!/bin/bash\n%s\n' "$2" >"$scratch/bin/$1"
  chmod +x "$scratch/bin/$1"
}

# in_lib CODE: runs it with lib.sh loaded; prints everything, ends with its status.
in_lib() {
  PATH="$scratch/bin:$PATH" XDG_CACHE_HOME="$scratch/cache" \
    bash -c "set -euo pipefail; source '$lib'; $1" </dev/null 2>&1
}

# expect NAME STATUS TEXT CODE
expect() {
  local status=0 output
  output=$(in_lib "$4") || status=$?
  if [[ $status == "$2" && $output == *"$3"* ]]; then return 0; fi
  printf 'FAILED %s: status %s, not %s, or no "%s" in:\n%s\n' "$1" "$status" "$2" "$3" "$output"
  failures=$((failures + 1))
}

installed='echo "install ok installed"'
lacks_cli11='[[ ${*: -1} == libcli11-dev ]] || echo "install ok installed"'

stand_in bazel true
stand_in dpkg-query "$installed"
stand_in apt-get 'echo "apt-get $*"; exit 9'
expect "all there: apt is not asked" 0 "done" 'ensure_system_packages; echo done'

stand_in dpkg-query "$lacks_cli11"
stand_in id 'echo 1000'
stand_in sudo 'exit 1'
expect "sudo wants a password" 1 "apt-get install -y --no-install-recommends libcli11-dev" \
  ensure_system_packages
stand_in id 'echo 0'
expect "apt fails" 1 "reason: apt-get update ended with 9" ensure_system_packages
stand_in apt-get 'echo "apt-get $*"'
expect "root installs what is missing" 0 "install -y -qq --no-install-recommends libcli11-dev" \
  ensure_system_packages

folder="$scratch/env"
python=/usr/bin/python3
expect "a package that is not there" 0 "surely-not-there" "lacking $python surely-not-there"
expect "another version" 0 "pip==0.0.1" "
  mkdir -p '$folder'; $python -m venv '$folder'; lacking '$folder/bin/python' pip pip==0.0.1"
expect "nothing missing, nothing installed" 0 "done" "ensure_environment '$folder' pip; echo done"
expect "the stamp lists what is inside" 0 "pip" "cat '$folder/ebbtide-stamp'"
printf '#!/bin/bash\nexit 7\n' >"$scratch/broken"
rm "$folder/bin/python" && install -m 755 "$scratch/broken" "$folder/bin/python"
expect "a complete environment is not looked at again" 0 "done" \
  "ensure_environment '$folder' pip; echo done"

expect "an interpreter that does not run" 1 "TORCH_PYTHON=/nowhere does not run" \
  'TORCH_PYTHON=/nowhere check_interpreter TORCH_PYTHON torch'
expect "an interpreter that lacks something" 1 "lacks surely-not-there" \
  "TORCH_PYTHON=$python check_interpreter TORCH_PYTHON surely-not-there"
expect "an interpreter without torch has no version" 0 "[]" \
  "echo \"[\$(torch_of '$scratch/broken')]\""
stand_in bazel 'exit 5'
expect "a build that fails stops the step" 1 "FAILED: build" 'build //x'

[[ $failures == 0 ]] && echo "all passed"
exit $((failures > 0))
