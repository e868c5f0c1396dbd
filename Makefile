# kolo: make help lists the targets. One file, no recursion: every source is found by its place.

VERSION := 0.1.0
ABI     := 1

CC      ?= cc
AR      ?= ar
PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
BINDIR  ?= $(PREFIX)/bin
INCLUDEDIR ?= $(PREFIX)/include
MANDIR  ?= $(PREFIX)/share/man
COMPLETIONDIR ?= $(PREFIX)/share/bash-completion/completions
BUILD   ?= build
CFLAGS  ?= -O2 -g
SAN     ?=
V       ?= 0

Q := $(if $(filter 1,$(V)),,@)

WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla \
            -Wpointer-arith -Wcast-qual -Wwrite-strings -Wundef -Wformat=2 \
            -Werror=implicit-function-declaration \
            $(if $(WERROR),-Werror)
# GCC's tables of where a variable is at each view of a statement are a tenth of the library, and types,
# again for each file that has them, another; debuggers find variables without the first, and types once.
SLIM_DEBUG := $(foreach flag,-gno-variable-location-views -fdebug-types-section,$(shell \
                        $(CC) $(flag) -E -x c /dev/null >/dev/null 2>&1 && echo $(flag)))
KO_CFLAGS := -std=c11 -D_GNU_SOURCE -Iinclude -Isrc -Itransports -Ikernels -pthread \
             -ffp-contract=off -fno-math-errno -fno-trapping-math -fopenmp-simd -MMD -MP \
             $(WARNINGS) -Wno-pass-failed $(SAN)
KO_LDFLAGS := -pthread $(SAN)
# What the library itself links with: libsodium as part of it where that can be had, so that nobody
# else sees it, and programs need only libc.
SODIUM   := $(wildcard $(shell $(CC) -print-file-name=libsodium.a))
LIB_LIBS := $(or $(SODIUM),-lsodium) -ldl -lm

# ---- what is built from what ---------------------------------------------------------------------

LIB_SRC   := $(sort $(wildcard src/*.c src/ddp/*.c transports/*.c))
TOOLS     := $(patsubst src/tools/%.c,%,$(sort $(wildcard src/tools/kolo*.c)))
TOOL_LIB_SRC := $(filter-out src/tools/kolo%.c,$(sort $(wildcard src/tools/*.c)))
TRAIN_SRC := $(sort $(wildcard examples/ddp/*.c))
EXAMPLES  := $(patsubst examples/%.c,%,$(sort $(wildcard examples/*.c)))
TESTS     := $(patsubst tests/%.c,%,$(sort $(wildcard tests/test_*.c))) \
             $(patsubst tests/%,%,$(sort $(wildcard tests/*.bats)))
TEST_LIB_SRC := $(filter-out tests/test_%.c tests/fuzz_%.c tests/bench_%.c,$(sort $(wildcard tests/*.c)))

# With sanitizers, which nobody ships, each source is compiled once, as the tests have it.
TOBJ   := $(BUILD)/test-pic
TIMAGE := $(BUILD)/test-image
OBJ    := $(if $(SAN),$(TOBJ),$(BUILD)/obj)
PIC    := $(if $(SAN),$(TOBJ),$(BUILD)/pic)

LIB_OBJ      := $(LIB_SRC:%.c=$(OBJ)/%.o) $(OBJ)/cuda_image.o
LIB_PIC      := $(LIB_SRC:%.c=$(PIC)/%.o) $(PIC)/cuda_image.o
LIB_TEST     := $(LIB_SRC:%.c=$(TOBJ)/%.o) $(TIMAGE)/cuda_image.o
TEST_LIB_OBJ := $(TEST_LIB_SRC:%.c=$(TOBJ)/%.o)
TOOL_LIB_OBJ := $(TOOL_LIB_SRC:%.c=$(OBJ)/%.o) $(OBJ)/prose.o
TRAIN_TEST   := $(patsubst %.c,$(TOBJ)/%.o,$(filter-out examples/ddp/train.c,$(TRAIN_SRC))) \
                $(TIMAGE)/train_image.o

STATIC := $(BUILD)/lib/libkolo.a
SHARED := $(BUILD)/lib/libkolo.so.$(VERSION)
LIBS   := $(STATIC) $(SHARED) $(BUILD)/lib/libkolo.so.$(ABI) $(BUILD)/lib/libkolo.so
BINS   := $(TOOLS:%=$(BUILD)/bin/%) $(EXAMPLES:%=$(BUILD)/bin/%) $(if $(TRAIN_SRC),$(BUILD)/bin/kolo-train)
TEST_BINS := $(patsubst %,$(BUILD)/tests/%,$(filter-out %.bats,$(TESTS)))

.DEFAULT_GOAL := all
.PHONY: all
all: $(LIBS) $(BINS) ## build the library, the tools, the examples and the trainer

# Objects are kept although some are made only on the way to a program.
.SECONDARY:

# ---- rules ---------------------------------------------------------------------------------------

$(OBJ)/%.o: %.c
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CC    $<")
	$(Q)$(CC) $(KO_CFLAGS) $(CFLAGS) -fvisibility=hidden $(CPPFLAGS) -c $< -o $@

# Without its header the compiler's own words would be a riddle.
$(addsuffix /src/secret.o,$(sort $(OBJ) $(PIC) $(TOBJ))): | $(BUILD)/has-sodium

$(BUILD)/has-sodium:
	@mkdir -p $(@D)
	@echo '#include <sodium.h>' | $(CC) $(CPPFLAGS) -E -xc - >/dev/null 2>&1 || \
	    { echo "kolo needs libsodium's header and library: apt-get install libsodium-dev"; exit 1; }
	@touch $@

$(OBJ)/src/tools/info_facts.o: KO_CFLAGS += -DKO_BUILD_ABI='"$(ABI)"' \
                                -DKO_BUILD_FLAGS='"$(strip $(CFLAGS) $(SAN))"'

# Most of what exams cost is to work out what they expect: arithmetic in which no thread meets another.
$(OBJ)/tests/exam_values.o $(TOBJ)/tests/exam_values.o: KO_CFLAGS += $(if $(SAN),-fno-sanitize=thread)
$(OBJ)/tests/exam_values.o $(TOBJ)/tests/exam_values.o: override CFLAGS += -O2

# What kolo-explain says of the algorithms.
$(OBJ)/prose.c: scripts/prose $(wildcard kernels/*.h)
	@mkdir -p $(@D)
	$(Q)scripts/prose $(filter %.h,$^) >$@.new && mv $@.new $@

$(OBJ)/prose.o: $(OBJ)/prose.c
	$(if $(Q),@echo "  CC    $<")
	$(Q)$(CC) $(KO_CFLAGS) $(CFLAGS) -fvisibility=hidden $(CPPFLAGS) -c $< -o $@

# The kernels for GPUs, as one image inside the library: for the kinds in CUDA_ARCHS, four if nvcc
# knows them all, and as text that the driver translates for later ones. CUDA=0: none.
# CUDA=1: an error if there is no nvcc of CUDA 11.8 or later, the first with LAST_ARCH. NVCC is one
# elsewhere than in PATH and CUDA_HOME. They are the same in all builds: IMAGES is the folder of the one that makes them.
IMAGES     ?= $(BUILD)
CUDA       ?= auto
CUDA_HOME  ?= /usr/local/cuda
FOUND_NVCC := $(if $(filter-out 0,$(CUDA)),$(or $(NVCC),$(firstword $(shell command -v nvcc) \
                  $(wildcard $(CUDA_HOME)/bin/nvcc))))
NVCC_KNOWS := $(if $(FOUND_NVCC),$(patsubst compute_%,%,$(shell $(FOUND_NVCC) --list-gpu-arch 2>/dev/null)))
LAST_ARCH  := 90
override NVCC := $(if $(filter $(LAST_ARCH),$(NVCC_KNOWS)),$(FOUND_NVCC))
CUDA_ARCHS ?= $(filter 75 80 90 100,$(NVCC_KNOWS))
CUDA_SRC   := $(wildcard kernels/*.cu)
FATBIN     := $(if $(NVCC),$(IMAGES)/kernels.fatbin)
NVCCFLAGS  := -std=c++17 -O3 -fmad=false -Ikernels -Xptxas -warn-spills
CUBINS     := $(foreach a,$(CUDA_ARCHS),$(IMAGES)/kernels/sm_$(a).cubin)

ifeq ($(NVCC),)
NO_NVCC := $(if $(FOUND_NVCC),$(FOUND_NVCC) knows no compute_$(LAST_ARCH) as those of CUDA 11.8 and later do,there is no nvcc in PATH nor in $(CUDA_HOME))
$(if $(filter 1,$(CUDA)),$(error CUDA=1: $(NO_NVCC)))
$(if $(FOUND_NVCC),$(info Without kernels for GPUs: $(NO_NVCC)))
endif

comma := ,

# $(call nvcc,FLAGS AND FILES): makes $@. What nvcc warns of is for lint-ptx.
nvcc = $(NVCC) $(NVCCFLAGS) $(1) -o $@ >$@.log 2>&1 || { cat $@.log; \
    echo "$(NVCC) cannot make $@; CUDA=0 builds without kernels for GPUs"; exit 1; }

# Which kernels an image has: what has them is made again when it is to have others.
KERNELS_OF := $(IMAGES)/kernels/of

$(KERNELS_OF): FORCE
	@mkdir -p $(@D)
	@echo '$(if $(NVCC),$(CUDA_ARCHS),none)' | cmp -s - $@ || echo '$(if $(NVCC),$(CUDA_ARCHS),none)' >$@

.PHONY: FORCE

$(IMAGES)/kernels/sm_%.cubin: $(CUDA_SRC) $(wildcard kernels/*.cuh kernels/*.h)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  NVCC  kernels for sm_$*")
	$(Q)$(call nvcc,-arch=sm_$* -cubin $(CUDA_SRC))

$(IMAGES)/kernels/last.ptx: $(CUDA_SRC) $(wildcard kernels/*.cuh kernels/*.h)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  NVCC  kernels as text")
	$(Q)$(call nvcc,-arch=compute_$(LAST_ARCH) -ptx $(CUDA_SRC))

$(IMAGES)/kernels.fatbin: $(CUBINS) $(IMAGES)/kernels/last.ptx $(KERNELS_OF)
	$(Q)set -- $(dir $(shell command -v $(firstword $(NVCC))))fatbinary --64 --compress-all --create=$@; \
	    ! "$$1" --help | grep -q -e --compress-mode || set -- "$$@" --compress-mode=size; "$$@" \
	    $(foreach a,$(CUDA_ARCHS),--image3=kind=elf,sm=$(a),file=$(IMAGES)/kernels/sm_$(a).cubin) \
	    --image3=kind=ptx,sm=$(LAST_ARCH),file=$(IMAGES)/kernels/last.ptx

$(sort $(OBJ)/cuda_image.o $(PIC)/cuda_image.o): $(FATBIN) scripts/cuda_image $(KERNELS_OF)
	@mkdir -p $(@D)
	$(Q)scripts/cuda_image $(FATBIN) | $(CC) -c -x assembler - -o $@

# The trainer has kernels of its own, and so has tests/gpu.
$(IMAGES)/train.fatbin: examples/ddp/layer_kernels.cu $(wildcard examples/ddp/*.h)
$(IMAGES)/check.fatbin: tests/gpu/kernels.cu tests/gpu/kernels.h

$(IMAGES)/train.fatbin $(IMAGES)/check.fatbin: $(KERNELS_OF) $(addprefix kernels/,device.cuh elements.h portable.h)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  NVCC  $(filter %.cu,$^)")
	$(Q)$(call nvcc,-fatbin $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
	    -gencode arch=compute_$(LAST_ARCH)$(comma)code=compute_$(LAST_ARCH) $(filter %.cu,$^))

$(IMAGES)/kernels/check.ptx: $(IMAGES)/check.fatbin
	$(Q)$(call nvcc,-arch=compute_$(LAST_ARCH) -ptx tests/gpu/kernels.cu)

$(OBJ)/%_image.o: $(if $(NVCC),$(IMAGES)/%.fatbin) scripts/cuda_image $(KERNELS_OF)
	@mkdir -p $(@D)
	$(Q)NAME=$*_image scripts/cuda_image $(filter %.fatbin,$^) | $(CC) -c -x assembler - -o $@

$(TIMAGE)/%_image.o: scripts/cuda_image
	@mkdir -p $(@D)
	$(Q)NAME=$*_image scripts/cuda_image scripts/cuda_image | $(CC) -c -x assembler - -o $@

# Tests have some image in any case: the double of the driver has the kernels itself.
$(TIMAGE)/cuda_image.o: scripts/cuda_image
	@mkdir -p $(@D)
	$(Q)scripts/cuda_image scripts/cuda_image | $(CC) -c -x assembler - -o $@

$(PIC)/%.o: %.c
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CC    $< (pic)")
	$(Q)$(CC) $(KO_CFLAGS) $(CFLAGS) $(SLIM_DEBUG) -fPIC -fvisibility=hidden $(CPPFLAGS) -c $< -o $@

# Lines and inlined functions, as a backtrace has them, unless CFLAGS says otherwise: what variables are
# where takes a third of the compiler's time.
TEST_DEBUG := $(if $(filter file,$(origin CFLAGS)),-g1)

# The last of the rules for $(OBJ), where all three are one folder.
$(TOBJ)/%.o: %.c
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CC    $< (test)")
	$(Q)$(CC) $(KO_CFLAGS) $(CFLAGS) $(TEST_DEBUG) -fPIC -fno-semantic-interposition -DKOLO_FAULT -Itests $(CPPFLAGS) -c $< -o $@

$(STATIC): $(LIB_OBJ)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  AR    $@")
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# It stays where a thread of its own may still be in it (src/look_up.c).
$(SHARED): $(LIB_PIC) src/kolo.map
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD    $@")
	$(Q)$(CC) -shared -Wl,-soname,libkolo.so.$(ABI) -Wl,--version-script=src/kolo.map \
	    -Wl,-z,defs,-z,nodelete,--compress-debug-sections=zlib $(if $(SAN),,-Wl,--as-needed) $(KO_LDFLAGS) $(LDFLAGS) \
	    $(LIB_PIC) $(LIB_LIBS) -o $@

$(BUILD)/lib/libkolo.so.$(ABI): $(SHARED)
	$(Q)ln -sf libkolo.so.$(VERSION) $@
$(BUILD)/lib/libkolo.so: $(BUILD)/lib/libkolo.so.$(ABI)
	$(Q)ln -sf libkolo.so.$(ABI) $@

$(BUILD)/bin/%: $(OBJ)/src/tools/%.o $(TOOL_LIB_OBJ) $(STATIC)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD    $@")
	$(Q)$(CC) $(KO_LDFLAGS) $(LDFLAGS) $^ $(LIB_LIBS) -o $@

$(BUILD)/bin/%: $(OBJ)/examples/%.o $(STATIC)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD    $@")
	$(Q)$(CC) $(KO_LDFLAGS) $(LDFLAGS) $^ $(LIB_LIBS) -o $@

$(BUILD)/bin/kolo-train: $(TRAIN_SRC:%.c=$(OBJ)/%.o) $(OBJ)/train_image.o $(STATIC)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD    $@")
	$(Q)$(CC) $(KO_LDFLAGS) $(LDFLAGS) $^ -lopenblas -lz $(LIB_LIBS) -o $@

# What tests share, the library with all its internals, is linked once: as a part of each it took half a
# second and 10 MB, with sanitizers 28 MB. They find it, and the doubles, by an old kind of rpath: that holds
# also for what the library opens, and where AddressSanitizer calls dlopen in its place.
TEST_SHARED  := $(BUILD)/tests/libkolo-tests.so
TEST_LDFLAGS := -Wl,--disable-new-dtags,-rpath,'$$ORIGIN'

$(TEST_SHARED): $(TEST_LIB_OBJ) $(LIB_TEST)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD    $@")
	$(Q)$(CC) -shared -Wl,-soname,$(@F),-Bsymbolic-functions,--exclude-libs,libsodium.a \
	    $(KO_LDFLAGS) $(LDFLAGS) $^ -lcmocka $(LIB_LIBS) -o $@

$(BUILD)/tests/test_%: $(TOBJ)/tests/test_%.o $(TEST_SHARED)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD    $@")
	$(Q)$(CC) $(KO_LDFLAGS) $(TEST_LDFLAGS) $(LDFLAGS) $^ -lcmocka $(LIB_LIBS) -o $@

# Tests of the tools see the parts that they are about, and those that these use.
TOOL_TEST := $(patsubst %.c,$(TOBJ)/%.o,$(sort $(wildcard src/tools/json*.c src/tools/launch*.c \
               src/tools/options.c src/tools/perf*.c src/tools/svg*.c)))

$(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_tools_*.c)): \
    $(BUILD)/tests/%: $(TOBJ)/tests/%.o $(TOOL_TEST) $(TEST_SHARED)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD    $@")
	$(Q)$(CC) $(KO_LDFLAGS) $(TEST_LDFLAGS) $(LDFLAGS) $^ -lcmocka $(LIB_LIBS) -o $@

# A double of NVIDIA's driver, which the loader finds beside the tests that want it.
FAKECUDA := $(BUILD)/tests/fakecuda/libcuda.so.1

FAKECUDA_OBJ := $(patsubst %,$(BUILD)/%.o,$(wildcard tests/fakecuda/*.c tests/fakecuda/*.cc))

$(BUILD)/tests/fakecuda/%.c.o: tests/fakecuda/%.c
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CC    $< (double)")
	$(Q)$(CC) $(KO_CFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden -c $< -o $@

$(BUILD)/tests/fakecuda/%.cc.o: tests/fakecuda/%.cc
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CXX   $< (double)")
	$(Q)$(CXX) -std=c++17 -Isrc -Ikernels -Wall -Wextra $(if $(WERROR),-Werror) -ffp-contract=off \
	    -pthread -MMD -MP $(SAN) $(CFLAGS) -fPIC -fvisibility=hidden -ftls-model=initial-exec -c $< -o $@

$(FAKECUDA): $(FAKECUDA_OBJ)
	$(if $(Q),@echo "  LD    $@")
	$(Q)$(CXX) -shared -Wl,-soname,libcuda.so.1 $(KO_LDFLAGS) $^ -o $@

CUDA_TESTS := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_cuda*.c)) \
              $(BUILD)/tests/test_tools_device $(BUILD)/tests/test_train_gpu

$(CUDA_TESTS): $(FAKECUDA)
$(CUDA_TESTS): private LDFLAGS += -Wl,-rpath,'$$ORIGIN/fakecuda'

# And one of cuBLAS, which goes by the other's streams.
FAKECUBLAS := $(BUILD)/tests/fakecuda/libcublas.so.13

$(BUILD)/tests/test_train_gpu: $(FAKECUBLAS)

# The products of matrices are what training on the double costs.
$(FAKECUBLAS): private override CFLAGS += -O2

$(FAKECUBLAS): tests/fakecublas/cublas.c examples/ddp/cublas.h tests/fakecuda/double.h tests/double_lists.h src/cuda_abi.h $(FAKECUDA)
	$(if $(Q),@echo "  LD    $@")
	$(Q)$(CC) $(filter-out -MMD -MP,$(KO_CFLAGS)) $(CFLAGS) -fPIC -fvisibility=hidden -shared \
	    -Wl,-soname,libcublas.so.13 $(KO_LDFLAGS) $< $(FAKECUDA) -Wl,-rpath,'$$ORIGIN' -o $@

# What tests/gpu/check runs, on a GPU or on the double.
GPU_CHECKS := $(addprefix $(BUILD)/gpu/,bits ends exams probes speed)

$(OBJ)/tests/%.o: KO_CFLAGS += -Itests

$(BUILD)/gpu/probes: $(patsubst %.c,$(OBJ)/%.o,$(wildcard tests/gpu/probe_*.c))
$(BUILD)/gpu/speed: $(OBJ)/tests/gpu/one_shot.o
$(BUILD)/gpu/bits: $(addprefix $(OBJ)/tests/,bits.o bits_folds.o bits_gradients.o)
$(BUILD)/gpu/exams: $(OBJ)/tests/bits_calls.o
$(BUILD)/gpu/%: $(OBJ)/tests/gpu/%.o $(addprefix $(OBJ)/tests/,exam.o exam_values.o gradient_exam.o gpu_rank.o ranks.o environment.o gpu/launch.o gpu/watch.o) \
    $(OBJ)/check_image.o $(STATIC)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD    $@")
	$(Q)$(CC) $(KO_LDFLAGS) $(LDFLAGS) $(filter %.o,$^) $(STATIC) $(LIB_LIBS) -o $@

# Of what they were built.
GPU_SOURCES := $(BUILD)/gpu/sources

$(GPU_SOURCES): $(GPU_CHECKS) $(BUILD)/bin/kolo-perf $(BUILD)/bin/kolorun $(LIBS) FORCE
	$(Q)tests/gpu/sources >$@

.PHONY: gpu-checks
gpu-checks: $(GPU_SOURCES) ## build what tests/gpu/check runs on a GPU

# A double of libibverbs, likewise, which is that of librdmacm too.
FAKEVERBS := $(BUILD)/tests/fakeverbs/libibverbs.so.1
RDMA_TESTS := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_rdma*.c tests/test_cuda_rdma*.c tests/test_p2p*.c)) \
              $(addprefix $(BUILD)/tests/test_,batch coll coll_leave cuda_programs group_end group_idle group_new group_word kill mismatch programs transports)

$(FAKEVERBS): $(wildcard tests/fakeverbs/*.c tests/fakeverbs/*.h src/ib_abi*.h) tests/double_lists.h \
    tests/double_dmabuf.h tests/fakeverbs/old.map
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD    $@")
	$(Q)$(CC) $(filter-out -MMD -MP,$(KO_CFLAGS)) $(CFLAGS) -fPIC -fvisibility=hidden -shared \
	    -Wl,-soname,libibverbs.so.1 $(KO_LDFLAGS) $(filter %.c,$^) -o $@
	$(Q)ln -sf $(@F) $(@D)/librdmacm.so.1
	@mkdir -p $(@D)/old
	$(Q)$(CC) $(filter-out -MMD -MP,$(KO_CFLAGS)) $(CFLAGS) -fPIC -fvisibility=hidden -shared \
	    -Wl,-soname,libibverbs.so.1 -Wl,--version-script=tests/fakeverbs/old.map $(KO_LDFLAGS) \
	    $(filter %.c,$^) -o $(@D)/old/$(@F)

$(RDMA_TESTS): $(FAKEVERBS)
$(RDMA_TESTS): private LDFLAGS += -Wl,-rpath,'$$ORIGIN/fakeverbs'

# And one of a library of MPI's, which only has to be there.
FAKEMPI := $(BUILD)/tests/fakempi/libmpifake.so

$(FAKEMPI): tests/fakempi/mpi.c
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD    $@")
	$(Q)$(CC) $(filter-out -MMD -MP,$(KO_CFLAGS)) $(CFLAGS) -fPIC -fvisibility=hidden -shared \
	    $(KO_LDFLAGS) $< -o $@

$(BUILD)/tests/test_beside_mpi: | $(FAKEMPI)
$(BUILD)/tests/test_beside_mpi: private LDFLAGS += -Wl,-rpath,'$$ORIGIN/fakempi'

# Tests of the trainer see its parts, all but main. They are listed: of two patterns make prefers the
# one whose files are there, which is that of all tests while a part is new.
$(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_train_*.c)): \
    $(BUILD)/tests/test_train_%: $(TOBJ)/tests/test_train_%.o $(TRAIN_TEST) $(TEST_SHARED)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD    $@")
	$(Q)$(CC) $(KO_LDFLAGS) $(TEST_LDFLAGS) $(LDFLAGS) $^ -lcmocka -lopenblas -lz $(LIB_LIBS) -lm -o $@

-include $(shell find $(sort $(OBJ) $(PIC) $(TOBJ)) $(BUILD)/tests/fakecuda -name '*.d' 2>/dev/null)

.PHONY: tests
tests: $(TEST_BINS) $(FAKECUDA) $(FAKECUBLAS) $(FAKEVERBS) $(GPU_SOURCES) ## build the test programs

# Bats files are about the tools, too; for test programs alone nothing else is built.
.PHONY: check
check: $(if $(filter %.bats,$(TESTS)),all tests,$(TEST_BINS)) $(if $(NVCC),lint-ptx) ## run all tests (TESTS=... for some of them)
	$(Q)tests/prove $(BUILD) $(TESTS)

.PHONY: prove
prove: $(BUILD)/tests/test_paper $(BUILD)/tests/test_paper_hosts ## prove each text on paper for all ranks, roots, counts and hosts: minutes
	$(Q)for test in $^; do for part in 0 1 2 3 4 5 6 7; do echo $$test all $$part 8; done; done | \
	    CMOCKA_MESSAGE_OUTPUT=TAP TEST_LIMIT_S=1800 xargs -P $$(nproc) -L 1 tests/limited

# ---- tests in other builds -----------------------------------------------------------------------

# docs.bats and install.bats are about the plain build. Under ThreadSanitizer only what has threads says something.
# -g1 has the lines and inlined functions that sanitizers report; variables cost a quarter of the compiler's time.
INSTRUMENTED = $(filter-out docs.bats install.bats,$(TESTS))
THREADED = $(patsubst tests/%.c,%,$(shell grep -li thread $(wildcard $(TESTS:%=tests/%.c)) /dev/null))
ASAN := -fsanitize=address,undefined -fno-sanitize-recover=all
TSAN := -fsanitize=thread

IN_ASAN = ASAN_OPTIONS=detect_leaks=1:$$ASAN_OPTIONS $(MAKE) --no-print-directory BUILD=$(BUILD)/asan \
          IMAGES=$(BUILD) SAN="$(ASAN)" CFLAGS="-O1 -g1" TESTS="$(INSTRUMENTED)"
IN_TSAN = $(MAKE) --no-print-directory BUILD=$(BUILD)/tsan IMAGES=$(BUILD) SAN="$(TSAN)" CFLAGS="-O1 -g1" \
          TESTS="$(THREADED)"

.PHONY: check-asan
check-asan: ## run them under AddressSanitizer and UBSan, in build/asan
	$(Q)$(IN_ASAN) check

.PHONY: check-tsan
check-tsan: ## run those with threads under ThreadSanitizer, in build/tsan
	$(if $(THREADED),$(Q)$(IN_TSAN) check,@echo "no test has threads")

# What these run, built.
.PHONY: tests-asan tests-tsan
tests-asan:
	$(Q)$(IN_ASAN) all tests
tests-tsan:
	$(Q)$(IN_TSAN) tests

$(BUILD)/interop/%: tests/interop/%.c $(STATIC)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CC    $< (interop)")
	$(Q)$(CC) $(KO_CFLAGS) $(CFLAGS) $(CPPFLAGS) $< $(STATIC) $(LIB_LIBS) -o $@

# A client that PyTorch's Python does not have.
$(BUILD)/interop/watch: tests/interop/watch.cc
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CXX   $<")
	$(Q)$(CXX) -std=c++17 -O0 $< -ltorch_cpu -lc10 -o $@

.PHONY: check-interop
check-interop: all $(BUILD)/interop/store $(BUILD)/tests/test_store_wire $(BUILD)/tests/test_store_client_wire
check-interop: ## run kolo beside other programs: launchers, PyTorch (installs them)
	$(Q)tests/interop/run $(BUILD)

TORCH ?= 2.0.1 2.1.2 2.2.2 2.6.0 2.15.0

.PHONY: check-torch
check-torch: all $(BUILD)/interop/store ## the same beside other versions of PyTorch, TORCH: pip installs 4 GB of each
	$(Q)tests/interop/torches $(BUILD) $(TORCH)

# What one process does, or threads of one.
ARM_TESTS ?= $(addprefix test_,reduce reduce_many premul copy biased_lock bucket cipher clock coll_bytes \
                 division dtype gradients once tensors)

.PHONY: check-arm
check-arm: ## run ARM_TESTS on an emulated 64-bit ARM machine (installs a cross compiler and qemu)
	$(Q)tests/arm/run $(BUILD) $(ARM_TESTS)

.PHONY: check-rdma
check-rdma: all $(BUILD)/tests/test_transports ## run rdma on software adapters, in virtual machines (RDMA=all: in all combinations; installs qemu)
	$(Q)RDMA=$(RDMA) tests/rdma/run $(BUILD)

# As many groups of each transport lose a rank; the seed that is printed makes a run again.
KILLS ?= 1000

.PHONY: kills
kills: $(BUILD)/tests/test_kill ## kill a rank in KILLS groups over each transport (minutes)
	$(Q)for transport in shm rdma tcp; do \
	    echo "$$transport:" && $< $(KILLS) $$(date +%s) 8 $$transport || exit 1; done

# ---- fuzzing -------------------------------------------------------------------------------------

# Programs tests/fuzz_NAME.c, and the inputs kept for them in tests/corpus/NAME.
FUZZERS := $(patsubst tests/fuzz_%.c,%,$(sort $(wildcard tests/fuzz_*.c)))
FUZZ_S    ?= 60
FUZZ_RUNS ?= 100000000
FUZZ_COVER_MIN ?= 95

.PHONY: fuzz fuzz-campaign fuzz-coverage $(FUZZERS:%=fuzz-%)
fuzz: ## run the fuzz targets, FUZZ_S seconds each (fuzz-NAME for one)
	$(Q)FUZZ_S=$(FUZZ_S) tests/fuzzers run $(BUILD)/fuzz $(FUZZERS)

$(FUZZERS:%=fuzz-%): fuzz-%:
	$(Q)FUZZ_S=$(FUZZ_S) tests/fuzzers run $(BUILD)/fuzz $*

fuzz-campaign: ## run them for FUZZ_RUNS executions each, which takes hours
	$(Q)FUZZ_RUNS=$(FUZZ_RUNS) tests/fuzzers campaign $(BUILD)/fuzz-campaign $(FUZZERS)

fuzz-coverage: ## their coverage by the kept inputs alone; fails under FUZZ_COVER_MIN percent
	$(Q)FUZZ_COVER_MIN=$(FUZZ_COVER_MIN) tests/fuzzers coverage $(BUILD)/fuzz-cover $(FUZZERS)

# What they are about, and what that uses: the fewer files take part, the faster are the executions.
FUZZED := clock config fault hostlist launcher launcher_around launcher_check launcher_describe log secret status \
          store store_answers store_append store_large store_news store_output store_scraps store_session \
          store_table store_updates store_views store_waits store_wakes store_walls store_will store_wire

$(BUILD)/tests/libkolo.a: $(FUZZED:%=$(TOBJ)/src/%.o)
	@mkdir -p $(@D)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(BUILD)/tests/fuzz_%: $(TOBJ)/tests/fuzz_%.o $(TOBJ)/tests/fuzzing/getrandom.o $(BUILD)/tests/libkolo.a
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD    $@")
	$(Q)$(CC) $(KO_LDFLAGS) $(LDFLAGS) -fsanitize=fuzzer $^ $(LIB_LIBS) -o $@

# The same with any compiler, for what is kept.
$(BUILD)/tests/replay_%: $(TOBJ)/tests/fuzz_%.o $(TOBJ)/tests/fuzzing/replay.o $(TOBJ)/tests/corpus.o \
    $(TOBJ)/tests/fuzzing/getrandom.o $(BUILD)/tests/libkolo.a
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD    $@")
	$(Q)$(CC) $(KO_LDFLAGS) $(LDFLAGS) $^ $(LIB_LIBS) -o $@

# gnu11: only then does gcc write the counts of a process before it executes another program.
COVER_MIN ?= 90

.PHONY: cover
cover: ## line coverage by all tests, in build/cover; fails under COVER_MIN percent
	$(Q)find $(BUILD)/cover -name '*.gcda' -delete 2>/dev/null || true
	$(Q)$(MAKE) --no-print-directory BUILD=$(BUILD)/cover IMAGES=$(BUILD) SAN=--coverage CFLAGS="-O0 -g -std=gnu11" \
	    TESTS="$(INSTRUMENTED)" check
	$(Q)gcovr --root . --object-directory $(BUILD)/cover --filter 'src/' --filter 'transports/' \
	    --filter 'kernels/' --exclude-unreachable-branches --sort-percentage --print-summary \
	    --fail-under-line $(COVER_MIN)

.PHONY: docs
docs: $(BUILD)/bin/kolo-explain ## draw the pictures of README.md
	$(Q)mkdir -p docs
	$(Q)$< all_reduce --algo ring --ranks 4 --svg docs/ring.svg >/dev/null
	$(Q)$< all_reduce --simulate --ranks 64 --per-host 8 --cores 16 --svg docs/crossover.svg >/dev/null

# A bar that is missed is no fault of what was built.
.PHONY: bench
bench: all ## compare with other libraries on this machine (tests/bench/peers --help)
	$(Q)tests/bench/peers --quick || [ $$? -eq 1 ]

$(BUILD)/bench/%: tests/bench/%.c $(STATIC)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CC    $< (bench)")
	$(Q)$(CC) $(KO_CFLAGS) -O3 -march=native -Itests $(CPPFLAGS) $(filter %.c %.a,$^) $(LIB_LIBS) -o $@

$(BUILD)/bench/hosts: tests/networks.c
$(BUILD)/bench/predict: src/tools/perf_cores.c

.PHONY: bench-store
bench-store: $(BUILD)/bench/store ## what a store's server bears: rates, crowds, hostile clients
	$(Q)$<; without=$$?; echo 'with a token:'; $< -t && exit $$without

.PHONY: bench-reduce
bench-reduce: $(BUILD)/bench/reduce ## compare the reductions with the limits of memory
	$(Q)$<

.PHONY: bench-overlap
bench-overlap: $(BUILD)/bench/overlap ## what a loop loses while an all_reduce goes on beside it
	$(Q)$<

.PHONY: bench-predict
bench-predict: all ## compare what collectives take with what was predicted (tests/bench/predictions --help)
	$(Q)tests/bench/predictions

# ---- lint: every check is silent when all is well, and can be run alone --------------------------

C_FILES := $(sort $(shell find include src transports kernels tests examples -name '*.[ch]' \
                      2>/dev/null))
TIDY    := $(patsubst %.c,$(BUILD)/lint/%.tidy,$(LIB_SRC) $(wildcard src/tools/*.c))
SCRIPTS := $(wildcard tests/gpu/check tests/gpu/sources tests/run tests/prove tests/limited tests/fuzzers tests/layers tests/exports \
                      tests/same-options tests/idle-assertions tests/bench/peers tests/bench/predictions tests/bench/cores.sh tests/interop/run tests/interop/torches tests/interop/machines tests/interop/check-stores \
                      tests/arm/run tests/rdma/run tests/rdma/machine tests/rdma/inside tests/rdma/beside \
                      tests/accuracy completions/* examples/demo scripts/* .ci/run)
LINTS   := lint-format lint-tidy lint-cppcheck lint-layers lint-exports lint-shell lint-bats lint-cuda lint-ib

.PHONY: lint $(LINTS)
lint: $(LINTS) ## all static checks: format tidy cppcheck layers exports shell bats cuda ib (lint-NAME for one)

lint-format:
	$(Q)clang-format --dry-run -Werror $(C_FILES)

lint-tidy: $(TIDY)

# The analyzer forgets what a path is done with at the end of each block, not of each statement: it
# finds the same, and a tenth sooner.
TIDY_PURGE := -Xclang -analyzer-purge=block

$(BUILD)/lint/%.tidy: %.c .clang-tidy $(filter %.h,$(C_FILES))
	@mkdir -p $(@D)
	$(Q)clang-tidy --quiet $< -- $(filter-out -M%,$(KO_CFLAGS)) $(TIDY_PURGE) >$@.out 2>$@.err || \
	    { cat $@.out; grep -v 'warnings\? generated' $@.err; exit 1; }
	$(Q)touch $@

lint-cppcheck:
	@mkdir -p $(BUILD)/lint/cppcheck
	$(Q)cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 --enable=warning,portability \
	    --suppress=missingIncludeSystem --suppress=ctuuninitvar \
	    -D'LIST_HEAD(name,type)=struct{struct type*lh_first;}' --cppcheck-build-dir=$(BUILD)/lint/cppcheck \
	    -j2 -D_GNU_SOURCE -D__GNUC__ -D__linux__ -Iinclude -Isrc -Itransports -Ikernels \
	    $(wildcard src transports examples)

lint-layers:
	$(Q)tests/layers

# With all its kernels, and what a debugger reads, it stays small.
lint-exports: $(SHARED)
	$(Q)tests/exports $(SHARED) include/kolo.h
	$(Q)test $$(stat -L -c %s $(SHARED)) -lt 5000000 || ! echo "$(SHARED) has 5 MB or more"

lint-shell:
	$(Q)shellcheck --severity=warning $(SCRIPTS)

lint-bats:
	$(Q)tests/idle-assertions $(wildcard tests/*.bats tests/*.bash)

# Every load of global memory says how it is ordered (volatile, relaxed, acquire): a plain one the
# compiler may move, repeat, or take by a path that keeps stale copies of what a peer writes. Whole
# packs are read by a relaxed one, and nothing spills; in those of tests/gpu too,
# that they may be compared.
PTX := $(IMAGES)/kernels/last.ptx $(IMAGES)/kernels/check.ptx
MADE_BY_NVCC := $(CUBINS) $(PTX) $(IMAGES)/train.fatbin $(IMAGES)/check.fatbin
.PHONY: lint-ptx
lint-ptx: $(MADE_BY_NVCC)
	$(Q)! grep -n 'ld\.global\|ld\.weak\|ld\.local\|st\.local' $(PTX)
	$(Q)$(if $(filter 100,$(NVCC_KNOWS)),ls $(MADE_BY_NVCC:=.log) >/dev/null && ! grep . $(MADE_BY_NVCC:=.log),\
	    echo "lint-ptx: registers may be spilled: toolkits before CUDA 12.8 do")
	$(Q)for text in $(PTX); do grep -q 'ld\.relaxed\.sys\.global\.v4' $$text || \
	    { echo "$$text: no pack is read by ld.relaxed.sys"; exit 1; }; done

# Where there is a toolkit: what kolo declares of the driver is what that declares.
lint-cuda: $(if $(NVCC),lint-ptx)
	$(Q)$(if $(wildcard $(CUDA_HOME)/include/cudaTypedefs.h),$(CXX) -std=c++17 -fsyntax-only -Isrc \
	    -isystem $(CUDA_HOME)/include tests/cuda_abi.cc,:)

# The same of libibverbs and librdmacm.
lint-ib:
	$(Q)$(if $(wildcard /usr/include/infiniband/verbs.h),$(CC) -std=c11 -D_GNU_SOURCE -fsyntax-only \
	    -Isrc tests/rdma/ib_abi.c,echo "lint-ib: nothing is compared without libibverbs-dev")
	$(Q)$(if $(wildcard /usr/include/rdma/rdma_cma.h),$(CC) -std=c11 -D_GNU_SOURCE -fsyntax-only \
	    -Isrc tests/rdma/ib_abi_cm.c,echo "lint-ib: less is compared without librdmacm-dev")

# ---- install -------------------------------------------------------------------------------------

HEADERS := $(wildcard include/*.h)
MANUALS := $(wildcard man/*.1 man/*.3 man/*.7)
COMPLETIONS := $(wildcard completions/*)
CMAKEDIR = $(LIBDIR)/cmake/Kolo
INSTALLED = $(TOOLS:%=$(BINDIR)/%) $(HEADERS:include/%=$(INCLUDEDIR)/%) \
            $(LIBS:$(BUILD)/lib/%=$(LIBDIR)/%) $(LIBDIR)/pkgconfig/kolo.pc \
            $(CMAKEDIR)/KoloConfig.cmake $(CMAKEDIR)/KoloConfigVersion.cmake \
            $(COMPLETIONS:completions/%=$(COMPLETIONDIR)/%) \
            $(foreach page,$(MANUALS),$(MANDIR)/man$(subst .,,$(suffix $(page)))/$(notdir $(page)))
SUBSTITUTE = sed -e 's|@VERSION@|$(VERSION)|g' -e 's|@ABI@|$(ABI)|g' -e 's|@PREFIX@|$(PREFIX)|g' \
             -e 's|@LIBDIR@|$(LIBDIR)|g' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|g' \
             -e 's|@LIB_LIBS@|-lsodium -ldl -lm|g' \
             -e "s|@INCLUDE_FROM_CMAKE@|$$(realpath -m --relative-to=$(CMAKEDIR) $(INCLUDEDIR))|g"

.PHONY: install
install: $(LIBS) $(TOOLS:%=$(BUILD)/bin/%) ## install below DESTDIR and PREFIX
	$(Q)install -d $(sort $(dir $(INSTALLED:%=$(DESTDIR)%)))
	$(Q)install -m 644 $(HEADERS) $(DESTDIR)$(INCLUDEDIR)
	$(Q)install -m 644 $(STATIC) $(DESTDIR)$(LIBDIR)
	$(Q)install -m 755 $(SHARED) $(DESTDIR)$(LIBDIR)
	$(Q)ln -sf libkolo.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libkolo.so.$(ABI)
	$(Q)ln -sf libkolo.so.$(ABI) $(DESTDIR)$(LIBDIR)/libkolo.so
	$(if $(TOOLS),$(Q)install -m 755 $(TOOLS:%=$(BUILD)/bin/%) $(DESTDIR)$(BINDIR))
	$(Q)$(SUBSTITUTE) cmake/kolo.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/kolo.pc
	$(Q)for file in KoloConfig.cmake KoloConfigVersion.cmake; do \
	    $(SUBSTITUTE) cmake/$$file.in >$(DESTDIR)$(CMAKEDIR)/$$file || exit 1; done
	$(Q)install -m 644 $(COMPLETIONS) $(DESTDIR)$(COMPLETIONDIR)
	$(Q)for page in $(MANUALS); do \
	    install -m 644 $$page $(DESTDIR)$(MANDIR)/man$${page##*.}/ || exit 1; done

.PHONY: uninstall
uninstall: ## remove what install has put there
	$(Q)rm -f $(INSTALLED:%=$(DESTDIR)%)
	$(Q)rmdir $(DESTDIR)$(CMAKEDIR) $(DESTDIR)$(LIBDIR)/cmake 2>/dev/null || true

.PHONY: clean
clean: ## remove what was built
	rm -rf $(BUILD)

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
