// Package fakenvml builds and feeds a stand-in for NVIDIA's libnvidia-ml.so.1, so that the real go-nvml, the dynamic
// loader and everything above them run in tests on a machine without a GPU. The library's C source and the format of
// the file that it serves are in testdata/fakenvml. A process binds one such library for ever: a test that needs
// another one needs another process.
package fakenvml

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// What the library reads from its environment when it is first called.
const (
	// EnvFile names the file of values, without which nvmlInit answers "driver not loaded".
	EnvFile = "FAKENVML_FILE"
	// EnvTrace names a file to which every call is appended; see ReadTrace. Optional.
	EnvTrace = "FAKENVML_TRACE"
)

// libraryName is what NVIDIA's driver installs and go-nvml looks for.
const libraryName = "libnvidia-ml.so.1"

// Options shape the library that Build makes.
type Options struct {
	// WithoutSymbols are C functions that the library shall lack, as an older driver does. Calling one through go-nvml
	// kills the process.
	WithoutSymbols []string
}

// Build compiles the library into dir and returns its path. It needs a C compiler ($CC, else cc) and must run within
// this module or one that requires it, because it compiles against the header in go-nvml's module.
func Build(ctx context.Context, dir string, opts Options) (string, error) {
	source, err := moduleDir(ctx, ".", "gpuvigil")
	if err != nil {
		return "", err
	}
	// Asked from the source's own module: one that merely requires it need not have go-nvml in its go.sum.
	binding, err := moduleDir(ctx, source, "github.com/NVIDIA/go-nvml")
	if err != nil {
		return "", err
	}
	source = filepath.Join(source, "testdata", "fakenvml")
	binding = filepath.Join(binding, "pkg", "nvml")
	sources, err := filepath.Glob(filepath.Join(source, "*.c"))
	if err != nil || len(sources) == 0 {
		return "", fmt.Errorf("build fake NVML: no C source in %s: %w", source, errors.Join(err, os.ErrNotExist))
	}
	stubs, exports, err := generate(binding, dir, opts.WithoutSymbols)
	if err != nil {
		return "", fmt.Errorf("build fake NVML: %w", err)
	}
	lib := filepath.Join(dir, libraryName)
	args := []string{
		"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread",
		"-DNVML_NO_UNVERSIONED_FUNC_DEFS=1", "-I", binding,
		"-Wl,-soname," + libraryName, "-Wl,--version-script=" + exports, "-o", lib, stubs,
	}
	if err := compile(ctx, append(args, sources...)); err != nil {
		return "", fmt.Errorf("build fake NVML in %s: %w", dir, err)
	}
	return lib, nil
}

// moduleDir returns where the code of a module is that the module around the directory from requires.
func moduleDir(ctx context.Context, from, module string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "-C", from, "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", fmt.Errorf("build fake NVML: find module %s: %w", module, err)
	}
	dir := strings.TrimSpace(string(out))
	if dir == "" {
		return "", fmt.Errorf("build fake NVML: module %s is not downloaded, run `go mod download`", module)
	}
	return dir, nil
}

func compile(ctx context.Context, args []string) error {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	// $CC may carry flags, as make and cgo allow.
	words := append(strings.Fields(cc), args...)
	out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", cc, err, out)
	}
	return nil
}

var call = regexp.MustCompile(`\bC\.(nvml\w+)\(`)

// generate writes a weak "not supported" stub for every function that go-nvml can call, so that none of them is missing
// by accident, and the linker script that leaves the unwanted ones out.
func generate(binding, dir string, without []string) (stubs, exports string, err error) {
	code, err := os.ReadFile(filepath.Join(binding, "nvml.go"))
	if err != nil {
		return "", "", err
	}
	var functions []string
	for _, m := range call.FindAllStringSubmatch(string(code), -1) {
		functions = append(functions, m[1])
	}
	slices.Sort(functions)
	functions = slices.Compact(functions)
	var text strings.Builder
	for _, name := range functions {
		fmt.Fprintf(&text, "__attribute__((weak)) int %s(void) { return 3; /* NVML_ERROR_NOT_SUPPORTED */ }\n", name)
	}
	script := "{\n  global: nvml*;\n  local: *;\n"
	for _, name := range without {
		if !slices.Contains(functions, name) {
			return "", "", fmt.Errorf("leave out %s: go-nvml calls no such function", name)
		}
		script += "  " + name + ";\n"
	}
	stubs, exports = filepath.Join(dir, "stubs.c"), filepath.Join(dir, "exports.map")
	err = errors.Join(os.WriteFile(stubs, []byte(text.String()), 0o644), os.WriteFile(exports, []byte(script+"};\n"), 0o644))
	return stubs, exports, err
}
