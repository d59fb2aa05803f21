#!/usr/bin/env bash
# build.sh BINARY [DIRECTORY]  Makes ceto_VERSION_ARCHITECTURE.deb of a built program in DIRECTORY (here), and prints its path.
# Needs dpkg-deb, and the program to run on this machine: it prints its configuration, completions and man pages.
#
# Environment: MAINTAINER, COMPRESSION (xz; zstd, gzip or none are quicker), SOURCE_DATE_EPOCH (of the files; 0).
set -euo pipefail
binary=$(realpath "${1:?usage: build.sh BINARY [DIRECTORY]}")
out=$(realpath "${2:-.}")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$here/../..
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-0}

version=$("$binary" --version | sed -n 's/^ceto \([0-9][0-9.a-z~+-]*\) .*/\1/p')
[[ -n $version ]] || { echo "$binary does not tell its version" >&2; exit 1; }
architecture=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

install -D -m 755 "$binary" "$root/usr/bin/ceto"
# Names of functions stay, which reports of stalls need; debug information is most of the file.
if command -v strip >/dev/null; then strip --strip-debug "$root/usr/bin/ceto"; fi
install -D -m 644 "$repo/packaging/systemd/ceto.service" "$root/usr/lib/systemd/system/ceto.service"

install -d "$root/etc/ceto"
"$binary" config sample | sed 's|^#workdir: .*|workdir: /var/lib/ceto|' >"$root/etc/ceto/ceto.yaml"
[[ $(grep -c '^[a-z]' "$root/etc/ceto/ceto.yaml") == 1 ]] || { echo "the sample has no line for workdir" >&2; exit 1; }

shells=$root/usr/share
install -d "$shells/bash-completion/completions" "$shells/zsh/vendor-completions" "$shells/fish/vendor_completions.d"
"$binary" completions bash >"$shells/bash-completion/completions/ceto"
"$binary" completions zsh >"$shells/zsh/vendor-completions/_ceto"
"$binary" completions fish >"$shells/fish/vendor_completions.d/ceto.fish"

"$binary" man "$root/usr/share/man/man1"
gzip -9n "$root"/usr/share/man/man1/*.1

doc=$root/usr/share/doc/ceto
install -d "$doc"
install -m 644 "$here/copyright" "$repo"/docs/{install,admin,configuration}.md "$doc"
gzip -9nc "$repo/CHANGELOG.md" >"$doc/changelog.gz"
find "$root" -mindepth 1 -type d -exec chmod 755 {} +
find "$root" -type f ! -path "$root/usr/bin/*" -exec chmod 644 {} +

# The oldest C library that has what the program asks for.
libc=$(grep -aoE 'GLIBC_2\.[0-9]+' "$binary" | sort -uV | tail -n 1)
size=$(du -sk "$root" | cut -f1)
install -d "$root/DEBIAN"
install -m 755 "$here"/{postinst,prerm,postrm} "$root/DEBIAN"
echo /etc/ceto/ceto.yaml >"$root/DEBIAN/conffiles"
cat >"$root/DEBIAN/control" <<END
Package: ceto
Version: $version
Architecture: $architecture
Maintainer: ${MAINTAINER:-ceto maintainers <ceto@localhost>}
Installed-Size: $size
Depends: libc6 (>= ${libc#GLIBC_}), libgcc-s1, passwd
Section: database
Priority: optional
Description: Cassandra-compatible wide-column database
 A node of ceto, which speaks the native protocol of Apache Cassandra to
 unmodified drivers and cqlsh, and keeps its table files in Cassandra's format.
 One thread per processor core owns its data; there is no garbage collector.
 .
 The node is not started by the installation: set cluster_name, addresses and
 seeds in /etc/ceto/ceto.yaml first.
END

(cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
package=$out/ceto_${version}_$architecture.deb
dpkg-deb --root-owner-group -Z"${COMPRESSION:-xz}" --build "$root" "$package" >/dev/null
echo "$package"
