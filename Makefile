# kolo: make help lists the targets. One file, no recursion: every source is found by its place.

VERSION := 0.1.0
ABI     := 1

CC      ?= cc
AR      ?= ar
PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
BUILD   ?= build
CFLAGS  ?= -O2 -g
SAN     ?=
V       ?= 0

Q := $(if $(filter 1,$(V)),,@)

WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla \
            -Wpointer-arith -Wcast-qual -Wwrite-strings -Wundef -Wformat=2 \
            $(if $(WERROR),-Werror)
KO_CFLAGS := -std=c11 -D_GNU_SOURCE -Iinclude -Isrc -Itransports -Ikernels -pthread \
             -ffp-contract=off -fno-math-errno -fno-trapping-math -fopenmp-simd -MMD -MP \
             $(WARNINGS) -Wno-pass-failed $(SAN)
KO_LDFLAGS := -pthread $(SAN)

# ---- what is built from what ---------------------------------------------------------------------

LIB_SRC   := $(sort $(wildcard src/*.c src/ddp/*.c transports/*.c))
TOOLS     := $(patsubst src/tools/%.c,%,$(sort $(wildcard src/tools/kolo*.c)))
TOOL_LIB_SRC := $(filter-out src/tools/kolo%.c,$(sort $(wildcard src/tools/*.c)))
TRAIN_SRC := $(sort $(wildcard examples/ddp/*.c))
EXAMPLES  := $(patsubst examples/%.c,%,$(sort $(wildcard examples/*.c)))
TESTS     := $(patsubst tests/%.c,%,$(sort $(wildcard tests/test_*.c)))
TEST_LIB_SRC := $(filter-out tests/test_%.c tests/fuzz_%.c tests/bench_%.c,$(sort $(wildcard tests/*.c)))

OBJ  := $(BUILD)/obj
PIC  := $(BUILD)/pic
TOBJ := $(BUILD)/test-obj

LIB_OBJ      := $(LIB_SRC:%.c=$(OBJ)/%.o)
LIB_PIC      := $(LIB_SRC:%.c=$(PIC)/%.o)
LIB_TEST     := $(LIB_SRC:%.c=$(TOBJ)/%.o)
TEST_LIB_OBJ := $(TEST_LIB_SRC:%.c=$(TOBJ)/%.o)
TOOL_LIB_OBJ := $(TOOL_LIB_SRC:%.c=$(OBJ)/%.o)

STATIC := $(BUILD)/lib/libkolo.a
SHARED := $(BUILD)/lib/libkolo.so.$(VERSION)
LIBS   := $(STATIC) $(SHARED) $(BUILD)/lib/libkolo.so.$(ABI) $(BUILD)/lib/libkolo.so
BINS   := $(TOOLS:%=$(BUILD)/bin/%) $(EXAMPLES:%=$(BUILD)/bin/%) $(if $(TRAIN_SRC),$(BUILD)/bin/kolo-train)
TEST_BINS := $(TESTS:%=$(BUILD)/tests/%)

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

$(OBJ)/src/tools/info_facts.o: KO_CFLAGS += -DKO_BUILD_ABI='"$(ABI)"' \
                                -DKO_BUILD_FLAGS='"$(strip $(CFLAGS) $(SAN))"'

$(PIC)/%.o: %.c
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CC    $< (pic)")
	$(Q)$(CC) $(KO_CFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden $(CPPFLAGS) -c $< -o $@

$(TOBJ)/%.o: %.c
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CC    $< (test)")
	$(Q)$(CC) $(KO_CFLAGS) $(CFLAGS) -DKOLO_FAULT -Itests $(CPPFLAGS) -c $< -o $@

$(STATIC): $(LIB_OBJ)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  AR    $@")
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(SHARED): $(LIB_PIC) src/kolo.map
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD    $@")
	$(Q)$(CC) -shared -Wl,-soname,libkolo.so.$(ABI) -Wl,--version-script=src/kolo.map \
	    -Wl,-z,defs $(if $(SAN),,-Wl,--as-needed) $(KO_LDFLAGS) $(LDFLAGS) $(LIB_PIC) -lm -o $@

$(BUILD)/lib/libkolo.so.$(ABI): $(SHARED)
	$(Q)ln -sf libkolo.so.$(VERSION) $@
$(BUILD)/lib/libkolo.so: $(BUILD)/lib/libkolo.so.$(ABI)
	$(Q)ln -sf libkolo.so.$(ABI) $@

$(BUILD)/bin/%: $(OBJ)/src/tools/%.o $(TOOL_LIB_OBJ) $(STATIC)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD    $@")
	$(Q)$(CC) $(KO_LDFLAGS) $(LDFLAGS) $^ -lm -o $@

$(BUILD)/bin/%: $(OBJ)/examples/%.o $(STATIC)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD    $@")
	$(Q)$(CC) $(KO_LDFLAGS) $(LDFLAGS) $^ -lm -o $@

$(BUILD)/bin/kolo-train: $(TRAIN_SRC:%.c=$(OBJ)/%.o) $(STATIC)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD    $@")
	$(Q)$(CC) $(KO_LDFLAGS) $(LDFLAGS) $^ -lopenblas -lz -lm -o $@

$(BUILD)/tests/test_%: $(TOBJ)/tests/test_%.o $(TEST_LIB_OBJ) $(LIB_TEST)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LD    $@")
	$(Q)$(CC) $(KO_LDFLAGS) $(LDFLAGS) $^ -lcmocka -lm -o $@

-include $(shell find $(OBJ) $(PIC) $(TOBJ) -name '*.d' 2>/dev/null)

.PHONY: tests
tests: $(TEST_BINS) ## build the test programs

.PHONY: check
check: all tests ## run all tests (TESTS=... for some of them)
	$(Q)tests/prove $(BUILD) $(TESTS)

.PHONY: clean
clean: ## remove what was built
	rm -rf $(BUILD)

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
