# Front of the build; everything real is in CMake presets and tools/. `make help` lists the targets.
.PHONY: help demo run test check bench deps deps-run build clean

JOBS ?= $(shell nproc)

help:
	@echo "make demo    build and show the whole path on real data: load, kill -9, verify"
	@echo "make run     build and run the server on embedded parts until Ctrl-C"
	@echo "make test    every gate and test; ends with 'N passed, N failed'"
	@echo "make check   static gates only (format, layers, contract, tidy, cppcheck)"
	@echo "make bench   benchmarks; figures and ratios, no verdicts"
	@echo "make deps    install the missing Debian packages"

deps:
	@tools/deps all

deps-run:
	@tools/deps run

build: deps-run
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS) --target searchfabricd sfctl

demo: build
	@tools/demo

run: build
	@tools/run-server

check: deps
	@tools/run-tests check

test: deps
	@tools/run-tests

bench:
	@tools/deps bench
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS)
	@tools/run-bench

clean:
	rm -rf build
