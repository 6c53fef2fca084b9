#!/usr/bin/env bash
# Tests the Dockerfile where Docker, its registry and a GPU are absent: with buildah, on a bare Debian root that stands
# in for vLLM's image. Needs root, buildah and debootstrap; all it makes lies in .cache/stand_in.
#   stand_in.sh build      the root (once), the image on it, and a container of the image
#   stand_in.sh run ARGS   the image's entry point with ARGS in that container, as the image's user
#   stand_in.sh test       `make test` there, with the image's packages, as that user
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
place=$PWD/.cache/stand_in
name=cudagraph-mode-artifact-stand-in
uid=1000

for tool in buildah debootstrap; do
	command -v "$tool" >/dev/null || { echo "stand_in.sh: $tool is not installed: apt install $tool" >&2; exit 3; }
done
[ "$(id -u)" = 0 ] || { echo "stand_in.sh: needs root: debootstrap makes a file system" >&2; exit 3; }

store=(buildah --root "$place/store" --runroot "$place/run")
export BUILDAH_ISOLATION=chroot
# What this machine needs to reach a package index stays out of the image.
host=()
for file in /etc/pip.conf /etc/ssl/certs; do
	[ ! -e "$file" ] || host+=(--volume "$file:$file:ro")
done

build() {
	rm -rf "$place/results"  # finished cells would not run again
	mkdir -p "$place/results"
	chown "$uid" "$place/results"
	if ! "${store[@]}" inspect --type image debian-python >/dev/null 2>&1; then
		rm -rf "$place/root"
		# python3-blinker: a package of the system's that is older than the one on our list, and in its way.
		debootstrap --variant=minbase --include=python3,python3-venv,python3-pip,python3-blinker,make,git,ca-certificates \
			bookworm "$place/root"
		container=$("${store[@]}" from scratch)
		"${store[@]}" add --quiet "$container" "$place/root" /
		"${store[@]}" commit --quiet --rm "$container" debian-python
		rm -rf "$place/root"
	fi
	"${store[@]}" build --format docker --layers "${host[@]}" --build-arg BASE=localhost/debian-python \
		--build-arg VLLM_VERSION= --build-arg TORCH_VERSION= --build-arg UID="$uid" \
		--build-arg COMMIT="$(git describe --always --abbrev=40 --exclude '*' --dirty)" --tag "$name" .
	"${store[@]}" rm "$name" >/dev/null 2>&1 || true
	"${store[@]}" from --name "$name" "$name"
}

# buildah's own `run` takes no notice of the entry point.
run() {
	local format='{{range .OCIv1.Config.Entrypoint}}{{println .}}{{end}}'
	mapfile -t entry < <("${store[@]}" inspect --type image --format "$format" "$name" | sed '/^$/d')
	"${store[@]}" run --volume "$place/results:/results" "$name" -- "${entry[@]}" "$@"
}

check() {
	rm -rf "$place/checkout"
	mkdir "$place/checkout"
	git ls-files --cached --others --exclude-standard -z \
		| tar --create --null --files-from - --ignore-failed-read | tar --extract --directory "$place/checkout"
	chown -R "$uid" "$place/checkout"
	"${store[@]}" run "${host[@]}" --volume "$place/checkout:/checkout" --workingdir /checkout "$name" -- \
		bash -c 'python3 -m venv --system-site-packages .venv && make test GPU=0'
}

case ${1:-} in
build) build ;;
run) run "${@:2}" ;;
test) check ;;
*) echo "usage: $0 build | run ARGS | test" >&2; exit 2 ;;
esac
