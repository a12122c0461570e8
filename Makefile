# Everything a contributor types. `make test` is the one that must always pass.
export CGO_ENABLED ?= 0
# Without the tag grpc links golang.org/x/net/trace, whose templates keep every method of every
# type in the program: 14 MB. With the same flags everywhere builds and tests share what is compiled.
export GOFLAGS ?= -tags=grpcnotrace -trimpath
GO      ?= go
BUF     ?= $(CURDIR)/bin/buf
BUF_VER := v1.72.0
NFPM    ?= $(CURDIR)/bin/nfpm
NFPM_VER := v2.43.4
VERSION ?= 0.1.0
ARCH    ?= $(shell $(GO) env GOARCH)
FUZZ_TIME ?= 5s
# Every FUZZ_EVERYth target alone, from target FUZZ_FROM on; packages of race likewise.
FUZZ_EVERY ?= 1
FUZZ_FROM ?= 0
PKGS    := ./...
# The folders of SEQUENTIAL start no goroutine and hold no lock: nothing there can race. store/postgres makes the calls of
# store's own tests once more.
SEQUENTIAL = measure analysis store/exchange hostagent/experiment/tiny cmd/supply
RACE_EVERY ?= 1
RACE_FROM ?= 0
RACING   = $(shell $(GO) list $(PKGS) | grep -v $(patsubst %,-e '^github.com/wattmark/wattmark/%',$(SEQUENTIAL) store/postgres) | awk 'NR % $(RACE_EVERY) == $(RACE_FROM)')
GOFILES  = $(shell git ls-files '*.go' | grep -v '\.pb\.go$$')

.PHONY: all build test test-computed test-trials test-slow check race fuzz bench lint generate generate-check tidy-check install lib install-lib release deb clean

all: build

build: ## the program, without a C compiler
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/wattmark ./cmd/wattmark

install: ## put wattmark in GOBIN
	$(GO) install -trimpath ./cmd/wattmark

# Programs that were linked run with every library of the same soname.
SONAME := libwattmark.so.0
LIB    ?= bin
lib: ## the C library; needs a C compiler
	CGO_ENABLED=1 $(GO) build -buildmode=c-shared -trimpath -buildvcs=false -ldflags '$(LDFLAGS) -extldflags=-Wl,-soname,$(SONAME)' -o $(LIB)/$(SONAME) ./cmd/libwattmark
	@rm -f $(LIB)/libwattmark.so.h && ln -sf $(SONAME) $(LIB)/libwattmark.so

PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
PYTHON ?= python3
# Where PYTHON finds modules: those of Debian's packages, else those that pip installs.
PYTHON_DIR ?= $(if $(filter /usr,$(PREFIX)),/usr/lib/python3/dist-packages,$(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("purelib"))'))
install-lib: lib install-man3 ## the C library, its headers, its manual and its Python package, below PREFIX
	install -D -m 755 $(LIB)/$(SONAME) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libwattmark.so
	install -D -m 644 cmd/libwattmark/wattmark.h $(DESTDIR)$(PREFIX)/include/wattmark.h
	install -D -m 644 cmd/libwattmark/power.h $(DESTDIR)$(PREFIX)/include/power.h
	install -d $(DESTDIR)$(PYTHON_DIR)/wattmark
	install -m 644 api/python/src/wattmark/* $(DESTDIR)$(PYTHON_DIR)/wattmark
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(VERSION)|' cmd/libwattmark/wattmark.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/wattmark.pc

WHEELS ?= bin
.PHONY: wheel
wheel: ## the Python package, without a network; needs setuptools and wheel of PYTHON
	@$(PYTHON) -c "import setuptools, wheel, pip" 2>/dev/null || { echo "$(PYTHON) lacks pip, setuptools or wheel (Debian: python3-pip python3-setuptools python3-wheel); PYTHON= names another"; exit 1; }
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && cp -r api/python "$$tmp" && \
	  sed -i 's/^version = .*/version = "$(VERSION)"/' "$$tmp/python/pyproject.toml" && \
	  $(PYTHON) -m pip wheel --quiet --no-build-isolation --no-deps --no-index --disable-pip-version-check -w '$(WHEELS)' "$$tmp/python"

# What is given out, of ARCHES: an archive, a bill of materials and a Debian package each, and the
# package of the library where there is a C compiler for it (LIBRARY= leaves it out; Debian:
# gcc-aarch64-linux-gnu). The same bytes whenever it is made of one commit, by the same Go, gzip and
# C compiler.
RELEASE ?= bin/release
ARCHES  ?= amd64 arm64
LIBRARY ?= $(ARCHES)
HOST    := $(shell $(GO) env GOHOSTARCH)
RELEASED = $(GO) build -trimpath -buildvcs=false -ldflags '-s -w -buildid='
release deb: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
release: $(NFPM) ## archives, Debian packages, bills of materials and checksums, in bin/release
	@rm -rf $(RELEASE) && mkdir -p $(RELEASE)/build
	$(RELEASED) -o $(RELEASE)/build/$(HOST) ./cmd/wattmark
	@for arch in $(filter-out $(HOST),$(ARCHES)); do \
	  echo "$$arch"; GOARCH=$$arch $(RELEASED) -o $(RELEASE)/build/$$arch ./cmd/wattmark || exit 1; done
	@for arch in $(ARCHES); do NFPM=$(NFPM) packaging/pack $$arch $(VERSION) $(RELEASE) || exit 1; done
	@for arch in $(LIBRARY); do \
	  case $$arch in $(HOST)) cc='$(CC)';; amd64) cc=x86_64-linux-gnu-gcc;; arm64) cc=aarch64-linux-gnu-gcc;; esac; \
	  command -v $$cc >/dev/null || { echo "no C compiler for $$arch ($$cc): the package of its library is left out"; continue; }; \
	  lib=$(abspath $(RELEASE))/build/lib-$$arch; \
	  GOARCH=$$arch CC=$$cc $(MAKE) install-lib LDFLAGS='-s -w -buildid=' DESTDIR=$$lib PREFIX=/usr LIBDIR=/usr/lib/$$($$cc -print-multiarch) LIB=$$lib-made && \
	  STAGE=$$lib VERSION=$(VERSION) ARCH=$$arch $(NFPM) package --config packaging/nfpm-lib.yaml --packager deb --target $(RELEASE)/ || exit 1; done
	@cd $(RELEASE) && rm -rf build && sha256sum * >SHA256SUMS && cat SHA256SUMS

deb: ARCHES = $(ARCH)
deb: release ## the same for this machine alone

$(NFPM):
	GOBIN=$(CURDIR)/bin $(GO) install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VER)

# A page with several names in its line NAME is found under each of them.
.PHONY: install-man install-man3
install-man3: ## the C library's manual
	install -d $(DESTDIR)$(PREFIX)/share/man/man3
	install -m 644 docs/man/*.3 $(DESTDIR)$(PREFIX)/share/man/man3
	@for f in docs/man/*.3; do page=$$(basename $$f); \
	  for n in $$(sed -n '/^\.SH NAME/{n;s/ \\-.*//;s/,//g;p;q;}' $$f); do \
	    [ $$n.3 = $$page ] || echo ".so man3/$$page" >$(DESTDIR)$(PREFIX)/share/man/man3/$$n.3; \
	  done; \
	done

install-man: build install-man3 ## the manual of the program and of the C library
	bin/wattmark man $(DESTDIR)$(PREFIX)/share/man/man1

# Most tests wait for meters and processes in real time, so more of them run at once than there
# are processors; an emulated meter that gets no processor in time loses its markers, so not many
# more. cmd/wattmark, which takes longest, begins first.
AT_ONCE ?= -p 2 -parallel 4
test: ## all tests of less than 4 s; RUN=. runs all, RUN=NAME some, LESS leaves packages out; needs nothing but Go
	$(GO) test -timeout 30m $(AT_ONCE) $(if $(RUN),-run '$(RUN)') ./cmd/wattmark $(if $(LESS),$(filter-out $(LESS),$(shell $(GO) list $(PKGS))),$(PKGS))

# Statistical coverage and long sweeps: files with the build tag slow, and all trials of the tests beside them. A busy
# machine does not disturb the packages of COMPUTES, which compute in virtual time. Of the slow tests of other packages
# every SLOW_EVERYth runs, from SLOW_FROM on.
SLOW_EVERY ?= 1
SLOW_FROM ?= 0
SLOWLY   = $(GO) test -tags slow,grpcnotrace -timeout 40m
COMPUTES = analysis measure cmd/trial/model hostagent/experiment/tiny
COMPUTED = $(shell $(GO) list $(patsubst %,./%/...,$(COMPUTES)))
SLOW     = { git grep -p -e 'coverage\.[STW]' -- '*_test.go'; git grep -p -e '^func Test' $$(git grep -l '^//go:build slow' -- '*_test.go'); } | \
  sed -n 's|^\(.*\)/[^/=:]*[=:]func \(Test[A-Za-z0-9_]*\)(.*|\1 \2|p' | sort -u | grep -v $(patsubst %,-e '^%[ /]',$(COMPUTES)) -e '^cmd/[ltw]' | \
  awk 'NR % $(SLOW_EVERY) == $(SLOW_FROM)'
test-computed: ## the packages that compute in virtual time, with all trials
	$(SLOWLY) $(COMPUTED)
test-trials: ## the tests with trials of other packages, with all trials: minutes of processor time each
	@$(SLOW) | while read -r dir name; do echo "$$dir $$name"; $(SLOWLY) -run "^$$name$$" "./$$dir" || exit 1; done
test-slow: ## the other tests that take minutes
	$(SLOWLY) -run 'Cycles|DS1000Z/leaks' ./monitor/instrument/...
	$(SLOWLY) -run 'Campaign|EachCut' ./cmd/trial -limit 30s
	$(SLOWLY) -run AddressSanitizer ./cmd/libwattmark
	$(SLOWLY) -run CertificatesOfRecordings ./cmd/wattmark

# What starts processes, browsers and database servers, and meters in real time, is left to make test.
QUICK = $(shell $(GO) list $(PKGS) | grep -v -e /cmd/wattmark -e /cmd/libwattmark -e /cmd/trial -e /cmd/internal/perf -e /store/postgres -e /store/relay -e /store/cluster -e /api/web -e /packaging -e /monitor/emulator$$)
check: ## the inner loop: build, vet, staticcheck, the house's rules, fast tests
	$(GO) build $(PKGS)
	$(GO) vet -tags slow,grpcnotrace $(PKGS) # with the slow tests
	$(GO) tool staticcheck $(PKGS)
	$(GO) test -short $(QUICK)
	$(GO) test -run Golden ./cmd/wattmark

# SQLite is C that was translated, with locks of its own: watching each of its bytes takes five times as long and
# shows nothing. Nor do the loops of the detector, which starts no goroutine and is one goroutine's.
UNWATCHED = -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc=-race=false \
  -gcflags=github.com/wattmark/wattmark/measure/marker=-race=false
race: ## the tests under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -timeout 20m -race $(UNWATCHED) -short -run . $(RACING)

fuzz: ## every fuzz target for a short time, as many at once as there are processors
	@git grep -H '^func Fuzz' -- '*_test.go' | sed -n 's|^\(.*\)/[^/]*:func \(Fuzz[A-Za-z0-9_]*\)(.*|\1 \2|p' | \
	  awk 'NR % $(FUZZ_EVERY) == $(FUZZ_FROM)' | xargs -P $$(nproc) -n 2 sh -c 'echo "fuzz $$0 $$1"; out=$$($(GO) test -run "^$$" -fuzz "^$$1$$" -fuzztime $(FUZZ_TIME) -parallel 1 "./$$0" 2>&1) || { echo "$$out"; exit 255; }'

bench: ## benchmarks
	$(GO) test -run '^$$' -bench . -benchmem $(PKGS)

lint: $(BUF) lint-page ## formatting, vet, staticcheck, proto style, the page's types and rules
	@bad=$$($(GO) tool gofumpt -l $(GOFILES)); if [ -n "$$bad" ]; then echo "not formatted (run: go tool gofumpt -w):"; echo "$$bad"; exit 1; fi
	$(GO) vet -tags slow,grpcnotrace $(PKGS) # with the slow tests
	$(GO) tool staticcheck $(PKGS)
	$(BUF) lint

# With the tools that make page-tools installs; CI has them.
.PHONY: lint-page
lint-page: ## types (tsc --checkJs), rules (eslint) and unit tests of the page's script
	@if [ -x '$(PAGE_TOOLS)/node_modules/.bin/tsc' ] && command -v node >/dev/null; then \
	  '$(PAGE_TOOLS)/node_modules/.bin/tsc' -p api/web/page && \
	  (cd api/web/page && PAGE_TOOLS='$(PAGE_TOOLS)' '$(PAGE_TOOLS)/node_modules/.bin/eslint' static/js *.js && node --test . >/dev/null); \
	elif [ "$$WATTMARK_REQUIRE_TOOLS" = 1 ]; then echo "make page-tools has not run: the page's script cannot be checked"; exit 1; \
	else echo "the page's script is not checked: no node, or make page-tools has not run"; fi

$(BUF):
	GOBIN=$(CURDIR)/bin $(GO) install github.com/bufbuild/buf/cmd/buf@$(BUF_VER)

generate: $(BUF) ## Go code from the .proto files, the page's script from its modules, conversions of messages
	$(BUF) generate
	$(BUF) generate --template buf.gen.http.yaml
	$(GO) generate ./api/wire ./api/web/page

generate-check: generate ## generated code is what the .proto files say
	git diff --exit-code -- api/wattmarkv1 api/web/openapi.swagger.json api/web/page/static/page.js monitor/instrument/nidaqmx/nipb

# pprof is there for modernc.org/sqlite's own tests alone: whether it can be had must not decide.
tidy-check: ## go.mod and go.sum say what the code needs
	@out=$$($(GO) mod tidy -e -diff) || [ -n "$$out" ] || exit 1; \
	if printf '%s\n' "$$out" | grep '^[-+][^-+]' | grep -v '^.github\.com/google/pprof '; then exit 1; fi

.PHONY: licences sbom reproducible check-security soak
licences: ## the page of the licences of what is linked
	$(GO) run ./cmd/supply licences >packaging/licences.md.new && mv packaging/licences.md.new packaging/licences.md

sbom: build ## the program's bill of materials, CycloneDX
	$(GO) run ./cmd/supply sbom bin/wattmark >bin/wattmark.cdx.json

# Built twice, from copies of the committed tree in folders of different names, with
# caches of their own: the same bytes.
REPRODUCE = $(GO) build -trimpath -buildvcs=false -ldflags '-s -w -buildid='
reproducible: ## the same bytes from another folder and an empty cache
	@rm -rf bin/repro && mkdir -p bin/repro/a bin/repro/another/place
	@for d in a another/place; do \
	  git archive HEAD | tar -x -C bin/repro/$$d && \
	  (cd bin/repro/$$d && GOCACHE=$(CURDIR)/bin/repro/cache-$$(echo $$d | tr / -) GOFLAGS= $(REPRODUCE) -o $(CURDIR)/bin/repro/wattmark-$$(echo $$d | tr / -) ./cmd/wattmark) || exit 1; \
	done
	@cd bin/repro && sha256sum wattmark-a wattmark-another-place && cmp wattmark-a wattmark-another-place && echo "the same bytes"
	@chmod -R u+w bin/repro && rm -rf bin/repro/a bin/repro/another bin/repro/cache-*

GOSEC     ?= $(CURDIR)/bin/gosec
GOSEC_VER := v2.28.0
VULN      ?= $(CURDIR)/bin/govulncheck
VULN_VER  := v1.1.4
$(GOSEC):
	GOBIN=$(CURDIR)/bin $(GO) install github.com/securego/gosec/v2/cmd/gosec@$(GOSEC_VER)
$(VULN):
	GOBIN=$(CURDIR)/bin $(GO) install golang.org/x/vuln/cmd/govulncheck@$(VULN_VER)

# Left out: G104 (errors of Close and Fprintf), G115 (narrowing, bounded by checks), G204, G304 and G703 (programs
# and files the user names), G301, G302, G306 (measurements are readable by the machine's users), G404
# (simulation), G602 (indexes of fixed arrays; Go checks them), G103 in the bindings of C libraries. Package by
# package: all at once it holds the whole program in memory, several times. Every GOSEC_EVERYth package, from
# GOSEC_FROM on.
GOSEC_NOT = G104,G115,G204,G301,G302,G304,G306,G404,G602,G703
GOSEC_EVERY ?= 1
GOSEC_FROM ?= 0
# Where the records of known faults are: the service, or file:///… of a copy of them.
VULN_DB ?= https://vuln.go.dev
.PHONY: gosec vuln
gosec: $(GOSEC) ## gosec, package by package
	@$(GO) list -f '{{.Dir}}' $(PKGS) | awk 'NR % $(GOSEC_EVERY) == $(GOSEC_FROM)' | \
	  xargs -P $$(nproc) -n 1 timeout 300 $(GOSEC) -quiet -terse -exclude-generated -exclude=$(GOSEC_NOT) -exclude-rules="hostagent/gpu/(cuda|cupti|nvml|internal)/.*:G103"

vuln: $(VULN) ## the known faults of what is linked; VULN_DB=file:///copy/of/vulndb/data/osv where the service is out of reach
	$(VULN) -db $(VULN_DB) $(PKGS)

check-security: gosec vuln ## both

# What the page's tests need of npm, by their lock, and outside of the tree. The lock is copied last.
PAGE_TOOLS ?= $(or $(WATTMARK_PAGE_TOOLS),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/wattmark-page-tools)
PAGE_LOCK  := cmd/wattmark/testdata/page/package-lock.json
.PHONY: page-tools
page-tools: ## Playwright, axe-core, Lighthouse, TypeScript and ESLint for the page; needs npm
	@if ! cmp -s $(PAGE_LOCK) '$(PAGE_TOOLS)/installed-lock.json'; then \
	  mkdir -p '$(PAGE_TOOLS)' && cp cmd/wattmark/testdata/page/package.json $(PAGE_LOCK) '$(PAGE_TOOLS)' && \
	  (cd '$(PAGE_TOOLS)' && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) && \
	  cp $(PAGE_LOCK) '$(PAGE_TOOLS)/installed-lock.json'; \
	fi

SOAK_FOR ?= 10m
SOAK_FLAGS ?=
soak: build ## the whole chain for SOAK_FOR, with faults; docs/reliability.md
	$(GO) test ./cmd/trial -v -run Soak -timeout 0 -for $(SOAK_FOR) -wattmark bin/wattmark -out bin/soak $(SOAK_FLAGS)

clean:
	rm -rf bin
