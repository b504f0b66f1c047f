#!/bin/sh
# SPDX-License-Identifier: MIT
# A Debian package of the build in the working directory, ./deb/perilune_VERSION_ARCH.deb; `make deb` calls it with MAKE and VERSION set.
# Invariant: what is packed is what `make install` puts below /usr, nothing more; the package's dependencies on libraries are found by Debian's tools.
# Its maintainer is DEBFULLNAME <DEBEMAIL>.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
for tool in dpkg-deb dpkg-shlibdeps dpkg-architecture strip; do
  command -v "$tool" >/dev/null || { echo "deb: $tool is missing (Debian: dpkg-dev, binutils)" >&2; exit 1; }
done
arch=$(dpkg-architecture -qDEB_HOST_ARCH)
triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
root=$PWD/deb/perilune
revision=$VERSION-1
package=deb/perilune_${revision}_$arch.deb
maintainer="${DEBFULLNAME:-The Perilune authors} <${DEBEMAIL:-perilune@perilune.invalid}>"

umask 022
rm -rf deb
mkdir -p "$root/DEBIAN" deb/debian
"$MAKE" -s install DESTDIR="$root" prefix=/usr libdir="/usr/lib/$triplet" mandir=/usr/share/man docdir=/usr/share/doc/perilune >deb/log 2>&1 ||
  { cat deb/log >&2; exit 1; }
modules=$root/usr/lib/$triplet/lua/5.1/perilune
strip --strip-unneeded "$modules"/*.so
chmod 644 "$modules"/*.so

# Debian's places for what it wants to find by itself.
doc=$root/usr/share/doc/perilune
gzip -9n "$root/usr/share/man/man1/perilune.1"
gzip -9n <"$doc/CHANGELOG.md" >"$doc/changelog.gz"
printf 'perilune (%s) unstable; urgency=medium\n\n  * Version %s; what is new is in changelog.gz.\n\n -- %s  %s\n' "$revision" "$VERSION" \
  "$maintainer" "$(date -u -R -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}")" | gzip -9n >"$doc/changelog.Debian.gz"
rm "$doc/CHANGELOG.md" "$doc/LICENSE"
{
  echo 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/'
  printf '\nFiles: *\n%s\nLicense: Expat\n' "$(sed -n 's/^Copyright (c) /Copyright: /p' "$source/LICENSE")"
  sed -n '/^Permission/,$ { s/^$/./; s/^/ /; p }' "$source/LICENSE"
} >"$doc/copyright"

# dpkg-shlibdeps wants a source package to stand in.
printf 'Source: perilune\n\nPackage: perilune\nArchitecture: any\n' >deb/debian/control
(cd deb && dpkg-shlibdeps -O "$modules"/*.so) >deb/libraries 2>deb/log || { cat deb/log >&2; exit 1; }
libraries=$(sed -n 's/^shlibs:Depends=//p' deb/libraries)
size=$(du -sk --exclude=DEBIAN "$root" | cut -f1)
cat >"$root/DEBIAN/control" <<END
Package: perilune
Version: $revision
Architecture: $arch
Maintainer: $maintainer
Section: math
Priority: optional
Installed-Size: $size
Depends: luajit, $libraries
Recommends: libreadline8
Suggests: libopenblas0, bash-completion
Description: tensor engine driven from LuaJIT
 Tensors, gradients, captured training steps, layers and optimizers for LuaJIT
 scripts, with engines for the CPU, for CUDA devices, and for finding lifetime
 faults: every use of memory that was recycled is an error that names the op,
 where the tensor was made and what ended it.
END
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
rm -rf deb/debian deb/libraries deb/log
echo "$package"
