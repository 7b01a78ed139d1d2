# Makes smaller kernels by targets of your own Makefile.
#
#   KSHRINK_BUILD   = linux/build
#   KSHRINK_ROOT    = rootfs
#   KSHRINK_CMDLINE = console=ttyS0 root=/dev/vda
#   include /usr/local/share/kshrink/kshrink.mk
#
# Targets:
#
#   shrunk        removes what the programs and the command line do not need: $(KSHRINK_OUT)/shrunk/
#   trace         boots the kernel in QEMU and records what runs: $(KSHRINK_OUT)/trace.json
#   frozen        also packs the code and the read-only data that did not run: $(KSHRINK_OUT)/frozen/
#   trimmed       builds the kernel again with the options of KSHRINK_TRIM: $(KSHRINK_OUT)/trimmed/, a
#                 build directory. With KSHRINK_TRIM, all other targets start from this kernel.
#   instrumented  a kernel that records its own coverage, to run on the device: $(KSHRINK_OUT)/instrumented/
#   report        the sizes of these kernels, and a page for a browser about each rewritten one:
#                 $(KSHRINK_OUT)/report.txt, $(KSHRINK_OUT)/shrunk.html, $(KSHRINK_OUT)/frozen.html
#   kshrink-clean removes all of that
#
# The directories of kernels have vmlinux, System.map, the boot image and report.json. The build directory
# is only read. Set these variables before the include. The kernel:
#
#   KSHRINK_BUILD    where the kernel was built, with its objects and vmlinux (required)
#   KSHRINK_MAKE     variables that the kernel's make was given, as words of the shell:
#                    CC=gcc-12 'KCFLAGS=-O2 -g'
#   KSHRINK_CMDLINE  the command line that the boot loader passes. Boot parameters that it does not name are
#                    removed. If this variable is not set at all, all of them stay.
#   KSHRINK_TRIM     a fragment of a kernel configuration (# CONFIG_LEGACY_PTYS is not set)
#   KSHRINK_MODULES  the directory with all loadable modules that ship; none if none ships
#
# The programs:
#
#   KSHRINK_ROOT             the root file system, as a directory; all programs in it are scanned
#   KSHRINK_PROGRAMS         scan only these programs: paths in KSHRINK_ROOT, or of this machine without it
#   KSHRINK_SCAN_FLAGS       further options of syscall-scan (--assume, --dlopen, --plugin-dir)
#   KSHRINK_ASSUME_COMPLETE  yes: trust a scan that could not resolve every call
#
# The trace. Set one of the first three; without them there is no `trace`, and `frozen` does not work:
#
#   KSHRINK_QEMU     QEMU and its options, without kernel and command line:
#                    qemu-system-i386 -m 64 -initrd rootfs.cpio.gz -nic user
#   KSHRINK_BOOT     a command of the shell that boots and ends by itself, instead of KSHRINK_QEMU. It finds
#                    in its environment KSHRINK_RUN (a name of KSHRINK_RUNS), KSHRINK_IMAGE, KSHRINK_VMLINUX,
#                    KSHRINK_APPEND (the command line), KSHRINK_TRACE_OPTIONS (for QEMU, which then writes the
#                    trace), KSHRINK_TRACE (the trace, for a command that has its own options) and KSHRINK_LOG
#   KSHRINK_KCORE    copies of /proc/kcore of the device, after it ran the kernel of `instrumented`
#   KSHRINK_RUNS     names of the boots to trace (default: boot); make -j N traces several at once
#   KSHRINK_SECONDS  how long the machine of KSHRINK_QEMU may run before it is stopped (default: 120). A
#                    guest that powers off ends earlier.
#   KSHRINK_BOOT_FILES      files that the boot uses; a change of one repeats the trace
#   KSHRINK_IMAGE           the boot image, if it is not the bzImage or zImage of the build
#   KSHRINK_COVERAGE_FLAGS  further options of `coverage qemu` or `coverage kcore` (--load-address)
#
# The results:
#
#   KSHRINK_OUT           the directory for all results (default: kshrink)
#   KSHRINK_PASSES        the passes of kshrink-spec, separated by commas (default: its own choice)
#   KSHRINK_MERGE         cold: merge code in `shrunk` that did not run in the trace; all: all code
#   KSHRINK_FLAGS         further options of kshrink-spec (--pack-segments, --keep-debug)
#   KSHRINK_FREEZE_FLAGS  further options of `frozen-pack plan`
#   KSHRINK_KERNELS       kernels of the report (default: trimmed, shrunk and frozen, as far as they are set up)
#   KSHRINK_PREFIX        put before the names of all targets, where a Makefile has such names already
#   KSHRINK_BIN           the directory of kshrink's commands (default: bin of this installation, else PATH)

KSHRINK_OUT ?= kshrink
KSHRINK_RUNS ?= boot
KSHRINK_SECONDS ?= 120
KSHRINK_CC ?= cc
KSHRINK_KERNELS ?= $(if $(KSHRINK_TRIM),trimmed) shrunk $(if $(kshrink_traced),frozen)

# The first target of this file is not the default one.
kshrink_goal := $(.DEFAULT_GOAL)

kshrink_share := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
kshrink_bin = $(if $(KSHRINK_BIN),$(KSHRINK_BIN)/,$(if $(wildcard $(kshrink_share)/../../bin/kshrink-spec),$(kshrink_share)/../../bin/))
kshrink_out := $(patsubst %/,%,$(KSHRINK_OUT))
kshrink_state := $(kshrink_out)/.state
kshrink_build := $(patsubst %/,%,$(KSHRINK_BUILD))
kshrink_traced := $(strip $(value KSHRINK_QEMU)$(value KSHRINK_BOOT)$(KSHRINK_KCORE))

# The kernel that all targets start from, and the file that is new when it is.
kshrink_base := $(if $(KSHRINK_TRIM),$(kshrink_out)/trimmed,$(kshrink_build))
kshrink_vmlinux := $(kshrink_base)/vmlinux
kshrink_ready := $(if $(KSHRINK_TRIM),$(kshrink_state)/trimmed,$(kshrink_vmlinux))

kshrink_comma := ,
# A text as a word of the shell.
kshrink_quoted = '$(subst ','\'',$(1))'
# The name of what is made, unless make is silent.
kshrink_say = $(if $(findstring s,$(firstword -$(MAKEFLAGS))),,echo '  KSHRINK $@';)
# Ends a recipe with an error.
kshrink_fail = { echo "kshrink.mk: $(1)" >&2; exit 1; }
# Stops make if a variable is not set: its name, and its meaning.
kshrink_need = $(if $(strip $(value $(1))),,$(error $(1) is not set; set it to $(2)))

.PHONY: kshrink-force kshrink-tools kshrink-clean $(addprefix $(KSHRINK_PREFIX),trace trimmed shrunk frozen instrumented report)

$(KSHRINK_PREFIX)trace: $(kshrink_out)/trace.json
$(KSHRINK_PREFIX)trimmed: $(kshrink_state)/trimmed
$(KSHRINK_PREFIX)shrunk: $(kshrink_out)/shrunk/report.json
$(KSHRINK_PREFIX)frozen: $(kshrink_out)/frozen/report.json
$(KSHRINK_PREFIX)instrumented: $(kshrink_out)/instrumented/report.json
$(KSHRINK_PREFIX)report: $(kshrink_out)/report.txt $(patsubst %,$(kshrink_out)/%.html,$(filter-out trimmed,$(KSHRINK_KERNELS)))
	@cat $<

kshrink-clean:
	rm -rf $(addprefix $(kshrink_out)/,original trimmed trimmed.partial shrunk frozen instrumented traces \
		scan.json static.json trace.json later.json cold.json frozen.json report.txt shrunk.html frozen.html \
		instrumented.html .state)

# The kernel of the user. This rule is used only where nothing else makes the file.
$(kshrink_build)/vmlinu%:
	$(call kshrink_need,KSHRINK_BUILD,the directory in which the kernel was built)
	@$(call kshrink_fail,$@ is missing; build the kernel$(kshrink_comma) or set KSHRINK_BUILD to the directory with its objects and vmlinux)

kshrink-tools:
	@for tool in syscall-scan cmdline-spec kshrink-spec coverage frozen-pack kelf; do \
		command -v $(kshrink_bin)$$tool >/dev/null || \
			$(call kshrink_fail,$(kshrink_bin)$$tool is not found; install kshrink or set KSHRINK_BIN to the directory of its commands); \
	done

# Settings of each step, in files that change when the settings do.
kshrink-force:
$(kshrink_state)/scan.set: kshrink_text = $(KSHRINK_ROOT) : $(KSHRINK_PROGRAMS) : $(KSHRINK_SCAN_FLAGS)
$(kshrink_state)/static.set: kshrink_text = $(kshrink_base) : $(origin KSHRINK_CMDLINE) : $(KSHRINK_CMDLINE) : $(KSHRINK_ASSUME_COMPLETE)
$(kshrink_state)/spec.set: kshrink_text = $(KSHRINK_PASSES) : $(KSHRINK_MERGE) : $(KSHRINK_FLAGS) : $(KSHRINK_MAKE) : $(KSHRINK_MODULES) : $(KSHRINK_ASSUME_COMPLETE)
$(kshrink_state)/trim.set: kshrink_text = $(kshrink_build) : $(KSHRINK_MAKE) : $(KSHRINK_TRIM)
$(kshrink_state)/boot.set: kshrink_text = $(kshrink_base) : $(value KSHRINK_QEMU) : $(value KSHRINK_BOOT) : $(KSHRINK_CMDLINE) : $(KSHRINK_SECONDS) : $(KSHRINK_IMAGE)
$(kshrink_state)/trace.set: kshrink_text = $(KSHRINK_RUNS) : $(KSHRINK_KCORE) : $(KSHRINK_COVERAGE_FLAGS)
$(kshrink_state)/freeze.set: kshrink_text = $(KSHRINK_FREEZE_FLAGS)
$(kshrink_state)/report.set: kshrink_text = $(kshrink_build) : $(KSHRINK_KERNELS)
$(kshrink_state)/%.set: kshrink-force
	@mkdir -p $(@D)
	@printf '%s\n' $(call kshrink_quoted,$(kshrink_text)) | cmp -s - $@ || printf '%s\n' $(call kshrink_quoted,$(kshrink_text)) >$@

# The files of a directory: names, kinds, modes, sizes, times and targets of links.
kshrink_list = mkdir -p $(@D) && find $(call kshrink_quoted,$(1)/) ! -type d -printf '%P %y %m %s %T@ %l\n' | LC_ALL=C sort >$@.partial && \
	if cmp -s $@.partial $@; then rm $@.partial; else mv $@.partial $@; fi

$(kshrink_state)/root.list: kshrink-force
	$(if $(strip $(KSHRINK_PROGRAMS)),,$(call kshrink_need,KSHRINK_ROOT,the directory with the root file system))
	@[ -d $(call kshrink_quoted,$(KSHRINK_ROOT)) ] || $(call kshrink_fail,KSHRINK_ROOT=$(KSHRINK_ROOT) is not a directory)
	@$(call kshrink_list,$(KSHRINK_ROOT))

$(kshrink_state)/modules.list: kshrink-force
	@[ -d $(call kshrink_quoted,$(KSHRINK_MODULES)) ] || $(call kshrink_fail,KSHRINK_MODULES=$(KSHRINK_MODULES) is not a directory)
	@$(call kshrink_list,$(KSHRINK_MODULES))

# The programs' calls, then the parameters of the command line.
$(kshrink_out)/scan.json: $(if $(strip $(KSHRINK_ROOT)),$(kshrink_state)/root.list,$(or $(wildcard $(KSHRINK_PROGRAMS)),$(kshrink_state)/root.list)) \
		$(kshrink_state)/scan.set | kshrink-tools
	@$(kshrink_say) $(kshrink_bin)syscall-scan $(if $(strip $(KSHRINK_ROOT)),--root $(call kshrink_quoted,$(KSHRINK_ROOT))) \
		$(KSHRINK_SCAN_FLAGS) $(KSHRINK_PROGRAMS) -o $@ </dev/null
	@! grep -q '"complete": false' $@ || [ $(call kshrink_quoted,$(KSHRINK_ASSUME_COMPLETE)) = yes ] || \
		echo 'kshrink.mk: warning: the scan is incomplete, so that all system calls stay; settle its places with' \
			'KSHRINK_SCAN_FLAGS=--assume …, or set KSHRINK_ASSUME_COMPLETE=yes' >&2

kshrink_assume = $(if $(filter yes,$(KSHRINK_ASSUME_COMPLETE)),--assume-complete)

$(kshrink_out)/static.json: $(kshrink_ready) $(kshrink_out)/scan.json $(kshrink_state)/static.set | kshrink-tools
ifeq ($(origin KSHRINK_CMDLINE),undefined)
	@$(kshrink_say) cp $(kshrink_out)/scan.json $@.partial && mv $@.partial $@
else
	@$(kshrink_say) $(kshrink_bin)cmdline-spec $(kshrink_vmlinux) --plan $(kshrink_out)/scan.json $(kshrink_assume) \
		--cmdline $(call kshrink_quoted,$(KSHRINK_CMDLINE)) -o $@
endif

# kshrink-spec writes report.json last.
#
# rewrite PLAN AND OPTIONS,PASSES: makes the kernel to which the target belongs.
define kshrink_rewrite
@$(kshrink_say) set -- $(KSHRINK_FLAGS) $(kshrink_assume); \
	for variable in $(KSHRINK_MAKE); do set -- "$$@" --make "$$variable"; done; \
	$(kshrink_bin)kshrink-spec "$$@" $(if $(1),--plan $(1)) $(if $(2),--passes $(2)) -o $(@D) $(kshrink_vmlinux) </dev/null
endef
kshrink_options = $(if $(KSHRINK_MERGE),--merge $(KSHRINK_MERGE)) $(if $(KSHRINK_MODULES),--modules $(call kshrink_quoted,$(strip $(KSHRINK_MODULES))))
kshrink_inputs = $(kshrink_ready) $(kshrink_state)/spec.set $(if $(filter-out none,$(KSHRINK_MODULES)),$(kshrink_state)/modules.list)

kshrink_plan = $(kshrink_out)/$(if $(filter cold,$(KSHRINK_MERGE)),cold,static).json
$(kshrink_out)/shrunk/report.json: $(kshrink_plan) $(kshrink_inputs) | kshrink-tools
	$(call kshrink_rewrite,$< $(kshrink_options),$(KSHRINK_PASSES))

$(kshrink_out)/frozen/report.json: $(kshrink_out)/frozen.json $(kshrink_inputs) | kshrink-tools
	$(call kshrink_rewrite,$< $(kshrink_options),$(if $(KSHRINK_PASSES),$(KSHRINK_PASSES)$(if $(findstring freeze,$(KSHRINK_PASSES)),,$(kshrink_comma)freeze)))

$(kshrink_out)/instrumented/report.json: $(kshrink_inputs) | kshrink-tools
	$(call kshrink_rewrite,,instrument)

# What runs.
ifneq ($(strip $(KSHRINK_KCORE)),)

$(kshrink_out)/trace.json: $(KSHRINK_KCORE) $(kshrink_out)/instrumented/report.json $(kshrink_state)/trace.set | kshrink-tools
	@$(kshrink_say) $(kshrink_bin)coverage kcore $(KSHRINK_COVERAGE_FLAGS) --blocks $(kshrink_out)/instrumented/blocks.json \
		$(kshrink_out)/instrumented/vmlinux $(KSHRINK_KCORE) -o $@ </dev/null
$(kshrink_out)/later.json: $(kshrink_out)/trace.json
	@: >$@

else

kshrink_traces := $(KSHRINK_RUNS:%=$(kshrink_out)/traces/%.trace)
# has PATTERN: a command that succeeds if all traces have such a line.
kshrink_has = $(foreach trace,$(kshrink_traces),grep -q $(1) $(trace) &&) :

$(kshrink_out)/trace.json: $(kshrink_traces) $(kshrink_state)/trace.set | kshrink-tools
	@$(kshrink_say) data=; if $(call kshrink_has,'^data '); then data=--data; fi; \
	$(kshrink_bin)coverage qemu $$data $(KSHRINK_COVERAGE_FLAGS) $(kshrink_vmlinux) $(kshrink_traces) -o $@ </dev/null
# Empty if the traces do not tell what ran after boot.
$(kshrink_out)/later.json: $(kshrink_traces) $(kshrink_state)/trace.set | kshrink-tools
	@$(kshrink_say) if $(call kshrink_has,'^data ') && $(call kshrink_has,' later '); then \
		$(kshrink_bin)coverage qemu --data --after-boot $(KSHRINK_COVERAGE_FLAGS) $(kshrink_vmlinux) $(kshrink_traces) -o $@ </dev/null; \
	else : >$@; fi

ifneq ($(strip $(value KSHRINK_BOOT)),)
else ifneq ($(strip $(value KSHRINK_QEMU)),)
# A machine that does not power off is stopped.
KSHRINK_BOOT = { timeout -k 10 $(KSHRINK_SECONDS) $(KSHRINK_QEMU) $$KSHRINK_TRACE_OPTIONS -kernel "$$KSHRINK_IMAGE" \
	-append "$$KSHRINK_APPEND" -display none -no-reboot -serial stdio -monitor none >"$$KSHRINK_LOG" 2>&1 || [ $$? -eq 124 ]; }
endif
kshrink_plugin := $(if $(findstring KSHRINK_TRACE_OPTIONS,$(value KSHRINK_BOOT)),$(kshrink_out)/traces/trace.so)

$(kshrink_out)/traces/trace.so: $(kshrink_share)/trace.c $(kshrink_share)/plugin.h
	@mkdir -p $(@D)
	@$(kshrink_say) $(KSHRINK_CC) -O2 -shared -fPIC $< -o $@.partial && mv $@.partial $@

# Parentheses in pairs: make counts them.
# QEMU 9, which has no -singlestep, does not take the plugin: it logs each instruction when it first runs.
$(kshrink_traces): $(kshrink_out)/traces/%.trace: $(kshrink_ready) $(kshrink_plugin) $(KSHRINK_BOOT_FILES) $(kshrink_state)/boot.set | kshrink-tools
	$(if $(kshrink_traced),,$(error no way to trace the kernel; set KSHRINK_QEMU to QEMU and its options without \
		-kernel and -append$(kshrink_comma) KSHRINK_BOOT to a command that boots$(kshrink_comma) or KSHRINK_KCORE to copies of /proc/kcore))
	@$(kshrink_say) mkdir -p $(@D); \
	for image in $(or $(KSHRINK_IMAGE),$(addprefix $(kshrink_base)/arch/,x86/boot/bzImage arm/boot/zImage)); do [ ! -f "$$image" ] || break; done; \
	[ -f "$$image" ] || $(call kshrink_fail,$$image is missing; build the kernel's boot image$(kshrink_comma) or set KSHRINK_IMAGE to it); \
	append=$(call kshrink_quoted,$(KSHRINK_CMDLINE)); \
	! grep -qs '^CONFIG_RANDOMIZE_BASE=y' $(kshrink_base)/.config || append="$$append nokaslr"; \
	trace=$(abspath $(@:.trace=.partial)) log=$(abspath $(@:.trace=.log)); rm -f "$$trace" "$$log" $@; trap 'rm -f "$$trace"' EXIT; \
	options=; \
	$(if $(kshrink_plugin),case $$($(or $(firstword $(KSHRINK_QEMU)),qemu-system-x86_64) -help) in \
		(*-singlestep*) places=$$($(kshrink_share)/kernel-places.sh $(kshrink_vmlinux)) || exit 1; \
			options="-accel tcg$(kshrink_comma)thread=single -plugin $(abspath $(kshrink_plugin))$(kshrink_comma)out=$$trace$(kshrink_comma)$$places" ;; \
		(*) options="-accel tcg$(kshrink_comma)thread=single$(kshrink_comma)one-insn-per-tb=on -d in_asm -D $$trace" ;; \
	esac;) \
	export KSHRINK_RUN=$* KSHRINK_IMAGE="$$image" KSHRINK_VMLINUX=$(abspath $(kshrink_vmlinux)) KSHRINK_APPEND="$$append" KSHRINK_TRACE_OPTIONS="$$options" \
		KSHRINK_TRACE="$$trace" KSHRINK_LOG="$$log"; \
	failed() { [ ! -f "$$log" ] || { tail -n 20 "$$log" >&2; set -- "$$1; its console is in $(@:.trace=.log)"; }; \
		$(call kshrink_fail,$$1); }; \
	( $(KSHRINK_BOOT) ) </dev/null || failed 'the traced run $* failed'; \
	! grep -qs 'Kernel panic' "$$log" || failed 'the kernel panicked in the traced run $*'; \
	[ -s "$$trace" ] || $(call kshrink_fail,the traced run $* left no trace; pass \$$KSHRINK_TRACE_OPTIONS to QEMU$(kshrink_comma) or write it to \$$KSHRINK_TRACE); \
	case $$options in *boot=*) grep -q ' later ' "$$trace" || \
		failed 'the kernel did not come to its first program in the traced run $*' ;; esac; \
	mv "$$trace" $@

endif

$(kshrink_out)/cold.json: $(kshrink_out)/static.json $(kshrink_out)/trace.json | kshrink-tools
	@$(kshrink_say) $(kshrink_bin)coverage merge $^ -o $@ </dev/null

$(kshrink_out)/frozen.json: $(kshrink_ready) $(kshrink_out)/cold.json $(kshrink_out)/later.json $(kshrink_state)/freeze.set | kshrink-tools
	@$(kshrink_say) later=; [ ! -s $(kshrink_out)/later.json ] || later='--after-boot $(kshrink_out)/later.json'; \
	$(kshrink_bin)frozen-pack plan $$later $(KSHRINK_FREEZE_FLAGS) $(kshrink_vmlinux) -o $@ <$(kshrink_out)/cold.json

# The same kernel with fewer options, built in a copy.
kshrink_kernel_make = env -u MAKEFLAGS -u MFLAGS -u GNUMAKEFLAGS -u MAKELEVEL -u O -u KBUILD_OUTPUT $(MAKE) $$where ARCH=$$arch $(KSHRINK_MAKE)

$(kshrink_state)/trimmed: $(kshrink_build)/vmlinux $(KSHRINK_TRIM) $(kshrink_state)/trim.set
	$(call kshrink_need,KSHRINK_TRIM,a fragment of a kernel configuration with lines such as # CONFIG_LEGACY_PTYS is not set)
	@$(kshrink_say) set -e; copy=$(abspath $(kshrink_out)/trimmed); rm -rf "$$copy.partial" "$$copy"; \
	$(kshrink_share)/copy-build.sh $(kshrink_build) "$$copy"; \
	if [ -e "$$copy/source" ]; then src=$$(cd $(kshrink_build)/source && pwd -P); where="-C $$src O=$$copy"; \
	else src=$$copy where="-C $$copy"; fi; \
	if [ -d "$$copy/arch/arm/boot" ]; then arch=arm image=zImage; \
	else image=bzImage; if grep -q ^CONFIG_64BIT=y "$$copy/.config"; then arch=x86_64; else arch=i386; fi; fi; \
	log=$(kshrink_state)/trimmed.log; \
	{ (cd "$$copy" && "$$src/scripts/kconfig/merge_config.sh" -m -O "$$copy" "$$copy/.config" $(abspath $(KSHRINK_TRIM))) && \
		$(kshrink_kernel_make) olddefconfig && \
		$(kshrink_kernel_make) -j"$$(nproc)" $$image $$(grep -q ^CONFIG_MODULES=y "$$copy/.config" && echo modules); \
	} >"$$log" 2>&1 </dev/null || { tail -n 20 "$$log" >&2; $(call kshrink_fail,the build of the trimmed kernel failed; log: $$log); }; \
	sed -n 's/^# \(CONFIG_[A-Za-z0-9_]*\) is not set$$/\1/p' $(KSHRINK_TRIM) | while read -r option; do \
		! grep -q "^$$option=" "$$copy/.config" || \
			echo "kshrink.mk: warning: $$option stays set in the trimmed kernel, because another option selects it" >&2; \
	done; \
	touch $@

# The sizes beside those of the original.
$(kshrink_out)/original/vmlinux: $(kshrink_build)/vmlinux $(kshrink_state)/report.set
	@mkdir -p $(@D)
	@for file in $(wildcard $(addprefix $(kshrink_build)/,System.map arch/x86/boot/bzImage arch/arm/boot/zImage)) $<; do \
		cp $$file $(@D)/.partial && mv $(@D)/.partial $(@D)/$${file##*/} || exit 1; \
	done

$(kshrink_out)/report.txt: $(kshrink_out)/original/vmlinux $(kshrink_state)/report.set $(if $(KSHRINK_TRIM),$(kshrink_state)/trimmed) \
		$(patsubst %,$(kshrink_out)/%/report.json,$(filter-out trimmed,$(KSHRINK_KERNELS))) | kshrink-tools
	@bin=$(if $(kshrink_bin),$(abspath $(kshrink_bin))/); cd $(@D) && \
		"$${bin}kelf" size original/vmlinux $(patsubst %,%/vmlinux,$(strip $(KSHRINK_KERNELS))) >$(@F).partial && mv $(@F).partial $(@F)

$(kshrink_out)/%.html: $(kshrink_out)/%/report.json | kshrink-tools
	@$(kshrink_say) $(kshrink_bin)kshrink-spec --from $(@D)/$* --html $@ </dev/null

.DEFAULT_GOAL := $(kshrink_goal)
