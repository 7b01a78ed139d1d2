# make check  during development: lints and tests that need neither kernels nor other tools
# make demo   builds, trims, shrinks and boots a kernel, and prints a table; with ARCH=x86_64 or ARCH=arm, for x86-64 or
#             32-bit ARM
# make test   all lints and tests
# make help   all targets

.PHONY: help demo demo-kernel check test test-kernels test-binaries test-rest fresh tools build lint install uninstall deb test-deb picture bench bench-scan bench-pack bench-calls table1 table2 study-sections study-kernels study-compilers study-openwrt study-arm study-scan study-programs study-torture study-random study-rewrites study-damage study-freeze study-frozen study-memory study-options study-fields study-customize pages pages-arm64 clean

PREFIX = /usr/local
# Where cargo builds.
TARGET = $(or $(CARGO_TARGET_DIR),target)
COMMANDS = census cmdline-spec config-spec coverage customize field-pack frozen-pack kcfg kelf kshrink-spec reorder syscall-scan
# Files installed in share/kshrink/.
SHARED = share/kshrink.mk share/copy-build.sh share/kernel-places.sh share/slab-places.sh share/trace.c share/allocations.c share/accesses.c share/plugin.h $(addprefix kcustom-rt/user/,kcustom.h kcustom-wire.h kcustomd.c libkcustom.c libkcustom.h libkcustom-preload.c)

# Packages and targets of the tests that need only Rust, gcc and binutils; unit tests are not listed. Each
# target name must be unique in these packages.
CHECKED_PACKAGES = kcfg kcli kelf kopt ksize kshrink-tests
CHECKED = assumptions build_dir cli command edit filetests guards lift lower replace_uses scan_index size sound usage

# The kernels of the tests of make test. A test builds its kernel if it is missing.
TEST_KERNELS = web-i386 arm-virt-smp web-i386-data-objects

help:
	@echo 'make demo    builds a kernel, turns off options that it did not use, shrinks it for BusyBox, freezes it, boots all, prints a table (out/demo/)'
	@echo 'make demo ARCH=x86_64   the same for x86-64 (out/demo-x86_64/); also ARCH=arm, 32-bit ARM'
	@echo 'make demo TRIM=no    the same with all options on (out/demo-untrimmed/)'
	@echo 'make check   format, lints, documentation, tests that need neither kernels nor other tools, in a debug build'
	@echo 'make test    format, lints, unit tests, random and real programs, kernels in QEMU'
	@echo 'make test-rest   tests of more kernels and programs, an hour or two'
	@echo 'make fresh   make test and make demo in a bare Debian 12 in a directory (root only)'
	@echo 'make build   the commands, in $(TARGET)/release/'
	@echo 'make lint    rustfmt, clippy and rustdoc, with warnings as errors'
	@echo 'make install PREFIX=DIR   installs the commands (stripped), man pages, completions and share/kshrink/ (honors DESTDIR)'
	@echo 'make uninstall PREFIX=DIR   removes these files'
	@echo 'make deb     packages the results of make build for Debian, checked by lintian (out/deb/)'
	@echo 'make test-deb   installs, uses and purges this package in a bare Debian 12'
	@echo 'make picture the bar chart of the README, after make demo ARCH=x86_64 (docs/memory.svg)'
	@echo 'make bench   time and memory of rewriting, compared with ld -r; also ARCH=arm'
	@echo 'make study-sections   the effect of -fdata-sections and -ffunction-sections (docs/sections.md)'
	@echo 'make study-kernels    kernels of three versions and three configurations, rewritten and booted (docs/i386-kernels.md)'
	@echo 'make study-compilers  kernels of three versions, built by three compilers for two machines, rewritten and booted (docs/kernels.md)'
	@echo 'make bench-calls  executed instructions of system calls and of the demo scenario, original and rewritten (docs/speed.md); also ARCH=x86_64'
	@echo "make table1  the paper's Table I, compared with the web kernel (docs/table1.md)"
	@echo "make table2  the paper's Tables II and III, compared with freezing by page and by stub (docs/table2.md)"
	@echo 'make bench-scan   time and memory of scanning programs'
	@echo 'make bench-pack   code and read-only data of the demo kernel, packed page by page with each coder; also ARCH=arm or ARCH=x86_64'
	@echo 'make study-arm    kernels for 32-bit ARM in both instruction sets, with frame pointers, -fdata-sections, --gc-sections, and modules (docs/arm-kernels.md)'
	@echo "make study-openwrt  a router's kernel with modules, shrunk and frozen, half an hour (docs/openwrt-kernel.md)"
	@echo 'make study-scan   system calls of all programs of many Debian packages (docs/scan.md)'
	@echo 'make study-programs   plans of programs, compared with observed system calls (docs/scan-programs.md)'
	@echo "make study-torture    GCC's own execution tests, rewritten and run, an hour (docs/torture.md); also ARCH=x86_64"
	@echo 'make study-random     500 random programs for i386, 300 for x86-64 and 100 for ARM, rewritten and run (docs/torture.md)'
	@echo 'make study-rewrites   20,000 rewrites of generated programs and 4,000 of csmith, by many compilers and options (docs/torture.md)'
	@echo 'make study-damage     damaged kernels, traces and plans, two minutes per command, half an hour (docs/torture.md)'
	@echo 'make study-freeze     kernels with everything frozen: two processors, crashes, stress-ng, half an hour (docs/freezing.md); also ARCH=x86_64'
	@echo 'make study-frozen     sizes of kernels frozen by page and by stub, for i386 and ARM (docs/frozen-kernels.md)'
	@echo 'make study-memory     memory that devices gain, as kelf size says and as they see it (docs/memory-kernels.md)'
	@echo 'make study-options    what each option of a kernel costs, measured one at a time, hours (docs/options-kernels.md, docs/options-tiny.md)'
	@echo 'make study-fields     memory of data structures, smaller for several thresholds, two hours (docs/fields-kernels.md)'
	@echo 'make study-customize  instructions of sends of datagrams, with a copied path and without (docs/customize-paths.md)'
	@echo 'make pages   pages of text that a kernel touches, as built and with ordered code (docs/pages.md)'
	@echo 'make pages-arm64   the same for an arm64 kernel, ordered only by ld.lld (docs/pages-arm64.md)'
	@echo 'make clean   removes $(TARGET)/ and out/, but keeps kernels in $${KSHRINK_CACHE:-~/.cache/kshrink}'

# Rust builds often use one core, so the kernel is built at the same time.
demo:
	@case '$(ARCH)' in ''|i386|x86_64|arm) ;; *) echo 'ARCH=$(ARCH) is unknown; expected i386, x86_64 or arm' >&2; exit 2 ;; esac
	@case '$(TRIM)' in ''|no) ;; *) echo 'TRIM=$(TRIM) is unknown; expected no' >&2; exit 2 ;; esac
	fixtures/install.sh rust kernel boot $(filter arm,$(ARCH))
	$(MAKE) -j 2 build demo-kernel
	fixtures/demo.sh out/demo$(ARCH:%=-%)$(TRIM:no=-untrimmed) $(or $(ARCH),i386) $(TRIM:no=untrimmed)

demo-kernel:
	fixtures/kernels/build.sh $(if $(filter arm,$(ARCH)),arm-virt,web-$(or $(ARCH),i386)) >/dev/null

check: lint
	cargo test --workspace --lib --bins -- --skip chains_tell_what_functions_tell
	cargo test --workspace --doc
	cargo test $(CHECKED_PACKAGES:%=--package %) $(CHECKED:%=--test %)

test:
	fixtures/install.sh rust kernel boot gdb browser programs torture cross clang scan arm
	$(MAKE) -j 2 test-kernels test-binaries
	cargo test --release --workspace

test-kernels:
	for kernel in $(TEST_KERNELS); do fixtures/kernels/build.sh $$kernel >/dev/null || exit 1; done

test-binaries: lint build
	cargo test --release --workspace --no-run --quiet

test-rest: build
	fixtures/install.sh kernel boot gdb programs cross clang scan arm
	cargo test --release --workspace --test data_cuts --test decoders -- --ignored
	cargo test --release --workspace --test packages -- --ignored
	cargo test --release --workspace --test kernels --test kshrink_mk --test real_programs --test scan_programs --no-fail-fast -- --ignored --skip everything_frozen
	$(MAKE) test-deb

fresh:
	fixtures/fresh.sh

tools:
	fixtures/install.sh rust

build: tools
	cargo build --release --workspace --bins

lint: tools
	cargo fmt --all --check
	cargo clippy --release --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --release --workspace --no-deps

# Builds nothing, because this often runs as root.
install:
	@for command in $(COMMANDS); do \
		[ -x $(TARGET)/release/$$command ] || { echo "$(TARGET)/release/$$command is missing; run make build first" >&2; exit 1; }; \
	done
	install -d '$(DESTDIR)$(PREFIX)/bin'
	for command in $(COMMANDS); do \
		install -s $(TARGET)/release/$$command '$(DESTDIR)$(PREFIX)/bin/' && \
			$(TARGET)/release/$$command --generate '$(DESTDIR)$(PREFIX)/share' || exit 1; \
	done
	install -d '$(DESTDIR)$(PREFIX)/share/kshrink'
	install -m 644 $(SHARED) '$(DESTDIR)$(PREFIX)/share/kshrink/'
	chmod 755 '$(DESTDIR)$(PREFIX)/share/kshrink/copy-build.sh' '$(DESTDIR)$(PREFIX)/share/kshrink/kernel-places.sh' '$(DESTDIR)$(PREFIX)/share/kshrink/slab-places.sh'

# Each command generates its files in a temporary directory, to list their names.
uninstall:
	set -e; names=$$(mktemp -d); trap 'rm -rf "$$names"' EXIT; cd '$(DESTDIR)$(PREFIX)'; \
	for command in $(COMMANDS); do \
		[ ! -x bin/$$command ] || bin/$$command --generate "$$names/share"; \
	done; \
	for command in $(COMMANDS); do rm -f bin/$$command; done; \
	(cd "$$names"; find . -type f) | while read -r file; do rm -f "$$file"; done; \
	for file in $(notdir $(SHARED)); do rm -f share/kshrink/$$file; done; \
	[ ! -d share/kshrink ] || rmdir share/kshrink

deb:
	packaging/deb.sh out/deb

test-deb:
	packaging/try.sh "$$(packaging/deb.sh out/deb)"

picture:
	fixtures/picture.sh docs/memory.svg out/demo-x86_64 original packed shrunk frozen

bench: build
	fixtures/bench/rewrite.sh $(if $(filter arm,$(ARCH)),arm-virt,web-$(or $(ARCH),i386))

bench-scan: build
	fixtures/bench/scan.sh

bench-pack: build
	fixtures/install.sh kernel
	kernel=$$(fixtures/kernels/build.sh $(if $(filter arm,$(ARCH)),arm-virt,web-$(or $(ARCH),i386)) | tail -n 1) && $(TARGET)/release/frozen-pack bench $$kernel/vmlinux

bench-calls: build
	fixtures/bench/calls.sh docs/speed$(ARCH:%=-%).md $(ARCH:%=web-%)

table1: build
	fixtures/bench/table1.sh docs/table1.md

table2: build
	fixtures/bench/table2.sh docs/table2.md

study-sections: build
	fixtures/bench/sections.sh

study-kernels: build
	fixtures/kernels/study.sh docs/i386-kernels.md

study-compilers: build
	fixtures/kernels/compilers.sh docs/kernels.md

study-openwrt: build
	fixtures/kernels/openwrt.sh docs/openwrt-kernel.md

study-arm: build
	fixtures/kernels/study.sh docs/arm-kernels.md arm-virt arm-virt-arm arm-virt-frames arm-virt-data arm-virt-gc arm-virt-smp \
		arm-virt-7.2 arm-virt-smp-7.2

study-scan: build
	fixtures/bench/study-scan.sh

study-programs: build
	fixtures/bench/study-programs.sh docs/scan-programs.md

study-torture: build
	cargo test --release --workspace --test torture -- --ignored --nocapture tests_of_gcc_for_$(or $(ARCH),i386)_

study-random: build
	KSHRINK_PROGRAMS=500 cargo test --release --workspace --test random_programs random_programs_do
	KSHRINK_PROGRAMS=300 cargo test --release --workspace --test random_programs random_programs_of_x86_64
	KSHRINK_PROGRAMS=100 cargo test --release --workspace --test arm_programs random

study-rewrites: build
	KSHRINK_PROGRAMS=4000 cargo test --release --workspace --test rewrites rewritten_programs
	KSHRINK_PROGRAMS=1000 cargo test --release --workspace --test rewrites csmith

study-damage: build
	KSHRINK_MINUTES=2 cargo test --release --workspace --test damaged_documents

study-freeze: build
	fixtures/install.sh kernel boot
	cargo test --release --workspace --test kernels -- --ignored --nocapture --test-threads 1 $(if $(ARCH),$(ARCH)_)everything_frozen $(if $(ARCH),,--skip x86_64_)

study-frozen: build
	fixtures/bench/frozen.sh docs/frozen-kernels.md

study-memory: build
	fixtures/bench/memory.sh docs/memory-kernels.md

study-fields: build
	fixtures/bench/fields.sh docs/fields-kernels.md

study-customize: build
	fixtures/bench/customize.sh docs/customize-paths.md

study-options: build
	fixtures/bench/options.sh docs/options-kernels.md
	fixtures/bench/options-tiny.sh docs/options-tiny.md

pages: build
	fixtures/pages/pages.sh out/pages

pages-arm64: build
	fixtures/pages/pages-arm64.sh out/pages-arm64

clean:
	rm -rf $(TARGET) out
