//go:build cgo

package fakenvml_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"gpuvigil/internal/fakenvml"
)

func TestFileText(t *testing.T) {
	tests := []struct {
		name string
		fill func(f *fakenvml.File)
		want string
	}{
		{"nothing", func(*fakenvml.File) {}, ""},
		{"values by kind, sorted", func(f *fakenvml.File) {
			f.Set("gpu1", "b", uint64(18446744073709551615), -1, 1.25, true)
			f.Set("gpu0", "z", "NVIDIA H100 80GB HBM3")
			f.Set("gpu0", "a", nvml.ERROR_UNKNOWN)
		}, "gpu0 a 999\ngpu0 z NVIDIA H100 80GB HBM3\ngpu1 b 18446744073709551615 -1 1.25 1\n"},
		{"set replaces, add appends, nothing is an empty list", func(f *fakenvml.File) {
			f.Set("gpu0", "list", 1)
			f.Set("gpu0", "list")
			f.Add("gpu0", "list", 2)
			f.Add("gpu0", "list", 3)
		}, "gpu0 list\ngpu0 list 2\ngpu0 list 3\n"},
		{"unset and remove", func(f *fakenvml.File) {
			f.Set("gpu0", "a", 1)
			f.Set("gpu0", "b", 2)
			f.Set("gpu1", "a", 3)
			f.Fault("gpu1", fakenvml.Every, fakenvml.Hang)
			f.Unset("gpu0", "a")
			f.Remove("gpu1")
		}, "gpu0 b 2\n"},
		{"faults stand beside values", func(f *fakenvml.File) {
			f.Set("gpu0", "a", 1)
			f.Fault("gpu0", "a", fakenvml.Error(nvml.ERROR_GPU_IS_LOST))
			f.Fault("gpu0", fakenvml.Every, fakenvml.Delay(2*time.Second))
			f.Fault("sys", "nvmlInit_v2", fakenvml.Hang)
			f.Fault("sys", "gone", fakenvml.Hang)
			f.Clear("sys", "gone")
		}, "gpu0 a 1\ngpu0 * !delay 2000\ngpu0 a !error 15\nsys nvmlInit_v2 !hang\n"},
		{"events are numbered", func(f *fakenvml.File) {
			f.Event("gpu0", 8, 79)
			f.Event("gpu1", 8, 31, 9, 1)
		}, "gpu0 event 8 79 1\ngpu1 event 8 31 2 9 1\n"},
		{"names", func(f *fakenvml.File) {
			f.Set(fakenvml.MIG(2, 3), fakenvml.Key("call", nvml.CLOCK_SM, uint8(2)), 1)
			f.Set(fakenvml.GPU(12), fakenvml.Field(82, 0), "uint", 71)
			f.Set(fakenvml.GPU(12), fakenvml.Field(138, 5), "ull", 1)
			f.Set(fakenvml.GPU(12), fakenvml.Field(138, fakenvml.AllScopes), "ull", 2)
		}, "gpu12 field/138/5 ull 1\ngpu12 field/138/all ull 2\ngpu12 field/82 uint 71\ngpu2.mig3 call/1/2 1\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var f fakenvml.File
			tt.fill(&f)
			path := filepath.Join(t.TempDir(), "values")
			if err := f.Write(path); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("the file's text is wrong (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFileRefuses(t *testing.T) {
	tests := []struct {
		name string
		fill func(f *fakenvml.File)
		want string
	}{
		{"a line break", func(f *fakenvml.File) { f.Set("gpu0", "name", "a\ngpu1 name b") }, "line break"},
		{"a value like a fault", func(f *fakenvml.File) { f.Set("gpu0", "name", "!hang") }, "fault"},
		{"a value of no kind", func(f *fakenvml.File) { f.Set("gpu0", "name", []int{1}) }, "[]int"},
		{"no value", func(f *fakenvml.File) { f.Set("gpu0", "name", nil) }, "nil"},
		{"a key of two words", func(f *fakenvml.File) { f.Set("gpu0", "a b", 1) }, `"a b"`},
		{"a fault of nobody", func(f *fakenvml.File) { f.Fault("", "a", fakenvml.Hang) }, `fault "" "a"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var f fakenvml.File
			tt.fill(&f)
			dir := t.TempDir()
			if err := f.Write(filepath.Join(dir, "values")); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that says %s", err, tt.want)
			}
			left, err := os.ReadDir(dir)
			if err != nil || len(left) != 0 {
				t.Errorf("a refused write left %v behind (%v)", left, err)
			}
		})
	}
}

func TestWriteLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	var f fakenvml.File
	for i := range 3 {
		f.Set("gpu0", "a", i)
		if err := f.Write(filepath.Join(dir, "values")); err != nil {
			t.Fatal(err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("three writes left %v (%v), want one file", left, err)
	}
	if err := f.Write(filepath.Join(dir, "missing", "values")); err == nil {
		t.Error("writing into a directory that does not exist succeeded")
	}
}
