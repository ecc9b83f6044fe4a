# shellcheck shell=bash disable=SC2154
# The original files of a data set: fetched into a cache, or found in DATA_DIR; whole, and the ones they should be.

# A row of FILES is "URL sha256:SUM", "URL md5:SUM" or "URL -" where no checksum is known. Such a file's own is written
# beside it when it was first fetched, and compared with ever after.

# original NAME: the path of the file that FILES calls so.
original() {
  local row url path
  for row in "${FILES[@]}"; do
    url=${row%% *}
    [ "${url##*/}" = "$1" ] || continue
    path=${url#*://}
    if [ -z "${DATA_DIR:-}" ]; then echo "$CACHE_DIR/$path"
    elif [ -e "$DATA_DIR/$path" ]; then echo "$DATA_DIR/$path"
    else echo "$DATA_DIR/$1"; fi
    return
  done
  die "$dataset.sh: FILES has no $1"
}

# located SPEC: FILE or FILE:MEMBER of datasets/*.sh with the file's path; a path stays as it is.
located() {
  case $1 in
    /*) echo "$1" ;;
    *:*) echo "$(original "${1%%:*}"):${1#*:}" ;;
    *) original "$1" ;;
  esac
}

# wanted_sum ROW: sha256:SUM, md5:SUM, or nothing.
wanted_sum() {
  local url=${1%% *} sum=${1##* } name
  name=${url##*/}
  case $CHECKSUMS in
    none) ;;
    '') if [ "$sum" != - ] && [ "$sum" != "$1" ]; then echo "$sum"; fi ;;
    *) awk -v name="$name" '{ file = $2; sub(/^.*[*\/]/, "", file) } file == name { print "sha256:" $1; exit }' "$CHECKSUMS" ;;
  esac
}

sum_of() {  # sha256|md5 FILE
  local words
  words=$(if command -v "${1}sum" > /dev/null; then "${1}sum" "$2"; else openssl dgst "-$1" -r "$2"; fi)
  echo "${words%% *}"
}

# fault FILE SUM: what is wrong with it, in a few words, or nothing.
fault() {
  local file=$1 kind=${2%%:*} sum=${2#*:} found
  if [ -n "$2" ]; then
    found=$(sum_of "$kind" "$file")
    [ "$found" = "$sum" ] || echo "its $kind is $found, the original's is $sum"
    return
  fi
  case ${file%.part} in
    *.gz | *.tgz) gzip -t < "$file" 2> /dev/null || echo "gzip finds it truncated or corrupted" ;;
    *.tar) tar -tf "$file" > /dev/null 2>&1 || echo "tar finds it truncated or corrupted" ;;
  esac
}

fetch() {  # URL FILE: go on with FILE where it ends
  local options=(--fail --location --retry 3 --continue-at - --create-dirs --output "$2") code status=0 said
  if [ "$dry_run" ]; then show curl "${options[@]}" "$1"; echo; return; fi
  mkdir -p "$(dirname "$2")"
  if [ -t 2 ]; then
    code=$(curl "${options[@]}" --progress-bar --write-out '%{http_code}' "$1") || status=$?
    said="curl ended with status $status"
  else
    code=$(curl "${options[@]}" --silent --show-error --write-out '%{http_code}' "$1" 2> "$2.err") || status=$?
    said=$(tail -n 1 "$2.err")
    rm "$2.err"
  fi
  [ "$status" -ne 0 ] || return 0
  if [ -s "$2" ]; then
    # the server cannot go on in the middle, or there is nothing to go on with: from the beginning
    case $status:$code in 33:* | 36:* | *:416) rm "$2"; fetch "$1" "$2"; return ;; esac
  fi
  case $status in
    18 | 28 | 56) die "$1: interrupted (${said#curl: }); run this again to go on where it stopped" ;;
    *) die "$1: ${said#curl: }" ;;
  esac
}

# originals: all of FILES are there, whole and right, or the first that is not is named.
originals() {
  local row url file sum recorded wrong
  [ -z "$CHECKSUMS" ] || [ "$CHECKSUMS" = none ] || [ -f "$CHECKSUMS" ] || die "CHECKSUMS=$CHECKSUMS is no file, nor none"
  for row in "${FILES[@]}"; do
    url=${row%% *}
    sum=$(wanted_sum "$row")
    file=$(original "${url##*/}")
    [ -z "${MIRROR:-}" ] || url=$MIRROR/${url#*://}
    if [ -n "${DATA_DIR:-}" ]; then
      [ -z "$dry_run" ] || continue
      [ -e "$file" ] || die "$file is missing; DATA_DIR must have it as it comes from ${row%% *}"
      wrong=$(fault "$file" "$sum")
      [ -z "$wrong" ] || die "$file: $wrong; replace it, or give CHECKSUMS=none to use it as it is"
      continue
    fi
    if ! made "$file"; then
      if [ -n "$dry_run" ] || [ ! -s "$file.part" ] || [ -n "$(fault "$file.part" "$sum")" ]; then fetch "$url" "$file.part"; fi
      if [ "$dry_run" ]; then run mv "$file.part" "$file"; continue; fi
      wrong=$(fault "$file.part" "$sum")
      if [ -n "$wrong" ]; then
        rm "$file.part"
        die "$url: $wrong; it was thrown away, run this again to fetch it anew"
      fi
      sum_of sha256 "$file.part" > "$file.sha256"
      mv "$file.part" "$file"
    fi
    recorded=sha256:$(cat "$file.sha256" 2> /dev/null || sum_of sha256 "$file" | tee "$file.sha256")
    wrong=$(fault "$file" "${sum:-$recorded}")
    [ -z "$wrong" ] || die "$file: $wrong; remove it to fetch it anew"
  done
}
