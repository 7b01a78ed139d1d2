# make demo   the main job, from nothing to two booted kernels and a table
# make test   everything that has to hold
# make help   the rest

.PHONY: help demo test tools build lint bench bench-scan study-sections study-kernels study-scan study-programs pages pages-arm64 clean

help:
	@echo 'make demo    build a kernel, shrink it for BusyBox, boot both, print the table (out/demo/)'
	@echo 'make test    format, lints, unit tests, random and real programs, kernels in QEMU'
	@echo 'make build   the commands, in target/release/'
	@echo 'make lint    rustfmt and clippy'
	@echo 'make bench   rewriting beside ld -r: time and memory'
	@echo 'make study-sections   what -fdata-sections and -ffunction-sections add (docs/sections.md)'
	@echo 'make study-kernels    kernels of two versions and three configurations, rewritten and booted (docs/kernels.md)'
	@echo 'make bench-scan   scanning programs: time and memory'
	@echo 'make study-scan   the calls of all programs of many Debian packages (docs/scan.md)'
	@echo 'make study-programs   calls that programs are seen to make, and their plans (docs/scan-programs.md)'
	@echo 'make pages   how many pages of text a kernel touches, and with its code in order (docs/pages.md)'
	@echo 'make pages-arm64   the same of an arm64 kernel, ordered by ld.lld alone (docs/pages-arm64.md)'
	@echo 'make clean   remove target/ and out/; kernels stay in $${KSHRINK_CACHE:-~/.cache/kshrink}'

demo: build
	fixtures/demo.sh out/demo

test: lint build
	fixtures/install.sh boot browser programs scan
	cargo test --release --workspace

tools:
	fixtures/install.sh kernel

build: tools
	cargo build --release --workspace --bins

lint: tools
	cargo fmt --all --check
	cargo clippy --release --workspace --all-targets -- -D warnings

bench: build
	fixtures/bench/rewrite.sh

bench-scan: build
	fixtures/bench/scan.sh

study-sections: build
	fixtures/bench/sections.sh

study-kernels: build
	fixtures/kernels/study.sh docs/kernels.md

study-scan: build
	fixtures/bench/study-scan.sh

study-programs: build
	fixtures/bench/study-programs.sh docs/scan-programs.md

pages: build
	fixtures/pages/pages.sh out/pages

pages-arm64: build
	fixtures/pages/pages-arm64.sh out/pages-arm64

clean:
	rm -rf target out
